// Run by scripts/interop: starts the real server in a fresh folder, has the SDKs sign for it, verify what `postonce send`
// makes for their provider, and verify what the outbox sends. Each check is made twice: as it is, and with one byte changed,
// which must be refused. Kills only the server it started.

import { spawn, spawnSync } from "node:child_process";
import { once } from "node:events";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import http from "node:http";
import path from "node:path";
import readline from "node:readline";

import adyen from "@adyen/api-library";
import * as octokit from "@octokit/webhooks-methods";
import { Paddle } from "@paddle/paddle-node-sdk";
import { validateEvent, WebhookVerificationError } from "@polar-sh/sdk/webhooks";
import "@shopify/shopify-api/adapters/node";
import { shopifyApi, ApiVersion } from "@shopify/shopify-api";
import bolt from "@slack/bolt";
import DodoPayments from "dodopayments";
import Razorpay from "razorpay";
import { WebhooksHelper as Square } from "square";
import { Webhook as StandardWebhook } from "standardwebhooks";
import Stripe from "stripe";
import { Webhook as Svix } from "svix";

const [binary, python] = process.argv.slice(2).map((file) => path.resolve(file));
const folder = mkdtempSync(path.resolve("run-"));
const whsec = (text) => "whsec_" + Buffer.from(text).toString("base64");
const secrets = {
  STRIPE: whsec("interop stripe secret 0123456789"),
  STANDARD_WEBHOOKS: whsec("interop standard secret 01234567"),
  SVIX: whsec("interop svix secret 0123456789012"),
  GITHUB: "interop github secret",
  ADYEN: "00112233445566778899AABBCCDDEEFF00112233445566778899AABBCCDDEEFF",
  GOCARDLESS: "interop gocardless secret",
  PADDLE: "pdl_ntfset_interop_0123456789",
  SHOPIFY: "interop shopify secret",
  SLACK: "0123456789abcdef0123456789abcdef",
  POLAR: "interop polar secret 0123456789",
  DODO_PAYMENTS: whsec("interop dodo secret 0123456789012"),
  SQUARE: "interop-square-signature-key",
  RAZORPAY: "interop razorpay secret",
  APP: whsec("interop app secret 01234567890123"),
};

let failures = 0;
let checks = 0;
function check(name, good, detail = "") {
  checks += 1;
  if (!good) failures += 1;
  console.log(`${good ? "ok  " : "FAIL"} ${name}${good || !detail ? "" : `: ${detail}`}`);
}

/** Whether `verify` says yes: it returns something that is not false, and does not throw. */
async function says(verify) {
  try {
    return (await verify()) !== false;
  } catch (error) {
    if (process.env.POSTONCE_INTEROP_DEBUG) console.error(error);
    return false;
  }
}

/** One byte of a body changed. */
const tampered = (body) => body.replace(/[0-8]/, (digit) => String(Number(digit) + 1));

// What is sent to us: the outbox at /app, everything else is what `postonce send` makes for a provider.
const caught = [];
const listener = http.createServer(async (request, response) => {
  const pieces = [];
  for await (const piece of request) pieces.push(piece);
  caught.push({ path: request.url, headers: request.headers, body: Buffer.concat(pieces).toString() });
  response.end("ok");
});
listener.listen(0, "127.0.0.1");
await once(listener, "listening");
const here = `http://127.0.0.1:${listener.address().port}`;

const sources = ["stripe", "standard_webhooks", "svix", "github", "adyen", "gocardless"];
writeFileSync(
  path.join(folder, "postonce.toml"),
  sources
    .map((name) => `[[source]]\nname = "${name}"\nsecrets = ["env:${name.toUpperCase()}"]\ntrust_unsigned_fields = true\n`)
    .join("") + `[[deliver]]\nname = "app"\nurl = "${here}/app"\nsecret = "env:APP"\n`,
);
const env = { ...process.env, ...secrets };
const database = path.join(folder, "interop.db");
const server = spawn(
  binary,
  ["serve", "--config", path.join(folder, "postonce.toml"), "--database", database, "--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0"],
  { env, stdio: ["ignore", "pipe", "inherit"] },
);
const address = await new Promise((found, failed) => {
  readline.createInterface({ input: server.stdout }).on("line", (line) => {
    const at = line.match(/^listening on (http:\S+)/);
    if (at) found(at[1]);
  });
  server.on("exit", (code) => failed(new Error(`the server ended with ${code}`)));
});

