-- postonce: every table, the whole truth. Runs as it is with: sqlite3 new.db < schema.sql
--
-- Times are milliseconds since 1970 UTC. Amounts are minor units of their currency (ISO 4217 exponent), never floats.
-- Each table says who inserts, updates and deletes. All names start with postonce_, so that the tables can live in an
-- app's own file. recursive_triggers must be ON, or INSERT OR REPLACE would walk around the triggers that keep rows.
--
-- Two habits for speed. A list of three words and more is written with OR: for each IN of constants SQLite makes a table
-- of its own, at each write of a row. And the triggers that run for every event look AFTER the row is written, which
-- spares SQLite two copies of it, and refuse with ROLLBACK: for ABORT it copies each page that the statement may touch.

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
  codec   INTEGER NOT NULL CHECK (codec IN (0, 1)),  -- how body is stored: 0 as sent, 1 zstd, with the dictionary src/store/bodies.zdict or without
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
  origin      TEXT NOT NULL CHECK (origin = 'webhook' OR origin = 'item' OR origin = 'fetched' OR origin = 'rebuilt' OR origin = 'imported' OR
    origin = 'report' OR origin = 'manual'),
  secret      TEXT,                          -- the name of the secret that matched
  received_at INTEGER NOT NULL,
  state       TEXT NOT NULL CHECK (state = 'RECEIVED' OR state = 'CLAIMED' OR state = 'DONE' OR state = 'DUPLICATE' OR state = 'IGNORED' OR
    state = 'PARKED' OR state = 'CONFLICT' OR state = 'DEAD'),
  due_at      INTEGER,                       -- when a worker looks at it again; NULL: nobody will
  attempts    INTEGER NOT NULL DEFAULT 0,
  fence       INTEGER NOT NULL DEFAULT 0,    -- grows with every claim: a worker that lost its claim commits nothing
  ended_at    INTEGER,
  reason      TEXT,                          -- why it ended so, or the last failure
  CONSTRAINT waiting_has_a_time CHECK (state NOT IN ('RECEIVED', 'CLAIMED') OR due_at IS NOT NULL),
  CONSTRAINT ended_has_a_time   CHECK (state IN ('RECEIVED', 'CLAIMED') = (ended_at IS NULL))
) STRICT;
CREATE INDEX postonce_raw_events_due ON postonce_raw_events(due_at) WHERE due_at IS NOT NULL;
-- only repeats pay for it: counts them by the hour without a scan
CREATE INDEX postonce_raw_events_repeats ON postonce_raw_events(ended_at) WHERE state = 'DUPLICATE';
CREATE INDEX postonce_raw_events_for_a_person ON postonce_raw_events(state, id) WHERE state = 'PARKED' OR state = 'CONFLICT' OR state = 'DEAD';
CREATE INDEX postonce_raw_events_items ON postonce_raw_events(body) WHERE body IS NOT NULL; -- of a batch; intake writes none
CREATE TRIGGER postonce_raw_events_fence AFTER UPDATE OF fence ON postonce_raw_events WHEN NEW.fence < OLD.fence
  BEGIN SELECT RAISE(ROLLBACK, 'a fence only grows'); END;

-- What a raw event was read as.
CREATE TABLE postonce_events(                -- inserted by claim; replaced when a replay reads it anew
  id          INTEGER PRIMARY KEY,           -- postonce_raw_events
  book        INTEGER NOT NULL,
  event_id    TEXT,
  type        TEXT NOT NULL,
  occurred_at INTEGER,
  api_version TEXT,
  unknown     INTEGER NOT NULL DEFAULT 0 CHECK (unknown IN (0, 1)), -- nobody has a rule for its type
  -- what proves it: a signature over the whole body, over a part, over nothing of it; or the provider's API
  proof       TEXT NOT NULL DEFAULT 'body' CHECK (proof = 'body' OR proof = 'part' OR proof = 'nothing' OR proof = 'fetched')
) STRICT;
CREATE INDEX postonce_events_unknown ON postonce_events(book, type) WHERE unknown = 1;

-- 3. Who may act, once -----------------------------------------------------------------------------------------------

