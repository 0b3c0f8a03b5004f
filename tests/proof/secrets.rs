//! Secrets stay where they were given: none shows in a log, an answer, a listing, a page, a metric or the database, not
//! as text and not as the bytes behind it. And the files belong to their owner alone.

use crate::harness::{self, App, Folder, Server, Setup, postonce, sign, stripe};
use base64::Engine as _;
use std::fs;
use std::os::unix::fs::PermissionsExt as _;

/// Planted: recognisable, and long enough that no chance brings them about.
const SIGNING: &str = "whsec_UExBTlRFRC1zaWduaW5nLXNlY3JldC0wMTIzNDU2Nzg5";
const OLD: &str = "whsec_UExBTlRFRC1vbGQtc2VjcmV0LTAxMjM0NTY3ODkwMTIz";
const TOKEN: &str = "PLANTED-callback-token-7f3a9b";
const API_KEY: &str = "sk_live_PLANTED_api_key_51ab";
const OPERATOR: &str = "PLANTED-operator-token-c0ffee";
const DELIVER: &str = "whsec_UExBTlRFRC1kZWxpdmVyLXNlY3JldC0wMTIzNDU2Nzg5";
const HEADER: &str = "Bearer PLANTED-authorization-header";

/// In every form that somebody might print: as given, and decoded.
fn forms() -> Vec<Vec<u8>> {
    let mut forms: Vec<Vec<u8>> =
        [SIGNING, OLD, TOKEN, API_KEY, OPERATOR, DELIVER, HEADER].iter().map(|s| s.as_bytes().to_vec()).collect();
    for text in [SIGNING, OLD, DELIVER] {
        let decoded = base64::engine::general_purpose::STANDARD.decode(&text[6..]).unwrap();
        forms.push(hex::encode(&decoded).into_bytes());
        forms.push(format!("{:?}", &decoded[..8]).trim_end_matches(']').as_bytes().to_vec());
        forms.push(decoded);
        forms.push(text.as_bytes()[6..].to_vec());
    }
    forms.push(b"PLANTED".to_vec());
    forms
}

#[track_caller]
fn shows_none(what: &str, bytes: &[u8]) {
    for form in forms() {
        let shown = bytes.windows(form.len()).position(|w| w == form);
        assert_eq!(shown, None, "{what} shows {:?}", String::from_utf8_lossy(&form));
    }
}

const CONFIG: &str = r#"
[operator]
listen = "127.0.0.1:0"
token = "env:OPERATOR"
[[source]]
name = "stripe"
secrets = ["env:SIGNING", { name = "old", value = "env:OLD" }]
api_key = "env:API_KEY"
[[source]]
name = "xendit"
secrets = ["env:TOKEN"]
[[deliver]]
name = "app"
secret = "env:DELIVER"
"#;

fn setup(app: &App) -> Setup {
    Setup::config(&format!("{CONFIG}url = {:?}\n", app.url()))
        .env("SIGNING", SIGNING)
        .env("OLD", OLD)
        .env("TOKEN", TOKEN)
        .env("API_KEY", API_KEY)
        .env("OPERATOR", OPERATOR)
        .env("DELIVER", DELIVER)
        .env("RUST_LOG", "trace")
}