const post = async (source, headers, body) => {
  const answer = await fetch(`${address}/webhooks/${source}`, { method: "POST", headers, body });
  return { status: answer.status, text: await answer.text() };
};
async function signed(name, source, headers, body, words) {
  const good = await post(source, headers, body);
  check(`${name} signs, we take it`, good.status === 200 && (!words || good.text === words), JSON.stringify(good));
  const bad = await post(source, headers, tampered(body));
  check(`${name} signs, we refuse another body`, bad.status === 401, JSON.stringify(bad));
}

// 1. They sign, we verify.
const now = Math.floor(Date.now() / 1000);
const charge = JSON.stringify({
  id: "evt_interop_node", object: "event", type: "charge.succeeded", created: now, livemode: true,
  data: { object: { id: "ch_node", object: "charge", amount: 1234, amount_captured: 1234, captured: true, currency: "eur", customer: "cus_Zoë", payment_intent: "pi_node" } },
});
const stripe = new Stripe("sk_test_interop");
await signed("stripe (npm)", "stripe", { "stripe-signature": stripe.webhooks.generateTestHeaderString({ payload: charge, secret: secrets.STRIPE }) }, charge);
const hello = JSON.stringify({ type: "hello", number: 1, text: "Zoë" });
for (const [name, source, Webhook, secret, prefix] of [
  ["standardwebhooks (npm)", "standard_webhooks", StandardWebhook, secrets.STANDARD_WEBHOOKS, "webhook"],
  ["svix (npm)", "svix", Svix, secrets.SVIX, "svix"],
]) {
  const signature = new Webhook(secret).sign("msg_1", new Date(), hello);
  await signed(name, source, { [`${prefix}-id`]: "msg_1", [`${prefix}-timestamp`]: String(Math.floor(Date.now() / 1000)), [`${prefix}-signature`]: signature }, hello);
}
await signed("@octokit/webhooks-methods", "github", { "x-github-event": "ping", "x-hub-signature-256": await octokit.sign(secrets.GITHUB, hello) }, hello);
const item = {
  amount: { currency: "EUR", value: 4200 }, eventCode: "CAPTURE", eventDate: "2026-11-18T10:00:00+01:00", merchantAccountCode: "Acme",
  merchantReference: "order-1", originalReference: "ORIGINAL1", pspReference: "CAPTURE1", reason: "", success: "true", additionalData: {},
};
const adyenValidator = new adyen.hmacValidator();
item.additionalData.hmacSignature = adyenValidator.calculateHmac(item, secrets.ADYEN);
const notification = JSON.stringify({ live: "true", notificationItems: [{ NotificationRequestItem: item }] });
{
  const good = await post("adyen", {}, notification);
  check("@adyen/api-library signs, we take it", good.status === 200 && good.text === "[accepted]", JSON.stringify(good));
  const bad = await post("adyen", {}, notification.replace("4200", "4201"));
  check("@adyen/api-library signs, we refuse another amount", bad.status === 401, JSON.stringify(bad));
}