-- The permanent keys. kind 'event' with the provider's event id; a movement's kind with the provider's reference;
-- 'operation' with a rule's own key. Another name of a movement is a row of state ALIAS, unique like it.
CREATE TABLE postonce_claims(                -- inserted by claim; CLAIMED -> DONE by apply; never deleted
  book        INTEGER NOT NULL,
  kind        TEXT NOT NULL CHECK (kind <> ''),
  ref         TEXT NOT NULL CHECK (ref <> ''),
  raw_event   INTEGER NOT NULL,              -- who won it
  state       TEXT NOT NULL CHECK (state = 'CLAIMED' OR state = 'DONE' OR state = 'ALIAS'),
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
CREATE TRIGGER postonce_claims_fixed AFTER UPDATE ON postonce_claims WHEN OLD.state <> 'CLAIMED'
    OR (NEW.book, NEW.kind, NEW.ref, NEW.amount, NEW.currency) IS NOT (OLD.book, OLD.kind, OLD.ref, OLD.amount, OLD.currency)
  BEGIN SELECT CASE WHEN OLD.state <> 'CLAIMED' THEN RAISE(ROLLBACK, 'this claim has ended') ELSE RAISE(ROLLBACK, 'what was claimed is fixed') END; END;
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
  class    TEXT NOT NULL CHECK (class = 'ASSET' OR class = 'LIABILITY' OR class = 'INCOME' OR class = 'EXPENSE' OR class = 'EQUITY'),
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
  reverses    INTEGER,                       -- another entry (a trigger looks)
  note        TEXT,
  posting_count INTEGER NOT NULL CHECK (posting_count BETWEEN 1 AND 15),
  hash        BLOB NOT NULL CHECK (length(hash) = 32), -- sha256(hash of the entry before || content)
  -- the declared last posting must be there when the transaction commits
  FOREIGN KEY (id, posting_count) REFERENCES postonce_postings(journal, seq) DEFERRABLE INITIALLY DEFERRED
) STRICT;
CREATE INDEX postonce_journal_by_time ON postonce_journal(book, occurred_at);
CREATE INDEX postonce_journal_by_parent ON postonce_journal(book, parent, kind) WHERE parent IS NOT NULL;
CREATE INDEX postonce_journal_of_event ON postonce_journal(raw_event); -- nearly sequential: an append
CREATE UNIQUE INDEX postonce_journal_reversed_once ON postonce_journal(reverses) WHERE reverses IS NOT NULL;

-- One posting is one debit and one credit of one positive amount in one currency: it balances by construction.
CREATE TABLE postonce_postings(              -- inserted by apply; never changed
  journal INTEGER NOT NULL,
  seq     INTEGER NOT NULL CHECK (seq BETWEEN 1 AND 15),
  debit   INTEGER NOT NULL,                  -- postonce_accounts
  credit  INTEGER NOT NULL CHECK (credit <> debit),
  amount  INTEGER NOT NULL CHECK (amount BETWEEN 1 AND 1000000000000000),
  debit_before  INTEGER NOT NULL,            -- the posting that moved the debited account before (journal * 16 + seq); 0: none
  credit_before INTEGER NOT NULL,            -- the same of the credited one: an account's history from its last posting back
  PRIMARY KEY (journal, seq)
) STRICT, WITHOUT ROWID;

CREATE TRIGGER postonce_journal_fixed BEFORE UPDATE ON postonce_journal BEGIN SELECT RAISE(ABORT, 'the journal is never changed'); END;
CREATE TRIGGER postonce_journal_kept BEFORE DELETE ON postonce_journal BEGIN SELECT RAISE(ABORT, 'the journal is never changed'); END;
-- An entry is looked at with its postings: it has one or cannot commit, and each trigger's run costs as much as an index.
CREATE TRIGGER postonce_postings_move AFTER INSERT ON postonce_postings BEGIN SELECT
  CASE WHEN EXISTS (SELECT 1 FROM postonce_journal WHERE id > NEW.journal) THEN RAISE(ROLLBACK, 'this entry is closed')
       WHEN NEW.journal <> 1 AND NOT EXISTS (SELECT 1 FROM postonce_journal WHERE id = NEW.journal - 1) THEN RAISE(ROLLBACK, 'journal ids have no gaps')
       WHEN (SELECT reverses FROM postonce_journal WHERE id = NEW.journal) IS NOT NULL AND NOT EXISTS
         (SELECT 1 FROM postonce_journal j JOIN postonce_journal r ON r.id = j.reverses WHERE j.id = NEW.journal AND r.id < j.id AND r.reverses IS NULL)
         THEN RAISE(ROLLBACK, 'a reversal takes back an entry that is there and is none itself')
       WHEN NEW.seq > 1 AND NOT EXISTS (SELECT 1 FROM postonce_postings WHERE journal = NEW.journal AND seq = NEW.seq - 1)
         THEN RAISE(ROLLBACK, 'postings are numbered without gaps')
       WHEN NOT EXISTS (SELECT 1 FROM postonce_journal j JOIN postonce_accounts d ON d.id = NEW.debit JOIN postonce_accounts c ON c.id = NEW.credit
         WHERE j.id = NEW.journal AND NEW.seq <= j.posting_count AND d.book = j.book AND c.book = j.book AND d.currency = c.currency
           AND NEW.debit_before = d.last AND NEW.credit_before = c.last)
         THEN RAISE(ROLLBACK, 'a posting is one that its entry declares, between accounts of its book and of one currency, after their last') END;
  UPDATE postonce_accounts SET debits = debits + NEW.amount, last = NEW.journal * 16 + NEW.seq WHERE id = NEW.debit;
  UPDATE postonce_accounts SET credits = credits + NEW.amount, last = NEW.journal * 16 + NEW.seq WHERE id = NEW.credit; END;
