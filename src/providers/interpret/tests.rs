//! What bodies may hold that fixtures do not show: odd numbers, flags, ids, shapes, and bytes nobody would send.

use super::expected::to_expected_json;
use super::fixtures::{interpreter, reading};
use super::{Interpreter, Reading};
use crate::event::{Amount, EntityState, Event, Known, Meaning, Mode, Movement, Role};
use crate::providers::Recipe;
use serde_json::json;

/// A provider that exists only as this text.
const INVENTED: &str = r#"
provider = "tollgate"
title = "Tollgate"

[signature]
kind = "hmac"
alg = "sha256"
encoding = "hex"
header = "X-Signature"
content = "{body}"
covers = "body"

[event]
body = "json"
id = "/event"
type = "/what"
time = { unix = "/at" }
mode = { from = "/sandbox", map = { true = "test", false = "live" } }
account = "/shop"
account_in_key = true
batch = { items = "/list", each = "/wrapped" }
exponents = { ISK = 2, MGA = 0 }

[event.options.capture]
default = "auto"
values = ["auto", "manual"]
about = "who captures"

[[movement]]
on = "passed"
option = { capture = "auto" }
when = [["/ok", "is", true]]
kind = "payment"
reference = ["/pass", "/ticket"]
also = "/ticket"
amount = { minor = "/cents" }
currency = "/money"
account = "/driver"
fee = { minor = "/fee", currency = "/fee_money" }

[[movement]]
on = "passed.major"
kind = "payment"
reference = "/pass"
amount = { major = "/euros" }
currency = "/money"

[[movement]]
on = "returned"
each = "/parts"
when = [["./done", "eq", true]]
kind = "refund"
reference = { join = ["/pass", "./no"] }
amount = { minor = "./cents" }
currency = "/money"
parent = "/pass"

[[entity]]
on = "pass.*"
kind = "pass"
id = "/pass"
status = { from = "/state", map = { open = "active", shut = "ended" } }
provider_status = "/state"

[[fetch]]
on = "thin"
path = "/v1/passes/{/pass}?full=1"
answer = "pass"

[[fetch]]
on = "thin.url"
path = "{/url|path below /v1/}"

[[movement]]
answer = "pass"
kind = "payment"
reference = "/id"
amount = { minor = "/cents" }
currency = "/money"

[[park]]
on = "odd"
because = "an odd one"

[[ignore]]
on = ["news", "passed.*"]
because = "only news"

[[ignore]]
on = "ping"
ping = true
because = "a test call"
"#;

pub(super) fn invented() -> Interpreter {
    let recipe = Recipe::read("tollgate.toml", INVENTED).unwrap();
    Interpreter::new(&recipe.events(), &Default::default()).unwrap()
}

pub(super) fn read(interpreter: &Interpreter, body: &str) -> Reading {
    interpreter.interpret::<&str, &str>(body.as_bytes(), &[], "", 1)
}

/// One event of the invented provider.
pub(super) fn event(fields: &str) -> Event {
    let reading = read(&invented(), &format!("{{\"list\":[{{\"wrapped\":{{\"event\":\"e\",{fields}}}}}]}}"));
    assert_eq!(reading.events.len(), 1);
    reading.events.into_iter().next().unwrap()
}

fn movements(event: &Event) -> &[Movement] {
    match &event.meaning {
        Meaning::Effects { movements, .. } => movements,
        other => panic!("no effects but {other:?}"),
    }
}

pub(super) fn parked(event: &Event) -> &str {
    match &event.meaning {
        Meaning::Parked(why) => why,
        other => panic!("not parked but {other:?}"),
    }
}

fn ignored(event: &Event) -> &str {
    match &event.meaning {
        Meaning::Ignored(why) => why,
        other => panic!("not ignored but {other:?}"),
    }
}

