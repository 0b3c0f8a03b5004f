//! Turns whatever a provider posts (a form, JSON in a form field, XML in base64 in a form field) into one JSON text.
//!
//! Only for reading: signatures are checked over the bytes that came. Leading byte-order marks are skipped, of two
//! equal form keys the first counts, a form's own charset is used. Never fails where guessing nothing is possible, and
//! never expands entities of a document type, so a small body stays small.

use super::json::write_string;
use base64::Engine;
use std::borrow::Cow;

/// What a body is made of.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyKind {
    /// JSON.
    Json,
    /// A form: one object of texts.
    Form,
    /// JSON inside this field of a form.
    FormJson(String),
    /// XML in base64 inside this field of a form; elements become objects, `type="array"` arrays, `nil` null.
    FormXml(String),
}

impl BodyKind {
    /// Reads `json`, `form`, `form_json:FIELD`, `form_base64_xml:FIELD`.
    pub fn parse(text: &str) -> Option<BodyKind> {
        let (kind, field) = text.split_once(':').unwrap_or((text, ""));
        match (kind, field.is_empty()) {
            ("json", true) => Some(BodyKind::Json),
            ("form", true) => Some(BodyKind::Form),
            ("form_json", false) => Some(BodyKind::FormJson(field.to_owned())),
            ("form_base64_xml", false) => Some(BodyKind::FormXml(field.to_owned())),
            _ => None,
        }
    }
}

/// The JSON text of a body. Of several kinds, JSON is taken when the body begins with a bracket, else the other.
/// The error says, for people, what could not be read.
pub fn to_json<'b>(kinds: &[BodyKind], body: &'b [u8], content_type: Option<&str>) -> Result<Cow<'b, str>, String> {
    let mut body = body;
    while let Some(rest) = body.strip_prefix(b"\xEF\xBB\xBF") {
        body = rest;
    }
    let bracket = body.iter().find(|b| !b.is_ascii_whitespace()).is_some_and(|b| matches!(b, b'{' | b'['));
    let kind = match kinds {
        [only] => only,
        _ => kinds.iter().find(|k| (**k == BodyKind::Json) == bracket).unwrap_or(&BodyKind::Json),
    };
    let header_charset = content_type.and_then(charset_of);
    match kind {
        BodyKind::Json => Ok(decode(body, header_charset)),
        BodyKind::Form => Ok(Cow::Owned(form_as_json(body, header_charset))),
        BodyKind::FormJson(field) => form_field(body, field, header_charset).map(|t| Cow::Owned(strip_marks(t))),
        BodyKind::FormXml(field) => {
            let packed: String = form_field(body, field, None)?.split_ascii_whitespace().collect();
            let xml = base64::engine::general_purpose::STANDARD
                .decode(
                    packed.trim_end_matches('=').to_owned()
                        + &"===="[..(4 - packed.trim_end_matches('=').len() % 4) % 4],
                )
                .map_err(|e| format!("the form field `{field}` is not base64: {e}"))?;
            xml_as_json(&strip_marks(decode(&xml, None).into_owned())).map(Cow::Owned)
        }
    }
}

fn strip_marks(text: String) -> String {
    match text.strip_prefix('\u{FEFF}') {
        Some(rest) => rest.trim_start_matches('\u{FEFF}').to_owned(),
        None => text,
    }
}

fn charset_of(content_type: &str) -> Option<&str> {
    let at = content_type.to_ascii_lowercase().find("charset=")? + "charset=".len();
    Some(content_type[at..].split(';').next()?.trim().trim_matches('"'))
}