#[test]
fn planted_secrets_show_nowhere() {
    let app = App::with(Box::new(|nth, _| (if nth == 0 { 500 } else { 200 }, None)));
    let server = setup(&app).start();
    let body = stripe::charge("evt_1", "pi_1", 4999);
    let (mut answers, mut proofs) = (Vec::new(), Vec::new());
    for secret in [SIGNING, OLD, "whsec_bm90IHRoZSBzZWNyZXQgb2YgdGhlIHNvdXJjZSAwMTIz"] {
        let mut headers = sign("stripe", secret, body.as_bytes(), &[]);
        proofs.push(headers[0].1.split_once("v1=").unwrap().1.to_owned());
        headers.push(("Authorization".into(), HEADER.into()));
        headers.push(("Cookie".into(), format!("session={OPERATOR}")));
        answers.push(server.post("/webhooks/stripe", &headers, body.as_bytes()));
    }
    // A provider that sends its secret as it is; right, and almost.
    let paid =
        r#"{"id":"in_1","external_id":"x_1","status":"PAID","amount":50000,"paid_amount":50000,"currency":"IDR"}"#;
    for token in [TOKEN.to_owned(), format!("{TOKEN}x"), TOKEN.to_lowercase()] {
        answers.push(server.post("/webhooks/xendit", &[("x-callback-token".into(), token)], paid.as_bytes()));
    }
    assert_eq!(answers.iter().map(|a| a.status).collect::<Vec<_>>(), [200, 200, 401, 200, 401, 401]);
    // The secret of another endpoint: the log says whose it is, by name.
    answers.push(server.post("/webhooks/xendit", &[("x-callback-token".into(), SIGNING.into())], paid.as_bytes()));
    answers.push(server.post("/webhooks/stripe", &sign("stripe", TOKEN, body.as_bytes(), &[]), body.as_bytes()));
    server.delivered();
    // What is made from a secret is kept with the bytes, and shown to nobody.
    let no_proof = |what: &str, text: &str| {
        for proof in &proofs {
            assert!(!text.contains(proof), "{what} shows a signature: {text}");
        }
    };
    for answer in &answers {
        shows_none("an answer", format!("{answer:?}").as_bytes());
    }
    let mut served = Vec::new();
    let pages =
        ["/", "/metrics", "/events", "/ledger", "/outbox", "/dead", "/settlement", "/sources", "/health", "/audit"];
    for path in pages.into_iter().chain(["/healthz", "/readyz", "/entities", "/events/1", "/api/v1/events/1"]) {
        for token in ["", OPERATOR] {
            let host = server.operator;
            let request = format!(
                "GET {path} HTTP/1.1\r\nHost: {host}\r\nAuthorization: Bearer {token}\r\nConnection: close\r\n\r\n"
            );
            let mut wire = harness::Wire::to(host);
            wire.write(request.as_bytes()).unwrap();
            let answer = wire.answer().unwrap();
            shows_none(&format!("the operator's {path}"), format!("{answer:?}").as_bytes());
            no_proof(path, &format!("{answer:?}"));
            if path.ends_with("/events/1") && answer.status == 200 {
                assert!(
                    answer.body.to_ascii_lowercase().contains("stripe-signature: ("),
                    "which headers came is not told"
                );
            }
            served.extend((answer.status == 200 && token == OPERATOR).then_some(path));
        }
    }
    assert!(pages.iter().all(|page| served.contains(page)), "not all pages were looked at: {served:?}");
    for list in [&["events"][..], &["events", "--json"], &["ledger", "--json"], &["dead"], &["balances"], &["check"]] {
        let printed = server.run(list).1;
        shows_none(&list.join(" "), printed.as_bytes());
        no_proof(&list.join(" "), &printed);
    }
    server.kill();
    for entry in fs::read_dir(server.folder.join("")).unwrap() {
        let path = entry.unwrap().path();
        if path.file_name().is_some_and(|name| name != "test.toml") {
            shows_none(&path.display().to_string(), &fs::read(&path).unwrap());
        }
    }
    let server = server.restart();
    server.stop();
    shows_none("the log of both lives", server.log().as_bytes());
    no_proof("the log of both lives", &server.log());
}

#[test]
fn a_secret_in_the_wrong_place_is_not_repeated_by_the_complaint() {
    let folder = Folder::new();
    let config = folder.join("postonce.toml");
    for text in [
        format!("[[source]]\nname = \"stripe\"\nsecrets = [\"{SIGNING}\"]\n"),
        format!("[[source]]\nname = \"stripe\"\nsecrets = [\"env:SET\"]\napi_key = \"{API_KEY}\"\n"),
        format!("[[source]]\nname = \"stripe\"\nsecret = \"{SIGNING}\"\n"),
        format!("[[source]]\nname = \"stripe\"\nsecrets = \"{SIGNING}\"\n"),
        format!("[operator]\ntoken = \"{OPERATOR}\"\n[[source]]\nname = \"stripe\"\nsecrets = [\"{SIGNING}\"]\n"),
        format!("[[source]]\nname = \"stripe\"\nsecrets = [{SIGNING}]\n"),
    ] {
        fs::write(&config, text).unwrap();
        for command in ["serve", "doctor"] {
            let output = postonce()
                .args([command, "--config"])
                .arg(&config)
                .args(["--listen", "127.0.0.1:0", "--operator", "127.0.0.1:0", "--database"])
                .arg(folder.join("x.db"))
                .env("SET", SIGNING)
                .output()
                .unwrap();
            assert!(!output.status.success());
            shows_none(command, &[output.stdout, output.stderr].concat());
        }
    }
    for source in [format!("stripe={SIGNING}"), format!("stripe:{SIGNING}"), SIGNING.to_owned()] {
        let output =
            postonce().args(["serve", "--source", &source, "--database"]).arg(folder.join("x.db")).output().unwrap();
        assert!(!output.status.success());
        shows_none("serve --source", &[output.stdout, output.stderr].concat());
    }
}

#[test]
fn the_files_belong_to_their_owner_alone() {
    let server = Server::start();
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 100)).is(200);
    server.settled();
    let mut seen = Vec::new();
    for entry in fs::read_dir(server.folder.join("")).unwrap() {
        let entry = entry.unwrap();
        let name = entry.file_name().into_string().unwrap();
        if name.starts_with("postonce.db") {
            let mode = entry.metadata().unwrap().permissions().mode() & 0o777;
            assert_eq!(mode, 0o600, "{name} has mode {mode:o}");
            seen.push(name);
        }
    }
    seen.sort();
    assert_eq!(seen, ["postonce.db", "postonce.db-postonce.lock", "postonce.db-shm", "postonce.db-wal"]);
}