#[test]
fn a_provider_is_added_by_one_file() {
    let body = r#"{"list":[
        {"wrapped":{"event":"e1","what":"passed","at":1795000000,"sandbox":false,"shop":7,"ok":"true","pass":"p1","ticket":"t1",
         "cents":1250,"money":"eur","driver":"ann","fee":"30","fee_money":"USD"}},
        {"wrapped":{"event":"e2","what":"returned","sandbox":true,"pass":"p1","money":"EUR",
         "parts":[{"no":1,"cents":5,"done":true},{"no":2,"cents":6,"done":false},{"no":3,"cents":7,"done":true}]}},
        {"wrapped":{"event":"e3","what":"pass.shut","pass":"p1","state":"shut","at":1}},
        {"wrapped":{"event":"e4","what":"thin","pass":"a/../b?c"}}
    ]}"#;
    let all = read(&invented(), body).events;
    let first = &movements(&all[0])[0];
    assert_eq!((all[0].mode, all[0].provider_account.as_deref()), (Some(Mode::Live), Some("7")));
    assert_eq!((first.reference.as_str(), first.aliases.as_slice()), ("p1", ["t1".to_owned()].as_slice()));
    assert_eq!((first.amount, first.currency.code(), first.role), (Amount::Exact(1250), "EUR", Role::Primary));
    assert_eq!(first.fee.map(|fee| (fee.minor, fee.currency.code().to_owned())), Some((30, "USD".into())));
    assert_eq!(first.occurred_at, Some(1_795_000_000_000));
    let back: Vec<_> = movements(&all[1]).iter().map(|m| (m.reference.as_str(), m.amount.minor())).collect();
    assert_eq!((back, all[1].mode), (vec![("p1/1", 5), ("p1/3", 7)], Some(Mode::Test)));
    let Meaning::Effects { entities, .. } = &all[2].meaning else { panic!("{:?}", all[2]) };
    assert_eq!((entities[0].status.as_str(), entities[0].as_of), ("ended", Some(1000)));
    assert_eq!(all[3].meaning, Meaning::Fetch("/v1/passes/a%2F..%2Fb%3Fc?full=1".into()));
    let answer = invented().interpret_answer(&all[3], br#"{"id":5,"cents":300,"money":"JPY"}"#, 1);
    assert_eq!((movements(&answer.events[0])[0].reference.as_str(), answer.events[0].id.as_deref()), ("5", Some("e4")));
}

