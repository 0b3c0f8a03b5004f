//! Reads a TOML text into a type as `toml::from_str` does, with its messages, in a fifth of its machine code.
//!
//! toml's own reader takes the values out of the tree it parsed and is compiled for each of a hundred types together with
//! all that frees the rest of the tree: 800 KB. This one looks at the tree by reference. It parses nothing itself, takes no
//! floats, and never changes what a text means: a test compares it with toml's own reader.

use serde::de::value::StrDeserializer;
use serde::de::{
    self, DeserializeOwned, DeserializeSeed, Deserializer, EnumAccess, Error as _, IntoDeserializer, MapAccess,
    SeqAccess, Unexpected, VariantAccess, Visitor,
};
use serde::forward_to_deserialize_any;
use serde_spanned::de::{SpannedDeserializer, is_spanned};
use std::convert::Infallible;
use std::fmt;
use std::ops::Range;
use toml::Spanned;
use toml::de::{DeTable, DeValue, ValueDeserializer};

/// Reads a whole text.
///
/// # Errors
/// What is wrong, and where in the text, as toml says it.
pub(crate) fn read<T: DeserializeOwned>(text: &str) -> Result<T, toml::de::Error> {
    let table = DeTable::parse(text)?;
    let root = Spanned::new(table.span(), DeValue::Table(table.into_inner()));
    T::deserialize(Value(&root)).map_err(|wrong| wrong.told(text, root.span()))
}

/// What is wrong, and the innermost place that is known. Boxed: it travels through every type.
#[derive(Debug)]
struct Wrong(Box<(String, Option<Range<usize>>)>);

impl Wrong {
    #[cold]
    fn at(mut self, place: Range<usize>) -> Wrong {
        self.0.1.get_or_insert(place);
        self
    }

    #[cold]
    fn told(self, text: &str, root: Range<usize>) -> toml::de::Error {
        let (message, place) = *self.0;
        let mut error = match place.filter(|place| *place != root) {
            None => toml::de::Error::custom(message),
            Some(place) => {
                let Err(error) = ValueDeserializer::from(Spanned::new(place, DeValue::Boolean(false)))
                    .deserialize_any(Says(message));
                error
            }
        };
        error.set_input(Some(text));
        error
    }
}

impl de::Error for Wrong {
    fn custom<T: fmt::Display>(message: T) -> Wrong {
        Wrong(Box::new((message.to_string(), None)))
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0.0)
    }
}

impl std::error::Error for Wrong {}

/// Only toml gives its errors a place, that of the value it was reading: this refuses one.
struct Says(String);

impl Visitor<'_> for Says {
    type Value = Infallible;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }

    fn visit_bool<E: de::Error>(self, _: bool) -> Result<Infallible, E> {
        Err(E::custom(self.0))
    }
}

#[derive(Clone, Copy)]
struct Value<'de>(&'de Spanned<DeValue<'de>>);

/// A number as the types ask for it: the smallest of these that holds it.
enum Whole {
    Signed(i64),
    Unsigned(u64),
}

fn whole(digits: &str, radix: u32) -> Result<Whole, Wrong> {
    i64::from_str_radix(digits, radix)
        .map(Whole::Signed)
        .or_else(|_| u64::from_str_radix(digits, radix).map(Whole::Unsigned))
        .map_err(|_| Wrong::custom("integer number overflowed"))
}

