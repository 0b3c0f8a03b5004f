//! The operator's listener over real sockets: who gets in, what a change needs, what pages and API say of what happened.

use crate::harness::{Answer, SECRET, Server, Setup, Wire, eventually, postonce, stripe};
use serde_json::Value;

const TOKEN: &str = "the-operator-token-of-the-tests";
const READER: &str = "the-reader-token-of-the-tests";

fn guarded() -> Server {
    Setup::config(
        "[operator]\ntoken = \"env:OPERATOR\"\nread_only_token = \"env:READER\"\n[[source]]\nname = \"stripe\"\nsecrets = [\"env:SECRET\"]\n",
    )
    .env("OPERATOR", TOKEN)
    .env("READER", READER)
    .env("SECRET", SECRET)
    .start()
}

/// A request with these header lines; Host is that of the listener unless they name one.
pub fn ask(server: &Server, method: &str, path: &str, headers: &[(&str, &str)], body: &str) -> Answer {
    let mut text = format!("{method} {path} HTTP/1.1\r\n");
    if !headers.iter().any(|(name, _)| *name == "Host") {
        text.push_str(&format!("Host: {}\r\n", server.operator));
    }
    for (name, value) in headers {
        text.push_str(&format!("{name}: {value}\r\n"));
    }
    text.push_str(&format!("Content-Length: {}\r\n\r\n{body}", body.len()));
    let mut wire = Wire::to(server.operator);
    wire.write(text.as_bytes()).unwrap();
    wire.answer().unwrap()
}

fn get(server: &Server, path: &str) -> Answer {
    ask(server, "GET", path, &[], "")
}

fn json(server: &Server, path: &str) -> Value {
    serde_json::from_str(&get(server, path).is(200).body).unwrap()
}

fn bearer(token: &str) -> String {
    format!("Bearer {token}")
}

/// Changes by JSON, as a program would.
pub fn change(server: &Server, path: &str, body: &str) -> Answer {
    ask(server, "POST", path, &[("Content-Type", "application/json")], body)
}

/// The cookie and the form token of a session.
fn session(server: &Server, token: &str) -> (String, String) {
    let form = format!("name=Robin&token={token}");
    let headers = [("Content-Type", "application/x-www-form-urlencoded")];
    let answer = ask(server, "POST", "/login", &headers, &form).is(303);
    let cookie = answer.header("set-cookie").unwrap().to_owned();
    for part in ["HttpOnly", "SameSite=Strict", "Path=/"] {
        assert!(cookie.contains(part), "{cookie}");
    }
    let cookie = cookie.split(';').next().unwrap().to_owned();
    let page = ask(server, "GET", "/", &[("Cookie", &cookie)], "").is(200).body;
    let csrf = page.split("name=\"csrf\" value=\"").nth(1).and_then(|rest| rest.split('"').next()).unwrap();
    (cookie, csrf.to_owned())
}

fn parked(server: &Server) -> i64 {
    server.send("stripe", &stripe::charge_in("evt_p", "pi_p", 100, "zzz")).is(200);
    server.settled();
    server.count("SELECT id FROM postonce_raw_events WHERE state = 'PARKED'")
}

#[test]
fn nobody_looks_without_a_token_once_there_is_one() {
    let server = guarded();
    get(&server, "/").is(303);
    get(&server, "/events").is(303);
    let refused = get(&server, "/api/v1/events").is(401);
    assert_eq!(refused.header("content-type"), Some("application/problem+json"));
    assert!(refused.header("www-authenticate").is_some());
    get(&server, "/healthz").is(200);
    get(&server, "/readyz").is(200);
    for token in [TOKEN, READER] {
        ask(&server, "GET", "/api/v1/events", &[("Authorization", &bearer(token))], "").is(200);
    }
    ask(&server, "GET", "/api/v1/events", &[("Authorization", &bearer("another-token-altogether"))], "").is(401);
    ask(&server, "GET", "/", &[("Cookie", "postonce_session=0000")], "").is(303);
}