CREATE TRIGGER postonce_postings_fixed BEFORE UPDATE ON postonce_postings BEGIN SELECT RAISE(ABORT, 'postings are never changed'); END;
CREATE TRIGGER postonce_postings_kept BEFORE DELETE ON postonce_postings BEGIN SELECT RAISE(ABORT, 'postings are never changed'); END;
CREATE TRIGGER postonce_accounts_guard AFTER UPDATE OF debits, credits, last ON postonce_accounts WHEN NEW.last <= OLD.last OR NOT EXISTS (
  SELECT 1 FROM postonce_postings p WHERE p.journal = NEW.last / 16 AND p.seq = NEW.last % 16
    AND ((p.debit = OLD.id AND NEW.debits = OLD.debits + p.amount AND NEW.credits = OLD.credits)
      OR (p.credit = OLD.id AND NEW.credits = OLD.credits + p.amount AND NEW.debits = OLD.debits)))
  BEGIN SELECT RAISE(ROLLBACK, 'a balance moves only with a new posting'); END;
CREATE TRIGGER postonce_accounts_fixed BEFORE UPDATE OF id, rowid, oid, _rowid_, book, code, holder, currency, class ON postonce_accounts
  BEGIN SELECT RAISE(ROLLBACK, 'whose account it is never changes'); END;
CREATE TRIGGER postonce_accounts_open BEFORE INSERT ON postonce_accounts WHEN NEW.debits <> 0 OR NEW.credits <> 0 OR NEW.last <> 0
  BEGIN SELECT RAISE(ABORT, 'accounts open at zero'); END;
CREATE TRIGGER postonce_accounts_kept BEFORE DELETE ON postonce_accounts BEGIN SELECT RAISE(ABORT, 'accounts are kept'); END;

-- Postings added up, so that a balance as of a time needs no scan: derived from them and from nothing else.
CREATE TABLE postonce_sums(                  -- inserted and added to by the keeper; check adds up again
  book      INTEGER NOT NULL,
  code      TEXT NOT NULL,
  customers INTEGER NOT NULL CHECK (customers IN (0, 1)), -- 1: the accounts of its customers together
  clock     TEXT NOT NULL CHECK (clock IN ('R', 'O')), -- recorded: a row for 2000 entries; occurred: a row an hour
  currency  TEXT NOT NULL,
  at        INTEGER NOT NULL,                -- the block of entries, or the hour since 1970
  debits    INTEGER NOT NULL,
  credits   INTEGER NOT NULL,
  PRIMARY KEY (book, code, customers, clock, currency, at)
) STRICT, WITHOUT ROWID;

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
  state      TEXT NOT NULL CHECK (state = 'WAITING' OR state = 'SENT' OR state = 'DEAD'),
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

-- 7. Settlement: the provider's word against ours ----------------------------------------------------------------------

-- What a provider said: a file or a list from its API, normalised to lines. The same content again is the same report.
CREATE TABLE postonce_reports(               -- inserted by reconcile; sealed once, when all lines are there
  id           INTEGER PRIMARY KEY,
  book         INTEGER NOT NULL,
  source       INTEGER NOT NULL,
  name         TEXT NOT NULL,                -- which report or list of the provider's file
  origin       TEXT NOT NULL CHECK (origin IN ('file', 'api')),
  file         TEXT,                         -- the file's name, as it was given
  window_start INTEGER NOT NULL,             -- [start, end)
  window_end   INTEGER NOT NULL CHECK (window_end > window_start),
  sha256       BLOB NOT NULL CHECK (length(sha256) = 32), -- of the file, or of the lines of a list
  first_line   INTEGER NOT NULL,             -- its lines are the ids from this one on, without gaps
  kept         INTEGER NOT NULL DEFAULT 0,   -- so many are written
  rows         INTEGER CHECK (rows >= 0),    -- NULL: not all lines are there yet
  repeats      INTEGER NOT NULL DEFAULT 0,   -- rows that said again what a line says already
  skipped      TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(skipped)), -- rows that are no movements: how many by reason
  control      TEXT NOT NULL DEFAULT '[]' CHECK (json_valid(control)), -- what the file says about itself, and what was read
  fetched_at   INTEGER NOT NULL
) STRICT;
CREATE UNIQUE INDEX postonce_reports_once ON postonce_reports(book, name, sha256) WHERE rows IS NOT NULL;
CREATE INDEX postonce_reports_by_time ON postonce_reports(book, window_end);
CREATE TABLE postonce_report_parts(          -- the bytes of a file, as evidence; pruned by retain when nothing open needs them
  report INTEGER NOT NULL,
  part   INTEGER NOT NULL,
  bytes  BLOB NOT NULL,                      -- zstd
  PRIMARY KEY (report, part)
) STRICT, WITHOUT ROWID;