// 2. `postonce send` signs as each provider does, they verify.
async function send(provider, body) {
  const file = path.join(folder, "body.json");
  writeFileSync(file, body);
  const before = caught.length;
  const url = `${here}/webhooks/${provider}`;
  const args = ["send", url, "--provider", provider, "--secret", `env:${provider.toUpperCase()}`, "--body", file];
  const sender = spawn(binary, args, { env, stdio: ["ignore", "ignore", "inherit"] });
  const [code] = await once(sender, "exit");
  const got = caught.slice(before).find((one) => one.path === `/webhooks/${provider}`);
  check(`${provider}: postonce send`, code === 0 && got, `exit ${code}`);
  return got;
}
async function ours(provider, verify, body = JSON.stringify({ id: "interop", type: "interop", n: 1, text: "Zoë" })) {
  const got = await send(provider, body);
  if (!got) return;
  check(`${provider}: we sign, their SDK takes it`, await says(() => verify(got.body, got.headers)));
  check(`${provider}: we sign, their SDK refuses another body`, !(await says(() => verify(tampered(got.body), got.headers))));
}
await ours("stripe", (body, headers) => stripe.webhooks.constructEvent(body, headers["stripe-signature"], secrets.STRIPE), charge);
await ours("standard_webhooks", (body, headers) => new StandardWebhook(secrets.STANDARD_WEBHOOKS).verify(body, headers));
await ours("svix", (body, headers) => new Svix(secrets.SVIX).verify(body, headers));
await ours("github", (body, headers) => octokit.verify(secrets.GITHUB, body, headers["x-hub-signature-256"]));
const paddle = new Paddle("pdl_interop");
await ours("paddle", (body, headers) => paddle.webhooks.isSignatureValid(body, secrets.PADDLE, headers["paddle-signature"]));
await ours("slack", (body, headers) =>
  bolt.verifySlackRequest({
    signingSecret: secrets.SLACK, body,
    headers: { "x-slack-signature": headers["x-slack-signature"], "x-slack-request-timestamp": Number(headers["x-slack-request-timestamp"]) },
  }),
);
await ours("polar", (body, headers) => {
  try {
    validateEvent(body, headers, secrets.POLAR);
  } catch (error) {
    if (error instanceof WebhookVerificationError) throw error; // what comes after a good signature is its schema
  }
});
const dodo = new DodoPayments({ bearerToken: "interop" });
await ours("dodo_payments", (body, headers) => dodo.webhooks.unwrap(body, { headers, key: secrets.DODO_PAYMENTS }));
await ours("square", (requestBody, headers) =>
  Square.verifySignature({
    requestBody, signatureHeader: headers["x-square-hmacsha256-signature"], signatureKey: secrets.SQUARE,
    notificationUrl: `${here}/webhooks/square`,
  }),
);
await ours("razorpay", (body, headers) => Razorpay.validateWebhookSignature(body, headers["x-razorpay-signature"], secrets.RAZORPAY));
const shopify = shopifyApi({
  apiKey: "interop", apiSecretKey: secrets.SHOPIFY, hostName: "shop.example.com", apiVersion: Object.values(ApiVersion)[0], isEmbeddedApp: false,
});
await ours("shopify", async (rawBody, headers) => {
  const theirs = { "x-shopify-topic": "orders/paid", "x-shopify-shop-domain": "shop.myshopify.com", "x-shopify-webhook-id": "1", "x-shopify-api-version": "2026-10" };
  const result = await shopify.webhooks.validate({ rawBody, rawRequest: { method: "POST", url: "/", headers: { ...theirs, ...headers } } });
  return result.valid;
});
const events = JSON.stringify({ events: [{ id: "EV1", n: 1 }], meta: { webhook_id: "WB1" } });
const gocardless = await send("gocardless", events); // whose SDK is one of Python
if (gocardless) writeFileSync(path.join(folder, "gocardless.json"), JSON.stringify(gocardless));

// 3. The outbox: one message for each entry.
const until = Date.now() + 20_000;
const outbox = () => caught.filter((one) => one.path === "/app");
const ids = () => new Set(outbox().map((one) => one.headers["idempotency-key"]));
const sdk = spawn(python, ["interop.py", address, folder], { env, stdio: ["ignore", "pipe", "inherit"] });
readline.createInterface({ input: sdk.stdout }).on("line", (line) => {
  const [word, ...name] = line.split(" ");
  check(name.join(" "), word === "ok");
});
const ended = once(sdk, "exit");
while (ids().size < 3 && Date.now() < until) await new Promise((wake) => setTimeout(wake, 20));
check("the outbox told of three entries", ids().size === 3, [...ids()].join(", "));
for (const { headers, body } of outbox()) {
  const name = headers["idempotency-key"];
  const standard = (text) => says(() => new StandardWebhook(secrets.APP).verify(text, headers));
  const svix = (text) => says(() => new Svix(secrets.APP).verify(text, headers));
  check(`${name}: standardwebhooks (npm) takes our message`, await standard(body));
  check(`${name}: svix (npm) takes our message`, await svix(body));
  check(`${name}: neither takes another one`, !(await standard(tampered(body))) && !(await svix(tampered(body))));
}
writeFileSync(path.join(folder, "outbox.json"), JSON.stringify(outbox()));
const [code] = await ended;
check("the SDKs of Python ran to their end", code === 0, `exit ${code}`);

server.removeAllListeners("exit");
server.kill("SIGTERM");
await once(server, "exit");
const entries = spawnSync(binary, ["ledger", "--json", "--database", database], { encoding: "utf8" }).stdout.trim().split("\n");
check("each payment is posted once", entries.length === 3, entries.join("\n"));
listener.close();
if (failures === 0) rmSync(folder, { recursive: true });
console.log(`interop: ${checks} checks, ${failures} failed${failures ? `; see ${folder}` : ""}`);
process.exit(failures === 0 ? 0 : 1);