impl<'de> Deserializer<'de> for Value<'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        match self.0.get_ref() {
            DeValue::String(text) => visitor.visit_borrowed_str(text),
            DeValue::Boolean(yes) => visitor.visit_bool(*yes),
            DeValue::Array(all) => visitor.visit_seq(Items(all.iter())),
            DeValue::Table(table) => visitor.visit_map(Entries { rest: table.iter(), value: None }),
            DeValue::Integer(number) => match whole(number.as_str(), number.radix()) {
                Ok(Whole::Signed(number)) => visitor.visit_i64(number),
                Ok(Whole::Unsigned(number)) => visitor.visit_u64(number),
                Err(wrong) => Err(wrong),
            },
            DeValue::Float(_) => Err(Wrong::invalid_type(Unexpected::Other("number with a fraction"), &visitor)),
            DeValue::Datetime(_) => Err(Wrong::invalid_type(Unexpected::Other("time without quotes"), &visitor)),
        }
        .map_err(|wrong| wrong.at(self.0.span()))
    }

    fn deserialize_option<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_some(self)
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self).map_err(|wrong| wrong.at(self.0.span()))
    }

    fn deserialize_struct<V: Visitor<'de>>(
        self,
        name: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        if is_spanned(name) {
            return visitor.visit_map(SpannedDeserializer::new(self, self.0.span()));
        }
        self.deserialize_any(visitor)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        match self.0.get_ref() {
            DeValue::String(name) => visitor.visit_enum(StrDeserializer::<Wrong>::new(name)),
            DeValue::Table(table) => match (table.iter().next(), table.len()) {
                (Some((name, value)), 1) => visitor.visit_enum(Variant { name, value: Value(value) }),
                (_, 0) => Err(Wrong::custom("wanted exactly 1 element, found 0 elements")),
                _ => Err(Wrong::custom("wanted exactly 1 element, more than 1 element")),
            },
            _ => Err(Wrong::custom("wanted string or table")),
        }
        .map_err(|wrong| wrong.at(self.0.span()))
    }

    forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string seq bytes byte_buf map unit ignored_any
        unit_struct tuple_struct tuple identifier
    }
}

impl<'de> IntoDeserializer<'de, Wrong> for Value<'de> {
    type Deserializer = Self;

    fn into_deserializer(self) -> Self {
        self
    }
}

struct Items<'de>(std::slice::Iter<'de, Spanned<DeValue<'de>>>);

impl<'de> SeqAccess<'de> for Items<'de> {
    type Error = Wrong;

    fn next_element_seed<T: DeserializeSeed<'de>>(&mut self, seed: T) -> Result<Option<T::Value>, Wrong> {
        self.0.next().map(|value| seed.deserialize(Value(value))).transpose()
    }

    fn size_hint(&self) -> Option<usize> {
        Some(self.0.len())
    }
}

type Name<'de> = Spanned<std::borrow::Cow<'de, str>>;

struct Entries<'de, I: Iterator<Item = (&'de Name<'de>, &'de Spanned<DeValue<'de>>)>> {
    rest: I,
    value: Option<Value<'de>>,
}

impl<'de, I: Iterator<Item = (&'de Name<'de>, &'de Spanned<DeValue<'de>>)>> MapAccess<'de> for Entries<'de, I> {
    type Error = Wrong;

    fn next_key_seed<K: DeserializeSeed<'de>>(&mut self, seed: K) -> Result<Option<K::Value>, Wrong> {
        let Some((name, value)) = self.rest.next() else { return Ok(None) };
        self.value = Some(Value(value));
        seed.deserialize(Key(name)).map(Some)
    }

    fn next_value_seed<V: DeserializeSeed<'de>>(&mut self, seed: V) -> Result<V::Value, Wrong> {
        let value = self.value.take().expect("serde asks for a key before its value");
        seed.deserialize(value).map_err(|wrong| wrong.at(value.0.span()))
    }
}

/// A name before its value: the text of it, for what takes texts.
struct Key<'de>(&'de Name<'de>);

impl<'de> Deserializer<'de> for Key<'de> {
    type Error = Wrong;

    fn deserialize_any<V: Visitor<'de>>(self, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_borrowed_str(self.0.get_ref()).map_err(|wrong: Wrong| wrong.at(self.0.span()))
    }

    fn deserialize_newtype_struct<V: Visitor<'de>>(self, _: &'static str, visitor: V) -> Result<V::Value, Wrong> {
        visitor.visit_newtype_struct(self)
    }

    fn deserialize_enum<V: Visitor<'de>>(
        self,
        _: &'static str,
        _: &'static [&'static str],
        visitor: V,
    ) -> Result<V::Value, Wrong> {
        let name = StrDeserializer::<Wrong>::new(self.0.get_ref());
        visitor.visit_enum(name).map_err(|wrong| wrong.at(self.0.span()))
    }

    forward_to_deserialize_any! {
        bool u8 u16 u32 u64 u128 i8 i16 i32 i64 i128 f32 f64 char str string seq bytes byte_buf map unit option struct
        ignored_any unit_struct tuple_struct tuple identifier
    }
}

/// A variant that holds something: `{ name = value }`.
struct Variant<'de> {
    name: &'de Name<'de>,
    value: Value<'de>,
}