CREATE TABLE postonce_report_lines(          -- inserted by reconcile in the order of (kind, name, line_ref); never changed
  id           INTEGER PRIMARY KEY,
  report       INTEGER NOT NULL,             -- postonce_reports
  kind         TEXT NOT NULL,
  name         TEXT NOT NULL,                -- the movement's reference as the ledger knows it; '' where the line has none
  place        INTEGER NOT NULL,             -- the physical line or the number of the item, from 1
  line_ref     TEXT NOT NULL,                -- the provider's id of the row, or what it is made of: the same row again
  reference    TEXT,
  ref_alt      TEXT,
  parent       TEXT,
  ord          TEXT,                         -- the merchant's order
  gross        INTEGER NOT NULL,             -- in the settled currency, signed, as are the next three
  tax          INTEGER NOT NULL,
  fee          INTEGER NOT NULL,
  net          INTEGER NOT NULL CHECK (net = gross - tax - fee),
  currency     TEXT NOT NULL,
  shown_amount INTEGER,                      -- what the customer was shown, where that is another currency
  shown_currency TEXT,
  occurred_at  INTEGER,
  available_at INTEGER,
  payout_ref   TEXT,
  pending      INTEGER NOT NULL CHECK (pending IN (0, 1)), -- the object has not succeeded yet
  unknown_kind TEXT,                         -- the provider's word, where no rule knows it
  also         INTEGER,                      -- a second entry of ours that this line names
  CHECK ((shown_currency IS NULL) = (shown_amount IS NULL))
) STRICT;
-- lines stand in this order, so that every 64th leads to all of them: an index of each would cost as much as the lines
CREATE INDEX postonce_report_lines_by_name ON postonce_report_lines(report, kind, name) WHERE id % 64 = 0;
CREATE TRIGGER postonce_report_lines_fixed BEFORE UPDATE ON postonce_report_lines BEGIN SELECT RAISE(ABORT, 'lines are never changed'); END;
CREATE TRIGGER postonce_report_lines_kept BEFORE DELETE ON postonce_report_lines
  WHEN (SELECT rows FROM postonce_reports WHERE id = OLD.report) IS NOT NULL
  BEGIN SELECT RAISE(ABORT, 'lines are evidence'); END;
-- The lines of a report are those that it counted, a chunk at a time: no other id is one, whatever is inserted later.
CREATE TRIGGER postonce_reports_count BEFORE UPDATE OF kept ON postonce_reports WHEN NEW.kept IS NOT OLD.kept BEGIN SELECT
  CASE WHEN OLD.rows IS NOT NULL THEN RAISE(ABORT, 'this report is complete')
       WHEN NEW.kept - OLD.kept IS NOT (SELECT count(*) FROM postonce_report_lines l
           WHERE l.id >= NEW.first_line + OLD.kept AND l.id < NEW.first_line + NEW.kept AND l.report = NEW.id)
         THEN RAISE(ABORT, 'the report has lines that were not stored') END; END;
CREATE TRIGGER postonce_reports_seal BEFORE UPDATE ON postonce_reports BEGIN SELECT
  CASE WHEN OLD.rows IS NOT NULL OR NEW.first_line IS NOT OLD.first_line THEN RAISE(ABORT, 'this report is complete')
       WHEN NEW.rows IS NOT NULL AND NEW.rows IS NOT NEW.kept
         THEN RAISE(ABORT, 'the report has lines that were not stored') END; END;
CREATE TRIGGER postonce_reports_kept BEFORE DELETE ON postonce_reports WHEN OLD.rows IS NOT NULL
  BEGIN SELECT RAISE(ABORT, 'reports are kept'); END;

-- One comparison of a report with the ledger.
CREATE TABLE postonce_runs(                  -- inserted by reconcile as RUNNING; ends once
  id           INTEGER PRIMARY KEY,
  book         INTEGER NOT NULL,
  source       INTEGER NOT NULL,
  report_name  TEXT NOT NULL,
  report       INTEGER,
  day          TEXT NOT NULL,                -- the last day of its window, by the provider's zone: where the trend shows it
  again        INTEGER NOT NULL CHECK (again IN (0, 1)), -- looks again at days that had their run, and at all that is open
  window_start INTEGER NOT NULL,
  window_end   INTEGER NOT NULL CHECK (window_end > window_start),
  started_at   INTEGER NOT NULL,
  finished_at  INTEGER,
  state        TEXT NOT NULL CHECK (state = 'RUNNING' OR state = 'COMPLETED' OR state = 'DEFERRED' OR state = 'INVALID' OR state = 'FAILED'),
  reason       TEXT,
  covers       TEXT NOT NULL DEFAULT '["*"]' CHECK (json_valid(covers)), -- kinds the report can contain: only those of ours are expected in it
  journal_upto INTEGER,                      -- the last entry when it was scored: what the repair posts later is not in it
  open_from    INTEGER,                      -- every entry of the book before this one is settled
  settled      INTEGER NOT NULL DEFAULT 0,   -- entries that it settled, counted a chunk at a time
  settled_upto INTEGER NOT NULL DEFAULT 0,   -- the last entry of the chunks so far
  lines_total  INTEGER,
  ours_total   INTEGER,
  found        INTEGER,                      -- missing here, before any repair; only a window's first completed run has it
  repaired     INTEGER NOT NULL DEFAULT 0,   -- fetched or rebuilt, and handed to the worker
  posted       INTEGER NOT NULL DEFAULT 0,   -- provider_only lines handed to the worker
  control_diff TEXT NOT NULL DEFAULT '{}' CHECK (json_valid(control_diff)), -- stated minus ours, by currency
  CONSTRAINT ended_has_a_time CHECK ((state = 'RUNNING') = (finished_at IS NULL)),
  CONSTRAINT completed_is_whole CHECK (state <> 'COMPLETED' OR
    (report IS NOT NULL AND journal_upto IS NOT NULL AND lines_total >= 0 AND ours_total >= 0)),
  CONSTRAINT others_say_why CHECK (state IN ('RUNNING', 'COMPLETED') OR reason IS NOT NULL),
  CONSTRAINT found_is_complete CHECK (found IS NULL OR state = 'COMPLETED')
) STRICT;
CREATE UNIQUE INDEX postonce_runs_first ON postonce_runs(book, report_name, window_start, window_end) WHERE found IS NOT NULL;
CREATE INDEX postonce_runs_by_day ON postonce_runs(book, day);