/// Bytes as text: UTF-8 where it is, else the named charset, else each byte its own character, so that two different
/// byte strings never become one text.
fn decode<'b>(bytes: &'b [u8], charset: Option<&str>) -> Cow<'b, str> {
    let named = charset
        .and_then(|c| encoding_rs::Encoding::for_label(c.as_bytes()))
        .filter(|e| e.is_ascii_compatible() && *e != encoding_rs::UTF_8);
    if (bytes.is_ascii() || named.is_none())
        && let Ok(text) = std::str::from_utf8(bytes)
    {
        return Cow::Borrowed(text);
    }
    match named {
        Some(encoding) => encoding.decode_without_bom_handling(bytes).0,
        None => Cow::Owned(bytes.iter().map(|b| *b as char).collect()),
    }
}

fn percent_decoded(part: &[u8]) -> Cow<'_, [u8]> {
    if !part.iter().any(|b| matches!(b, b'%' | b'+')) {
        return Cow::Borrowed(part);
    }
    let mut out = Vec::with_capacity(part.len());
    let mut at = 0;
    while let Some(byte) = part.get(at) {
        let hex = |i: usize| part.get(i).and_then(|b| (*b as char).to_digit(16));
        match (byte, hex(at + 1), hex(at + 2)) {
            (b'%', Some(high), Some(low)) => {
                out.push((high * 16 + low) as u8);
                at += 2;
            }
            (b'+', ..) => out.push(b' '),
            _ => out.push(*byte),
        }
        at += 1;
    }
    Cow::Owned(out)
}

type Bytes<'b> = Cow<'b, [u8]>;

fn pairs(body: &[u8]) -> impl DoubleEndedIterator<Item = (Bytes<'_>, Bytes<'_>)> {
    body.split(|b| *b == b'&').filter(|pair| !pair.is_empty()).map(|pair| {
        let at = pair.iter().position(|b| *b == b'=').unwrap_or(pair.len());
        (percent_decoded(&pair[..at]), percent_decoded(pair.get(at + 1..).unwrap_or_default()))
    })
}

/// The charset that the form itself declares, or the one of its header.
fn form_charset(body: &[u8], header: Option<&str>) -> Option<String> {
    let own = pairs(body).find(|(key, _)| matches!(key.as_ref(), b"charset" | b"_charset_"));
    own.map(|(_, value)| String::from_utf8_lossy(&value).into_owned()).or(header.map(str::to_owned))
}

/// Backwards, since of two equal keys in JSON the last counts and in a form the first.
fn form_as_json(body: &[u8], header_charset: Option<&str>) -> String {
    let charset = form_charset(body, header_charset);
    let mut out = String::with_capacity(body.len() + 16);
    for (key, value) in pairs(body).rev() {
        out.push(if out.is_empty() { '{' } else { ',' });
        write_string(&mut out, &decode(&key, charset.as_deref()));
        out.push(':');
        write_string(&mut out, &decode(&value, charset.as_deref()));
    }
    if out.is_empty() {
        out.push('{');
    }
    out.push('}');
    out
}

fn form_field(body: &[u8], field: &str, header_charset: Option<&str>) -> Result<String, String> {
    let (_, value) = pairs(body)
        .find(|(key, _)| key.as_ref() == field.as_bytes())
        .ok_or_else(|| format!("unexpected shape: the form has no field `{field}`"))?;
    Ok(decode(&value, form_charset(body, header_charset).as_deref()).into_owned())
}

/// First value of a key in a query string.
pub fn query_value<'q>(query: &'q str, key: &str) -> Option<Cow<'q, str>> {
    pairs(query.trim_start_matches('?').as_bytes()).find(|(k, _)| k.as_ref() == key.as_bytes()).map(|(_, v)| match v {
        Cow::Borrowed(bytes) => decode(bytes, None),
        Cow::Owned(bytes) => Cow::Owned(decode(&bytes, None).into_owned()),
    })
}

const XML_DEPTH_MAX: usize = 64;

struct Element {
    array: bool,
    nil: bool,
    opened: bool, // a child has been written: this is a container
    text: String,
}

