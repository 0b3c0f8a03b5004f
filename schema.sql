-- postonce: every table, the whole truth. Runs as it is with: sqlite3 new.db < schema.sql
--
-- Times are milliseconds since 1970 UTC. Amounts are minor units of their currency (ISO 4217 exponent), never floats.
-- Each table says who inserts, updates and deletes. All names start with postonce_, so that the tables can live in an
-- app's own file. recursive_triggers must be ON, or INSERT OR REPLACE would walk around the triggers that keep rows.

CREATE TABLE postonce_meta(                  -- written at open and at a clean stop
  key   TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;
INSERT INTO postonce_meta VALUES ('schema_version', '1'), ('clean_stop', '1');

-- 1. Who: the names that keys are made of ----------------------------------------------------------------------------

CREATE TABLE postonce_sources(               -- inserted when first seen; kept
  id   INTEGER PRIMARY KEY,
  name TEXT NOT NULL UNIQUE CHECK (name <> '')
) STRICT;

-- A book is one ledger: a tenant's money at one provider (and one account there), live or test. Two books never share a
-- key, an account or an entry.
CREATE TABLE postonce_books(                 -- inserted by claim when first seen; kept
  id               INTEGER PRIMARY KEY,
  tenant           TEXT NOT NULL CHECK (tenant <> ''),
  provider         TEXT NOT NULL CHECK (provider <> ''),
  provider_account TEXT NOT NULL DEFAULT '', -- Connect and the like; '' where the provider has none or it is our own
  mode             TEXT NOT NULL CHECK (mode IN ('live', 'test')),
  UNIQUE (tenant, provider, provider_account, mode)
) STRICT;

-- 2. What arrived ----------------------------------------------------------------------------------------------------

-- The bytes, exactly as sent. Intake appends and nothing else: no index beside the row id.
CREATE TABLE postonce_bodies(                -- inserted by receive; body and headers emptied by retain and erase
  id      INTEGER PRIMARY KEY,               -- the raw event that brought it
  codec   INTEGER NOT NULL CHECK (codec IN (0, 1)),  -- how body is stored: 0 as sent, 1 zstd
  sha256  BLOB NOT NULL CHECK (length(sha256) = 32), -- of the bytes as sent
  headers TEXT NOT NULL,                     -- one "name: value" a line, without those that carry secrets
  query   TEXT NOT NULL DEFAULT '',
  body    BLOB                               -- NULL: past its retention, or erased
) STRICT;

-- A raw event: one verified delivery, or one item of a batch that a delivery brought. Its state stands apart from the
-- bytes, so that a change of state never rewrites them.
CREATE TABLE postonce_raw_events(            -- inserted by receive (items by claim); updated by claim, apply, sweep, replay; finished ones deleted by retain
  id          INTEGER PRIMARY KEY,
  source      INTEGER NOT NULL,              -- postonce_sources
  body        INTEGER,                       -- whose bytes in postonce_bodies: NULL its own, or the batch delivery's
  item        INTEGER NOT NULL DEFAULT 0,    -- 0 the whole body, n the nth event of a batch
  origin      TEXT NOT NULL CHECK (origin IN ('webhook', 'item', 'fetched', 'rebuilt', 'imported', 'report', 'manual')),
  secret      TEXT,                          -- the name of the secret that matched
  received_at INTEGER NOT NULL,
  state       TEXT NOT NULL CHECK (state IN ('RECEIVED', 'CLAIMED', 'DONE', 'DUPLICATE', 'IGNORED', 'PARKED', 'CONFLICT', 'DEAD')),
  due_at      INTEGER,                       -- when a worker looks at it again; NULL: nobody will
  attempts    INTEGER NOT NULL DEFAULT 0,
  fence       INTEGER NOT NULL DEFAULT 0,    -- grows with every claim: a worker that lost its claim commits nothing
  ended_at    INTEGER,
  reason      TEXT,                          -- why it ended so, or the last failure
  CONSTRAINT waiting_has_a_time CHECK (state NOT IN ('RECEIVED', 'CLAIMED') OR due_at IS NOT NULL),
  CONSTRAINT ended_has_a_time   CHECK (state IN ('RECEIVED', 'CLAIMED') = (ended_at IS NULL))
) STRICT;
CREATE INDEX postonce_raw_events_due ON postonce_raw_events(due_at) WHERE due_at IS NOT NULL;
CREATE INDEX postonce_raw_events_for_a_person ON postonce_raw_events(state, id) WHERE state IN ('PARKED', 'CONFLICT', 'DEAD');
CREATE INDEX postonce_raw_events_items ON postonce_raw_events(body) WHERE body IS NOT NULL; -- of a batch; intake writes none
CREATE TRIGGER postonce_raw_events_fence BEFORE UPDATE OF fence ON postonce_raw_events WHEN NEW.fence < OLD.fence
  BEGIN SELECT RAISE(ABORT, 'a fence only grows'); END;

-- What a raw event was read as.
CREATE TABLE postonce_events(                -- inserted by claim; replaced when a replay reads it anew
  id          INTEGER PRIMARY KEY,           -- postonce_raw_events
  book        INTEGER NOT NULL,
  event_id    TEXT,
  type        TEXT NOT NULL,
  occurred_at INTEGER,
  api_version TEXT
) STRICT;

-- 3. Who may act, once -----------------------------------------------------------------------------------------------

-- The permanent keys. kind 'event' with the provider's event id; a movement's kind with the provider's reference;
-- 'operation' with a rule's own key. Another name of a movement is a row of state ALIAS, unique like it.
CREATE TABLE postonce_claims(                -- inserted by claim; CLAIMED -> DONE by apply; never deleted
  book        INTEGER NOT NULL,
  kind        TEXT NOT NULL CHECK (kind <> ''),
  ref         TEXT NOT NULL CHECK (ref <> ''),
  raw_event   INTEGER NOT NULL,              -- who won it
  state       TEXT NOT NULL CHECK (state IN ('CLAIMED', 'DONE', 'ALIAS')),
  alias_of    TEXT,
  amount      INTEGER,                       -- of a movement
  currency    TEXT,
  secondary   INTEGER NOT NULL DEFAULT 0 CHECK (secondary IN (0, 1)), -- told by a mere announcement
  fingerprint INTEGER,                       -- of an event: what movements it announced
  journal     INTEGER,                       -- the result: its entry
  PRIMARY KEY (book, kind, ref),
  CONSTRAINT alias_names_its_movement CHECK ((state = 'ALIAS') = (alias_of IS NOT NULL)),
  CONSTRAINT amount_has_a_currency CHECK ((amount IS NULL) = (currency IS NULL))
) STRICT, WITHOUT ROWID;
CREATE TRIGGER postonce_claims_end BEFORE UPDATE ON postonce_claims WHEN OLD.state <> 'CLAIMED'
  BEGIN SELECT RAISE(ABORT, 'this claim has ended'); END;
CREATE TRIGGER postonce_claims_fixed BEFORE UPDATE ON postonce_claims
  WHEN (NEW.book, NEW.kind, NEW.ref, NEW.amount, NEW.currency) IS NOT (OLD.book, OLD.kind, OLD.ref, OLD.amount, OLD.currency)
  BEGIN SELECT RAISE(ABORT, 'what was claimed is fixed'); END;
CREATE TRIGGER postonce_claims_kept BEFORE DELETE ON postonce_claims
  BEGIN SELECT RAISE(ABORT, 'claims never expire'); END;

-- Events that wait for a movement which has not come yet (a failed payout before its payout).
CREATE TABLE postonce_waits(                 -- inserted by claim; deleted by apply when the movement is posted
  book      INTEGER NOT NULL,
  kind      TEXT NOT NULL,
  ref       TEXT NOT NULL,
  raw_event INTEGER NOT NULL,
  PRIMARY KEY (book, kind, ref, raw_event)
) STRICT, WITHOUT ROWID;

-- 4. The ledger ------------------------------------------------------------------------------------------------------

CREATE TABLE postonce_accounts(              -- inserted by apply at zero; counters move by the trigger on postings only
  id       INTEGER PRIMARY KEY,
  book     INTEGER NOT NULL,
  code     TEXT NOT NULL,                    -- clearing, sales, refunds, fees, …
  holder   TEXT NOT NULL DEFAULT '',         -- the customer, where the account is kept per customer
  currency TEXT NOT NULL,
  class    TEXT NOT NULL CHECK (class IN ('ASSET', 'LIABILITY', 'INCOME', 'EXPENSE', 'EQUITY')),
  debits   INTEGER NOT NULL DEFAULT 0 CHECK (debits BETWEEN 0 AND 1000000000000000),
  credits  INTEGER NOT NULL DEFAULT 0 CHECK (credits BETWEEN 0 AND 1000000000000000),
  last     INTEGER NOT NULL DEFAULT 0,       -- the posting that moved it last: journal * 16 + seq
  balance  INTEGER GENERATED ALWAYS AS
    (CASE WHEN class IN ('ASSET', 'EXPENSE') THEN debits - credits ELSE credits - debits END) VIRTUAL,
  UNIQUE (book, code, holder, currency)
) STRICT;
CREATE INDEX postonce_accounts_by_holder ON postonce_accounts(holder) WHERE holder <> '';

CREATE TABLE postonce_journal(               -- inserted by apply; never changed
  id          INTEGER PRIMARY KEY,           -- without gaps
  book        INTEGER NOT NULL,
  kind        TEXT NOT NULL,
  ref         TEXT NOT NULL,
  raw_event   INTEGER NOT NULL,
  account     TEXT,                          -- the customer, as the provider names them
  parent      TEXT,                          -- the reference of the movement this one belongs to
  amount      INTEGER NOT NULL CHECK (amount BETWEEN -1000000000000000 AND 1000000000000000),
  currency    TEXT NOT NULL,
  tax         INTEGER,                       -- inside amount, remitted by the provider
  occurred_at INTEGER NOT NULL,              -- the provider's clock
  recorded_at INTEGER NOT NULL,              -- ours
  settles     INTEGER NOT NULL CHECK (settles IN (0, 1)), -- a line of a settlement report is expected
  reverses    INTEGER REFERENCES postonce_journal(id),
  note        TEXT,
  posting_count INTEGER NOT NULL CHECK (posting_count BETWEEN 1 AND 15),
  hash        BLOB NOT NULL CHECK (length(hash) = 32), -- sha256(hash of the entry before || content)
  -- the declared last posting must be there when the transaction commits
  FOREIGN KEY (id, posting_count) REFERENCES postonce_postings(journal, seq) DEFERRABLE INITIALLY DEFERRED
) STRICT;
CREATE INDEX postonce_journal_by_time ON postonce_journal(book, occurred_at);
CREATE INDEX postonce_journal_by_parent ON postonce_journal(book, parent, kind) WHERE parent IS NOT NULL;
CREATE UNIQUE INDEX postonce_journal_reversed_once ON postonce_journal(reverses) WHERE reverses IS NOT NULL;

-- One posting is one debit and one credit of one positive amount in one currency: it balances by construction.
CREATE TABLE postonce_postings(              -- inserted by apply; never changed
  journal INTEGER NOT NULL,
  seq     INTEGER NOT NULL CHECK (seq BETWEEN 1 AND 15),
  debit   INTEGER NOT NULL,                  -- postonce_accounts
  credit  INTEGER NOT NULL CHECK (credit <> debit),
  amount  INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 1000000000000000),
  PRIMARY KEY (journal, seq)
) STRICT, WITHOUT ROWID;
CREATE INDEX postonce_postings_of_debit ON postonce_postings(debit, journal);
CREATE INDEX postonce_postings_of_credit ON postonce_postings(credit, journal);

