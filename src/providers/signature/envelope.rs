//! Where a signature stands in a delivery, and how its text is taken apart.
//!
//! Everything is bounded: a header may hold at most `SIGNATURES_MAX` signatures, and all of them are looked at. What is
//! ambiguous (a header sent twice, two timestamps) is refused; the first never wins silently.

use super::Settings;
use super::delivery::{Delivery, Reason, Refusal};
use super::spec::{Format, SignatureSpec, Unit};
use super::template::{Place, Sight};
use std::borrow::Cow;

/// How many signatures one delivery may carry.
pub(crate) const SIGNATURES_MAX: usize = 32;
/// How long a signature header may be, in bytes.
pub(crate) const HEADER_BYTES_MAX: usize = 16 * 1024;

/// The compiled half of a spec that says where things stand.
pub(crate) struct Envelope {
    headers: Vec<String>,
    from: Option<Place>,
    prefix: Option<String>,
    prefix_optional: bool,
    format: Format,
    item_sep: u8,
    kv_sep: u8,
    ts_key: String,
    sig_key: String,
    timestamp: Vec<Place>,
    pub(crate) unit: Option<Unit>,
    id: Vec<Place>,
}

/// One signature of a delivery, with the key id in front of it where there is one.
#[derive(Clone, Copy)]
pub(crate) struct Item<'t> {
    pub label: &'t [u8],
    pub value: &'t [u8],
}

/// What an envelope found.
pub(crate) struct Opened<'t> {
    pub items: Vec<Item<'t>>,
    pub pairs: Vec<(&'t [u8], &'t [u8])>,
    ts: Option<&'t [u8]>,
}

/// The timestamp and the id of a delivery, read once the signature is taken apart.
pub(crate) struct Marks<'t> {
    pub ts: Option<Cow<'t, [u8]>>,
    pub signed_at_ms: Option<i64>,
    pub id: Option<Cow<'t, [u8]>>,
}

impl Envelope {
    pub(crate) fn new(spec: &SignatureSpec) -> Result<Envelope, String> {
        let byte = |sep: Option<char>, usual: char| {
            u8::try_from(sep.unwrap_or(usual)).map_err(|_| "[signature] a separator is one ASCII character".to_owned())
        };
        let places = |list: &[String]| list.iter().map(|text| Place::parse(text)).collect::<Result<Vec<_>, _>>();
        Ok(Envelope {
            headers: spec.header.all().to_vec(),
            from: spec.from.as_deref().map(Place::parse).transpose()?,
            prefix: spec.prefix.clone(),
            prefix_optional: spec.prefix_optional,
            format: spec.format,
            item_sep: byte(spec.item_sep, ',')?,
            kv_sep: byte(spec.kv_sep, '=')?,
            ts_key: spec.ts_key.clone().unwrap_or_default(),
            sig_key: spec.sig_key.clone().unwrap_or_default(),
            timestamp: spec.timestamp.as_ref().map_or(Ok(Vec::new()), |t| places(t.from.all()))?,
            unit: spec.timestamp.as_ref().map(|t| t.unit),
            id: places(spec.id.all())?,
        })
    }

    /// The name to show for where the signature stands.
    pub(crate) fn name(&self) -> &str {
        self.headers.first().map_or("the signature field of the body", String::as_str)
    }

    pub(crate) fn header_names(&self) -> &[String] {
        &self.headers
    }

    pub(crate) fn parts(&self) -> (Format, char, char, &str, &str, Option<&str>) {
        let (item, kv) = (char::from(self.item_sep), char::from(self.kv_sep));
        (self.format, item, kv, &self.ts_key, &self.sig_key, self.prefix.as_deref())
    }

    pub(crate) fn timestamp_places(&self) -> &[Place] {
        &self.timestamp
    }

    pub(crate) fn id_places(&self) -> &[Place] {
        &self.id
    }

    /// Whether the delivery carries a header of this envelope.
    pub(crate) fn is_there(&self, delivery: &Delivery<'_>) -> bool {
        self.from.is_some() || self.headers.iter().any(|name| delivery.header_all(&numbered(name, 1)).next().is_some())
    }