/// XML to JSON text: the root's name is the one key. Elements with children become objects (arrays with
/// `type="array"`), others their text; attributes other than `type` and `nil` are left out.
fn xml_as_json(xml: &str) -> Result<String, String> {
    use quick_xml::events::Event;
    let fail = |problem: &dyn std::fmt::Display| format!("not XML: {problem}");
    let mut reader = quick_xml::Reader::from_str(xml);
    let mut out = String::with_capacity(xml.len());
    let mut open: Vec<Element> = Vec::new();
    let mut done = false;
    loop {
        match reader.read_event().map_err(|e| fail(&e))? {
            Event::Start(start) => {
                begin(&mut open, &mut out, &start, done)?;
            }
            Event::Empty(start) => {
                begin(&mut open, &mut out, &start, done)?;
                end(&mut open, &mut out);
                done = open.is_empty();
            }
            Event::End(_) => {
                end(&mut open, &mut out);
                done = open.is_empty();
            }
            Event::Text(text) => {
                if let Some(element) = open.last_mut() {
                    element.text.push_str(&text.xml10_content());
                }
            }
            Event::CData(text) => {
                if let Some(element) = open.last_mut() {
                    element.text.push_str(&text.xml10_content());
                }
            }
            Event::GeneralRef(entity) => {
                if let Some(element) = open.last_mut() {
                    match (entity.resolve_char_ref(), quick_xml::escape::resolve_predefined_entity(&entity)) {
                        (Ok(Some(c)), _) => element.text.push(c),
                        (_, Some(text)) => element.text.push_str(text),
                        _ => element.text.push('\u{FFFD}'),
                    }
                }
            }
            Event::Eof if done => return Ok(out + "}"),
            Event::Eof => return Err(fail(&"it ends early")),
            Event::Decl(_) | Event::PI(_) | Event::Comment(_) | Event::DocType(_) => {}
        }
    }
}

fn begin(
    open: &mut Vec<Element>,
    out: &mut String,
    start: &quick_xml::events::BytesStart<'_>,
    done: bool,
) -> Result<(), String> {
    if open.len() == XML_DEPTH_MAX {
        return Err("not XML: nested deeper than 64 levels".into());
    }
    if done {
        return Err("not XML: a second root element".into());
    }
    let in_array = match open.last_mut() {
        None => {
            out.push('{');
            false
        }
        Some(parent) => {
            out.push(match (parent.opened, parent.array) {
                (true, _) => ',',
                (false, true) => '[',
                (false, false) => '{',
            });
            parent.opened = true;
            parent.array
        }
    };
    if !in_array {
        write_string(out, start.name().0);
        out.push(':');
    }
    let has =
        |name: &str, wanted: &str| start.attributes().flatten().any(|a| a.key.0 == name && a.value.as_ref() == wanted);
    open.push(Element { array: has("type", "array"), nil: has("nil", "true"), opened: false, text: String::new() });
    Ok(())
}