CREATE TRIGGER postonce_journal_gapless BEFORE INSERT ON postonce_journal BEGIN SELECT
  CASE WHEN NEW.id IS NOT (SELECT ifnull(max(id), 0) + 1 FROM postonce_journal) THEN RAISE(ABORT, 'journal ids have no gaps')
       WHEN NEW.reverses IS NOT NULL AND (SELECT reverses FROM postonce_journal WHERE id = NEW.reverses) IS NOT NULL
         THEN RAISE(ABORT, 'a reversal cannot be reversed') END; END;
CREATE TRIGGER postonce_journal_fixed BEFORE UPDATE ON postonce_journal BEGIN SELECT RAISE(ABORT, 'the journal is never changed'); END;
CREATE TRIGGER postonce_journal_kept BEFORE DELETE ON postonce_journal BEGIN SELECT RAISE(ABORT, 'the journal is never changed'); END;
CREATE TRIGGER postonce_postings_open BEFORE INSERT ON postonce_postings BEGIN SELECT
  CASE WHEN NEW.journal IS NOT (SELECT max(id) FROM postonce_journal) THEN RAISE(ABORT, 'this entry is closed')
       WHEN NEW.seq IS NOT (SELECT count(*) + 1 FROM postonce_postings WHERE journal = NEW.journal) THEN RAISE(ABORT, 'postings are numbered without gaps')
       WHEN NEW.seq > (SELECT posting_count FROM postonce_journal WHERE id = NEW.journal) THEN RAISE(ABORT, 'more postings than the entry declares')
       WHEN NOT EXISTS (SELECT 1 FROM postonce_accounts d JOIN postonce_accounts c ON c.id = NEW.credit JOIN postonce_journal j ON j.id = NEW.journal
         WHERE d.id = NEW.debit AND d.currency = c.currency AND d.book = c.book AND d.book = j.book)
         THEN RAISE(ABORT, 'both accounts of a posting are of its book and of one currency') END; END;