    /// The signature's text or texts, as they were sent.
    pub(crate) fn texts<'a>(
        &self,
        delivery: &Delivery<'a>,
        settings: &Settings,
    ) -> Result<Vec<Cow<'a, [u8]>>, Refusal> {
        let mut texts: Vec<Cow<'a, [u8]>> = Vec::new();
        if let Some(place) = &self.from {
            // The borrow is of this call only, so the text is taken over; these schemes parse the body anyway.
            let sight = Sight { delivery, ts: None, id: None, secret: &[], pairs: &[], settings };
            let text = place.find(&sight)?.map(|text| Cow::Owned(text.into_owned()));
            texts.push(text.ok_or_else(|| {
                Refusal::new(Reason::MalformedBody, "the body lacks the field that holds the signature")
            })?);
        }
        for name in &self.headers {
            if name.contains("{n}") {
                for n in 1..=SIGNATURES_MAX {
                    texts.extend(delivery.header_once(&numbered(name, n))?.map(Cow::Borrowed));
                }
            } else {
                texts.extend(self.joined(delivery, name)?);
            }
            if !texts.is_empty() {
                break;
            }
        }
        match texts.is_empty() {
            true => Err(Refusal::new(Reason::MissingHeader, format!("{} is not there", self.name()))),
            false if texts.iter().any(|text| text.len() > HEADER_BYTES_MAX) => {
                Err(Refusal::new(Reason::MalformedHeader, format!("{} is too long", self.name())))
            }
            false => Ok(texts),
        }
    }

    /// One header; sent as two lines it is one comma-separated list (RFC 9110), where the format is such a list.
    fn joined<'a>(&self, delivery: &Delivery<'a>, name: &str) -> Result<Option<Cow<'a, [u8]>>, Refusal> {
        let mut all = delivery.header_all(name);
        let Some(first) = all.next() else { return Ok(None) };
        let mut whole = Cow::Borrowed(first);
        for more in all.filter(|more| *more != first) {
            if self.item_sep != b',' || !matches!(self.format, Format::Kv | Format::VersionedList | Format::List) {
                return Err(Refusal::new(Reason::MalformedHeader, format!("{name} came more than once")));
            }
            let joined = whole.to_mut();
            joined.push(b',');
            joined.extend_from_slice(more);
        }
        Ok(Some(whole))
    }

    /// Takes the texts apart.
    pub(crate) fn open<'t>(&self, texts: &'t [Cow<'_, [u8]>]) -> Result<Opened<'t>, Refusal> {
        let malformed = |about: &str| Refusal::new(Reason::MalformedHeader, format!("{}: {about}", self.name()));
        let mut opened = Opened { items: Vec::new(), pairs: Vec::new(), ts: None };
        for text in texts {
            let text: &'t [u8] = text.as_ref();
            let text = match &self.prefix {
                None => text,
                Some(prefix) => match strip_prefix_as_sent(text, prefix) {
                    Some(rest) => rest,
                    None if self.prefix_optional => text,
                    None => return Err(malformed("does not start as this provider's do")),
                },
            };
            if self.format == Format::Raw {
                if text.is_empty() {
                    return Err(malformed("is empty"));
                }
                opened.items.push(Item { label: b"", value: text });
                continue;
            }
            for (at, part) in text.split(|b| *b == self.item_sep).map(<[u8]>::trim_ascii).enumerate() {
                let split = part.iter().position(|b| *b == self.kv_sep);
                let pair = split.map(|at| (part[..at].trim_ascii(), part[at + 1..].trim_ascii()));
                match (self.format, pair) {
                    (Format::Positional, _) if at == 0 => opened.ts = Some(part),
                    (Format::List | Format::Positional, _) if !part.is_empty() => {
                        opened.items.push(Item { label: b"", value: part });
                    }
                    (Format::VersionedList, Some((key, value))) if key == self.sig_key.as_bytes() => {
                        opened.items.push(Item { label: b"", value });
                    }
                    (Format::VersionedList, None) if self.sig_key.is_empty() && !part.is_empty() => {
                        opened.items.push(Item { label: b"", value: part });
                    }
                    (Format::Keyed, Some((label, value))) => opened.items.push(Item { label, value }),
                    (Format::Kv, Some((key, value))) => {
                        if key == self.sig_key.as_bytes() {
                            opened.items.push(Item { label: b"", value });
                        } else if key == self.ts_key.as_bytes() {
                            if opened.ts.is_some_and(|known| known != value) {
                                return Err(malformed("has two timestamps"));
                            }
                            opened.ts = Some(value);
                        }
                        if opened.pairs.len() < SIGNATURES_MAX {
                            opened.pairs.push((key, value));
                        }
                    }
                    _ => {}
                }
                if opened.items.len() > SIGNATURES_MAX {
                    return Err(malformed("holds too many signatures"));
                }
            }
        }
        match opened.items.is_empty() {
            true => Err(malformed("holds no signature of the kind that counts")),
            false => Ok(opened),
        }
    }

    /// The timestamp and the id.
    pub(crate) fn marks<'t>(&self, sight: &Sight<'t>, opened: &Opened<'t>) -> Result<Marks<'t>, Refusal> {
        let first = |places: &[Place]| -> Result<Option<Cow<'t, [u8]>>, Refusal> {
            for place in places {
                if let Some(found) = place.find(sight)? {
                    return Ok(Some(found));
                }
            }
            Ok(None)
        };
        let ts = match opened.ts {
            Some(ts) => Some(Cow::Borrowed(ts)),
            None => first(&self.timestamp)?,
        };
        let signed_at_ms = match (&ts, self.unit) {
            (_, None) => None,
            (None, Some(_)) => return Err(absent(&self.timestamp, "the timestamp")),
            (Some(text), Some(unit)) => Some(read_time(text, unit).ok_or_else(|| {
                Refusal::new(Reason::MalformedHeader, format!("the timestamp is no {}", unit_name(unit)))
            })?),
        };
        let id = first(&self.id)?;
        match &id {
            None if !self.id.is_empty() => Err(absent(&self.id, "the message id")),
            Some(id) if id.is_empty() => Err(Refusal::new(Reason::MalformedHeader, "the message id is empty")),
            _ => Ok(Marks { ts, signed_at_ms, id }),
        }
    }
}

