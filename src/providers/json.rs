//! Reads JSON without copying it: a flat list of nodes over the text that was sent.
//!
//! Numbers stay the digits that were sent, strings are decoded only when asked for, the last of two equal keys counts
//! (as in every provider's own SDK), a lone surrogate survives as its escape. Time and memory are linear in the text
//! (16 bytes a node) and nesting is bounded. Never a float, never a panic, whatever the text.

use std::borrow::Cow;

/// How deep objects and arrays may nest; no provider comes near, and a thousand brackets are an attack.
pub const DEPTH_MAX: usize = 128;

/// What a node is.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Kind {
    /// `null`
    Null,
    /// `true`
    True,
    /// `false`
    False,
    /// A number, kept as its text.
    Number,
    /// A string without escapes.
    Text,
    /// A string with escapes.
    EscapedText,
    /// `[…]`
    Array,
    /// `{…}`
    Object,
}

#[derive(Clone, Copy)]
struct Node {
    start: u32,
    end: u32,
    next: u32, // the node after this one and all it contains
    kind: Kind,
}

/// Why a text is no JSON.
#[derive(Debug, PartialEq, Eq, Clone, thiserror::Error)]
#[error("not JSON at byte {at}: {problem}")]
pub struct JsonError {
    /// Offset in the text.
    pub at: usize,
    /// What was found and what was expected.
    pub problem: &'static str,
}

/// A text that has been read. Node 0 is its value.
pub struct Document<'t> {
    text: &'t str,
    nodes: Vec<Node>,
}

/// One value in a document.
#[derive(Clone, Copy)]
pub struct Value<'d> {
    document: &'d Document<'d>,
    at: u32,
}

struct Reader<'t> {
    bytes: &'t [u8],
    at: usize,
    nodes: Vec<Node>,
}

impl<'t> Document<'t> {
    /// Reads one JSON value with nothing but blanks around it.
    pub fn read(text: &'t str) -> Result<Document<'t>, JsonError> {
        if text.len() >= u32::MAX as usize {
            return Err(JsonError { at: 0, problem: "longer than 4 GiB" });
        }
        let mut reader = Reader { bytes: text.as_bytes(), at: 0, nodes: Vec::with_capacity(text.len() / 20 + 1) };
        reader.document()?;
        Ok(Document { text, nodes: reader.nodes })
    }

    /// The value of the whole text.
    pub fn root(&self) -> Value<'_> {
        Value { document: self, at: 0 }
    }
}

