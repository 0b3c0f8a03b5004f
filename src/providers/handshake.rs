//! Handshakes: requests that a provider sends to see whether an endpoint is ours, answered at once and never stored.
//!
//! Declared in a provider's file as `[[handshake]]`. What is echoed is bounded, is never HTML, and is never used as an
//! oracle: a keyed digest of something a stranger chose is given out only where its alphabet is one that no body of that
//! provider can be written in. An address to visit (SNS) must be https and of a listed host.

use super::signature::template::{Place, Sight};
use super::signature::{Alg, Delivery, Encoding, Verifier, fetched::is_allowed};
use serde::Deserialize;
use std::collections::BTreeMap;

/// The longest answer, in bytes.
const REPLY_BYTES_MAX: usize = 4096;
/// The longest token that a digest is made of, in bytes.
const TOKEN_BYTES_MAX: usize = 128;

/// One handshake of a provider.
#[derive(Debug, Clone, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Handshake {
    /// What it is called, for the log.
    pub name: String,
    /// The method it comes with.
    #[serde(default = "post")]
    pub method: String,
    /// Place = the text that stands there, or `*` for anything: all must hold for this handshake to be meant.
    #[serde(default)]
    pub when: BTreeMap<String, String>,
    /// Places where nothing may stand for this handshake to be meant.
    #[serde(default)]
    pub absent: Vec<String>,
    /// Place = what must stand there (may hold `{setting:NAME}`); otherwise the answer is 403.
    #[serde(default)]
    pub check: BTreeMap<String, String>,
    /// Place = the only alphabet it may be written in; otherwise the answer is 403.
    #[serde(default)]
    pub only: BTreeMap<String, Alphabet>,
    /// Whether it is answered only after its signature was found good.
    #[serde(default)]
    pub signed: bool,
    /// The status of the answer.
    #[serde(default = "ok")]
    pub status: u16,
    /// The answer's text, with `{place}`, `{key_id}` and `{hmac:ALG:ENCODING:place}` in it.
    #[serde(default)]
    pub reply: Option<String>,
    /// The answer as JSON; its texts are templates like `reply`.
    #[serde(default)]
    pub reply_json: Option<BTreeMap<String, serde_json::Value>>,
    /// The place of an address to visit (GET) to say yes.
    #[serde(default)]
    pub visit: Option<String>,
    /// The hosts that may be visited, each with its sub-domains.
    #[serde(default)]
    pub visit_hosts: Vec<String>,
}

fn post() -> String {
    "POST".to_owned()
}

fn ok() -> u16 {
    200
}

/// What a token may be written in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Alphabet {
    /// Hex digits.
    Hex,
    /// Letters, digits and `_ - = + / .`
    Token,
}

/// The answer to a handshake or a probe.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HandshakeReply {
    /// The handshake's name.
    pub name: String,
    /// The status.
    pub status: u16,
    /// The content type; to be sent with `X-Content-Type-Options: nosniff`.
    pub content_type: &'static str,
    /// The body.
    pub body: Vec<u8>,
    /// An address to visit with GET, outside any transaction; failing to does not change the answer.
    pub visit: Option<String>,
}

impl Handshake {
    /// Says what is impossible in this table.
    pub fn check(&self) -> Result<(), String> {
        let wrong = |problem: String| format!("[[handshake]] \"{}\": {problem}", self.name);
        let visits = self.visit.iter();
        let places =
            self.when.keys().chain(&self.absent).chain(self.check.keys()).chain(self.only.keys()).chain(visits);
        for text in places {
            Place::parse(text).map_err(wrong)?;
        }
        if self.visit.is_some() && self.visit_hosts.is_empty() {
            return Err(wrong("visit: needs visit_hosts, the only hosts that may be visited".to_owned()));
        }
        let json = self.reply_json.iter().flatten().filter_map(|(_, value)| value.as_str());
        for text in self.reply.as_deref().into_iter().chain(json) {
            for piece in pieces(text).map_err(wrong)? {
                if let Piece::Hmac(.., place) = piece
                    && !self.only.keys().any(|known| Place::parse(known).as_ref() == Ok(&place))
                {
                    return Err(wrong("reply: a digest of a place needs that place under `only`".to_owned()));
                }
            }
        }
        Ok(())
    }