fn absent(places: &[Place], what: &str) -> Refusal {
    match places.first() {
        Some(Place::Header(name)) => Refusal::new(Reason::MissingHeader, format!("{name} is not there")),
        Some(Place::Json(_) | Place::Form(..)) => Refusal::new(Reason::MalformedBody, format!("the body lacks {what}")),
        _ => Refusal::new(Reason::MalformedHeader, format!("{what} is not there")),
    }
}

/// `sha256=` as it is; of an authentication scheme like `Bearer ` the case does not matter (RFC 9110).
fn strip_prefix_as_sent<'t>(text: &'t [u8], prefix: &str) -> Option<&'t [u8]> {
    let (head, rest) = text.split_at_checked(prefix.len())?;
    let same = match prefix.ends_with(' ') {
        true => head.eq_ignore_ascii_case(prefix.as_bytes()),
        false => head == prefix.as_bytes(),
    };
    same.then_some(rest)
}

fn numbered(name: &str, n: usize) -> Cow<'_, str> {
    match name.contains("{n}") {
        true => Cow::Owned(name.replace("{n}", &n.to_string())),
        false => Cow::Borrowed(name),
    }
}

fn unit_name(unit: Unit) -> &'static str {
    match unit {
        Unit::S => "number of seconds",
        Unit::Ms => "number of milliseconds",
        Unit::SOrMs => "number of seconds or milliseconds",
        Unit::Iso8601 => "ISO 8601 time",
    }
}

/// A timestamp in Unix milliseconds; digits only, so that nothing else slips through beside a good signature.
pub(crate) fn read_time(text: &[u8], unit: Unit) -> Option<i64> {
    let text = std::str::from_utf8(text).ok()?;
    if unit == Unit::Iso8601 {
        if let Ok(time) = text.parse::<jiff::Timestamp>() {
            return Some(time.as_millisecond());
        }
        let without_zone: jiff::civil::DateTime = text.parse().ok()?;
        return Some(jiff::tz::TimeZone::UTC.to_timestamp(without_zone).ok()?.as_millisecond());
    }
    if text.is_empty() || text.len() > 16 || !text.bytes().all(|b| b.is_ascii_digit()) {
        return None;
    }
    let number: i64 = text.parse().ok()?;
    match unit {
        Unit::SOrMs if number > 99_999_999_999 => Some(number),
        Unit::S | Unit::SOrMs => number.checked_mul(1000),
        Unit::Ms | Unit::Iso8601 => Some(number),
    }
}
