//! Templates of signed bytes: `{ts}.{body}`, `id:{query:data.id};`, and the places that they read from.
//!
//! A template is compiled once and then fed piece by piece into a digest, so that a body is never copied. Reading a
//! place never panics, never builds the whole JSON tree, and takes time linear in the body.

use super::delivery::{Delivery, Reason, Refusal};
use super::json;
use std::borrow::Cow;

/// A place in a delivery.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Place {
    Header(String),
    Query(String),
    /// A form field, and a pointer into the JSON that it holds.
    Form(String, Option<json::Pointer>),
    Json(json::Pointer),
    Sig(String),
    Setting(String),
}

impl Place {
    pub(crate) fn parse(text: &str) -> Result<Place, String> {
        let wrong = || {
            format!(
                "\"{text}\" is no place; a place is header:NAME, query:NAME, form:NAME, json:/pointer, sig:KEY or setting:NAME"
            )
        };
        let (kind, rest) = text.split_once(':').ok_or_else(wrong)?;
        if rest.is_empty() {
            return Err(wrong());
        }
        Ok(match kind {
            "header" => Place::Header(rest.to_owned()),
            "query" => Place::Query(rest.to_owned()),
            "form" => match rest.split_once('#') {
                None => Place::Form(rest.to_owned(), None),
                Some((field, pointer)) => Place::Form(field.to_owned(), Some(json::Pointer::parse(pointer)?)),
            },
            "json" => Place::Json(json::Pointer::parse(rest)?),
            "sig" => Place::Sig(rest.to_owned()),
            "setting" => Place::Setting(rest.to_owned()),
            _ => return Err(wrong()),
        })
    }

    /// What stands there; `None` when nothing does. A header that came twice is refused: which one counts is a guess.
    pub(crate) fn find<'a>(&self, from: &Sight<'a>) -> Result<Option<Cow<'a, [u8]>>, Refusal> {
        let text = |found: Option<Cow<'a, str>>| {
            found.map(|text| match text {
                Cow::Borrowed(text) => Cow::Borrowed(text.as_bytes()),
                Cow::Owned(text) => Cow::Owned(text.into_bytes()),
            })
        };
        Ok(match self {
            Place::Header(name) => from.delivery.header_once(name)?.map(Cow::Borrowed),
            Place::Query(name) => text(field(from.delivery.query.as_bytes(), name)),
            Place::Form(name, None) => text(field(skip_marks(from.delivery.body), name)),
            Place::Form(name, Some(pointer)) => match field(skip_marks(from.delivery.body), name) {
                None => None,
                Some(inner) => json::text_at(inner.as_bytes(), pointer).map(|text| Cow::Owned(text.into_bytes())),
            },
            Place::Json(pointer) => {
                json::text_at(skip_marks(from.delivery.body), pointer).map(|text| Cow::Owned(text.into_bytes()))
            }
            Place::Sig(key) => {
                from.pairs.iter().find(|(known, _)| *known == key.as_bytes()).map(|(_, v)| Cow::Borrowed(*v))
            }
            Place::Setting(name) => from.settings.get(name).map(|value| Cow::Borrowed(value.as_bytes())),
        })
    }
}

/// The first field of that name in a form or a query string, decoded.
pub(crate) fn field<'a>(text: &'a [u8], name: &str) -> Option<Cow<'a, str>> {
    form_urlencoded::parse(text).find(|(known, _)| known == name).map(|(_, value)| value)
}

/// A body without the byte-order marks that some senders put in front; only for reading it, never for digests.
pub(crate) fn skip_marks(mut body: &[u8]) -> &[u8] {
    while let Some(rest) = body.strip_prefix(b"\xEF\xBB\xBF") {
        body = rest;
    }
    body
}

/// Everything that a template may read.
#[derive(Clone, Copy)]
pub(crate) struct Sight<'a> {
    pub delivery: &'a Delivery<'a>,
    pub ts: Option<&'a [u8]>,
    pub id: Option<&'a [u8]>,
    pub secret: &'a [u8],
    pub pairs: &'a [(&'a [u8], &'a [u8])],
    pub settings: &'a super::Settings,
}

#[derive(Debug, Clone, PartialEq, Eq)]
enum Piece {
    Text(Vec<u8>),
    Body,
    Timestamp,
    Id,
    Url,
    Method,
    Path,
    Secret,
    Place(Place),
    /// The values, joined by dots, of the headers whose names stand under this key of the signature.
    NamedHeaders(String),
    /// The SHA-256, in hex, of the body with the white space between JSON tokens left out.
    MinifiedHash,
    /// Left out as a whole when something in it is absent.
    Optional(Vec<Piece>),
}

/// A compiled template.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Template {
    pieces: Vec<Piece>,
}

