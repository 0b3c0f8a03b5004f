// What postonce is measured against: a webhook handler as the guides write it. One PostgreSQL transaction an event:
// claim its id, credit the account, write the outbox row, mark it done, commit, answer 200.
//
//   /full      all of that            /persist   verify and insert, nothing else
//   /verify    the signature alone    /null      Express alone
//   a second port (PORT + 1)          Node's own HTTP server, with nothing at all
//
// PORT, PGPORT, SECRET, POOL (connections to the database, 20), PROCESSES (1; 2 for one on each of two cores).
import cluster from "node:cluster";
import { createServer } from "node:http";
import express from "express";
import pg from "pg";
import Stripe from "stripe";

const { PORT = "18080", PGPORT = "54330", SECRET = "whsec_bench", POOL = "20", PROCESSES = "1" } = process.env;

if (cluster.isPrimary && Number(PROCESSES) > 1) {
  for (let n = 0; n < Number(PROCESSES); n++) cluster.fork();
  process.on("SIGTERM", () => {
    Object.values(cluster.workers).forEach((worker) => worker.kill());
    process.exit(0);
  });
} else {
  serve();
}

function serve() {
  const stripe = new Stripe("sk_test_of_the_bench");
  const pool = new pg.Pool({ host: "127.0.0.1", port: Number(PGPORT), user: "postgres", database: "bench", max: Number(POOL) });
  pool.on("error", (error) => console.error("pool:", error.message));
  const app = express();
  app.disable("x-powered-by");
  const raw = express.raw({ type: "application/json", limit: "1mb" });

  const verified = (handle) => async (request, response) => {
    let event;
    try {
      event = stripe.webhooks.constructEvent(request.body, request.headers["stripe-signature"], SECRET);
    } catch {
      return response.status(400).send("bad signature");
    }
    try {
      await handle(event, request, response);
    } catch (error) {
      console.error(error.message);
      response.status(500).send("failed");
    }
  };

  app.post("/null", raw, (_, response) => response.json({ received: true }));
  app.post("/verify", raw, verified(async (_event, _request, response) => response.json({ received: true })));
  app.post("/persist", raw, verified(async (event, request, response) => {
    await pool.query(
      "INSERT INTO events(id, kind, body, state) VALUES ($1, $2, $3, 'new') ON CONFLICT (id) DO NOTHING",
      [event.id, event.type, request.body.toString("utf8")],
    );
    response.json({ received: true });
  }));
  app.post("/full", raw, verified(async (event, request, response) => {
    const { customer, amount } = event.data.object;
    const client = await pool.connect();
    try {
      await client.query("BEGIN");
      const claimed = await client.query(
        "INSERT INTO events(id, kind, body, state) VALUES ($1, $2, $3, 'processing') ON CONFLICT (id) DO NOTHING",
        [event.id, event.type, request.body.toString("utf8")],
      );
      if (claimed.rowCount === 1) {
        await client.query("UPDATE balances SET amount = amount + $1 WHERE account = $2", [amount, customer]);
        await client.query("INSERT INTO outbox(event, payload) VALUES ($1, $2)", [event.id, JSON.stringify({ customer, amount })]);
        await client.query("UPDATE events SET state = 'done', finished_at = now() WHERE id = $1", [event.id]);
      }
      await client.query("COMMIT");
      response.json({ received: true, duplicate: claimed.rowCount === 0 });
    } catch (error) {
      await client.query("ROLLBACK").catch(() => {});
      throw error;
    } finally {
      client.release();
    }
  }));
  app.listen(Number(PORT), "127.0.0.1", 4096);
  createServer((request, response) => {
    request.resume();
    request.on("end", () => response.end("ok"));
  }).listen(Number(PORT) + 1, "127.0.0.1", 4096, () => console.log("ready"));
}