CREATE TRIGGER postonce_postings_move AFTER INSERT ON postonce_postings BEGIN
  UPDATE postonce_accounts SET debits = debits + NEW.amount, last = NEW.journal * 16 + NEW.seq WHERE id = NEW.debit;
  UPDATE postonce_accounts SET credits = credits + NEW.amount, last = NEW.journal * 16 + NEW.seq WHERE id = NEW.credit; END;
CREATE TRIGGER postonce_postings_fixed BEFORE UPDATE ON postonce_postings BEGIN SELECT RAISE(ABORT, 'postings are never changed'); END;
CREATE TRIGGER postonce_postings_kept BEFORE DELETE ON postonce_postings BEGIN SELECT RAISE(ABORT, 'postings are never changed'); END;
CREATE TRIGGER postonce_accounts_guard BEFORE UPDATE ON postonce_accounts WHEN NOT EXISTS (
  SELECT 1 FROM postonce_postings p WHERE p.journal = NEW.last / 16 AND p.seq = NEW.last % 16 AND NEW.last > OLD.last
    AND (NEW.id, NEW.book, NEW.code, NEW.holder, NEW.currency, NEW.class) IS (OLD.id, OLD.book, OLD.code, OLD.holder, OLD.currency, OLD.class)
    AND ((p.debit = OLD.id AND NEW.debits = OLD.debits + p.amount AND NEW.credits = OLD.credits)
      OR (p.credit = OLD.id AND NEW.credits = OLD.credits + p.amount AND NEW.debits = OLD.debits)))
  BEGIN SELECT RAISE(ABORT, 'a balance moves only with a new posting'); END;