#[test]
fn wrong_tokens_lock_the_door_for_a_while() {
    let server = guarded();
    let mut statuses = Vec::new();
    for _ in 0..6 {
        let headers = [("Authorization", "Bearer wrong-wrong-wrong-wrong")];
        statuses.push(ask(&server, "GET", "/api/v1/events", &headers, "").status);
    }
    assert_eq!(statuses, [401, 401, 401, 401, 401, 429]);
    let locked = ask(&server, "GET", "/api/v1/events", &[("Authorization", &bearer(TOKEN))], "").is(429);
    assert!(locked.header("retry-after").is_some());
    eventually("the right token is let in again", || {
        let answer = ask(&server, "GET", "/api/v1/events", &[("Authorization", &bearer(TOKEN))], "");
        (answer.status == 200).then_some(())
    });
}

#[test]
fn a_reader_changes_nothing() {
    let server = guarded();
    let id = parked(&server);
    let path = format!("/api/v1/events/{id}/replay");
    let headers = [("Authorization", bearer(READER)), ("Content-Type", "application/json".into())];
    let headers: Vec<(&str, &str)> = headers.iter().map(|(n, v)| (*n, v.as_str())).collect();
    ask(&server, "POST", &path, &headers, "{}").is(403);
    let (cookie, csrf) = session(&server, READER);
    let headers = [("Cookie", cookie.as_str()), ("Content-Type", "application/x-www-form-urlencoded")];
    ask(&server, "POST", &format!("/events/{id}/replay"), &headers, &format!("csrf={csrf}")).is(403);
    assert_eq!(server.count("SELECT count(*) FROM postonce_audit"), 0);
}

#[test]
fn a_form_without_its_token_or_from_another_site_changes_nothing() {
    let server = guarded();
    let id = parked(&server);
    let path = format!("/events/{id}/replay");
    let (cookie, csrf) = session(&server, TOKEN);
    let form = ("Content-Type", "application/x-www-form-urlencoded");
    let good = format!("csrf={csrf}&note=mended");
    ask(&server, "POST", &path, &[("Cookie", &cookie), form], "note=x").is(403);
    ask(&server, "POST", &path, &[("Cookie", &cookie), form], "csrf=0123").is(403);
    ask(&server, "POST", &path, &[("Cookie", &cookie), form, ("Origin", "https://evil.example")], &good).is(403);
    ask(&server, "POST", &path, &[("Cookie", &cookie), form, ("Sec-Fetch-Site", "cross-site")], &good).is(403);
    ask(&server, "POST", &path, &[("Cookie", &cookie), ("Content-Type", "text/plain")], &good).is(415);
    assert_eq!(server.count("SELECT count(*) FROM postonce_audit"), 0);
    let origin = format!("http://{}", server.operator);
    ask(&server, "POST", &path, &[("Cookie", &cookie), form, ("Origin", &origin)], &good).is(303);
    let audit: (String, String, String) = server
        .db()
        .query_row("SELECT who, target, note FROM postonce_audit", [], |r| Ok((r.get(0)?, r.get(1)?, r.get(2)?)))
        .unwrap();
    assert_eq!(audit, ("Robin from 127.0.0.1".into(), format!("event {id}"), "mended".into()));
    ask(&server, "POST", "/logout", &[("Cookie", &cookie), form], "").is(303);
    ask(&server, "GET", "/events", &[("Cookie", &cookie)], "").is(303);
}

#[test]
fn without_a_token_only_names_of_this_machine_are_answered() {
    let server = Server::start();
    get(&server, "/").is(200);
    ask(&server, "GET", "/", &[("Host", "localhost:1234")], "").is(200);
    ask(&server, "GET", "/", &[("Host", "rebound.example")], "").is(421);
    ask(&server, "GET", "/api/v1/events", &[("Host", "rebound.example")], "").is(421);
    // A foreign page cannot send JSON without asking first, and a plain form is refused.
    let id = parked(&server);
    let path = format!("/api/v1/events/{id}/replay");
    ask(&server, "POST", &path, &[("Content-Type", "text/plain")], "{}").is(415);
    ask(&server, "POST", &path, &[("Content-Type", "application/json"), ("Origin", "https://evil.example")], "{}")
        .is(403);
    change(&server, &path, "{}").is(200);
}