#[test]
fn each_item_of_a_batch_stands_alone() {
    let good =
        |n: u8| format!(r#"{{"wrapped":{{"what":"passed","ok":true,"pass":"p{n}","cents":100,"money":"EUR"}}}}"#);
    let items = [
        good(1),
        good(2),
        r#"{"message_v9":{}}"#.into(),
        r#"{"wrapped":{"what":"v9","x":[]}}"#.into(),
        "7".into(),
        good(6),
    ];
    let all = read(&invented(), &format!("{{\"list\":[{}]}}", items.join(","))).events;
    assert_eq!(all.iter().filter(|e| matches!(e.meaning, Meaning::Effects { .. })).count(), 3);
    assert!(parked(&all[2]).contains("unexpected shape") && parked(&all[4]).contains("unexpected shape"));
    assert_eq!((ignored(&all[3]), all[3].known), ("no rule for type `v9`", Known::No));
    assert!(ignored(&read(&invented(), r#"{"list":[]}"#).events[0]).contains("without items"));
}

#[test]
fn what_cannot_be_read_is_parked_with_the_reason() {
    for (body, reason) in [
        ("", "not JSON"),
        ("[1,2,3]", "unexpected shape"),
        ("{\"list\":{}}", "unexpected shape"),
        ("\u{1}", "not JSON"),
        ("{\"list\":[{\"wrapped\":{\"what\":null}}]}", "no event type at /what"),
    ] {
        let reading = read(&invented(), body);
        assert!(parked(&reading.events[0]).contains(reason), "{body}: {:?}", reading.events[0]);
    }
    let bytes = invented().interpret::<&str, &str>(b"\xff\xfe{", &[], "", 1);
    assert!(parked(&bytes.events[0]).contains("not JSON"));
}

#[test]
fn only_reference_amount_currency_and_effect_are_needed() {
    let base = r#""what":"passed","ok":true,"pass":"p","cents":1,"money":"EUR""#;
    assert_eq!(movements(&event(base)).len(), 1);
    for (without, reason) in [
        (r#""what":"passed","ok":true,"cents":1,"money":"EUR""#, "no reference"),
        (r#""what":"passed","ok":true,"pass":null,"cents":1,"money":"EUR""#, "no reference"),
        (r#""what":"passed","ok":true,"pass":"","ticket":"","cents":1,"money":"EUR""#, "no reference"),
        (r#""what":"passed","ok":true,"pass":"p","money":"EUR""#, "required field missing: /cents"),
        (r#""what":"passed","ok":true,"pass":"p","cents":1"#, "required field missing: /money"),
        (r#""what":"passed","pass":"p","cents":1,"money":"EUR""#, "flag unreadable: /ok is missing"),
    ] {
        assert!(parked(&event(without)).contains(reason), "{without}");
    }
}

#[test]
fn flags_travel_as_text_and_only_true_is_true() {
    let with = |ok: &str| event(&format!(r#""what":"passed","ok":{ok},"pass":"p","cents":1,"money":"EUR""#));
    assert!(
        matches!(with("true").meaning, Meaning::Effects { .. })
            && matches!(with("\"true\"").meaning, Meaning::Effects { .. })
    );
    assert!(ignored(&with("false")).contains("/ok is true") && ignored(&with("\"false\"")).contains("/ok is true"));
    for odd in ["\"TRUE\"", "1", "null", "\"yes\"", "{}"] {
        assert!(parked(&with(odd)).contains("flag unreadable"), "{odd}");
    }
}

#[test]
fn ids_are_the_digits_that_were_sent() {
    let with = |id: &str| event(&format!(r#""what":"passed","ok":true,"pass":{id},"cents":100,"money":"EUR""#));
    let name = |id: &str| movements(&with(id))[0].reference.clone();
    assert_eq!(name("9007199254740993"), "9007199254740993");
    assert_eq!(name("9223372036854775807"), "9223372036854775807");
    assert_eq!((name("123"), name("\"123\"")), ("123".into(), "123".into()));
    for odd in ["123.0", "1.23e2", "1E2"] {
        assert!(parked(&with(odd)).contains("only plain digits"), "{odd}");
    }
    assert!(parked(&with(&format!("\"{}\"", "x".repeat(501)))).contains("longer than 500"));
    assert!(parked(&with(&format!("\"{}\"", "x".repeat(5000)))).contains("longer than 4096"));
    assert_eq!(name(r#""a\u0000b""#), "a\0b");
    assert_ne!(name(r#""\ud83d""#), name(r#""\ud83e""#));
}

#[test]
fn amounts_are_exact_or_parked() {
    let minor = |amount: &str, money: &str| {
        event(&format!(r#""what":"passed","ok":true,"pass":"p","cents":{amount},"money":"{money}""#))
    };
    let major = |amount: &str, money: &str| {
        event(&format!(r#""what":"passed.major","pass":"p","euros":{amount},"money":"{money}""#))
    };
    for (amount, money, expected) in [
        ("8000", "jpy", 8000),
        ("8000", "usd", 8000),
        ("\"8000\"", "KWD", 8000),
        ("500000", "ISK", 5000),
        ("7", "MGA", 700),
        ("5", " usd", 5),
    ] {
        assert_eq!(movements(&minor(amount, money))[0].amount, Amount::Exact(expected), "{amount} {money}");
    }
    for (amount, money, expected) in [
        ("\"10000\"", "JPY", 10000),
        ("80.00", "USD", 8000),
        ("\"8.000\"", "KWD", 8000),
        ("1.2345E1", "KWD", 12345),
        ("63.0", "ISK", 63),
    ] {
        assert_eq!(movements(&major(amount, money))[0].amount, Amount::Exact(expected), "{amount} {money}");
    }
    for (amount, money, reason) in [
        ("\"1,000.00\"", "USD", "not a plain decimal"),
        ("\"1.000,00\"", "USD", "not a plain decimal"),
        ("\"1 000.00\"", "USD", "not a plain decimal"),
        ("\"10,000\"", "JPY", "not a plain decimal"),
        ("9.990000000000002", "USD", "fraction"),
        ("0.001", "USD", "fraction"),
        ("1e300", "USD", "larger than"),
        ("-5", "USD", "negative"),
        ("5", "XXQ", "unknown currency `XXQ`"),
        ("5", "XAU", "unknown currency"),
        ("true", "USD", "not a plain decimal"),
        ("{}", "USD", "required field missing"),
    ] {
        assert!(parked(&major(amount, money)).contains(reason), "{amount} {money}: {:?}", major(amount, money).meaning);
    }
    for amount in ["49.00", "\"49.00\"", "4.9e3"] {
        assert!(parked(&minor(amount, "USD")).contains("smallest unit has no decimals"), "{amount}");
    }
    assert!(parked(&minor("500001", "ISK")).contains("fraction"));
    assert_eq!(ignored(&minor("0", "USD")), "zero amount: nothing to post");
    assert_eq!(ignored(&major("\"0.00\"", "USD")), "zero amount: nothing to post");
}

#[test]
fn what_is_known_and_moves_nothing_is_told_from_what_nobody_knows() {
    let kinds = |what: &str| {
        let event = event(&format!(r#""what":"{what}""#));
        (event.known, ignored(&event).to_owned())
    };
    assert_eq!(kinds("news"), (Known::Announcement, "only news".into()));
    assert_eq!(kinds("ping"), (Known::Ping, "a test call".into()));
    assert_eq!(kinds("passed.9"), (Known::Announcement, "only news".into()));
    assert_eq!(kinds("quantum"), (Known::No, "no rule for type `quantum`".into()));
    assert_eq!(parked(&event(r#""what":"odd""#)), "an odd one");
}

#[test]
fn a_state_with_a_new_word_is_parked_and_kept_as_unknown() {
    let event = event(r#""what":"pass.x","pass":"p","state":"deleting","at":5"#);
    assert!(parked(&event).contains("unknown value `deleting` at /state"));
    let EntityState { status, provider_status, .. } = &event.states_of_parked[0];
    assert_eq!((status.as_str(), provider_status.as_deref()), ("unknown", Some("deleting")));
}

#[test]
fn a_mode_that_cannot_be_read_parks_money_and_only_money() {
    let odd = event(r#""what":"passed","ok":true,"pass":"p","cents":1,"money":"EUR","sandbox":"perhaps""#);
    assert!(parked(&odd).contains("mode: unknown value `perhaps`"));
    assert_eq!(ignored(&event(r#""what":"news","sandbox":"perhaps""#)), "only news");
}

#[test]
fn a_fetch_never_leaves_the_providers_api() {
    let url = |url: &str| event(&format!(r#""what":"thin.url","url":{url}"#)).meaning;
    assert_eq!(url("\"/v1/charges/ch_1\""), Meaning::Fetch("/v1/charges/ch_1".into()));
    for odd in [
        "\"https://evil.example/v1/x\"",
        "\"//evil.example/v1/\"",
        "\"/v2/x\"",
        "\"/v1/../admin\"",
        "\"/v1/a/../../x\"",
        "\"/v1/./x\"",
        "\"/v1/x@evil.example\"",
        "\"/v1/%2e%2e/x\"",
        "\"/v1//evil\"",
        "\"/v1/x?y=1\"",
        "\"/v1/x\\ny\"",
        "\"/v1/x#f\"",
        "\"/v1/\\\\evil\"",
        "\"\"",
        "null",
        "7",
    ] {
        assert!(matches!(url(odd), Meaning::Parked(_)), "{odd}: {:?}", url(odd));
    }
    let id = |id: &str| event(&format!(r#""what":"thin","pass":{id}"#)).meaning;
    assert_eq!(id("\"é /#\""), Meaning::Fetch("/v1/passes/%C3%A9%20%2F%23?full=1".into()));
    for odd in ["\"..\"", "\".\"", "1.5", "null"] {
        assert!(matches!(id(odd), Meaning::Parked(_)), "{odd}");
    }
}

#[test]
fn an_answer_that_says_nothing_known_is_parked() {
    let asked = event(r#""what":"thin.url","url":"/v1/x""#);
    let answer = |text: &str| invented().interpret_answer(&asked, text.as_bytes(), 1).events.remove(0);
    assert!(parked(&answer("{}")).contains("no rule reads the fetched answer `thin.url`"));
    let asked = event(r#""what":"thin","pass":"p""#);
    let answer = |text: &str| invented().interpret_answer(&asked, text.as_bytes(), 1).events.remove(0);
    assert!(parked(&answer("<html>")).contains("not JSON"));
    assert!(parked(&answer("{}")).contains("required field missing"));
}

/// Wrong files are refused with the line, and with what would be right.
#[test]
fn a_wrong_file_is_refused_with_its_line_and_what_would_be_right() {
    let change = |from: &str, to: &str| {
        assert!(INVENTED.contains(from), "{from}");
        let text = INVENTED.replacen(from, to, 1);
        let line = text[..text.find(to).unwrap()].matches('\n').count() + 1;
        let error = Recipe::read("providers/tollgate.toml", &text).expect_err(to).to_string();
        assert!(error.starts_with("providers/tollgate.toml: "), "{error}");
        (line, error)
    };
    for (from, to, hint) in [
        ("kind = \"payment\"\nreference = [", "kind = \"paymant\"\nreference = [", "did you mean `payment`"),
        ("kind = \"refund\"", "kind = \"gift\"", "one of payment, payment_reversed"),
        ("minor = \"/cents\"", "minor = \"cents\"", "write `/field` for a field"),
        ("\"/list\"", "\"list\"", "write `/list`"),
        ("[\"/ok\", \"is\", true]", "[\"/ok\", \"=\", true]", "no operator: eq, ne"),
        ("[\"./done\", \"eq\", true]", "[\"./done\", \"gt\", 5]", "compares with 0 only"),
        ("on = \"passed\"", "an = \"passed\"", "unknown field `an`"),
        ("on = \"pass.*\"", "on = \"p*ss.*\"", "a * may only stand at the end"),
        ("{ minor = \"./cents\" }", "{ minor = \"./cents\", major = \"/x\" }", "one of them"),
        ("each = \"/parts\"", "role = \"primary\"", "needs `each`"),
        ("body = \"json\"", "body = \"yaml\"", "json, form, form_json:FIELD"),
        ("\"/v1/passes/{/pass}?full=1\"", "\"{/pass}/x\"", "begins with a fixed /"),
        ("{ unix = \"/at\" }", "{ unix = \"/at\", auto = \"/at\" }", "exactly one of rfc3339"),
        ("reference = \"/id\"", "reference = \"=one\"", "no reference: all movements would share it"),
        (
            "map = { open = \"active\", shut = \"ended\" } }",
            "map = { open = \"active\" }, tail = \"/\" }",
            "exactly one of map",
        ),
    ] {
        let (line, error) = change(from, to);
        assert!(error.contains(hint), "{to}: {error}");
        let named: usize =
            error.split("line ").nth(1).and_then(|t| t.split(',').next()).and_then(|t| t.parse().ok()).expect(&error);
        // what only the whole table shows is told with the line where the table begins
        let table = INVENTED[..INVENTED.find(from).unwrap()].rfind("\n[").unwrap();
        let table = INVENTED[..table].matches('\n').count() + 2;
        let length = to.matches('\n').count();
        assert!((table..=line + length).contains(&named), "line {table} to {line}: {error}");
    }
    for (from, to, hint) in [
        ("type = \"/what\"", "", "needs `type`"),
        ("ISK = 2", "ISX = 2", "no currency of ISO 4217"),
        ("false = \"live\"", "false = \"real\"", "no mode: live, test or unknown"),
        ("account = \"/shop\"", "", "needs `account`"),
        ("option = { capture = \"auto\" }", "option = { captur = \"auto\" }", "not declared under [event.options]"),
        ("option = { capture = \"auto\" }", "option = { capture = \"both\" }", "none of its values"),
        ("body = \"json\"\n", "body = \"json\"\nlike = \"stripe\"\n", "leave out the rest"),
        ("items = \"/list\"", "items = \"/\"", "has an empty key"),
        ("each = \"/wrapped\" }", "each = \"\" }", "is no pointer"),
    ] {
        assert!(change(from, to).1.contains(hint), "{to}: {}", change(from, to).1);
    }
}

#[test]
fn a_body_that_is_the_array_itself_is_said_by_empty_items_where_it_can_be_one() {
    let whole = INVENTED.replace("items = \"/list\"", "items = \"\"");
    let rules =
        Interpreter::new(&Recipe::read("tollgate.toml", &whole).unwrap().events(), &Default::default()).unwrap();
    let item = r#"{"wrapped":{"what":"passed","ok":true,"pass":"p1","cents":100,"money":"EUR"}}"#;
    let all = read(&rules, &format!("[{item},7]"));
    assert!(all.batch && all.events.len() == 2);
    assert_eq!(movements(&all.events[0])[0].reference, "p1");
    assert!(parked(&all.events[1]).contains("this item of the batch is no event"));
    assert!(ignored(&read(&rules, "[]").events[0]).contains("without items"));
    assert!(parked(&read(&rules, &format!("{{\"list\":[{item}]}}")).events[0]).contains("the body is no array"));
    // what can never be an array, and a field that an array cannot have
    let refused = |from: &str, to: &str| {
        assert!(whole.contains(from), "{from}");
        Recipe::read("tollgate.toml", &whole.replacen(from, to, 1)).expect_err(to).to_string()
    };
    for body in ["form", "form_base64_xml:x"] {
        assert!(refused("body = \"json\"", &format!("body = \"{body}\"")).contains("never is one"));
    }
    let error = refused("account = \"/shop\"", "account = \"^/shop\"");
    assert!(error.contains("`/shop` is a field of the item"), "{error}");
}

#[test]
fn options_are_checked_and_choose_rules() {
    let recipe = Recipe::read("tollgate.toml", INVENTED).unwrap();
    let with =
        |name: &str, value: &str| Interpreter::new(&recipe.events(), &[(name.to_owned(), value.to_owned())].into());
    assert!(with("captur", "auto").unwrap_err().contains("knows capture"));
    assert!(with("capture", "both").unwrap_err().contains("auto, manual"));
    let manual = with("capture", "manual").unwrap();
    let body = r#"{"list":[{"wrapped":{"what":"passed","ok":true,"pass":"p","cents":1,"money":"EUR"}}]}"#;
    assert_eq!(read(&manual, body).events[0].known, Known::No);
    let shopify = |gateways: &str| {
        let body = br#"{"id":1,"kind":"sale","status":"success","gateway":"paypal","amount":"5.00","currency":"EUR"}"#;
        let headers = [("X-Shopify-Topic", "order_transactions/create")];
        interpreter("shopify", &json!({ "gateways": gateways }))
            .interpret(body, &headers, "", 1)
            .events
            .remove(0)
            .meaning
    };
    assert!(matches!(shopify("*"), Meaning::Effects { .. }));
    assert!(matches!(shopify("a, paypal"), Meaning::Effects { .. }));
    assert!(matches!(shopify("shopify_payments"), Meaning::Ignored(_)));
}

#[test]
fn a_file_may_borrow_the_events_of_another() {
    let classic = interpreter("mollie_classic", &json!({}));
    let event = classic.interpret::<&str, &str>(b"id=tr_1", &[], "", 1).events.remove(0);
    assert_eq!(event.meaning, Meaning::Fetch("/v2/payments/tr_1?embed=refunds,chargebacks,captures".into()));
    let answer = br#"{"id":"tr_1","mode":"test","status":"paid","amount":{"value":"1.00","currency":"EUR"}}"#;
    assert_eq!(classic.interpret_answer(&event, answer, 1).events[0].mode, Some(Mode::Test));
    let recipe = crate::providers::Catalog::open(None).unwrap().recipe("mollie_classic").unwrap().unwrap();
    assert_eq!((recipe.provider.as_str(), recipe.keyed_as()), ("mollie_classic", "mollie"));
    let silent = interpreter("slack", &json!({}));
    assert_eq!(read(&silent, "{}").events[0].known, Known::No);
}

#[test]
fn a_payment_and_its_charge_are_known_by_both_names() {
    let names = |body: &str| {
        let event = read(&interpreter("stripe", &json!({})), body).events.remove(0);
        let movement = movements(&event)[0].clone();
        let mut names = movement.aliases;
        names.push(movement.reference);
        names.sort();
        names
    };
    let both = ["ch_1".to_owned(), "pi_1".to_owned()];
    for body in [
        r#"{"id":"evt_1","type":"charge.succeeded","data":{"object":{"id":"ch_1","captured":true,"payment_intent":"pi_1","amount_captured":5,"currency":"usd"}}}"#,
        r#"{"id":"evt_2","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1","latest_charge":"ch_1","amount_received":5,"currency":"usd"}}}"#,
        r#"{"id":"evt_3","type":"payment_intent.succeeded","data":{"object":{"id":"pi_1","latest_charge":{"id":"ch_1"},"amount_received":5,"currency":"usd"}}}"#,
    ] {
        assert_eq!(names(body), both);
    }
}

#[test]
fn the_own_account_of_a_thin_event_is_no_connected_account() {
    let body = r#"{"id":"evt_1","object":"event","account":"acct_me","type":"charge.expired","data":{"object":{}}}"#;
    let account = |options| read(&interpreter("stripe", &options), body).events.remove(0).provider_account;
    assert_eq!(account(json!({})).as_deref(), Some("acct_me"));
    assert_eq!(account(json!({ "own_account": "acct_me" })), None);
}

#[test]
fn a_thin_event_is_fetched_and_its_snapshot_read_as_an_event() {
    let asked = reading("stripe", "39_v1_thin_charge_succeeded").events.remove(0);
    let stripe = interpreter("stripe", &json!({}));
    let snapshot = r#"{"id":"evt_9","type":"charge.succeeded","livemode":true,"data":{"object":{"id":"ch_1","captured":true,"payment_intent":"pi_1","amount_captured":5,"currency":"usd"}}}"#;
    let answer = stripe.interpret_answer(&asked, snapshot.as_bytes(), 1).events.remove(0);
    assert_eq!((answer.id.as_deref(), movements(&answer)[0].reference.as_str()), (Some("evt_9"), "pi_1"));
    let thin = r#"{"id":"e","object":"v2.core.event","type":"v1.charge.x","related_object":{"url":"https://evil.example/v1/x"}}"#;
    assert!(matches!(read(&stripe, thin).events[0].meaning, Meaning::Parked(_)));
}

#[test]
fn an_expired_authorisation_of_an_auto_captured_account_goes_to_a_person() {
    let body = r#"{"live":"true","notificationItems":[{"NotificationRequestItem":{"eventCode":"EXPIRE","success":"true","pspReference":"P"}}]}"#;
    let meaning =
        |auto: &str| read(&interpreter("adyen", &json!({ "auto_capture": auto })), body).events.remove(0).meaning;
    assert!(matches!(meaning("true"), Meaning::Parked(_)) && matches!(meaning("false"), Meaning::Ignored(_)));
}

#[test]
fn a_partial_refund_of_unknown_amount_is_parked() {
    let gumroad = interpreter("gumroad", &json!({}));
    let body = "seller_id=s&resource_name=refund&sale_id=x&price=1000&refunded=false";
    assert!(parked(&read(&gumroad, body).events[0]).contains("partial refund"));
}

#[test]
fn a_byte_order_mark_hides_nothing() {
    let gumroad = interpreter("gumroad", &json!({}));
    let body = "\u{FEFF}sale_id=x&price=700&seller_id=s&price=1";
    assert_eq!(movements(&read(&gumroad, body).events[0])[0].amount, Amount::Exact(700));
}

#[test]
fn every_rule_of_every_file_compiles() {
    let catalog = crate::providers::Catalog::open(None).unwrap();
    let names: Vec<String> = catalog.names().map(str::to_owned).collect();
    let with_events = names.iter().filter(|name| {
        let recipe = catalog.recipe(name).unwrap().unwrap_or_else(|e| panic!("{e}"));
        Interpreter::new(&recipe.events(), &Default::default()).unwrap_or_else(|e| panic!("{name}: {e}"));
        recipe.event.kind.is_some()
    });
    assert!(with_events.count() >= 30);
}

#[test]
fn the_example_of_the_manual_page_is_a_file_that_works() {
    let manual = include_str!("../README.md");
    let example = manual.split("```toml\n").nth(1).and_then(|rest| rest.split("```").next()).unwrap();
    let text = INVENTED.replace(&INVENTED[INVENTED.find("[event]").unwrap()..], example);
    let example =
        Interpreter::new(&Recipe::read("example.toml", &text).unwrap().events(), &Default::default()).unwrap();
    let body = r#"{"id":"evt_1","type":"charge.succeeded","livemode":true,"created":1795000000,
        "data":{"object":{"id":"ch_1","payment_intent":"pi_1","captured":true,"amount_captured":4999,"currency":"eur"}}}"#;
    let event = read(&example, body).events.remove(0);
    assert_eq!((movements(&event)[0].reference.as_str(), movements(&event)[0].aliases.len()), ("pi_1", 1));
    for kind in super::grammar::KINDS {
        assert!(manual.contains(kind), "the manual page lacks the kind {kind}");
    }
}

/// Types that sound like money and are none.
#[test]
fn names_that_lie_move_nothing() {
    let silent = |provider: &str, headers: &[(&str, &str)], body: &str| {
        let event = interpreter(provider, &json!({})).interpret(body.as_bytes(), headers, "", 1).events.remove(0);
        match &event.meaning {
            Meaning::Effects { movements, .. } => assert!(movements.is_empty(), "{provider} {body}: {movements:?}"),
            Meaning::Ignored(_) => {}
            other => panic!("{provider} {body}: {other:?}"),
        }
    };
    let none: &[(&str, &str)] = &[];
    for (provider, headers, body) in [
        (
            "stripe",
            none,
            r#"{"type":"charge.succeeded","data":{"object":{"id":"ch","captured":false,"amount_captured":0,"currency":"usd"}}}"#,
        ),
        (
            "stripe",
            none,
            r#"{"type":"invoice.paid","data":{"object":{"id":"in","amount_paid":2500,"attempt_count":0,"currency":"usd"}}}"#,
        ),
        (
            "stripe",
            none,
            r#"{"type":"invoice.paid","data":{"object":{"id":"in","amount_paid":0,"payment_intent":null,"currency":"usd"}}}"#,
        ),
        (
            "stripe",
            none,
            r#"{"type":"invoice.paid","data":{"object":{"payment_intent":"pi","amount_paid":5,"paid_out_of_band":true,"currency":"usd"}}}"#,
        ),
        (
            "stripe",
            none,
            r#"{"type":"checkout.session.completed","data":{"object":{"payment_status":"paid","mode":"subscription","payment_intent":null,"amount_total":5,"currency":"usd"}}}"#,
        ),
        (
            "stripe",
            none,
            r#"{"type":"charge.dispute.created","data":{"object":{"id":"du","status":"warning_needs_response","amount":5,"currency":"usd"}}}"#,
        ),
        (
            "stripe",
            none,
            r#"{"type":"refund.created","data":{"object":{"id":"re","status":"succeeded","balance_transaction":"txn","reason":"expired_uncaptured_charge","amount":5,"currency":"usd"}}}"#,
        ),
        (
            "flutterwave_v3",
            none,
            r#"{"event":"charge.completed","data":{"id":1,"status":"failed","amount":5,"currency":"NGN"}}"#,
        ),
        (
            "flutterwave_v4",
            none,
            r#"{"type":"charge.completed","data":{"id":"chg","status":"failed","amount":5,"currency":"NGN"}}"#,
        ),
        (
            "dodo_payments",
            none,
            r#"{"type":"payment.succeeded","business_id":"b","data":{"payment_id":"p","total_amount":0,"currency":"USD"}}"#,
        ),
        (
            "dodo_payments",
            none,
            r#"{"type":"subscription.renewed","business_id":"b","data":{"subscription_id":"s","status":"active"}}"#,
        ),
        (
            "paypal",
            none,
            r#"{"event_type":"CHECKOUT.ORDER.APPROVED","resource":{"id":"o","purchase_units":[{"amount":{"value":"5.00","currency_code":"USD"}}]}}"#,
        ),
        (
            "square",
            none,
            r#"{"type":"payment.created","merchant_id":"m","data":{"object":{"payment":{"id":"p","status":"APPROVED","total_money":{"amount":5,"currency":"USD"}}}}}"#,
        ),
        (
            "square",
            none,
            r#"{"type":"payment.updated","merchant_id":"m","data":{"object":{"payment":{"id":"p","status":"COMPLETED","source_type":"CASH","total_money":{"amount":5,"currency":"USD"}}}}}"#,
        ),
        (
            "shopify",
            &[("x-shopify-topic", "orders/paid")],
            r#"{"id":1,"financial_status":"paid","total_price":"5.00","currency":"EUR","updated_at":"2026-11-18T10:00:00Z"}"#,
        ),
        (
            "shopify",
            &[("x-shopify-topic", "order_transactions/create")],
            r#"{"id":1,"kind":"authorization","status":"success","gateway":"g","amount":"5.00","currency":"EUR"}"#,
        ),
        (
            "shopify",
            &[("x-shopify-topic", "order_transactions/create")],
            r#"{"id":1,"kind":"sale","status":"success","gateway":"cash","manual_payment_gateway":true,"amount":"5.00","currency":"EUR"}"#,
        ),
        (
            "paystack",
            none,
            r#"{"event":"paymentrequest.success","data":{"id":1,"amount":500,"currency":"NGN","paid":true}}"#,
        ),
        (
            "razorpay",
            none,
            r#"{"event":"refund.created","account_id":"a","payload":{"payment":{"entity":{"id":"p","captured":false}},"refund":{"entity":{"id":"r","status":"processed","amount":5,"currency":"INR"}}}}"#,
        ),
        (
            "revenuecat",
            none,
            r#"{"event":{"type":"INITIAL_PURCHASE","id":"e","app_id":"a","store":"STRIPE","period_type":"NORMAL","price_in_purchased_currency":9.99,"currency":"USD","transaction_id":"t","original_transaction_id":"o"}}"#,
        ),
        (
            "chargebee",
            none,
            r#"{"event_type":"payment_succeeded","content":{"transaction":{"id":"t","type":"payment","status":"success","gateway":"not_applicable","amount":5,"currency_code":"EUR"}}}"#,
        ),
        ("polar", none, r#"{"type":"order.created","data":{"id":"o","paid":false,"due_amount":5,"currency":"usd"}}"#),
        (
            "lemonsqueezy",
            none,
            r#"{"meta":{"event_name":"order_created"},"data":{"type":"orders","id":"1","attributes":{"store_id":1,"status":"fraudulent","total":5,"currency":"USD"}}}"#,
        ),
    ] {
        silent(provider, headers, body);
    }
}

#[test]
fn a_reading_is_shown_in_the_shape_of_the_known_answers() {
    let shown = to_expected_json(&Reading { events: vec![event(r#""what":"quantum""#)], batch: false, received_at: 1 });
    assert_eq!(shown["disposition"], "unknown");
    assert_eq!((&shown["mode"], &shown["tenant"]), (&json!("unknown"), &json!(null)));
    assert!(read(&invented(), r#"{"list":[]}"#).batch);
}
