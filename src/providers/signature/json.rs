//! Single values out of JSON bytes, without building a tree of them.
//!
//! Reads what a signature scheme needs from a body that nobody has vouched for yet: everything else is skipped, so that
//! memory stays flat. Of a key that is written twice the last counts, as it does for whoever interprets the body.

use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::fmt;

/// A JSON pointer (RFC 6901), compiled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Pointer {
    steps: Vec<String>,
}

impl Pointer {
    pub(crate) fn parse(text: &str) -> Result<Pointer, String> {
        let rest = text.strip_prefix('/').ok_or_else(|| format!("\"{text}\" is no JSON pointer: it starts with /"))?;
        Ok(Pointer { steps: rest.split('/').map(|step| step.replace("~1", "/").replace("~0", "~")).collect() })
    }
}

/// The text, number or switch at `pointer`, as text: numbers as they were written (an exponent gets its sign). `None` when the bytes are no JSON,
/// nothing is there, or what is there is null, an object or a list.
pub(crate) fn text_at(bytes: &[u8], pointer: &Pointer) -> Option<String> {
    let mut reader = serde_json::Deserializer::from_slice(bytes);
    let found = Walk { steps: &pointer.steps }.deserialize(&mut reader).ok()?;
    reader.end().ok()?;
    found
}

/// Walks down one pointer.
struct Walk<'p> {
    steps: &'p [String],
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = Option<String>;

    fn deserialize<D: Deserializer<'de>>(self, reader: D) -> Result<Option<String>, D::Error> {
        reader.deserialize_any(self)
    }
}

/// What serde_json calls a number that is kept as text, seen from outside as a map with one entry.
const NUMBER: &str = "$serde_json::private::Number";

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = Option<String>;

    fn expecting(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        out.write_str("JSON")
    }

    fn visit_str<E>(self, text: &str) -> Result<Option<String>, E> {
        Ok(self.steps.is_empty().then(|| text.to_owned()))
    }

    fn visit_bool<E>(self, value: bool) -> Result<Option<String>, E> {
        Ok(self.steps.is_empty().then(|| value.to_string()))
    }

    fn visit_u64<E>(self, value: u64) -> Result<Option<String>, E> {
        Ok(self.steps.is_empty().then(|| value.to_string()))
    }

    fn visit_i64<E>(self, value: i64) -> Result<Option<String>, E> {
        Ok(self.steps.is_empty().then(|| value.to_string()))
    }

    fn visit_unit<E>(self) -> Result<Option<String>, E> {
        Ok(None)
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Option<String>, A::Error> {
        let mut found = None;
        while let Some(key) = map.next_key::<std::borrow::Cow<'_, str>>()? {
            match self.steps.split_first() {
                Some((step, rest)) if *key == **step => found = map.next_value_seed(Walk { steps: rest })?,
                None if key == NUMBER => found = map.next_value_seed(Walk { steps: &[] })?,
                _ => {
                    map.next_value::<IgnoredAny>()?;
                }
            }
        }
        Ok(found)
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Option<String>, A::Error> {
        let wanted = self.steps.split_first().and_then(|(step, rest)| Some((step.parse::<usize>().ok()?, rest)));
        let (mut found, mut at) = (None, 0_usize);
        loop {
            match wanted {
                Some((index, rest)) if index == at => match list.next_element_seed(Walk { steps: rest })? {
                    Some(value) => found = value,
                    None => return Ok(found),
                },
                _ => {
                    if list.next_element::<IgnoredAny>()?.is_none() {
                        return Ok(found);
                    }
                }
            }
            at += 1;
        }
    }
}

/// Feeds the bytes without the white space between tokens; inside strings nothing changes. Input that is no JSON goes
/// through in the same way: whoever parses it afterwards says so.
pub(crate) fn minify(bytes: &[u8], sink: &mut dyn FnMut(&[u8])) {
    let (mut in_text, mut escaped, mut from) = (false, false, 0);
    for (at, byte) in bytes.iter().enumerate() {
        if in_text {
            match byte {
                _ if escaped => escaped = false,
                b'\\' => escaped = true,
                b'"' => in_text = false,
                _ => {}
            }
        } else if matches!(byte, b' ' | b'\t' | b'\r' | b'\n') {
            if from < at {
                sink(&bytes[from..at]);
            }
            from = at + 1;
        } else if *byte == b'"' {
            in_text = true;
        }
    }
    if from < bytes.len() {
        sink(&bytes[from..]);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(body: &str, pointer: &str) -> Option<String> {
        text_at(body.as_bytes(), &Pointer::parse(pointer).expect("a pointer"))
    }

    #[test]
    fn a_value_is_found_as_it_was_written() {
        let body = r#"{"a":{"b":[1,{"c":"x\u00e4"},44000.00]},"n":1e2,"t":true,"z":null,"o":{"a":1}}"#;
        assert_eq!(at(body, "/a/b/1/c").as_deref(), Some("xä"));
        assert_eq!(at(body, "/a/b/2").as_deref(), Some("44000.00"));
        assert_eq!(at(body, "/n").as_deref(), Some("1e+2"));
        assert_eq!(at(body, "/t").as_deref(), Some("true"));
        assert_eq!(at(body, "/z"), None);
        assert_eq!(at(body, "/o"), None);
        assert_eq!(at(body, "/a/b/9"), None);
    }

    #[test]
    fn of_a_key_written_twice_the_last_counts() {
        assert_eq!(at(r#"{"a":1,"a":2}"#, "/a").as_deref(), Some("2"));
    }

    #[test]
    fn junk_after_the_document_makes_it_no_json() {
        assert_eq!(at(r#"{"a":1} x"#, "/a"), None);
    }

    #[test]
    fn minifying_keeps_what_is_inside_strings() {
        let mut out = Vec::new();
        minify(b"{ \"a b\" :\t\"\\\" x\" ,\n \"c\": [ 1 ] }\n", &mut |bytes| out.extend_from_slice(bytes));
        assert_eq!(out, br#"{"a b":"\" x","c":[1]}"#);
    }
}
