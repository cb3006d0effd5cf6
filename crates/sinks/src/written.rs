//! Forms of values that several sinks are configured with.

use std::{fmt, marker::PhantomData, time::Duration};

use serde::{
    Deserialize, Deserializer,
    de::{self, SeqAccess, Visitor, value::SeqAccessDeserializer},
};

/// Text that nobody is shown: a password, a key, an address with a token in it.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct Hidden(String);

impl Hidden {
    /// The text itself, for where it belongs and nowhere else.
    pub fn reveal(&self) -> &str {
        &self.0
    }
}

impl From<&str> for Hidden {
    fn from(text: &str) -> Self {
        Self(text.into())
    }
}

impl fmt::Debug for Hidden {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("***")
    }
}

/// One value, or a list of them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct OneOrMany<T>(pub Vec<T>);

impl<T> Default for OneOrMany<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

impl<'de, T: Deserialize<'de>> Deserialize<'de> for OneOrMany<T> {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Either<T>(PhantomData<T>);
        impl<'de, T: Deserialize<'de>> Visitor<'de> for Either<T> {
            type Value = OneOrMany<T>;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a text or a list of texts")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Self::Value, E> {
                T::deserialize(de::value::StrDeserializer::new(text)).map(|one| OneOrMany(vec![one]))
            }
            fn visit_seq<A: SeqAccess<'de>>(self, list: A) -> Result<Self::Value, A::Error> {
                Vec::deserialize(SeqAccessDeserializer::new(list)).map(OneOrMany)
            }
        }
        input.deserialize_any(Either(PhantomData))
    }
}

/// A length of time: `"7s"`, `"1m30s"`, or integer milliseconds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Span(pub Duration);

impl<'de> Deserialize<'de> for Span {
    fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
        struct Written;
        impl Visitor<'_> for Written {
            type Value = Span;
            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a time such as \"7s\", or integer milliseconds")
            }
            fn visit_str<E: de::Error>(self, text: &str) -> Result<Span, E> {
                duly_core::parse_delay(text).map(Span).map_err(|fault| E::custom(fault.detail))
            }
            fn visit_u64<E: de::Error>(self, millis: u64) -> Result<Span, E> {
                Ok(Span(Duration::from_millis(millis)))
            }
            fn visit_i64<E: de::Error>(self, millis: i64) -> Result<Span, E> {
                let millis = u64::try_from(millis).map_err(|_| E::custom("a time is not negative"))?;
                self.visit_u64(millis)
            }
        }
        input.deserialize_any(Written)
    }
}