CREATE TRIGGER postonce_accounts_open BEFORE INSERT ON postonce_accounts WHEN NEW.debits <> 0 OR NEW.credits <> 0 OR NEW.last <> 0
  BEGIN SELECT RAISE(ABORT, 'accounts open at zero'); END;
CREATE TRIGGER postonce_accounts_kept BEFORE DELETE ON postonce_accounts BEGIN SELECT RAISE(ABORT, 'accounts are kept'); END;

-- 5. State of objects ------------------------------------------------------------------------------------------------

CREATE TABLE postonce_entities(              -- inserted and moved forward by apply
  book            INTEGER NOT NULL,
  kind            TEXT NOT NULL,
  id              TEXT NOT NULL,
  status          TEXT NOT NULL,             -- our word
  provider_status TEXT,
  version         INTEGER,                   -- the provider's counter, compared before the time
  as_of           INTEGER NOT NULL,
  tied            INTEGER NOT NULL DEFAULT 0 CHECK (tied IN (0, 1)), -- two states of one instant: the stricter was kept
  account         TEXT,
  raw_event       INTEGER NOT NULL,          -- whose body holds the object
  PRIMARY KEY (book, kind, id)
) STRICT, WITHOUT ROWID;

-- 6. What goes out ---------------------------------------------------------------------------------------------------

