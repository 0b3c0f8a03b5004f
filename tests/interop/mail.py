"""Receipts by e-mail through a real mail server (aiosmtpd): STARTTLS, TLS from the first byte, and a login over both.

argv[1] is the binary. Prints a line for each check: "ok ..." or "FAIL ..."; exits 1 when one failed. Needs openssl.
"""

import email
import email.policy
import hashlib
import hmac
import json
import logging
import os
import signal
import socket
import ssl
import subprocess
import sys
import tempfile
import time
import urllib.request
import warnings

from aiosmtpd.controller import Controller
from aiosmtpd.smtp import SMTP, AuthResult

warnings.simplefilter("ignore")  # that a login without STARTTLS is unsafe; the wire is TLS
logging.disable(logging.CRITICAL)
BINARY = os.path.abspath(sys.argv[1])
FOLDER = tempfile.mkdtemp()
SECRET = "whsec_interop"
failed = 0


def check(name, good):
    global failed
    failed += not good
    print("ok" if good else "FAIL", name, flush=True)


def certificate(name, host):
    key, cert = f"{FOLDER}/{name}.key", f"{FOLDER}/{name}.pem"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-keyout", key, "-out", cert, "-days", "2",
         "-subj", f"/CN={host}", "-addext", f"subjectAltName=DNS:{host}", "-addext", "basicConstraints=critical,CA:FALSE"],
        check=True, capture_output=True,
    )
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(cert, key)
    return cert, context


class Box:
    """Keeps what comes, with the user and whether it came over TLS."""

    def __init__(self):
        self.got = []

    async def handle_DATA(self, server, session, envelope):
        login = session.auth_data.login.decode() if session.auth_data else None
        self.got.append((envelope, login, session.ssl is not None))
        return "250 kept"


def authenticate(server, session, envelope, mechanism, data):
    return AuthResult(success=data.login == b"postonce" and data.password == b"sesame", auth_data=data)


class Starttls(Controller):
    def __init__(self, box, context):
        self.context = context
        super().__init__(box, hostname="127.0.0.1", port=free_port())

    def factory(self):
        return SMTP(self.handler, tls_context=self.context, require_starttls=True, auth_required=True, authenticator=authenticate)


class Wrapped(Controller):
    def factory(self):
        # The wire is TLS already; aiosmtpd does not know that it may take a login on it.
        return SMTP(self.handler, auth_required=True, auth_require_tls=False, authenticator=authenticate)


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def send(address, number):
    body = json.dumps({
        "id": f"evt_{number}", "object": "event", "type": "charge.succeeded", "created": int(time.time()), "livemode": True,
        "data": {"object": {
            "id": f"ch_{number}", "object": "charge", "amount": 4999, "amount_captured": 4999, "captured": True, "currency": "eur",
            "customer": "cus_1", "payment_intent": f"pi_{number}", "receipt_email": "zoë@example.com" if number == 2 else "jane@example.com",
        }},
    }, ensure_ascii=False).encode()
    now = int(time.time())
    mac = hmac.new(SECRET.encode(), f"{now}.".encode() + body, hashlib.sha256).hexdigest()
    request = urllib.request.Request(f"{address}/webhooks/stripe", data=body, headers={"Stripe-Signature": f"t={now},v1={mac}"}, method="POST")
    with urllib.request.urlopen(request, timeout=20) as answer:
        assert answer.status == 200


def receipts(name, security, port, ca, box, password="sesame", expect=1):
    """Serves, sends one payment, and gives what the box got."""
    folder = f"{FOLDER}/{name}"
    os.mkdir(folder)
    with open(f"{folder}/postonce.toml", "w", encoding="utf-8") as file:
        file.write(f"""
listen = "127.0.0.1:0"
[operator]
listen = "127.0.0.1:0"
[[source]]
name = "stripe"
secrets = ["env:STRIPE"]
[smtp]
host = "localhost"
port = {port}
security = "{security}"
user = "postonce"
password = "env:MAIL"
ca = "{ca}"
from = "Shöp <billing@shop.example>"
[[deliver]]
name = "receipts"
[deliver.email]
to = "{{body:/data/object/receipt_email}}"
subject = "Ihre Zahlung über {{amount}} {{currency}} – danke"
text = "Thank you. Reference {{reference}}."
html = "<p>Thank you for <b>{{amount}}</b></p>"
""")
    environment = {**os.environ, "STRIPE": SECRET, "MAIL": password}
    with open(f"{folder}/log", "w") as log:
        server = subprocess.Popen([BINARY, "serve"], cwd=folder, env=environment, stdout=subprocess.PIPE, stderr=log, text=True)
    try:
        address = server.stdout.readline().split(" on ")[1].strip()
        doctor = subprocess.run([BINARY, "doctor", "--json", "--config", "postonce.toml"], cwd=folder, env=environment, capture_output=True, text=True)
        said = [json.loads(line) for line in doctor.stdout.splitlines()]
        verdict = next((line["verdict"] for line in said if line["about"].startswith("mail server")), None)
        before = len(box.got)
        send(address, 1)
        for _ in range(1500 if expect else 100):
            if len(box.got) >= before + expect and expect:
                break
            state = subprocess.run([BINARY, "dead", "--database", "postonce.db"], cwd=folder, capture_output=True, text=True)
            with open(f"{folder}/log") as log:
                if not expect and ("receipts" in log.read() or state.returncode):
                    break
            time.sleep(0.02)
        if expect:
            send(address, 1)  # a redelivery is no second receipt
            time.sleep(0.5)
        return box.got[before:], verdict
    finally:
        server.send_signal(signal.SIGTERM)
        server.wait(timeout=20)


good, context = certificate("good", "localhost")
other, _ = certificate("other", "localhost")

for name, security, controller in [("starttls", "starttls", Starttls), ("tls from the first byte", "tls", None)]:
    box = Box()
    mail = controller(box, context) if controller else Wrapped(box, hostname="127.0.0.1", port=free_port(), ssl_context=context)
    mail.start()
    port = mail.port
    got, verdict = receipts(name.split()[0], security, port, good, box)
    check(f"{name}: doctor says that it lets us in", verdict == "ok")
    check(f"{name}: one receipt came, and a redelivery brought no second", len(got) == 1)
    if got:
        envelope, login, over_tls = got[0]
        message = email.message_from_bytes(envelope.content, policy=email.policy.default)
        check(f"{name}: logged in, and over TLS", login == "postonce" and (over_tls or security == "tls"))
        check(f"{name}: to the customer, from the shop", envelope.rcpt_tos == ["jane@example.com"] and message["from"].addresses[0].display_name == "Shöp")
        check(f"{name}: the subject is whole", message["subject"] == "Ihre Zahlung über 49.99 EUR – danke")
        parts = {part.get_content_type(): part.get_content() for part in message.walk() if not part.is_multipart()}
        check(f"{name}: text and HTML", "Reference pi_1." in parts["text/plain"] and "<b>49.99</b>" in parts["text/html"])
    got, verdict = receipts(name.split()[0] + "-foreign", security, port, other, box, expect=0)
    check(f"{name}: nothing is said to a server whose certificate is not trusted", got == [] and verdict == "fail")
    got, verdict = receipts(name.split()[0] + "-password", security, port, good, box, password="wrong", expect=0)
    check(f"{name}: a wrong password is told by doctor, and nothing is sent", got == [] and verdict == "fail")
    mail.stop()

sys.exit(1 if failed else 0)