    fn is_meant(&self, sight: &Sight<'_>) -> bool {
        let there = |text: &str| {
            let found = Place::parse(text).ok()?.find(sight).ok()??;
            Some(String::from_utf8_lossy(&found).into_owned())
        };
        self.when.iter().all(|(place, wanted)| there(place).is_some_and(|found| wanted == "*" || found == *wanted))
            && self.absent.iter().all(|place| there(place).is_none())
    }

    fn reply(&self, sight: &Sight<'_>, verifier: &Verifier, now_ms: i64) -> Option<HandshakeReply> {
        for (place, wanted) in &self.check {
            let found = Place::parse(place).ok()?.find(sight).ok()??;
            let wanted = super::signature::fill(wanted, sight.settings).ok()?;
            if wanted.is_empty() || !super::signature::same(&found, wanted.as_bytes()) {
                return None;
            }
        }
        for (place, alphabet) in &self.only {
            let found = Place::parse(place).ok()?.find(sight).ok()??;
            let fits = |b: &u8| match alphabet {
                Alphabet::Hex => b.is_ascii_hexdigit(),
                Alphabet::Token => b.is_ascii_alphanumeric() || b"_-=+/.".contains(b),
            };
            if found.is_empty() || found.len() > TOKEN_BYTES_MAX || !found.iter().all(fits) {
                return None;
            }
        }
        let (content_type, body) = match &self.reply_json {
            None => (
                "text/plain; charset=utf-8",
                write(self.reply.as_deref().unwrap_or_default(), sight, verifier, now_ms)?,
            ),
            Some(fields) => {
                let mut out = serde_json::Map::new();
                for (name, value) in fields {
                    let value = match value.as_str() {
                        None => value.clone(),
                        Some(text) => String::from_utf8(write(text, sight, verifier, now_ms)?).ok()?.into(),
                    };
                    out.insert(name.clone(), value);
                }
                ("application/json", serde_json::Value::Object(out).to_string().into_bytes())
            }
        };
        let visit = match &self.visit {
            None => None,
            Some(place) => {
                let url = Place::parse(place).ok()?.find(sight).ok()??;
                let url = String::from_utf8(url.into_owned()).ok()?;
                Some(is_allowed(&url, &self.visit_hosts).then_some(url)?)
            }
        };
        (body.len() <= REPLY_BYTES_MAX).then(|| HandshakeReply {
            name: self.name.clone(),
            status: self.status,
            content_type,
            body,
            visit,
        })
    }
}

/// The answer to give instead of storing anything, or `None` when this is a delivery like any other.
///
/// Ask before verifying with `verified = false`, and again afterwards with `true`: a handshake that is declared as
/// signed is answered only then. HEAD and GET always get an answer: a probe is no event.
pub fn answer(
    handshakes: &[Handshake],
    delivery: &Delivery<'_>,
    verifier: &Verifier,
    now_ms: i64,
    verified: bool,
) -> Option<HandshakeReply> {
    let sight = Sight { delivery, ts: None, id: None, secret: &[], pairs: &[], settings: verifier.settings() };
    let plain = |name: &str, status, body: &[u8]| HandshakeReply {
        name: name.to_owned(),
        status,
        content_type: "text/plain; charset=utf-8",
        body: body.to_vec(),
        visit: None,
    };
    for handshake in handshakes.iter().filter(|h| h.method == delivery.method && h.signed == verified) {
        if handshake.is_meant(&sight) {
            let refused = || plain(&handshake.name, 403, b"this is not the token that this endpoint was set up with\n");
            return Some(handshake.reply(&sight, verifier, now_ms).unwrap_or_else(refused));
        }
    }
    matches!(delivery.method, "GET" | "HEAD").then(|| plain("probe", 200, b""))
}

enum Piece<'t> {
    Text(&'t str),
    Place(Place),
    KeyId,
    Hmac(Alg, Encoding, Place),
}