#[test]
fn a_listener_for_others_needs_a_token_and_a_short_one_is_refused() {
    let open = postonce().args(["serve", "--database", "x.db", "--operator", "0.0.0.0:0"]).output().unwrap();
    let refused = String::from_utf8_lossy(&open.stderr).into_owned();
    assert!(!open.status.success() && refused.contains("has no token"), "{refused}");
    let config = "[operator]\ntoken = \"env:OPERATOR\"\n[[source]]\nname = \"stripe\"\nsecrets = [\"env:SECRET\"]\n";
    let refused = Setup::config(config).env("OPERATOR", "short").env("SECRET", SECRET).refused();
    assert!(refused.contains("16 characters") && !refused.contains("short\n"), "{refused}");
}

#[test]
fn every_page_answers_before_and_after_the_first_event() {
    let server = Server::start();
    let pages = [
        "/",
        "/events",
        "/ledger",
        "/ledger/accounts",
        "/entities",
        "/outbox",
        "/dead",
        "/settlement",
        "/sources",
        "/health",
        "/audit",
    ];
    for path in pages {
        let page = get(&server, path).is(200);
        let policy = page.header("content-security-policy").unwrap();
        assert!(policy.starts_with("default-src 'none'") && !policy.contains("unsafe"), "{policy}");
        assert_eq!(page.header("x-content-type-options"), Some("nosniff"));
        assert_eq!(page.header("cache-control"), Some("no-store"));
        assert!(
            !page.body.contains("<script") && !page.body.contains(" style=") && !page.body.contains("http-equiv"),
            "{path}"
        );
    }
    assert!(
        get(&server, "/events").body.contains("/webhooks/stripe"),
        "the empty page says where to point the provider"
    );
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 4999)).is(200);
    server.settled();
    for path in pages {
        get(&server, path).is(200);
    }
    assert!(get(&server, "/events/1").body.contains("49.99 USD"));
    get(&server, "/events/2").is(404);
    get(&server, "/events/0").is(404);
    get(&server, "/events?colour=red").is(400);
    ask(&server, "DELETE", "/events", &[], "").is(405);
    let sheet = get(&server, "/style.css").is(200);
    let tag = sheet.header("etag").unwrap().to_owned();
    ask(&server, "GET", "/style.css", &[("If-None-Match", &tag)], "").is(304);
}

#[test]
fn script_in_a_payload_is_text_and_its_bytes_come_back_as_sent() {
    let server = Server::start();
    let body = stripe::object(
        "evt_<script>alert(1)</script>",
        "product.created",
        r#"{"id":"p","object":"product","name":"<img src=x onerror=alert(1)>","n":1.10}"#,
    );
    server.send("stripe", &body).is(200);
    server.settled();
    for path in ["/events", "/events/1", "/events/1?pretty=1"] {
        let page = get(&server, path).is(200).body;
        assert!(!page.contains("<script") && !page.contains("<img"), "{page}");
        assert!(page.contains("&lt;script&gt;"), "{path}");
    }
    let download = get(&server, "/events/1/body").is(200);
    assert_eq!(download.body, body);
    assert_eq!(download.header("content-type"), Some("application/octet-stream"));
    assert!(download.header("content-disposition").unwrap().starts_with("attachment"));
}

