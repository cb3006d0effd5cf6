//! Durations in configuration: `"250ms"`, `"10s"`, `"15m"`, `"1h"`, `"7d"`, or a number of milliseconds.

use std::time::Duration;

use serde::{Deserialize, Deserializer, de::Error};

#[derive(Deserialize)]
#[serde(untagged)]
enum Written {
    Millis(u64),
    Text(String),
}

pub(super) fn deserialize<'de, D: Deserializer<'de>>(from: D) -> Result<Duration, D::Error> {
    match Written::deserialize(from)? {
        Written::Millis(millis) => Ok(Duration::from_millis(millis)),
        Written::Text(text) => parse(&text).ok_or_else(|| {
            D::Error::custom(format!(
                "{text:?} is no time: write 250ms, 10s, 15m, 1h, 7d or a number of milliseconds"
            ))
        }),
    }
}

/// The same for an optional duration.
pub(super) mod optional {
    use super::{Deserializer, Duration, deserialize as required};

    pub(in crate::settings) fn deserialize<'de, D: Deserializer<'de>>(
        from: D,
    ) -> Result<Option<Duration>, D::Error> {
        required(from).map(Some)
    }
}

fn parse(text: &str) -> Option<Duration> {
    let text = text.trim();
    let unit = text.find(|c: char| !c.is_ascii_digit()).unwrap_or(text.len());
    let (number, unit) = text.split_at(unit);
    let millis: u64 = match unit.trim() {
        "" | "ms" => 1,
        "s" => 1_000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    };
    Some(Duration::from_millis(number.parse::<u64>().ok()?.checked_mul(millis)?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_read_as_people_write_them() {
        for (text, millis) in [
            ("250ms", 250),
            ("10s", 10_000),
            ("15m", 900_000),
            ("1h", 3_600_000),
            ("7d", 604_800_000),
            ("5", 5),
        ] {
            assert_eq!(parse(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["", "s", "-1s", "1.5s", "1 week", "99999999999999999999d"] {
            assert_eq!(parse(text), None, "{text}");
        }
    }
}