CREATE TABLE postonce_outbox(                -- inserted by apply and alert; updated by deliver, requeue, erase; sent alerts pruned by retain
  id         INTEGER PRIMARY KEY,
  key        TEXT NOT NULL,                  -- the Idempotency-Key: one message per endpoint and business fact
  endpoint   TEXT NOT NULL,
  raw_event  INTEGER NOT NULL,               -- 0: an alert's
  journal    INTEGER,
  payload    TEXT,                           -- NULL: composed from its journal entry, which never changes
  state      TEXT NOT NULL CHECK (state IN ('WAITING', 'SENT', 'DEAD')),
  due_at     INTEGER,
  attempts   INTEGER NOT NULL DEFAULT 0,
  created_at INTEGER NOT NULL,
  ended_at   INTEGER,
  last_error TEXT,
  CONSTRAINT waiting_is_due CHECK ((state = 'WAITING') = (due_at IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX postonce_outbox_key ON postonce_outbox(key);
CREATE INDEX postonce_outbox_due ON postonce_outbox(due_at) WHERE due_at IS NOT NULL;
CREATE INDEX postonce_outbox_dead ON postonce_outbox(id) WHERE state = 'DEAD';

CREATE TABLE postonce_attempts(              -- inserted by deliver; pruned by retain
  id      INTEGER PRIMARY KEY,
  message INTEGER NOT NULL,                  -- postonce_outbox
  at      INTEGER NOT NULL,
  status  INTEGER,                           -- the HTTP status; NULL: no answer
  took_ms INTEGER NOT NULL,
  error   TEXT
) STRICT;
CREATE INDEX postonce_attempts_of_message ON postonce_attempts(message);

-- 7. Who is told, and who did what -----------------------------------------------------------------------------------

-- One row for each trouble while it lasts: the same trouble of the same subject is one alert, however often it happens.
CREATE TABLE postonce_alerts(                -- inserted and updated by the alert step; closed ones pruned by retain
  id        INTEGER PRIMARY KEY,
  kind      TEXT NOT NULL CHECK (kind <> ''),-- dead, conflict, rejected, silence, disk, outbox_lag, …
  subject   TEXT NOT NULL DEFAULT '',        -- the source or endpoint it is about; '' the whole server
  opened_at INTEGER NOT NULL,
  seen_at   INTEGER NOT NULL,                -- when it last held
  closed_at INTEGER,                         -- NULL: it lasts
  count     INTEGER NOT NULL,                -- how much of it: dead letters, seconds of lag, …
  told      INTEGER NOT NULL DEFAULT 0,      -- how often it was told
  told_at   INTEGER NOT NULL DEFAULT 0,
  told_count INTEGER NOT NULL DEFAULT 0,     -- the count when it was last told
  what      TEXT NOT NULL                    -- for a person: what, how much, what to do
) STRICT;
CREATE UNIQUE INDEX postonce_alerts_open ON postonce_alerts(kind, subject) WHERE closed_at IS NULL;

-- Every change by a person. Only retain may remove rows, and only those older than the age it has announced in meta.
CREATE TABLE postonce_audit(                 -- inserted by whatever a person changes; pruned by retain when that is configured
  id     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  who    TEXT NOT NULL,
  what   TEXT NOT NULL,
  target TEXT NOT NULL,
  note   TEXT
) STRICT;
CREATE TRIGGER postonce_audit_fixed BEFORE UPDATE ON postonce_audit BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END;
CREATE TRIGGER postonce_audit_kept BEFORE DELETE ON postonce_audit
  WHEN OLD.at >= ifnull((SELECT CAST(value AS INTEGER) FROM postonce_meta WHERE key = 'audit_kept_since'), 0)
  BEGIN SELECT RAISE(ABORT, 'the audit log is never changed'); END;

-- 9. For apply_once alone: also made by the library in an app's own connection, without the rest ----------------------

CREATE TABLE IF NOT EXISTS postonce_once(    -- inserted by apply_once with the work that it stands for; kept
  key    TEXT NOT NULL PRIMARY KEY CHECK (key <> ''),
  at     INTEGER NOT NULL,
  result TEXT                                -- JSON; NULL only inside the transaction that does the work
) STRICT, WITHOUT ROWID;
CREATE TRIGGER IF NOT EXISTS postonce_once_kept BEFORE DELETE ON postonce_once WHEN OLD.result IS NOT NULL
  BEGIN SELECT RAISE(ABORT, 'what was done once is never forgotten'); END;
CREATE TRIGGER IF NOT EXISTS postonce_once_fixed BEFORE UPDATE ON postonce_once WHEN OLD.result IS NOT NULL
  BEGIN SELECT RAISE(ABORT, 'what was done once is never changed'); END;