-- One row a scored item. Two that met are one row, under the line: nothing can tell the two sides of a pair differently.
-- Lines that stand one behind the other and are equal to the entry of their own name are one row with an end (upto):
-- the partner of each is the entry that its name leads to.
CREATE TABLE postonce_run_items(             -- inserted by reconcile in order while the run is RUNNING; never changed
  run     INTEGER NOT NULL,
  side    TEXT NOT NULL CHECK (side IN ('T', 'O')), -- theirs: a line of the run's report; ours: an entry without a line in it
  item    INTEGER NOT NULL,                  -- the line, or the journal entry
  bucket  TEXT NOT NULL CHECK (bucket = 'matched' OR bucket = 'missing_ours' OR bucket = 'missing_theirs' OR bucket = 'in_transit' OR
    bucket = 'pending_theirs' OR bucket = 'amount_differs' OR bucket = 'currency_differs' OR bucket = 'fee_differs' OR
    bucket = 'not_comparable' OR bucket = 'duplicate_theirs' OR bucket = 'duplicate_ours' OR bucket = 'provider_only' OR bucket = 'not_ours' OR
    bucket = 'parked_ours'),
  partner INTEGER,                           -- the entry or line it met (of a duplicate: the one that is there already)
  scored  INTEGER CHECK (scored IN (0, 1)),  -- the partner is scored by this row too: it lies in the run's window
  rule    TEXT CHECK (rule = 'LINE_REF' OR rule = 'KIND+SOURCE' OR rule = 'KIND+ALT' OR rule = 'PARENT' OR rule = 'ORDER+AMOUNT'),
  -- ORDER+AMOUNT: the line names only the merchant's order, which is the key of an operation of ours with that amount
  upto    INTEGER CHECK (upto >= item),      -- the last of the lines that this row scores; NULL: item alone
  PRIMARY KEY (run, side, item),
  CONSTRAINT a_pair_has_two CHECK ((bucket = 'matched' OR bucket = 'amount_differs' OR bucket = 'currency_differs' OR bucket = 'fee_differs' OR
    bucket = 'not_comparable' OR bucket = 'duplicate_theirs' OR bucket = 'duplicate_ours') = (partner IS NOT NULL OR upto IS NOT NULL)),
  CONSTRAINT many_met_by_name CHECK (upto IS NULL OR (side = 'T' AND partner IS NULL AND bucket = 'matched' AND (rule = 'LINE_REF' OR rule = 'KIND+SOURCE'))),
  CONSTRAINT partner_is_scored_or_not CHECK ((partner IS NULL AND upto IS NULL) = (scored IS NULL)),
  CONSTRAINT theirs_only CHECK (side = 'T' OR NOT (bucket = 'missing_ours' OR bucket = 'pending_theirs' OR bucket = 'provider_only' OR
    bucket = 'not_ours' OR bucket = 'parked_ours' OR bucket = 'duplicate_theirs')),
  -- a line is duplicate_ours where a person booked it and its entry came after all
  CONSTRAINT ours_only CHECK (side = 'O' OR NOT (bucket = 'missing_theirs' OR bucket = 'in_transit')),
  CONSTRAINT a_pair_is_under_its_line CHECK (side = 'T' OR scored IS NOT 1)
) STRICT, WITHOUT ROWID;
CREATE INDEX postonce_run_items_to_look_at ON postonce_run_items(run, bucket) WHERE bucket <> 'matched';
CREATE TRIGGER postonce_run_items_open BEFORE INSERT ON postonce_run_items BEGIN SELECT
  CASE WHEN (SELECT state FROM postonce_runs WHERE id = NEW.run) IS NOT 'RUNNING' THEN RAISE(ABORT, 'the run is over')
       -- in order, and none twice: so a line is counted once
       WHEN NEW.item <= (SELECT ifnull(upto, item) FROM postonce_run_items WHERE run = NEW.run AND side = NEW.side ORDER BY item DESC LIMIT 1)
         THEN RAISE(ABORT, 'this item has its row') END; END;
CREATE TRIGGER postonce_run_items_fixed BEFORE UPDATE ON postonce_run_items BEGIN SELECT RAISE(ABORT, 'a score is never changed'); END;
CREATE TRIGGER postonce_run_items_kept BEFORE DELETE ON postonce_run_items BEGIN SELECT RAISE(ABORT, 'scores are kept'); END;