impl Reader<'_> {
    fn fail<T>(&self, problem: &'static str) -> Result<T, JsonError> {
        Err(JsonError { at: self.at, problem })
    }

    fn blanks(&mut self) {
        while matches!(self.bytes.get(self.at), Some(b' ' | b'\n' | b'\t' | b'\r')) {
            self.at += 1;
        }
    }

    fn push(&mut self, start: usize, kind: Kind) {
        let next = self.nodes.len() as u32 + 1;
        self.nodes.push(Node { start: start as u32, end: self.at as u32, next, kind });
    }

    fn document(&mut self) -> Result<(), JsonError> {
        let mut open: Vec<u32> = Vec::with_capacity(16);
        loop {
            self.blanks();
            let start = self.at;
            match self.bytes.get(self.at) {
                Some(b'{' | b'[') => {
                    if open.len() == DEPTH_MAX {
                        return self.fail("nested deeper than 128 levels");
                    }
                    let object = self.bytes[self.at] == b'{';
                    open.push(self.nodes.len() as u32);
                    self.at += 1;
                    self.push(start, if object { Kind::Object } else { Kind::Array });
                    self.blanks();
                    match self.bytes.get(self.at) {
                        Some(b'}') if object => {}
                        Some(b']') if !object => {}
                        _ if object => {
                            self.key()?;
                            continue;
                        }
                        _ => continue,
                    }
                }
                Some(b'"') => self.string()?,
                Some(b't') => self.word(b"true", Kind::True)?,
                Some(b'f') => self.word(b"false", Kind::False)?,
                Some(b'n') => self.word(b"null", Kind::Null)?,
                Some(b'-' | b'0'..=b'9') => self.number()?,
                Some(_) => return self.fail("expected a value"),
                None => return self.fail("the text ends where a value is expected"),
            }
            // a value has ended: close what ends with it, or go on to its sibling
            loop {
                self.blanks();
                let Some(&top) = open.last() else {
                    return if self.at == self.bytes.len() { Ok(()) } else { self.fail("text after the value") };
                };
                let object = self.nodes[top as usize].kind == Kind::Object;
                match self.bytes.get(self.at) {
                    Some(b',') => {
                        self.at += 1;
                        if object {
                            self.blanks();
                            self.key()?;
                        }
                        break;
                    }
                    Some(b'}') if object => {}
                    Some(b']') if !object => {}
                    Some(_) => return self.fail("expected a comma or the closing bracket"),
                    None => return self.fail("the text ends inside an object or array"),
                }
                self.at += 1;
                let next = self.nodes.len() as u32;
                let node = &mut self.nodes[top as usize];
                (node.end, node.next) = (self.at as u32, next);
                open.pop();
            }
        }
    }

    fn key(&mut self) -> Result<(), JsonError> {
        if self.bytes.get(self.at) != Some(&b'"') {
            return self.fail("expected a key in quotes");
        }
        self.string()?;
        self.blanks();
        if self.bytes.get(self.at) != Some(&b':') {
            return self.fail("expected a colon after the key");
        }
        self.at += 1;
        Ok(())
    }

    /// Raw control characters inside are tolerated: they harm nobody here, and a refused event would be lost.
    fn string(&mut self) -> Result<(), JsonError> {
        self.at += 1;
        let start = self.at;
        let mut kind = Kind::Text;
        loop {
            let rest = &self.bytes[self.at..];
            let Some(skip) = rest.iter().position(|b| matches!(b, b'"' | b'\\')) else {
                self.at = self.bytes.len();
                return self.fail("the text ends inside a string");
            };
            self.at += skip;
            if self.bytes[self.at] == b'"' {
                self.push(start, kind);
                self.at += 1;
                return Ok(());
            }
            kind = Kind::EscapedText;
            match self.bytes.get(self.at + 1) {
                Some(b'"' | b'\\' | b'/' | b'b' | b'f' | b'n' | b'r' | b't') => self.at += 2,
                Some(b'u') if hex4(self.bytes, self.at + 2).is_some() => self.at += 6,
                _ => return self.fail("unknown escape in a string"),
            }
        }
    }

    fn word(&mut self, word: &[u8], kind: Kind) -> Result<(), JsonError> {
        if !self.bytes[self.at..].starts_with(word) {
            return self.fail("expected a value");
        }
        let start = self.at;
        self.at += word.len();
        self.push(start, kind);
        Ok(())
    }

    fn digits(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        while matches!(self.bytes.get(self.at), Some(b'0'..=b'9')) {
            self.at += 1;
        }
        if self.at == start { self.fail("expected a digit") } else { Ok(()) }
    }

    fn number(&mut self) -> Result<(), JsonError> {
        let start = self.at;
        if self.bytes[self.at] == b'-' {
            self.at += 1;
        }
        let whole = self.at;
        self.digits()?;
        if self.bytes[whole] == b'0' && self.at - whole > 1 {
            return self.fail("a number with a leading zero");
        }
        if self.bytes.get(self.at) == Some(&b'.') {
            self.at += 1;
            self.digits()?;
        }
        if matches!(self.bytes.get(self.at), Some(b'e' | b'E')) {
            self.at += 1;
            if matches!(self.bytes.get(self.at), Some(b'+' | b'-')) {
                self.at += 1;
            }
            self.digits()?;
        }
        self.push(start, Kind::Number);
        Ok(())
    }
}

fn hex4(bytes: &[u8], at: usize) -> Option<u32> {
    bytes.get(at..at + 4)?.iter().try_fold(0, |n, b| Some(n * 16 + (*b as char).to_digit(16)?))
}

impl<'d> Value<'d> {
    fn node(self) -> Node {
        self.document.nodes[self.at as usize]
    }

    /// What it is.
    pub fn kind(self) -> Kind {
        self.node().kind
    }

    /// Its place in the document, to find it again with [`Value::sibling`].
    pub fn number(self) -> u32 {
        self.at
    }

