//! JSON reports: one document with a list of objects somewhere in it, read item by item.

use super::cells::{Cells, Names};
use super::read::{ReadError, Tally};
use super::row::Row;
use super::{ReadOptions, ReportLine, ReportSpec};
use serde::de::{DeserializeSeed, Deserializer, IgnoredAny, MapAccess, SeqAccess, Visitor};
use std::io::Read;

/// Whether a beginning has the keys of this report. Its end may be missing, so that it cannot be parsed.
pub(super) fn looks_like(spec: &ReportSpec, head: &[u8]) -> bool {
    let text = String::from_utf8_lossy(head);
    let has = |key: &String| text.contains(&format!("\"{key}\""));
    text.trim_start().starts_with(['{', '['])
        && spec.detect.columns.iter().all(has)
        && !spec.detect.without.iter().any(has)
}

pub(super) fn read<E: From<ReadError>>(
    spec: &ReportSpec,
    input: impl Read,
    options: &ReadOptions,
    tally: &mut Tally,
    on_line: &mut dyn FnMut(ReportLine) -> Result<(), E>,
) -> Result<(), E> {
    let mut row = Row::bind(&spec.row, &Names::Pointers, options).map_err(ReadError::file)?;
    let path: Vec<&str> = spec.items.split('/').skip(1).collect();
    let mut input = serde_json::Deserializer::from_reader(std::io::BufReader::new(input));
    let mut stopped = None;
    let mut found = false;
    let walk = Walk {
        path: &path,
        found: &mut found,
        on_item: &mut |value, number| match tally.row(&mut row, Cells::Json(&value), (number, number), on_line) {
            Ok(()) => true,
            Err(e) => {
                stopped = Some(e);
                false
            }
        },
    };
    let outcome = walk.deserialize(&mut input).and_then(|()| input.end());
    if let Some(e) = stopped {
        return Err(e);
    }
    outcome.map_err(|e| ReadError::at(e.line() as u64, None, format!("is no JSON report: {e}")))?;
    if !found {
        return Err(ReadError::file(format!("has no list at {:?}", spec.items)).into());
    }
    Ok(())
}

/// Goes down the keys of `path`, then gives every element of the list there to `on_item`, which says whether to go on.
struct Walk<'a> {
    path: &'a [&'a str],
    found: &'a mut bool,
    on_item: &'a mut dyn FnMut(serde_json::Value, u64) -> bool,
}

impl<'de> DeserializeSeed<'de> for Walk<'_> {
    type Value = ();

    fn deserialize<D: Deserializer<'de>>(self, input: D) -> Result<(), D::Error> {
        if self.path.is_empty() { input.deserialize_seq(self) } else { input.deserialize_map(self) }
    }
}

impl<'de> Visitor<'de> for Walk<'_> {
    type Value = ();

    fn expecting(&self, f: &mut std::fmt::Formatter) -> std::fmt::Result {
        match self.path.first() {
            Some(key) => write!(f, "an object with {key:?}"),
            None => f.write_str("the list of rows"),
        }
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<(), A::Error> {
        while let Some(key) = map.next_key::<String>()? {
            if key == self.path[0] {
                let below = Walk { path: &self.path[1..], found: &mut *self.found, on_item: &mut *self.on_item };
                map.next_value_seed(below)?;
            } else {
                map.next_value::<IgnoredAny>()?;
            }
        }
        Ok(())
    }

    fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<(), A::Error> {
        *self.found = true;
        let mut number = 0;
        while let Some(value) = list.next_element::<serde_json::Value>()? {
            number += 1;
            if !(self.on_item)(value, number) {
                return Err(serde::de::Error::custom("stopped"));
            }
        }
        Ok(())
    }
}