fn end(open: &mut Vec<Element>, out: &mut String) {
    let Some(element) = open.pop() else { return };
    match element {
        Element { opened: true, array, .. } => out.push(if array { ']' } else { '}' }),
        Element { nil: true, .. } => out.push_str("null"),
        Element { array: true, .. } => out.push_str("[]"),
        Element { text, .. } => write_string(out, &text),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn text(kinds: &[BodyKind], body: &[u8]) -> String {
        to_json(kinds, body, None).unwrap().into_owned()
    }

    #[test]
    fn leading_marks_are_skipped_and_others_are_not() {
        assert_eq!(text(&[BodyKind::Json], b"\xEF\xBB\xBF{\"id\":1}"), "{\"id\":1}");
        assert_eq!(text(&[BodyKind::Json], b"\xEF\xBB\xBF\xEF\xBB\xBF{}"), "{}");
        assert_eq!(text(&[BodyKind::Json], b"{\"\xEF\xBB\xBF\":1}"), "{\"\u{FEFF}\":1}");
        assert_eq!(text(&[BodyKind::Form], b"\xEF\xBB\xBFid=ev2&a=b+c%21"), r#"{"a":"b c!","id":"ev2"}"#);
    }

    #[test]
    fn of_two_equal_form_keys_the_first_counts() {
        let json = text(&[BodyKind::Form], b"price=1900&price=1&=x&flag&a%5Bb%5D=1");
        let document = super::super::json::Document::read(&json).unwrap();
        let get = |key| document.root().get(key).unwrap().text().unwrap().into_owned();
        assert_eq!((get("price").as_str(), get("flag").as_str(), get("a[b]").as_str()), ("1900", "", "1"));
    }

    #[test]
    fn a_form_is_read_in_the_charset_it_declares() {
        let body = b"charset=windows-1252&first_name=Ren%E9&mc_gross=19.50";
        assert!(text(&[BodyKind::Form], body).contains("René"));
        let body = b"first_name=%F0%C5%D4%D2&charset=KOI8-R";
        assert!(text(&[BodyKind::Form], body).contains("Петр"));
        let body = b"charset=klingon&first_name=Ren%E9&mc_gross=19.50";
        assert!(text(&[BodyKind::Form], body).contains("\"mc_gross\":\"19.50\""));
        assert!(text(&[BodyKind::Form], b"charset=utf-16le&a=19.50").contains("\"a\":\"19.50\""));
        assert!(
            to_json(&[BodyKind::Json], b"{\"a\":\"\xE9\"}", Some("text/json; charset=ISO-8859-1"))
                .unwrap()
                .contains('é')
        );
    }

    #[test]
    fn the_first_character_tells_json_from_a_form() {
        let kinds = [BodyKind::Json, BodyKind::FormJson("payload".into())];
        assert_eq!(text(&kinds, b" {\"a\":1}"), " {\"a\":1}");
        assert_eq!(text(&kinds, b"payload=%7B%22a%22%3A1%7D"), "{\"a\":1}");
        assert!(to_json(&kinds, b"other=1", None).unwrap_err().contains("payload"));
    }

    #[test]
    fn xml_becomes_objects_arrays_and_null() {
        let xml = "<?xml version=\"1.0\"?><!DOCTYPE n [<!ENTITY x \"y\">]><n><id>a&amp;&#65;&x;</id><list type=\"array\">\
                   <i><v>1</v></i><i><v>2</v></i></list><none type=\"array\"></none><gone nil=\"true\"/><e/>\
                   <c><![CDATA[<x>]]></c></n>";
        assert_eq!(
            xml_as_json(xml).unwrap(),
            "{\"n\":{\"id\":\"a&A\u{FFFD}\",\"list\":[{\"v\":\"1\"},{\"v\":\"2\"}],\"none\":[],\"gone\":null,\"e\":\"\",\"c\":\"<x>\"}}"
        );
        for bad in ["", "x", "<a>", "<a></b>", "</a>", "<a/><b/>", &"<a>".repeat(100_000)] {
            assert!(xml_as_json(bad).is_err(), "{bad:.20}");
        }
    }

    proptest! {
        #[test]
        fn no_body_makes_decoding_panic(body in prop::collection::vec(any::<u8>(), 0..200), pick in 0..4usize) {
            let kinds = [BodyKind::Json, BodyKind::Form, BodyKind::FormJson("d".into()), BodyKind::FormXml("d".into())];
            let _ = to_json(&kinds[pick..=pick], &body, Some("text/plain; charset=koi8-r"));
            if let Ok(json) = to_json(&[BodyKind::Form], &body, None) {
                prop_assert!(super::super::json::Document::read(&json).is_ok(), "{json}");
            }
        }

        #[test]
        fn no_xml_makes_decoding_panic(xml in "[<>/a-c =\"&;#!\\[\\]?x0-9-]{0,80}") {
            if let Ok(json) = xml_as_json(&xml) {
                prop_assert!(super::super::json::Document::read(&json).is_ok(), "{json}");
            }
        }
    }
}