#[test]
fn events_are_found_by_id_reference_customer_type_state_and_time() {
    let server = Server::start();
    for (at, amount) in [(1, 100), (2, 200), (3, 300)] {
        server.send("stripe", &stripe::charge(&format!("evt_{at}"), &format!("pi_{at}"), amount)).is(200);
    }
    server.send("stripe", &stripe::refund("evt_4", "re_4", "pi_2", 50)).is(200);
    parked(&server);
    let found = |query: &str| -> Vec<i64> {
        let found = json(&server, &format!("/api/v1/events?{query}"));
        found["items"].as_array().unwrap().iter().map(|e| e["id"].as_i64().unwrap()).collect()
    };
    assert_eq!(found("id=evt_1"), [1]);
    assert_eq!(found("id=pi_2"), [4, 2], "the payment and its refund");
    assert_eq!(found("id=ch_pi_3"), [3], "by its other name");
    assert_eq!(found("id=re_4"), [4]);
    assert_eq!(found("account=cus_1&type=charge.*"), [3, 2, 1]);
    assert_eq!(found("type=refund.created"), [4]);
    assert_eq!(found("state=parked"), [5]);
    assert_eq!(found("state=done&source=stripe"), [4, 3, 2, 1]);
    assert_eq!(found("source=paddle"), [0_i64; 0]);
    assert_eq!(found("to=2020-01-01"), [0_i64; 0]);
    assert_eq!(found("from=2020-01-01&to=2100-01-01").len(), 5);
    let mut seen = Vec::new();
    let mut path = "/api/v1/events?limit=2".to_owned();
    loop {
        let page = json(&server, &path);
        seen.extend(page["items"].as_array().unwrap().iter().map(|e| e["id"].as_i64().unwrap()));
        let Some(next) = page["next"].as_str() else { break };
        path = format!("/api/v1/events?limit=2&cursor={next}");
    }
    assert_eq!(seen, [5, 4, 3, 2, 1], "pages have no gap and no overlap");
}

#[test]
fn a_preview_changes_nothing_and_says_what_a_replay_then_does() {
    let config = "[[source]]\nname = \"stripe\"\nsecrets = [\"env:SECRET\"]\n[[source.effect]]\non = [\"payment\"]\nsql = \"UPDATE app_users SET paid = paid + :amount WHERE id = :account\"\nexpect_rows = 1\n";
    let folder = std::sync::Arc::new(crate::harness::Folder::new());
    let app = rusqlite::Connection::open(folder.join("postonce.db")).unwrap();
    app.execute_batch("PRAGMA journal_mode = WAL; CREATE TABLE app_users(id TEXT PRIMARY KEY, paid INTEGER NOT NULL)")
        .unwrap();
    let server = Server::start_in(folder, Setup::config(config).env("SECRET", SECRET).arg("--adopt"));
    app.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 4999)).is(200);
    server.wait_for("SELECT count(*) = 1 FROM postonce_raw_events WHERE reason IS NOT NULL");
    // The last of its ten attempts, written here instead of waited for.
    app.execute_batch("UPDATE postonce_raw_events SET state = 'DEAD', attempts = 10, due_at = NULL, ended_at = received_at; INSERT INTO app_users VALUES ('cus_1', 0)").unwrap();

    let before = (server.ledger(), server.states());
    let preview = json(&server, "/api/v1/events/1/preview");
    assert_eq!((preview["state"].as_str(), preview["replayable"].as_bool()), (Some("DONE"), Some(true)));
    assert_eq!(preview["entries"][0]["amount"], 4999);
    assert_eq!((server.ledger(), server.states()), before, "nothing has changed");
    assert_eq!(server.count("SELECT paid FROM app_users"), 0, "not even in the app's table");

    change(&server, "/api/v1/events/1/replay", r#"{"note":"she is a customer now"}"#).is(200);
    server.settled();
    assert_eq!(server.ledger(), ["payment pi_1 cus_1 4999 USD"]);
    assert_eq!(server.count("SELECT paid FROM app_users"), 4999);
    let again = json(&server, "/api/v1/events/1/preview");
    assert_eq!((again["replayable"].as_bool(), &again["posted_before"][0]), (Some(false), &Value::from(1)));
    change(&server, "/api/v1/events/1/replay", "{}").is(409);
    let audit = json(&server, "/api/v1/audit?target=event%201");
    assert_eq!(audit["items"].as_array().unwrap().len(), 1, "what was refused is no change");
    assert_eq!(audit["items"][0]["note"], "she is a customer now");
    server.check();
}