    /// Another value of the same document, by its number.
    pub fn sibling(self, number: u32) -> Option<Value<'d>> {
        ((number as usize) < self.document.nodes.len()).then_some(Value { document: self.document, at: number })
    }

    /// The text as it stands in the document (a string without its quotes, escapes as they are).
    pub fn raw(self) -> &'d str {
        let node = self.node();
        self.document.text.get(node.start as usize..node.end as usize).unwrap_or_default()
    }

    /// A scalar as text: a string decoded, a number as its digits, `true`, `false`; `None` for null and containers.
    pub fn text(self) -> Option<Cow<'d, str>> {
        match self.kind() {
            Kind::Text | Kind::Number | Kind::True | Kind::False => Some(Cow::Borrowed(self.raw())),
            Kind::EscapedText => Some(Cow::Owned(decode(self.raw()))),
            Kind::Null | Kind::Array | Kind::Object => None,
        }
    }

    /// A member of an object; the last one when the key comes twice.
    pub fn get(self, key: &str) -> Option<Value<'d>> {
        let node = self.node();
        if node.kind != Kind::Object {
            return None;
        }
        let (mut at, mut found) = (self.at + 1, None);
        while at < node.next {
            let name = Value { document: self.document, at };
            let same = match name.kind() {
                Kind::EscapedText => decode(name.raw()) == key,
                _ => name.raw() == key,
            };
            if same {
                found = Some(Value { document: self.document, at: at + 1 });
            }
            at = self.document.nodes[at as usize + 1].next;
        }
        found
    }

    /// The elements of an array; nothing for anything else.
    pub fn elements(self) -> impl Iterator<Item = Value<'d>> {
        let node = self.node();
        let end = if node.kind == Kind::Array { node.next } else { 0 };
        let mut at = self.at + 1;
        std::iter::from_fn(move || {
            (at < end).then(|| {
                let value = Value { document: self.document, at };
                at = value.node().next;
                value
            })
        })
    }
}

/// Decodes the escapes of a string that [`Reader::string`] has checked.
fn decode(raw: &str) -> String {
    let bytes = raw.as_bytes();
    let mut out = String::with_capacity(raw.len());
    let mut rest = raw;
    while let Some(at) = rest.find('\\') {
        out.push_str(&rest[..at]);
        let here = raw.len() - rest.len() + at;
        let mut used = 2;
        match bytes.get(here + 1) {
            Some(b'u') => {
                used = 6;
                let first = hex4(bytes, here + 2).unwrap_or(0xFFFD);
                let second = (bytes.get(here + 6..here + 8) == Some(b"\\u")).then(|| hex4(bytes, here + 8)).flatten();
                match (first, second) {
                    (0xD800..=0xDBFF, Some(low @ 0xDC00..=0xDFFF)) => {
                        used = 12;
                        let code = 0x10000 + ((first - 0xD800) << 10) + (low - 0xDC00);
                        out.push(char::from_u32(code).unwrap_or('\u{FFFD}'));
                    }
                    _ => match char::from_u32(first) {
                        Some(c) => out.push(c),
                        None => out.push_str(&raw[here..here + 6]), // half of a pair: two of them must stay two texts
                    },
                }
            }
            Some(b'b') => out.push('\u{8}'),
            Some(b'f') => out.push('\u{c}'),
            Some(b'n') => out.push('\n'),
            Some(b'r') => out.push('\r'),
            Some(b't') => out.push('\t'),
            Some(other) => out.push(*other as char),
            None => used = 1,
        }
        rest = raw.get(here + used..).unwrap_or_default();
    }
    out.push_str(rest);
    out
}

