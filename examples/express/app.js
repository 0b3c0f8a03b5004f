// An Express app whose customers' credits are raised by postonce, in the app's own SQLite file and in one commit with
// the ledger. The app reads its own table, goes on writing to the file, and is told of each payment by a signed call.
//
//   npm install && APP_SECRET=whsec_... node app.js

import Database from "better-sqlite3";
import express from "express";
import { Webhook } from "standardwebhooks";

const hooks = new Webhook(process.env.APP_SECRET);
// Two processes write to this file: wait for the other instead of failing.
const db = new Database(process.env.APP_DB ?? "app.db", { timeout: 5000 });
db.pragma("journal_mode = WAL");
db.exec(`
  CREATE TABLE IF NOT EXISTS users(
    id INTEGER PRIMARY KEY, stripe_id TEXT NOT NULL UNIQUE, credits INTEGER NOT NULL DEFAULT 0);
  CREATE TABLE IF NOT EXISTS visits(id INTEGER PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP);
  CREATE TABLE IF NOT EXISTS receipts(key TEXT PRIMARY KEY, reference TEXT, amount INTEGER);
  INSERT OR IGNORE INTO users(stripe_id) VALUES ('cus_demo');
`);

const app = express();

app.get("/users", (_request, response) => {
  response.json(db.prepare("SELECT stripe_id, credits FROM users").all());
});

// The app's own work on the same file. A transaction that writes begins with BEGIN IMMEDIATE: one that begins by
// reading and then writes can fail at once, however long it would wait.
const visit = db.transaction(() => db.prepare("INSERT INTO visits DEFAULT VALUES").run());
app.post("/visits", (_request, response) => {
  visit.immediate();
  response.sendStatus(204);
});

// postonce tells of a payment: at least once, so a repeat is dropped by its key. The signature covers the bytes, so they
// are taken raw.
app.post("/hooks", express.raw({ type: "*/*" }), (request, response) => {
  let message;
  try {
    message = hooks.verify(request.body, request.headers);
  } catch (error) {
    return response.status(401).send(error.message);
  }
  const { reference, amount } = message.data;
  const insert = db.prepare("INSERT INTO receipts VALUES (?, ?, ?) ON CONFLICT DO NOTHING");
  const { changes } = insert.run(request.get("Idempotency-Key"), reference, amount);
  response.json({ status: changes === 1 ? "new" : "repeat" });
});

app.get("/receipts", (_request, response) => {
  response.json(db.prepare("SELECT * FROM receipts").all());
});

app.listen(process.env.PORT ?? 3000, "127.0.0.1");
