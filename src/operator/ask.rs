//! A request, read: path, query and form as words, numbers, times and cursors, or a sentence that says what is wrong.

use super::App;
use super::access::{Role, Who};
use super::answer::Failure;
use crate::edge::{Client, Head};
use crate::event::Millis;

/// A request that was let in.
pub(super) struct Ask<'a> {
    pub app: &'a App,
    pub head: &'a Head,
    pub client: Client,
    pub who: Who,
    /// What the path holds: the only part of it that varies.
    pub arg: &'a str,
    pub query: Vec<(String, String)>,
    pub form: Vec<(String, String)>,
    /// Is a machine asking?
    pub api: bool,
}

/// Parses `a=b&c=d`.
pub(super) fn pairs(text: &[u8]) -> Vec<(String, String)> {
    form_urlencoded::parse(text).into_owned().collect()
}

impl Ask<'_> {
    /// Names every parameter that is understood; another one is an error, since it would change nothing in silence.
    pub(super) fn only(&self, known: &[&str]) -> Result<(), Failure> {
        for (at, (name, _)) in self.query.iter().enumerate() {
            if !known.contains(&name.as_str()) {
                let known = if known.is_empty() { "none".into() } else { known.join(", ") };
                return Err(Failure::malformed(format!("there is no parameter {name:?} here")).hint(known));
            }
            if self.query[..at].iter().any(|(before, _)| before == name) {
                return Err(Failure::malformed(format!("the parameter {name} is there twice")));
            }
        }
        Ok(())
    }

    fn raw(&self, name: &str) -> Option<&str> {
        let value = self.query.iter().find(|(n, _)| n == name)?.1.as_str();
        // An empty field of a form is one that was left out.
        (self.api || !value.trim().is_empty()).then_some(value)
    }

    /// A word, trimmed.
    pub(super) fn text(&self, name: &str) -> Result<Option<String>, Failure> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let value = value.trim();
        if value.is_empty() || value.len() > 500 || value.chars().any(char::is_control) {
            return Err(Failure::malformed(format!("{name} is 1 to 500 characters of text")));
        }
        Ok(Some(value.to_owned()))
    }

    /// One of some words.
    pub(super) fn one_of<T: Copy>(&self, name: &str, words: &[(&str, T)]) -> Result<Option<T>, Failure> {
        let Some(value) = self.raw(name) else { return Ok(None) };
        let found = words.iter().find(|(word, _)| *word == value).map(|(_, meaning)| *meaning);
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        found.map(Some).ok_or_else(|| Failure::malformed(format!("{name} is one of: {}", known.join(", "))))
    }

    /// A positive number.
    pub(super) fn number(&self, name: &str) -> Result<Option<i64>, Failure> {
        self.raw(name).map(|value| positive(name, value)).transpose()
    }

    /// How many rows, at most 200.
    pub(super) fn limit(&self) -> Result<usize, Failure> {
        match self.number("limit")? {
            None => Ok(50),
            Some(limit) if limit <= 200 => Ok(limit as usize),
            Some(_) => Err(Failure::malformed("limit is 1 to 200")),
        }
    }

    /// Where the page before ended.
    pub(super) fn cursor(&self) -> Result<Option<i64>, Failure> {
        self.raw("cursor").map(|value| positive("cursor", value)).transpose()
    }

    /// The same in a list that is ordered by book, kind and id.
    pub(super) fn cursor_key(&self) -> Result<Option<(i64, String, String)>, Failure> {
        let Some(value) = self.raw("cursor") else { return Ok(None) };
        let mut parts = value.splitn(3, '~');
        let (Some(book), Some(kind), Some(id)) = (parts.next(), parts.next(), parts.next()) else {
            return Err(Failure::malformed("cursor is what `next` of the page before said"));
        };
        Ok(Some((positive("cursor", book)?, kind.to_owned(), id.to_owned())))
    }

    /// An instant: RFC 3339, or a day, which begins (or, with `end`, ends) at midnight UTC.
    pub(super) fn time(&self, name: &str, end: bool) -> Result<Option<Millis>, Failure> {
        self.raw(name)
            .map(|value| instant(value, end))
            .transpose()
            .map_err(|what| Failure::malformed(format!("{name}: {what}")))
    }

    /// The number in the path.
    pub(super) fn id(&self) -> Result<i64, Failure> {
        positive("the number in the path", self.arg).map_err(|_| Failure::absent(format!("number {:?}", self.arg)))
    }

    /// A field of the form that was sent.
    pub(super) fn field(&self, name: &str) -> Option<&str> {
        self.form.iter().find(|(n, _)| n == name).map(|(_, value)| value.trim()).filter(|value| !value.is_empty())
    }

    /// The note of a change; at most 2000 characters.
    pub(super) fn note(&self) -> Result<String, Failure> {
        let note = self.field("note").unwrap_or_default();
        if note.chars().count() > 2000 || note.chars().any(|c| c.is_control() && !c.is_whitespace()) {
            return Err(Failure::malformed("a note is text of at most 2000 characters"));
        }
        Ok(note.to_owned())
    }

    /// May this person change things?
    pub(super) fn may_change(&self) -> bool {
        self.who.role == Role::Operator
    }

    /// The query with one parameter replaced, for links.
    pub(super) fn link(&self, name: &str, value: &str) -> String {
        let mut query = form_urlencoded::Serializer::new(String::new());
        for (n, v) in self.query.iter().filter(|(n, v)| n != name && !v.is_empty()) {
            query.append_pair(n, v);
        }
        query.append_pair(name, value);
        format!("?{}", query.finish())
    }

    /// The value of a parameter as it was typed, for the form that shows it again.
    pub(super) fn typed(&self, name: &str) -> &str {
        self.query.iter().find(|(n, _)| n == name).map_or("", |(_, value)| value)
    }
}

