"""A Flask app whose customers' credits are raised by postonce, in the app's own SQLite file and in one commit with the
ledger. The app reads its own table, goes on writing to the file, and is told of each payment by a signed call.

    pip install -r requirements.txt
    APP_SECRET=whsec_... flask --app app run
"""

import os
import sqlite3

from flask import Flask, g, jsonify, request
from standardwebhooks.webhooks import Webhook, WebhookVerificationError

FILE = os.environ.get("APP_DB", "app.db")
hooks = Webhook(os.environ["APP_SECRET"])
app = Flask(__name__)


def connect():
    # Two processes write to this file: wait for the other instead of failing, and begin writes with BEGIN IMMEDIATE.
    db = sqlite3.connect(FILE, timeout=5, isolation_level=None)
    db.row_factory = sqlite3.Row
    return db


def db():
    if "db" not in g:
        g.db = connect()
    return g.db


@app.teardown_appcontext
def close(_error):
    if "db" in g:
        g.pop("db").close()


with connect() as first:
    first.execute("PRAGMA journal_mode = WAL")
    first.executescript("""
        CREATE TABLE IF NOT EXISTS users(
            id INTEGER PRIMARY KEY, stripe_id TEXT NOT NULL UNIQUE, credits INTEGER NOT NULL DEFAULT 0);
        CREATE TABLE IF NOT EXISTS visits(id INTEGER PRIMARY KEY, at TEXT DEFAULT CURRENT_TIMESTAMP);
        CREATE TABLE IF NOT EXISTS receipts(key TEXT PRIMARY KEY, reference TEXT, amount INTEGER);
        INSERT OR IGNORE INTO users(stripe_id) VALUES ('cus_demo');
    """)


@app.get("/users")
def users():
    return jsonify([dict(row) for row in db().execute("SELECT stripe_id, credits FROM users")])


@app.post("/visits")
def visit():
    """The app's own work on the same file."""
    db().execute("BEGIN IMMEDIATE")
    db().execute("INSERT INTO visits DEFAULT VALUES")
    db().execute("COMMIT")
    return "", 204


@app.post("/hooks")
def hook():
    """postonce tells of a payment: at least once, so a repeat is dropped by its key."""
    try:
        message = hooks.verify(request.get_data(), dict(request.headers))
    except WebhookVerificationError as error:
        return str(error), 401
    data = message["data"]
    new = db().execute(
        "INSERT INTO receipts VALUES (?, ?, ?) ON CONFLICT DO NOTHING RETURNING key",
        (request.headers["Idempotency-Key"], data["reference"], data["amount"]),
    ).fetchall()
    return jsonify(status="new" if new else "repeat")


@app.get("/receipts")
def receipts():
    return jsonify([dict(row) for row in db().execute("SELECT * FROM receipts")])