fn pieces(text: &str) -> Result<Vec<Piece<'_>>, String> {
    let mut out = Vec::new();
    let mut rest = text;
    while let Some(at) = rest.find('{') {
        out.push(Piece::Text(&rest[..at]));
        let end = rest[at..].find('}').ok_or_else(|| format!("\"{text}\": a {{ without its }}"))? + at;
        let name = &rest[at + 1..end];
        out.push(match name.strip_prefix("hmac:") {
            None if name == "key_id" => Piece::KeyId,
            None => Piece::Place(Place::parse(name)?),
            Some(how) => {
                let mut how = how.splitn(3, ':');
                let (alg, encoding, place) = (how.next(), how.next(), how.next().unwrap_or_default());
                let alg = match alg {
                    Some("sha1") => Alg::Sha1,
                    Some("sha256") => Alg::Sha256,
                    _ => return Err(format!("{{{name}}}: the digest is sha1 or sha256")),
                };
                let encoding = match encoding {
                    Some("hex") => Encoding::Hex,
                    Some("base64") => Encoding::Base64,
                    _ => return Err(format!("{{{name}}}: the encoding is hex or base64")),
                };
                Piece::Hmac(alg, encoding, Place::parse(place)?)
            }
        });
        rest = &rest[end + 1..];
    }
    out.push(Piece::Text(rest));
    Ok(out)
}

fn write(text: &str, sight: &Sight<'_>, verifier: &Verifier, now_ms: i64) -> Option<Vec<u8>> {
    let mut out = Vec::new();
    for piece in pieces(text).ok()? {
        match piece {
            Piece::Text(text) => out.extend_from_slice(text.as_bytes()),
            Piece::Place(place) => out.extend_from_slice(&place.find(sight).ok()??),
            Piece::KeyId => out.extend_from_slice(verifier.key_id_now(now_ms)?.as_bytes()),
            Piece::Hmac(alg, encoding, place) => {
                let found = place.find(sight).ok()??;
                out.extend_from_slice(verifier.keyed_text(alg, encoding, &found, now_ms)?.as_bytes());
            }
        }
    }
    Some(out)
}

#[cfg(test)]
mod tests {
    use super::super::Catalog;
    use super::super::signature::{Options, Secret};
    use super::*;

    fn verifier(options: &Options) -> Verifier {
        let recipe = Catalog::open(None).expect("built in").recipe("github").expect("is there").expect("is right");
        Verifier::new(&recipe.signature, &[Secret::exact("main", "s3cret")], options).expect("a good secret")
    }

