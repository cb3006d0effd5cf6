//! Whole numbers as JSON has them: `8`, and `8.0`, which JSON does not tell apart from it.

use std::{fmt, marker::PhantomData};

use serde::{
    Deserializer,
    de::{self, Unexpected},
};

/// Beyond this not every whole number is a float.
const EXACT_MAX: f64 = 9_007_199_254_740_992.0;

/// The whole number that a float is, if it is one.
pub(super) fn exact(number: f64) -> Option<u64> {
    let is_whole = number.fract() == 0.0 && (0.0..=EXACT_MAX).contains(&number);
    is_whole.then_some(number as u64)
}

/// Reads a whole number from 0, or none.
pub(super) fn whole<'de, D: Deserializer<'de>, T: TryFrom<u64>>(input: D) -> Result<Option<T>, D::Error> {
    struct Visitor<T>(PhantomData<T>);
    impl<T: TryFrom<u64>> de::Visitor<'_> for Visitor<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            match size_of::<T>() {
                size @ 1..=4 => write!(f, "a whole number from 0 to {}", (1_u64 << (8 * size)) - 1),
                _ => f.write_str("a whole number from 0"),
            }
        }

        fn visit_u64<E: de::Error>(self, number: u64) -> Result<Option<T>, E> {
            T::try_from(number).map(Some).map_err(|_| E::invalid_value(Unexpected::Unsigned(number), &self))
        }

        fn visit_f64<E: de::Error>(self, number: f64) -> Result<Option<T>, E> {
            match exact(number) {
                Some(whole) => self.visit_u64(whole),
                None => Err(E::invalid_type(Unexpected::Float(number), &self)),
            }
        }

        fn visit_unit<E: de::Error>(self) -> Result<Option<T>, E> {
            Ok(None)
        }
    }
    input.deserialize_any(Visitor(PhantomData))
}

#[cfg(test)]
mod tests {
    use crate::wire::{Delay, NewMessage};

    #[test]
    fn a_whole_number_may_be_written_with_a_point() {
        let read = |text: &str| serde_json::from_str::<NewMessage>(text);
        let message = read(r#"{"topic":"a","priority":8.0,"delay":1e3,"retry":{"attempts":3.0}}"#).unwrap();
        assert_eq!((message.priority, message.delay), (Some(8), Some(Delay::Millis(1_000))));
        assert_eq!(message.retry.unwrap().attempts, Some(3));
        assert_eq!(read(r#"{"topic":"a","priority":null}"#).unwrap().priority, None);
        for bad in ["8.5", "-1", "-1.0", "256", "1e400", "\"8\"", "true", "[]"] {
            assert!(read(&format!(r#"{{"topic":"a","priority":{bad}}}"#)).is_err(), "{bad}");
        }
        for bad in ["1.5", "-1.0", "1e300"] {
            assert!(read(&format!(r#"{{"topic":"a","delay":{bad}}}"#)).is_err(), "{bad}");
        }
    }
}