-- The items counted, by the trigger below and nobody else: these numbers cannot differ from the rows, and a run of a
-- million lines completes without counting them under the write lock.
CREATE TABLE postonce_run_counts(            -- kept by the trigger on items
  run    INTEGER NOT NULL,
  side   TEXT NOT NULL,
  bucket TEXT NOT NULL,
  scored INTEGER NOT NULL,                   -- 1: rows that score an entry beside their line
  n      INTEGER NOT NULL,
  PRIMARY KEY (run, side, bucket, scored)
) STRICT, WITHOUT ROWID;
CREATE TRIGGER postonce_run_items_count AFTER INSERT ON postonce_run_items BEGIN
  INSERT INTO postonce_run_counts VALUES (NEW.run, NEW.side, NEW.bucket, ifnull(NEW.scored, 0), ifnull(NEW.upto, NEW.item) - NEW.item + 1)
    ON CONFLICT DO UPDATE SET n = n + excluded.n; END;

CREATE TRIGGER postonce_runs_born BEFORE INSERT ON postonce_runs WHEN NEW.state <> 'RUNNING' BEGIN SELECT RAISE(ABORT, 'a run starts as RUNNING'); END;
CREATE TRIGGER postonce_runs_over BEFORE UPDATE ON postonce_runs WHEN OLD.state <> 'RUNNING' AND
  (NEW.state, NEW.found, NEW.lines_total, NEW.ours_total, NEW.report, NEW.covers, NEW.window_start, NEW.window_end, NEW.journal_upto, NEW.day, NEW.book)
  IS NOT (OLD.state, OLD.found, OLD.lines_total, OLD.ours_total, OLD.report, OLD.covers, OLD.window_start, OLD.window_end, OLD.journal_upto, OLD.day, OLD.book)
  BEGIN SELECT RAISE(ABORT, 'the run is over'); END;
CREATE TRIGGER postonce_runs_kept BEFORE DELETE ON postonce_runs BEGIN SELECT RAISE(ABORT, 'runs are kept'); END;
-- A run completes only when it adds up: each line of its report and each expected entry of its window has its row.
CREATE TRIGGER postonce_runs_complete BEFORE UPDATE OF state ON postonce_runs WHEN NEW.state = 'COMPLETED' AND OLD.state = 'RUNNING' BEGIN
  SELECT CASE
    WHEN NOT EXISTS (SELECT 1 FROM postonce_reports p WHERE p.id = NEW.report AND p.book = NEW.book AND p.name = NEW.report_name)
      THEN RAISE(ABORT, 'not the report of this run')
    WHEN NEW.lines_total IS NOT (SELECT rows FROM postonce_reports WHERE id = NEW.report)
      THEN RAISE(ABORT, 'lines_total is not the number of lines of the report')
    WHEN NEW.lines_total IS NOT (SELECT ifnull(sum(n), 0) FROM postonce_run_counts WHERE run = NEW.id AND side = 'T')
      THEN RAISE(ABORT, 'a line has no bucket')
    -- as many as the report has, each once, the first and the last its own: so they are all of them
    WHEN NEW.lines_total > 0 AND ((SELECT min(item) FROM postonce_run_items WHERE run = NEW.id AND side = 'T'),
        (SELECT ifnull(upto, item) FROM postonce_run_items WHERE run = NEW.id AND side = 'T' ORDER BY item DESC LIMIT 1))
        IS NOT (SELECT first_line, first_line + rows - 1 FROM postonce_reports WHERE id = NEW.report)
      THEN RAISE(ABORT, 'a line of another report has a bucket')
    WHEN NEW.ours_total IS NOT (SELECT ifnull(sum(n), 0) FROM postonce_run_counts WHERE run = NEW.id AND (side = 'O' OR scored = 1))
      THEN RAISE(ABORT, 'an entry has no bucket')
    -- every expected entry of the window stands alone, or beside its line, or is settled by the line of its name; for a
    -- larger run the step proved it before: it counted those entries on a reading connection, and scored as many
    WHEN NEW.ours_total <= 20000 AND NEW.ours_total < (SELECT count(*) FROM postonce_journal j
        WHERE j.book = NEW.book AND j.settles = 1 AND j.occurred_at >= NEW.window_start AND j.occurred_at < NEW.window_end AND j.id <= NEW.journal_upto
          AND (NEW.covers = '["*"]' OR j.kind IN (SELECT value FROM json_each(NEW.covers))))
      THEN RAISE(ABORT, 'an entry of the window has no bucket')
    WHEN NEW.ours_total <= 20000 AND EXISTS (SELECT 1 FROM postonce_journal j
        WHERE j.book = NEW.book AND j.settles = 1 AND j.occurred_at >= NEW.window_start AND j.occurred_at < NEW.window_end AND j.id <= NEW.journal_upto
          AND (NEW.covers = '["*"]' OR j.kind IN (SELECT value FROM json_each(NEW.covers)))
          AND NOT EXISTS (SELECT 1 FROM postonce_run_items i WHERE i.run = NEW.id AND i.side = 'O' AND i.item = j.id)
          AND NOT EXISTS (SELECT 1 FROM postonce_settled s WHERE s.entry = j.id)
          AND j.id NOT IN (SELECT i.partner FROM postonce_run_items i WHERE i.run = NEW.id AND i.side = 'T' AND i.scored = 1 AND i.partner IS NOT NULL))
      THEN RAISE(ABORT, 'an entry of the window has no bucket')
  END; END;