impl Template {
    /// Compiles `text`. `{…}` is a placeholder, `[…]` a part that falls away when a placeholder in it is absent.
    pub(crate) fn parse(text: &str) -> Result<Template, String> {
        let mut stack: Vec<Vec<Piece>> = vec![Vec::new()];
        let mut rest = text;
        while let Some(first) = rest.chars().next() {
            match first {
                '{' => {
                    let end = rest.find('}').ok_or_else(|| format!("\"{text}\": a {{ without its }}"))?;
                    let piece = Self::piece(&rest[1..end])?;
                    stack.last_mut().into_iter().for_each(|list| list.push(piece.clone()));
                    rest = &rest[end + 1..];
                }
                '[' if stack.len() == 1 => {
                    stack.push(Vec::new());
                    rest = &rest[1..];
                }
                '[' => return Err(format!("\"{text}\": an optional part inside another")),
                ']' => {
                    let inner = if stack.len() == 2 { stack.pop() } else { None };
                    let inner = inner.ok_or_else(|| format!("\"{text}\": a ] without its ["))?;
                    stack.last_mut().into_iter().for_each(|list| list.push(Piece::Optional(inner.clone())));
                    rest = &rest[1..];
                }
                _ => {
                    let end = rest.find(['{', '[', ']']).unwrap_or(rest.len());
                    let piece = Piece::Text(rest.as_bytes()[..end].to_vec());
                    stack.last_mut().into_iter().for_each(|list| list.push(piece.clone()));
                    rest = &rest[end..];
                }
            }
        }
        match (stack.pop(), stack.is_empty()) {
            (Some(pieces), true) => Ok(Template { pieces }),
            _ => Err(format!("\"{text}\": a [ without its ]")),
        }
    }

    fn piece(name: &str) -> Result<Piece, String> {
        Ok(match name {
            "body" => Piece::Body,
            "ts" => Piece::Timestamp,
            "id" => Piece::Id,
            "url" => Piece::Url,
            "method" => Piece::Method,
            "path" => Piece::Path,
            "secret" => Piece::Secret,
            "minified_sha256" => Piece::MinifiedHash,
            _ => match name.strip_prefix("named_headers:") {
                Some(key) => Piece::NamedHeaders(key.to_owned()),
                None => Piece::Place(Place::parse(name).map_err(|e| {
                    format!("{{{name}}}: {e}, or body, ts, id, url, method, path, secret, minified_sha256, named_headers:KEY")
                })?),
            },
        })
    }

    /// Feeds the bytes to `sink`. `Ok(false)` when a place that is not optional is absent; what was fed is void then.
    pub(crate) fn feed(&self, from: &Sight<'_>, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal> {
        Self::feed_all(&self.pieces, from, sink)
    }

    fn feed_all(pieces: &[Piece], from: &Sight<'_>, sink: &mut dyn FnMut(&[u8])) -> Result<bool, Refusal> {
        for piece in pieces {
            match piece {
                Piece::Text(text) => sink(text),
                Piece::Body => sink(from.delivery.body),
                Piece::Timestamp => match from.ts {
                    Some(ts) => sink(ts),
                    None => return Ok(false),
                },
                Piece::Id => match from.id {
                    Some(id) => sink(id),
                    None => return Ok(false),
                },
                Piece::Url => sink(from.delivery.url.as_bytes()),
                Piece::Method => sink(from.delivery.method.as_bytes()),
                Piece::Path => sink(from.delivery.path.as_bytes()),
                Piece::Secret => sink(from.secret),
                Piece::Place(place) => match place.find(from)? {
                    Some(value) => sink(&value),
                    None => return Ok(false),
                },
                Piece::NamedHeaders(key) => {
                    let Some((_, names)) = from.pairs.iter().find(|(known, _)| *known == key.as_bytes()) else {
                        return Ok(false);
                    };
                    for (at, name) in names.split(|b| *b == b' ').filter(|name| !name.is_empty()).enumerate() {
                        if at >= NAMED_HEADERS_MAX {
                            return Err(Refusal::new(Reason::MalformedHeader, "the signature names too many headers"));
                        }
                        let name = std::str::from_utf8(name).map_err(|_| {
                            Refusal::new(Reason::MalformedHeader, "the signature names a header that is no text")
                        })?;
                        let Some(value) = from.delivery.header_once(name)? else { return Ok(false) };
                        if at > 0 {
                            sink(b".");
                        }
                        sink(value);
                    }
                }
                Piece::MinifiedHash => {
                    use sha2::Digest as _;
                    let mut hash = sha2::Sha256::new();
                    json::minify(skip_marks(from.delivery.body), &mut |bytes| hash.update(bytes));
                    sink(hex::encode(hash.finalize()).as_bytes());
                }
                Piece::Optional(inner) => {
                    let mut part = Vec::new();
                    if Self::feed_all(inner, from, &mut |bytes| part.extend_from_slice(bytes))? {
                        sink(&part);
                    }
                }
            }
        }
        Ok(true)
    }

    /// Whether the public address is signed.
    pub(crate) fn holds_url(&self) -> bool {
        self.pieces.contains(&Piece::Url)
    }

    /// Whether the signature itself lists headers that are signed.
    pub(crate) fn names_headers(&self) -> bool {
        self.pieces.iter().any(|piece| matches!(piece, Piece::NamedHeaders(_)))
    }
}

/// How many headers a signature may name: each costs a walk over all headers.
const NAMED_HEADERS_MAX: usize = 32;