impl<'de> EnumAccess<'de> for Variant<'de> {
    type Error = Wrong;
    type Variant = Value<'de>;

    fn variant_seed<V: DeserializeSeed<'de>>(self, seed: V) -> Result<(V::Value, Value<'de>), Wrong> {
        Ok((seed.deserialize(Key(self.name))?, self.value))
    }
}

impl<'de> VariantAccess<'de> for Value<'de> {
    type Error = Wrong;

    fn unit_variant(self) -> Result<(), Wrong> {
        match self.0.get_ref() {
            DeValue::Table(table) if table.is_empty() => Ok(()),
            other => {
                Err(Wrong::custom(format_args!("expected empty table, found {}", other.type_str())).at(self.0.span()))
            }
        }
    }

    fn newtype_variant_seed<T: DeserializeSeed<'de>>(self, seed: T) -> Result<T::Value, Wrong> {
        seed.deserialize(self)
    }

    fn tuple_variant<V: Visitor<'de>>(self, _: usize, visitor: V) -> Result<V::Value, Wrong> {
        self.deserialize_any(visitor)
    }

    fn struct_variant<V: Visitor<'de>>(self, fields: &'static [&'static str], visitor: V) -> Result<V::Value, Wrong> {
        if let DeValue::Table(table) = self.0.get_ref() {
            let known = |name: &&Name<'_>| !fields.contains(&name.get_ref().as_ref());
            if let Some(name) = table.keys().find(known) {
                return Err(Wrong::unknown_field(name.get_ref(), fields).at(name.span()));
            }
        }
        self.deserialize_any(visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::config::Config;
    use crate::providers::Recipe;
    use std::fs;

    fn same<T: DeserializeOwned + fmt::Debug>(name: &str, text: &str) {
        let said = |read: Result<T, toml::de::Error>| read.map(|value| format!("{value:?}")).map_err(|e| e.to_string());
        assert_eq!(said(read(text)), said(toml::from_str(text)), "{name}");
    }

    #[test]
    fn every_providers_file_means_what_toml_says_also_when_a_line_of_it_is_spoilt() {
        let mut seen = 0;
        for entry in fs::read_dir("src/providers").unwrap() {
            let path = entry.unwrap().path();
            if path.extension().is_none_or(|e| e != "toml") {
                continue;
            }
            let text = fs::read_to_string(&path).unwrap();
            assert!(read::<Recipe>(&text).is_ok(), "{}", path.display());
            same::<Recipe>(&path.display().to_string(), &text);
            for (at, line) in text.lines().enumerate() {
                let Some((name, value)) = line.split_once(" = ").filter(|_| at % 7 == seen % 7) else { continue };
                for other in
                    [format!("{name} = 7"), format!("{name} = {{ surprise = true }}"), format!("{name}x = {value}")]
                {
                    let mut lines: Vec<&str> = text.lines().collect();
                    lines[at] = &other;
                    same::<Recipe>(&format!("{}:{}: {other}", path.display(), at + 1), &lines.join("\n"));
                }
            }
            seen += 1;
        }
        assert!(seen > 50, "{seen} files");
    }

    #[test]
    fn a_configuration_is_read_and_refused_as_toml_does_it() {
        let example = fs::read_to_string("examples/postonce.toml").unwrap();
        same::<Config>("the example", &example);
        for (at, line) in example.lines().enumerate().filter(|(_, line)| line.contains(" = ")) {
            let open = line.trim_start_matches("# ");
            for other in
                [open.to_owned(), format!("x{open}"), open.replace('"', ""), open.replace(" = ", " = 99999999999")]
            {
                let mut lines: Vec<&str> = example.lines().collect();
                lines[at] = &other;
                same::<Config>(&format!("{}: {other}", at + 1), &lines.join("\n"));
            }
        }
        for text in ["", "database", "[[source]]\nname = 1\n", "[[source]]\n", "source = 3"] {
            same::<Config>(text, text);
        }
    }

    #[test]
    fn a_number_with_a_fraction_is_refused_where_it_stands() {
        let wrong = read::<Config>("database = \"x\"\n[alerts]\nrejected = 1.5\n").unwrap_err();
        assert!(wrong.to_string().starts_with("TOML parse error at line 3, column 12"), "{wrong}");
        assert!(wrong.message().starts_with("invalid type: number with a fraction, expected "), "{wrong}");
    }
}