    fn delivery<'a>(method: &'a str, query: &'a str, body: &'a str) -> Delivery<'a> {
        Delivery {
            method,
            url: "https://h.test/webhooks/a",
            path: "/webhooks/a",
            query,
            headers: &[],
            body: body.as_bytes(),
        }
    }

    fn reply(provider: &str, d: &Delivery<'_>, verified: bool) -> Option<(u16, String, Option<String>)> {
        let recipe = Catalog::open(None).expect("built in").recipe(provider).expect("is there").expect("is right");
        let reply = answer(&recipe.handshake, d, &verifier(&Options::default()), 0, verified)?;
        Some((reply.status, String::from_utf8(reply.body).expect("text"), reply.visit))
    }

    #[test]
    fn a_crc_token_is_answered_with_its_digest_and_a_body_is_not() {
        let (status, body, _) = reply("x", &delivery("GET", "crc_token=abc-123", ""), false).expect("an answer");
        assert_eq!(status, 200);
        assert_eq!(body, r#"{"response_token":"sha256=e5SlTX7bY7umClDLKBij02/NEu06hbaGUMV+AQ4DzFA="}"#);
        let forged = delivery("GET", "crc_token=%7B%22amount%22%3A1%7D", "");
        assert_eq!(reply("x", &forged, false).expect("an answer").0, 403);
    }

    #[test]
    fn a_digest_without_an_alphabet_is_no_handshake() {
        let text = r#"
            [[handshake]]
            name = "crc"
            method = "GET"
            when = { "query:crc_token" = "*" }
            reply = "{hmac:sha256:base64:query:crc_token}"
        "#;
        let file: toml::Table = toml::from_str(text).expect("TOML");
        let rule: Handshake = file["handshake"][0].clone().try_into().expect("a handshake");
        assert!(rule.check().expect_err("an oracle").contains("only"));
    }

    #[test]
    fn dropbox_and_microsoft_tokens_come_back_as_plain_text() {
        let (status, body, _) = reply("dropbox", &delivery("GET", "challenge=%3Cb%3E1", ""), false).expect("an answer");
        assert_eq!((status, body.as_str()), (200, "<b>1"));
        let (_, body, _) = reply("microsoft_graph", &delivery("POST", "validationToken=Validation%3A+x", ""), false)
            .expect("an answer");
        assert_eq!(body, "Validation: x");
        assert_eq!(reply("microsoft_graph", &delivery("POST", "", "{}"), false), None);
    }

    #[test]
    fn an_sns_confirmation_visits_amazon_and_nobody_else() {
        let ask = |url: &str| {
            let body = format!(r#"{{"Type":"SubscriptionConfirmation","SubscribeURL":"{url}"}}"#);
            reply("aws_sns", &delivery("POST", "", &body), true).expect("an answer")
        };
        let good = "https://sns.eu-west-1.amazonaws.com/?Action=ConfirmSubscription";
        assert_eq!(ask(good), (200, String::new(), Some(good.to_owned())));
        for bad in [
            "http://sns.eu-west-1.amazonaws.com/",
            "https://amazonaws.com.evil.test/",
            "https://evilamazonaws.com/",
            "https://x@amazonaws.com/",
            "https://evil.test/?amazonaws.com",
            "https://evil.test\\\\.amazonaws.com/",
        ] {
            assert_eq!(ask(bad).0, 403, "{bad}");
        }
        let unsigned = delivery("POST", "", r#"{"Type":"SubscriptionConfirmation"}"#);
        assert_eq!(reply("aws_sns", &unsigned, false), None);
    }

    #[test]
    fn a_wrong_verify_token_is_answered_403() {
        let recipe = Catalog::open(None).expect("built in").recipe("meta").expect("is there").expect("is right");
        let settings = [("verify_token".to_owned(), "right".to_owned())].into();
        let verifier = verifier(&Options { settings, ..Options::default() });
        let ask = |query: &str| {
            answer(&recipe.handshake, &delivery("GET", query, ""), &verifier, 0, false).expect("an answer")
        };
        let good = ask("hub.mode=subscribe&hub.challenge=4711&hub.verify_token=right");
        assert_eq!((good.status, good.body.as_slice()), (200, b"4711".as_slice()));
        assert_eq!(ask("hub.mode=subscribe&hub.challenge=4711&hub.verify_token=wrong").status, 403);
        assert_eq!(ask("hub.mode=subscribe&hub.challenge=4711").status, 403);
    }

    #[test]
    fn a_slack_challenge_is_echoed_only_when_it_is_signed() {
        let recipe = Catalog::open(None).expect("built in").recipe("slack").expect("is there").expect("is right");
        let d = delivery("POST", "", r#"{"type":"url_verification","challenge":"xyz"}"#);
        let v = verifier(&Options::default());
        assert_eq!(answer(&recipe.handshake, &d, &v, 0, false), None);
        assert_eq!(answer(&recipe.handshake, &d, &v, 0, true).expect("an answer").body, b"xyz");
        assert_eq!(answer(&recipe.handshake, &delivery("POST", "", "{}"), &v, 0, true), None);
    }

    #[test]
    fn head_and_get_are_probes_and_a_post_is_not() {
        let v = verifier(&Options::default());
        for method in ["HEAD", "GET"] {
            let probe = answer(&[], &delivery(method, "", ""), &v, 0, false).expect("an answer");
            assert_eq!((probe.status, probe.body.len()), (200, 0));
        }
        assert_eq!(answer(&[], &delivery("POST", "", ""), &v, 0, false), None);
    }
}
