-- The tables of the peer, as the guides draw them: events by their id, one balance an account, an outbox.
DROP TABLE IF EXISTS events, balances, outbox;
CREATE TABLE events(
  id text PRIMARY KEY, kind text NOT NULL, body text NOT NULL, state text NOT NULL,
  received_at timestamptz NOT NULL DEFAULT now(), finished_at timestamptz);
CREATE TABLE balances(account text PRIMARY KEY, amount bigint NOT NULL DEFAULT 0);
CREATE TABLE outbox(
  id bigserial PRIMARY KEY, event text NOT NULL, payload jsonb NOT NULL,
  created_at timestamptz NOT NULL DEFAULT now(), sent_at timestamptz);
INSERT INTO balances(account) SELECT 'cus_' || lpad(n::text, 8, '0') FROM generate_series(0, 999) n;
