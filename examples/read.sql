-- What an app, a report or a person reads from the file with plain SQL: sqlite3 -readonly app.db < read.sql
-- The tables stand in schema.sql. Amounts are minor units (cents), times are milliseconds since 1970 UTC.

-- The last payments, with the customer as the provider names them.
SELECT j.ref AS payment, j.account AS customer, j.amount, j.currency, datetime(j.occurred_at / 1000, 'unixepoch') AS at
FROM postonce_journal j
WHERE j.kind = 'payment'
ORDER BY j.id DESC LIMIT 20;

-- What each provider holds for us now, in each currency.
SELECT b.tenant, b.provider, b.mode, a.currency, a.balance
FROM postonce_accounts a JOIN postonce_books b ON b.id = a.book
WHERE a.code = 'clearing';

-- Is a customer's subscription active? One row by its key.
SELECT e.id, e.status, datetime(e.as_of / 1000, 'unixepoch') AS since
FROM postonce_entities e
WHERE e.kind = 'subscription' AND e.account = 'cus_demo';

-- What waits for a person.
SELECT id, state, reason FROM postonce_raw_events WHERE (state = 'PARKED' OR state = 'CONFLICT' OR state = 'DEAD') ORDER BY id;
