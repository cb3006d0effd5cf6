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
    read(input, "a whole number from 0")
}

/// Reads a priority, or none.
pub(super) fn priority<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u8>, D::Error> {
    read(input, "a whole number from 0 to 9")
}

/// Reads a number of attempts, or none.
pub(super) fn attempts<'de, D: Deserializer<'de>>(input: D) -> Result<Option<u32>, D::Error> {
    read(input, "a whole number from 1")
}

/// Reads a number that fits into its type, or none. What is outside of a narrower range is refused later, by a code of its own.
fn read<'de, D: Deserializer<'de>, T: TryFrom<u64>>(
    input: D,
    expected: &'static str,
) -> Result<Option<T>, D::Error> {
    struct Visitor<T>(&'static str, PhantomData<T>);
    impl<T: TryFrom<u64>> de::Visitor<'_> for Visitor<T> {
        type Value = Option<T>;

        fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
            f.write_str(self.0)
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
    input.deserialize_any(Visitor(expected, PhantomData))
}

#[cfg(test)]
mod tests {
    use crate::wire::{Delay, NewMessage};

    #[test]
    fn the_range_of_a_number_is_that_of_its_field() {
        for (field, range) in [
            (r#""priority":-1"#, "expected a whole number from 0 to 9"),
            (r#""priority":256"#, "expected a whole number from 0 to 9"),
            (r#""retry":{"attempts":-1}"#, "expected a whole number from 1"),
        ] {
            let refused =
                serde_json::from_str::<NewMessage>(&format!(r#"{{"topic":"a",{field}}}"#)).unwrap_err();
            assert!(refused.to_string().contains(&format!("{range} at")), "{refused}");
        }
    }

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