CREATE TABLE postonce_settled(               -- inserted by reconcile: exclusive across runs, one entry has one line, for ever
  entry    INTEGER PRIMARY KEY,              -- postonce_journal
  book     INTEGER NOT NULL,
  line     INTEGER,                          -- postonce_report_lines; NULL: a person accepted that there is none
  run      INTEGER,                          -- that counted it; NULL: settled with its discrepancy
  at       INTEGER NOT NULL,
  rule     TEXT,                             -- how they met, where it was not by name
  line_ref TEXT,                             -- where it was not by name, so that the same row finds its entry again; else the line has it
  CONSTRAINT not_by_name_has_the_row CHECK ((rule IS NULL) = (line_ref IS NULL)),
  CONSTRAINT a_run_has_lines CHECK (run IS NULL OR line IS NOT NULL)
) STRICT;
-- a line that met its entry by name meets it by name again; only the others are looked up by the line
CREATE UNIQUE INDEX postonce_settled_by_line ON postonce_settled(book, line_ref) WHERE rule IS NOT NULL;
-- A run counts what it settled, a chunk at a time: as many rows as it says, each of an entry of its book that expects a
-- line. (The same asked of each row as it is inserted costs more than the rows.) It passes over what others settled
-- before, which may be millions, by moving settled_upto alone; check counts all of a run once more.
CREATE TRIGGER postonce_runs_settle BEFORE UPDATE OF settled, settled_upto ON postonce_runs
  WHEN (NEW.settled, NEW.settled_upto) IS NOT (OLD.settled, OLD.settled_upto) BEGIN SELECT
  CASE WHEN OLD.state <> 'RUNNING' THEN RAISE(ABORT, 'the run is over')
       WHEN NEW.settled_upto < OLD.settled_upto THEN RAISE(ABORT, 'a run counts in the order of its entries')
       WHEN NEW.settled IS NOT OLD.settled AND (
         NEW.settled - OLD.settled IS NOT (SELECT count(*) FROM postonce_settled s CROSS JOIN postonce_journal j ON j.id = s.entry
           WHERE s.entry > OLD.settled_upto AND s.entry <= NEW.settled_upto AND s.run = NEW.id AND +j.book = NEW.book AND j.settles = 1)
         OR NEW.settled - OLD.settled IS NOT (SELECT count(*) FROM postonce_settled s
           WHERE s.entry > OLD.settled_upto AND s.entry <= NEW.settled_upto AND s.run = NEW.id))
         THEN RAISE(ABORT, 'this entry expects no settlement') END; END;
CREATE TRIGGER postonce_settled_fixed BEFORE UPDATE ON postonce_settled BEGIN SELECT RAISE(ABORT, 'settled is settled'); END;
CREATE TRIGGER postonce_settled_kept BEFORE DELETE ON postonce_settled BEGIN SELECT RAISE(ABORT, 'settled is settled'); END;

-- What a person should see: opened once, ages, closed with a resolution and a note.
CREATE TABLE postonce_discrepancies(         -- inserted and updated by reconcile and by people
  id           INTEGER PRIMARY KEY,
  book         INTEGER NOT NULL,
  class        TEXT NOT NULL CHECK (class = 'MISSING_OURS' OR class = 'MISSING_THEIRS' OR class = 'AMOUNT_DIFFERS' OR
    class = 'CURRENCY_DIFFERS' OR class = 'FEE_DIFFERS' OR class = 'DUPLICATE_THEIRS' OR class = 'DUPLICATE_OURS' OR class = 'PARKED_OURS' OR
    class = 'UNKNOWN_KIND' OR class = 'CONTROL_TOTAL'),
  kind         TEXT NOT NULL,                -- of the movement
  reference    TEXT NOT NULL,                -- of the movement; with class and kind what makes it one discrepancy
  currency     TEXT,
  our_amount   INTEGER,
  their_amount INTEGER,
  entry        INTEGER,                      -- postonce_journal
  line         INTEGER,                      -- postonce_report_lines
  raw_event    INTEGER,                      -- what is parked, or what was fetched for it
  first_run    INTEGER,
  last_run     INTEGER,
  seen         INTEGER NOT NULL DEFAULT 1,
  opened_at    INTEGER NOT NULL,
  state        TEXT NOT NULL DEFAULT 'OPEN' CHECK (state = 'OPEN' OR state = 'FIXING' OR state = 'ASSIGNED' OR
    state = 'RESOLVED'), -- FIXING: fetched, under way
  assignee     TEXT,
  resolution   TEXT CHECK (resolution = 'AUTO_FETCHED' OR resolution = 'AUTO_LATE_MATCH' OR resolution = 'POSTED_CORRECTION' OR
    resolution = 'PROVIDER_ERROR' OR resolution = 'ACCEPTED' OR resolution = 'DUPLICATE_OF'),
  resolved_at  INTEGER,
  CONSTRAINT resolved_says_how CHECK ((state = 'RESOLVED') = (resolution IS NOT NULL AND resolved_at IS NOT NULL))
) STRICT;
CREATE UNIQUE INDEX postonce_discrepancies_once ON postonce_discrepancies(book, class, kind, reference) WHERE state <> 'RESOLVED';
CREATE INDEX postonce_discrepancies_open ON postonce_discrepancies(id) WHERE state <> 'RESOLVED';
-- lines that still lack their entry, however old: what was fetched, or came by itself, is over
CREATE INDEX postonce_discrepancies_lines ON postonce_discrepancies(book, line) WHERE (class = 'MISSING_OURS' OR class = 'PARKED_OURS')
  AND resolution IS NOT 'AUTO_FETCHED' AND resolution IS NOT 'AUTO_LATE_MATCH' AND resolution IS NOT 'DUPLICATE_OF';
