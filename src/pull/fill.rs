//! Placeholders in paths, queries and bodies, and the URLs that come of them.
//!
//! A key only ever goes to the host that the provider's file or the source's configuration names: the next page's URL
//! that an answer gives must be on it.

use super::PullError;
use crate::event::Millis;
use serde_json::Value;
use std::collections::BTreeMap;

/// What placeholders stand for.
#[derive(Clone, Debug, Default)]
pub(super) struct Vars(pub BTreeMap<String, String>);

impl Vars {
    pub(super) fn set(&mut self, name: impl Into<String>, value: impl Into<String>) {
        self.0.insert(name.into(), value.into());
    }

    /// The placeholders of a window `[from, to)` in milliseconds.
    pub(super) fn window(&mut self, from: Millis, to: Millis) -> Result<(), PullError> {
        for (name, at, last) in [("from", from, false), ("to", to, false), ("last", to, true)] {
            let time = |millis: Millis, pattern: &str| {
                let stamp = jiff::Timestamp::from_millisecond(millis);
                stamp.map(|t| t.strftime(pattern).to_string()).map_err(|e| PullError::Window(e.to_string()))
            };
            let second = if last { at - 1000 } else { at };
            self.set(name, time(second, "%Y-%m-%dT%H:%M:%SZ")?);
            self.set(format!("{name}.ms"), time(if last { at - 1 } else { at }, "%Y-%m-%dT%H:%M:%S.%3fZ")?);
            self.set(format!("{name}.unix"), second.div_euclid(1000).to_string());
        }
        Ok(())
    }

    /// Fills a text. A name in braces that nothing stands for is an error, or stays where `loose` (GraphQL has braces).
    fn fill_with(&self, text: &str, loose: bool, escape: fn(&str) -> String) -> Result<String, PullError> {
        let mut out = String::with_capacity(text.len());
        let mut rest = text;
        while let Some(open) = rest.find('{') {
            out.push_str(&rest[..open]);
            rest = &rest[open..];
            let name = rest[1..].split('}').next().unwrap_or_default();
            let closed = rest.len() > name.len() + 1;
            match self.0.get(name) {
                Some(value) if closed => {
                    out.push_str(&escape(value));
                    rest = &rest[name.len() + 2..];
                }
                _ if loose || !closed => {
                    out.push('{');
                    rest = &rest[1..];
                }
                _ => return Err(PullError::Setting { name: name.to_owned() }),
            }
        }
        out.push_str(rest);
        Ok(out)
    }

    /// A text with all its placeholders filled.
    pub(super) fn fill(&self, text: &str) -> Result<String, PullError> {
        self.fill_with(text, false, str::to_owned)
    }

    /// The same for a path: values are escaped, so that none can leave its place.
    pub(super) fn fill_path(&self, text: &str) -> Result<String, PullError> {
        self.fill_with(text, false, |value| form_urlencoded::byte_serialize(value.as_bytes()).collect())
    }

    /// A JSON body with the placeholders of its texts filled.
    pub(super) fn fill_json(&self, body: &str) -> Result<Value, PullError> {
        let mut value: Value = serde_json::from_str(body)
            .map_err(|e| PullError::Recipe(format!("a body in the provider's file is not JSON: {e}")))?;
        self.walk(&mut value)?;
        Ok(value)
    }

    fn walk(&self, value: &mut Value) -> Result<(), PullError> {
        match value {
            Value::String(text) => *text = self.fill_with(text, true, str::to_owned)?,
            Value::Array(items) => items.iter_mut().try_for_each(|item| self.walk(item))?,
            Value::Object(map) => map.values_mut().try_for_each(|item| self.walk(item))?,
            _ => {}
        }
        Ok(())
    }
}

/// A body around an object: in the template the text `{}` stands for the whole object, `{/pointer}` for a value of
/// it, `{id}` for `id`.
pub fn wrap(template: &str, object: &Value, id: &str) -> Result<Value, PullError> {
    let mut value: Value = serde_json::from_str(template)
        .map_err(|e| PullError::Recipe(format!("a body in the provider's file is not JSON: {e}")))?;
    place(&mut value, object, id);
    Ok(value)
}

