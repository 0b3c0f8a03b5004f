//! A request's headers as they were received: order, duplicates, spelling and bytes kept.
//!
//! Lookup ignores case, as HTTP does. Nothing here decodes, joins or normalises a value: signatures are made over bytes.

use std::fmt;

/// Header lines in order. One buffer and a list of places in it, so that a request costs two allocations.
#[derive(Clone, Default, PartialEq, Eq)]
pub struct Headers {
    raw: Vec<u8>,
    places: Vec<Place>,
}

#[derive(Clone, Copy, PartialEq, Eq)]
struct Place {
    name: (u32, u32),
    value: (u32, u32),
}

impl Headers {
    /// Headers from names and values, for events that came by another way than this edge.
    pub fn from_pairs<'a>(pairs: impl IntoIterator<Item = (&'a str, &'a [u8])>) -> Headers {
        let mut headers = Headers::default();
        for (name, value) in pairs {
            headers.push(name, value);
        }
        headers
    }

    /// Adds a line at the end.
    pub fn push(&mut self, name: &str, value: &[u8]) {
        let name_at = self.raw.len() as u32;
        self.raw.extend_from_slice(name.as_bytes());
        let value_at = self.raw.len() as u32;
        self.raw.extend_from_slice(value);
        self.places.push(Place { name: (name_at, value_at), value: (value_at, self.raw.len() as u32) });
    }

    pub(super) fn with_capacity(lines: usize, bytes: usize) -> Headers {
        Headers { raw: Vec::with_capacity(bytes), places: Vec::with_capacity(lines) }
    }

    /// The first value under this name, blanks around it removed.
    pub fn get(&self, name: &str) -> Option<&[u8]> {
        self.iter().find(|(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// The first value under this name when it is UTF-8.
    pub fn get_str(&self, name: &str) -> Option<&str> {
        self.get(name).and_then(|value| std::str::from_utf8(value).ok())
    }

    /// All values under this name, in order.
    pub fn get_all<'a>(&'a self, name: &'a str) -> impl Iterator<Item = &'a [u8]> {
        self.iter().filter(move |(other, _)| other.eq_ignore_ascii_case(name)).map(|(_, value)| value)
    }

    /// All lines: name as spelled by the peer, and value.
    pub fn iter(&self) -> impl Iterator<Item = (&str, &[u8])> {
        self.places.iter().map(|place| {
            // names are pushed from &str, at these very places
            (std::str::from_utf8(self.slice(place.name)).unwrap_or(""), self.slice(place.value))
        })
    }

    /// How many lines there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are no lines.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    fn slice(&self, (from, to): (u32, u32)) -> &[u8] {
        &self.raw[from as usize..to as usize]
    }
}

/// Names only: values may be secrets.
impl fmt::Debug for Headers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_list().entries(self.iter().map(|(name, _)| name)).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lookup_ignores_case_and_keeps_order_duplicates_and_bytes() {
        let headers = Headers::from_pairs([
            ("X-Sig", b"one".as_slice()),
            ("Other", b"\xff\xfe"),
            ("x-sIG", b"two"),
            ("Empty", b""),
        ]);
        assert_eq!(headers.get("x-sig"), Some(b"one".as_slice()));
        assert_eq!(headers.get_all("X-SIG").collect::<Vec<_>>(), [b"one".as_slice(), b"two"]);
        assert_eq!(headers.get("other"), Some(b"\xff\xfe".as_slice()));
        assert_eq!(headers.get_str("other"), None);
        assert_eq!(headers.get("empty"), Some(b"".as_slice()));
        assert_eq!(headers.get("absent"), None);
        assert_eq!(headers.iter().map(|(name, _)| name).collect::<Vec<_>>(), ["X-Sig", "Other", "x-sIG", "Empty"]);
    }

    #[test]
    fn debug_shows_no_values() {
        let headers = Headers::from_pairs([("Authorization", b"hunter2".as_slice())]);
        assert_eq!(format!("{headers:?}"), "[\"Authorization\"]");
    }
}