CREATE INDEX postonce_discrepancies_by_time ON postonce_discrepancies(opened_at, first_run, class); -- the trend reads nothing else
CREATE INDEX postonce_discrepancies_by_end ON postonce_discrepancies(resolved_at) WHERE resolved_at IS NOT NULL;
CREATE TRIGGER postonce_discrepancies_end BEFORE UPDATE ON postonce_discrepancies WHEN OLD.state = 'RESOLVED'
  BEGIN SELECT RAISE(ABORT, 'a resolved discrepancy is history'); END;
CREATE TRIGGER postonce_discrepancies_kept BEFORE DELETE ON postonce_discrepancies BEGIN SELECT RAISE(ABORT, 'discrepancies are kept'); END;
CREATE TABLE postonce_discrepancy_log(       -- inserted with every change of a discrepancy; never changed
  id          INTEGER PRIMARY KEY,
  discrepancy INTEGER NOT NULL REFERENCES postonce_discrepancies(id),
  at          INTEGER NOT NULL,
  actor       TEXT NOT NULL CHECK (trim(actor) <> ''),
  from_state  TEXT NOT NULL,
  to_state    TEXT NOT NULL,
  note        TEXT NOT NULL CHECK (trim(note) <> '')
) STRICT;
CREATE INDEX postonce_discrepancy_log_of ON postonce_discrepancy_log(discrepancy);
CREATE TRIGGER postonce_discrepancy_log_fixed BEFORE UPDATE ON postonce_discrepancy_log BEGIN SELECT RAISE(ABORT, 'the log is never changed'); END;
CREATE TRIGGER postonce_discrepancy_log_kept BEFORE DELETE ON postonce_discrepancy_log BEGIN SELECT RAISE(ABORT, 'the log is never changed'); END;
-- The evidence of what is open is not pruned: the bytes of the event behind its entry, and of the one that is parked.
CREATE TRIGGER postonce_bodies_evidence BEFORE UPDATE OF body ON postonce_bodies WHEN NEW.body IS NULL AND OLD.body IS NOT NULL AND (
  EXISTS (SELECT 1 FROM postonce_discrepancies d WHERE d.state <> 'RESOLVED' AND d.raw_event IN (OLD.id, (SELECT r.id FROM postonce_raw_events r WHERE r.id = d.raw_event AND r.body = OLD.id)))
  OR EXISTS (SELECT 1 FROM postonce_discrepancies d JOIN postonce_journal j ON j.id = d.entry JOIN postonce_raw_events r ON r.id = j.raw_event
    WHERE d.state <> 'RESOLVED' AND ifnull(r.body, r.id) = OLD.id))
  BEGIN SELECT RAISE(ABORT, 'evidence of an open discrepancy'); END;

-- 8. Who changed what, and who is told ------------------------------------------------------------------------------------------------

-- Every change that a person makes, written in the transaction of the change.
CREATE TABLE postonce_audit(                 -- inserted with each change by a person; never changed; pruned by retain when that is configured
  id     INTEGER PRIMARY KEY,
  at     INTEGER NOT NULL,
  who    TEXT NOT NULL CHECK (who <> ''),    -- the name given at login, the token's role, or the user of the command line
  what   TEXT NOT NULL CHECK (what <> ''),   -- replay, requeue, reverse, …
  target TEXT NOT NULL,                      -- event 12, message 3, entry 812, …
  note   TEXT
) STRICT;
CREATE INDEX postonce_audit_of_target ON postonce_audit(target);
CREATE TRIGGER postonce_audit_fixed BEFORE UPDATE ON postonce_audit BEGIN SELECT RAISE(ABORT, 'the audit is never changed'); END;
-- only retain may remove rows, and only those older than the age that it has announced in meta
CREATE TRIGGER postonce_audit_kept BEFORE DELETE ON postonce_audit
  WHEN OLD.at >= ifnull((SELECT CAST(value AS INTEGER) FROM postonce_meta WHERE key = 'audit_kept_since'), 0)
  BEGIN SELECT RAISE(ABORT, 'the audit is never changed'); END;

-- How long providers waited for an answer, an hour a row, so that a day can be compared with that of a week ago.
CREATE TABLE postonce_hours(                 -- inserted and updated by the operator's clock once a minute; pruned by retain
  hour    INTEGER NOT NULL PRIMARY KEY,      -- its begin
  buckets TEXT NOT NULL                      -- JSON: answers by time taken, as engine/latency.rs counts them
) STRICT, WITHOUT ROWID;

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