fn place(value: &mut Value, object: &Value, id: &str) {
    match value {
        Value::String(text) if text == "{}" => *value = object.clone(),
        Value::String(text) if text.starts_with("{/") && text.ends_with('}') => {
            *value = object.pointer(&text[1..text.len() - 1]).cloned().unwrap_or(Value::Null);
        }
        Value::String(text) => *text = text.replace("{id}", id),
        Value::Array(items) => items.iter_mut().for_each(|item| place(item, object, id)),
        Value::Object(map) => map.values_mut().for_each(|item| place(item, object, id)),
        _ => {}
    }
}

/// A path with its query. Names keep their brackets escaped, as every server reads them.
pub(super) fn with_query(path: &str, query: &[(String, String)]) -> String {
    if query.is_empty() {
        return path.to_owned();
    }
    let mut pairs = form_urlencoded::Serializer::new(String::new());
    query.iter().for_each(|(name, value)| {
        pairs.append_pair(name, value);
    });
    format!("{path}{}{}", if path.contains('?') { '&' } else { '?' }, pairs.finish())
}

/// Scheme and host, in lower case.
pub(super) fn origin(url: &str) -> Option<String> {
    let (scheme, rest) = url.split_once("://")?;
    let host = rest.split(['/', '?', '#']).next()?;
    (!host.is_empty() && !host.contains('@')).then(|| format!("{scheme}://{host}").to_ascii_lowercase())
}

/// What an answer's URL is below our base: a URL of the declared base is taken over to the base in use.
pub(super) fn below(url: &str, declared: &str, used: &str) -> Result<String, PullError> {
    if url.starts_with('/') && !url.starts_with("//") {
        return Ok(format!("{}{url}", origin(used).unwrap_or_default()));
    }
    for base in [declared, used] {
        let base = base.trim_end_matches('/');
        if let Some(path) = url.strip_prefix(base)
            && (path.is_empty() || path.starts_with(['/', '?']))
            && origin(url) == origin(base)
        {
            return Ok(format!("{}{path}", used.trim_end_matches('/')));
        }
    }
    Err(PullError::ForeignUrl { url: url.to_owned(), base: used.to_owned() })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_next_page_on_another_host_is_not_followed() {
        let (declared, used) = ("https://api.x.com", "http://127.0.0.1:9");
        assert_eq!(below("https://api.x.com/v1?a=b", declared, used).unwrap(), "http://127.0.0.1:9/v1?a=b");
        assert_eq!(below("/v1?a=b", declared, used).unwrap(), "http://127.0.0.1:9/v1?a=b");
        assert_eq!(below("http://127.0.0.1:9/v1", declared, used).unwrap(), "http://127.0.0.1:9/v1");
        for foreign in [
            "https://api.x.com.evil.com/v1",
            "https://evil.com/",
            "//evil.com/v1",
            "http://api.x.com/v1",
            "https://api.x.com@evil.com/",
        ] {
            assert!(below(foreign, declared, used).is_err(), "{foreign}");
        }
    }

    #[test]
    fn placeholders_are_filled_or_named_and_graphql_braces_stay() {
        let mut vars = Vars::default();
        vars.window(1_795_132_800_000, 1_795_219_200_000).unwrap();
        vars.set("shop", "a/../b");
        assert_eq!(vars.fill("{from.unix}-{last}").unwrap(), "1795132800-2026-11-20T23:59:59Z");
        assert_eq!(vars.fill("{last.ms}").unwrap(), "2026-11-20T23:59:59.999Z");
        assert_eq!(vars.fill_path("/{shop}/x").unwrap(), "/a%2F..%2Fb/x");
        assert!(matches!(vars.fill("{store}"), Err(PullError::Setting { name }) if name == "store"));
        let body = vars.fill_json(r#"{"query":"q{a{id} b}","to":"{to}"}"#).unwrap();
        assert_eq!(body["query"], "q{a{id} b}");
        assert_eq!(body["to"], "2026-11-21T00:00:00Z");
    }

    #[test]
    fn a_rebuilt_body_holds_the_object_and_its_values() {
        let object = serde_json::json!({"id": "ch_1", "created": 5, "livemode": true});
        let body =
            wrap(r#"{"id":"r_{id}","at":"{/created}","live":"{/livemode}","none":"{/x}","o":["{}"]}"#, &object, "ch_1");
        let want = serde_json::json!({"id": "r_ch_1", "at": 5, "live": true, "none": null, "o": [object]});
        assert_eq!(body.unwrap(), want);
    }
}