/// Writes a string with its quotes, the way [`Document::read`] reads it back.
pub fn write_string(out: &mut String, text: &str) {
    out.push('"');
    for c in text.chars() {
        match c {
            '"' => out.push_str("\\\""),
            '\\' => out.push_str("\\\\"),
            c => out.push(c),
        }
    }
    out.push('"');
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn read(text: &str) -> Result<Document<'_>, JsonError> {
        Document::read(text)
    }

    #[test]
    fn values_are_found_and_numbers_stay_their_digits() {
        let document = read(r#" {"a": {"b": [1, {"c": 9.990000000000002}, "x"]}, "id": 9007199254740993} "#).unwrap();
        let root = document.root();
        let list: Vec<_> = root.get("a").unwrap().get("b").unwrap().elements().collect();
        assert_eq!(list.len(), 3);
        assert_eq!(list[1].get("c").unwrap().text().unwrap(), "9.990000000000002");
        assert_eq!(list[2].text().unwrap(), "x");
        assert_eq!(root.get("id").unwrap().text().unwrap(), "9007199254740993");
        assert!(root.get("b").is_none());
    }

    #[test]
    fn the_last_of_two_equal_keys_counts() {
        let document = read(r#"{"a":1,"a":{"x":[]},"\u0061":3}"#).unwrap();
        assert_eq!(document.root().get("a").unwrap().text().unwrap(), "3");
    }

    #[test]
    fn escapes_are_decoded_and_half_a_surrogate_pair_survives() {
        let document = read(r#"["a\u0000b", "\ud83d\ude00\n\"", "\ud83d", "\ude00x", "\ud83d\u0041", "\/"]"#).unwrap();
        let texts: Vec<_> = document.root().elements().map(|v| v.text().unwrap().into_owned()).collect();
        assert_eq!(texts, ["a\0b", "😀\n\"", "\\ud83d", "\\ude00x", "\\ud83dA", "/"]);
    }

    #[test]
    fn what_is_not_json_is_refused() {
        for text in [
            "",
            " ",
            "{",
            "[",
            "[1,]",
            "{\"a\"}",
            "{\"a\":}",
            "{\"a\":1,}",
            "{a:1}",
            "01",
            "1.",
            "1e",
            "-",
            "+1",
            ".5",
            "nul",
            "tru",
            "\"",
            "\"\\x\"",
            "\"\\u12g4\"",
            "1 2",
            "{}{}",
            "[1 2]",
            "[}",
            "{]",
            "{\"a\":1]",
            "NaN",
            "'a'",
            "\u{FEFF}{}",
        ] {
            assert!(read(text).is_err(), "{text:?}");
        }
    }

    #[test]
    fn nesting_is_bounded() {
        assert!(read(&format!("{}1{}", "[".repeat(DEPTH_MAX), "]".repeat(DEPTH_MAX))).is_ok());
        assert!(read(&format!("{}1{}", "[".repeat(DEPTH_MAX + 1), "]".repeat(DEPTH_MAX + 1))).is_err());
        assert!(read(&"[".repeat(1_000_000)).is_err());
    }

    fn same(ours: Value<'_>, theirs: &serde_json::Value) -> bool {
        use serde_json::Value as J;
        match theirs {
            J::Null => ours.kind() == Kind::Null,
            J::Array(list) => {
                ours.elements().count() == list.len() && ours.elements().zip(list).all(|(a, b)| same(a, b))
            }
            J::Object(map) => map.iter().all(|(k, v)| ours.get(k).is_some_and(|o| same(o, v))),
            J::String(s) => ours.text().as_deref() == Some(s) && ours.kind() != Kind::Number,
            J::Number(n) => ours.kind() == Kind::Number && ours.raw() == n.to_string(),
            J::Bool(b) => ours.text().as_deref() == Some(if *b { "true" } else { "false" }),
        }
    }

    fn tree() -> impl Strategy<Value = serde_json::Value> {
        let leaf = prop_oneof![
            Just(serde_json::Value::Null),
            any::<bool>().prop_map(Into::into),
            any::<i64>().prop_map(Into::into),
            ".*".prop_map(serde_json::Value::from),
        ];
        leaf.prop_recursive(6, 64, 8, |inner| {
            prop_oneof![
                prop::collection::vec(inner.clone(), 0..8).prop_map(serde_json::Value::from),
                prop::collection::btree_map(".*", inner, 0..8)
                    .prop_map(|m| serde_json::Value::Object(m.into_iter().collect())),
            ]
        })
    }

    proptest! {
        #[test]
        fn serde_json_and_we_read_the_same(value in tree(), pretty in any::<bool>()) {
            let text = if pretty { serde_json::to_string_pretty(&value) } else { serde_json::to_string(&value) }.unwrap();
            let document = read(&text).unwrap();
            prop_assert!(same(document.root(), &value), "{text}");
        }

        #[test]
        fn no_text_makes_the_reader_panic(text in r#"[\[\]{}:,"\\ua0-9eE.\-tfnrulse ]{0,60}"#) {
            let known = serde_json::from_str::<serde_json::Value>(&text).is_ok();
            let ours = read(&text);
            prop_assert!(!known || ours.is_ok(), "serde_json reads {text}");
            if let Ok(document) = ours {
                let mut all = vec![document.root()];
                while let Some(value) = all.pop() {
                    value.text();
                    value.get("a");
                    all.extend(value.elements());
                }
            }
        }
    }
}
