"""The SDKs of Python, run by interop.mjs: they sign for the server at argv[1], and verify what stands in the folder argv[2].

Prints a line for each check: "ok ..." or "FAIL ...".
"""

import json
import os
import sys
import time
import urllib.error
import urllib.request
from datetime import datetime, timezone

import gocardless_pro.webhooks
import standardwebhooks
import stripe

ADDRESS, FOLDER = sys.argv[1], sys.argv[2]


def check(name, good):
    print("ok" if good else "FAIL", name, flush=True)


def post(source, headers, body):
    request = urllib.request.Request(f"{ADDRESS}/webhooks/{source}", data=body.encode(), headers=headers, method="POST")
    try:
        with urllib.request.urlopen(request, timeout=20) as answer:
            return answer.status
    except urllib.error.HTTPError as refused:
        return refused.code


def says(verify):
    try:
        return verify() is not False
    except Exception:
        return False


def waited_for(name):
    path = os.path.join(FOLDER, name)
    for _ in range(1500):
        if os.path.exists(path) and os.path.getsize(path) > 0:
            with open(path, encoding="utf-8") as file:
                return json.load(file)
        time.sleep(0.02)
    raise SystemExit(f"{name} never came")


def signed(name, source, headers, body):
    check(f"{name} signs, we take it", post(source, headers, body) == 200)
    check(f"{name} signs, we refuse another body", post(source, headers, body.replace("1", "2", 1)) == 401)


now = int(time.time())
charge = {
    "id": "ch_python", "object": "charge", "amount": 1234, "amount_captured": 1234, "captured": True,
    "currency": "eur", "customer": "cus_Zoë", "payment_intent": "pi_python",
}
event = json.dumps({
    "id": "evt_interop_python", "object": "event", "type": "charge.succeeded", "created": now, "livemode": True,
    "data": {"object": charge},
})
secret = os.environ["STRIPE"]
header = f"t={now},v1={stripe.WebhookSignature._compute_signature(f'{now}.{event}', secret)}"
signed("stripe (PyPI)", "stripe", {"Stripe-Signature": header}, event)

hello = json.dumps({"type": "hello", "number": 1})
at = datetime.now(tz=timezone.utc)
signature = standardwebhooks.Webhook(os.environ["STANDARD_WEBHOOKS"]).sign("msg_2", at, hello)
headers = {"webhook-id": "msg_2", "webhook-timestamp": str(int(at.timestamp())), "webhook-signature": signature}
signed("standardwebhooks (PyPI)", "standard_webhooks", headers, hello)

sent = waited_for("gocardless.json")
body, header = sent["body"], sent["headers"]["webhook-signature"]
key = os.environ["GOCARDLESS"]
check("gocardless: we sign, their SDK takes it", says(lambda: gocardless_pro.webhooks.parse(body, key, header)))
other = body.replace("1", "2", 1)
check("gocardless: we sign, their SDK refuses another body", not says(lambda: gocardless_pro.webhooks.parse(other, key, header)))

app = standardwebhooks.Webhook(os.environ["APP"])
for message in waited_for("outbox.json"):
    name, body, headers = message["headers"]["idempotency-key"], message["body"], message["headers"]
    check(f"{name}: standardwebhooks (PyPI) takes our message", says(lambda: app.verify(body, headers)))
    other = body.replace("1", "2", 1)
    check(f"{name}: standardwebhooks (PyPI) takes no other", not says(lambda: app.verify(other, headers)))