#[test]
fn an_entry_is_taken_back_once_with_a_note_and_the_balances_follow() {
    let server = Server::start();
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 4999)).is(200);
    server.settled();
    let balance = |query: &str| {
        let found = json(&server, &format!("/api/v1/accounts?code=clearing{query}"));
        found["items"][0]["balance"].as_i64().unwrap()
    };
    let would = json(&server, "/api/v1/entries/1/reversal?note=sent%20to%20the%20wrong%20shop");
    assert_eq!((would["amount"].as_i64(), would["reverses"].as_i64()), (Some(-4999), Some(1)));
    assert_eq!(balance(""), 4999, "a preview changes nothing");
    change(&server, "/api/v1/entries/1/reverse", r#"{"note":"  "}"#).is(400);
    change(&server, "/api/v1/entries/1/reverse", r#"{"note":"sent to the wrong shop"}"#).is(200);
    assert_eq!(balance(""), 0);
    assert_eq!(balance("&as_of=2020-01-01"), 0);
    let recorded = json(&server, "/api/v1/entries/1")["entry"]["recorded_at"].as_str().unwrap().to_owned();
    assert_eq!(balance(&format!("&as_of={recorded}")), 4999, "as it was then");
    // The provider's clock says November 2026 at the payment's time in the test, and the correction happened now.
    assert_eq!(json(&server, "/api/v1/entries/1")["reversed_by"], 2);
    change(&server, "/api/v1/entries/1/reverse", r#"{"note":"again"}"#).is(409);
    change(&server, "/api/v1/entries/2/reverse", r#"{"note":"a reversal"}"#).is(409);
    change(&server, "/api/v1/entries/9/reverse", r#"{"note":"nothing"}"#).is(404);
    assert_eq!(server.count("SELECT count(*) FROM postonce_audit WHERE what = 'reverse'"), 1);
    server.check();
}

#[test]
fn the_audit_cannot_be_altered() {
    let server = Server::start();
    let id = parked(&server);
    change(&server, &format!("/api/v1/events/{id}/replay"), "{}").is(200);
    let db = rusqlite::Connection::open(server.database()).unwrap();
    db.busy_timeout(std::time::Duration::from_secs(5)).unwrap();
    assert!(db.execute("UPDATE postonce_audit SET who = 'nobody'", []).is_err());
    assert!(db.execute("DELETE FROM postonce_audit", []).is_err());
    assert_eq!(server.count("SELECT count(*) FROM postonce_audit"), 1);
}

#[test]
fn a_check_on_demand_runs_beside_the_server_and_tells_its_outcome() {
    let server = Server::start();
    server.send("stripe", &stripe::charge("evt_1", "pi_1", 4999)).is(200);
    server.settled();
    assert_eq!(json(&server, "/api/v1/check")["ended_at"], Value::Null);
    change(&server, "/api/v1/check", "").is(200);
    let check = eventually("the check ends", || {
        let check = json(&server, "/api/v1/check");
        (check["running"] == Value::Bool(false)).then_some(check)
    });
    assert_eq!(check["offences"].as_array().map(Vec::len), Some(0), "{check}");
    assert!(check["ended_at"].is_string());
    assert!(get(&server, "/health").body.contains("as promised"));
}

#[test]
fn problems_are_documents_that_say_what_to_try() {
    let server = Server::start();
    let problem = get(&server, "/api/v1/events?state=sideways").is(400);
    assert_eq!(problem.header("content-type"), Some("application/problem+json"));
    let problem: Value = serde_json::from_str(&problem.body).unwrap();
    assert_eq!(problem["status"], 400);
    assert!(problem["detail"].as_str().unwrap().contains("received"), "{problem}");
    assert!(problem["type"].as_str().unwrap().starts_with("urn:postonce:problem:"));
    for (path, status) in [
        ("/api/v1/events/99", 404),
        ("/api/v1/nothing", 404),
        ("/api/v1/events?limit=0", 400),
        ("/api/v1/events?limit=201", 400),
        ("/api/v1/events?cursor=x", 400),
        ("/api/v1/events?from=yesterday", 400),
        ("/api/v1/events?limit=1&limit=2", 400),
    ] {
        get(&server, path).is(status);
    }
    let allow = ask(&server, "PUT", "/api/v1/events", &[], "").is(405);
    assert_eq!(allow.header("allow"), Some("GET, HEAD"));
}