fn positive(name: &str, value: &str) -> Result<i64, Failure> {
    let digits = !value.is_empty() && value.len() < 19 && value.bytes().all(|b| b.is_ascii_digit());
    let number = if digits { value.parse::<i64>().ok() } else { None };
    number.filter(|n| *n > 0).ok_or_else(|| Failure::malformed(format!("{name} is a number from 1 up")))
}

/// A cursor: for others a word without meaning.
pub(super) fn cursor(id: i64) -> String {
    id.to_string()
}

/// A cursor of a list that is ordered by book, kind and id.
pub(super) fn cursor_of_key((book, kind, id): &(i64, String, String)) -> String {
    format!("{book}~{kind}~{id}")
}

/// The end of the year 9999.
const LATEST: Millis = 253_402_300_799_999;

fn instant(text: &str, end: bool) -> Result<Millis, String> {
    const DAY: Millis = 86_400_000;
    let text = text.trim();
    let read = |text: &str| text.parse::<jiff::Timestamp>().ok().map(|at| at.as_millisecond());
    let whole_day = text.len() == 10 && text.bytes().all(|b| b.is_ascii_digit() || b == b'-');
    let at = match whole_day {
        true => read(&format!("{text}T00:00:00Z")).map(|at| if end { at + DAY } else { at }),
        false => read(text),
    };
    // Nothing here is older than 1970.
    at.map(|at| at.clamp(0, LATEST)).ok_or_else(|| "a time looks like 2026-11-30 or 2026-11-30T12:00:00Z".to_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_begins_and_ends_at_midnight_and_an_instant_is_itself() {
        assert_eq!(instant("2026-11-30", false), Ok(1_795_996_800_000));
        assert_eq!(instant("2026-11-30", true), Ok(1_795_996_800_000 + 86_400_000));
        assert_eq!(instant("2026-11-30T00:00:01Z", true), Ok(1_795_996_801_000));
        assert_eq!(instant("1960-01-01", false), Ok(0));
        for text in ["", "yesterday", "2026-13-01", "2026-11-30T12:00", "99999-01-01"] {
            assert!(instant(text, false).is_err(), "{text:?}");
        }
    }

    #[test]
    fn only_whole_positive_numbers_are_numbers() {
        assert_eq!(positive("n", "17").unwrap(), 17);
        for text in ["", "0", "-1", "+1", "1.0", "99999999999999999999", "0x1", " 1"] {
            assert!(positive("n", text).is_err(), "{text:?}");
        }
    }
}
