//! Times as people write them: text or whole milliseconds.

use std::{fmt, time::Duration};

use duly_core::{ErrorCode, Invalid, Timestamp};
use serde::{Deserialize, Deserializer, Serialize, de};

/// A span of time: `"15m"`, `"1h30m"`, `"PT15M"`, or whole milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", schema(examples("15m", 900_000)))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub enum Delay {
    /// Whole milliseconds.
    Millis(u64),
    /// A duration in words: `15m`, `1h30m`, `PT15M`.
    Text(String),
}

/// A point in time: RFC 3339, or milliseconds since 1970.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[cfg_attr(feature = "openapi", derive(utoipa::ToSchema))]
#[serde(untagged)]
#[cfg_attr(feature = "openapi", schema(examples("2026-11-15T18:15:00.000Z", 1_794_852_900_000_u64)))]
#[cfg_attr(not(feature = "server"), non_exhaustive)]
pub enum Moment {
    /// Milliseconds since 1970, UTC.
    Millis(u64),
    /// RFC 3339.
    Text(String),
}

impl Delay {
    /// The span; a fault is said to be at `path`.
    pub fn span(&self, path: &str) -> Result<Duration, Invalid> {
        match self {
            Self::Millis(millis) if *millis > Timestamp::MAX.as_millis() => {
                let max = Timestamp::MAX.as_millis();
                let detail = format!("{millis} milliseconds are too long: the limit is {max}");
                Err(Invalid::new(ErrorCode::BadDelay, path, detail))
            }
            Self::Millis(millis) => Ok(Duration::from_millis(*millis)),
            Self::Text(text) => {
                duly_core::parse_delay(text).map_err(|fault| Invalid::new(fault.code, path, fault.detail))
            }
        }
    }
}

/// The begin of 2001. A time that is a smaller number counts seconds, not milliseconds.
pub const DUE_MILLIS_MIN: u64 = 978_307_200_000;

impl Moment {
    /// The point in time; a fault is said to be at `path`. Seconds in place of milliseconds are refused: a message would be due at
    /// once, and a filter that begins in 1970 would match everything.
    pub fn time(&self, path: &str) -> Result<Timestamp, Invalid> {
        let fault = |detail: String| Invalid::new(ErrorCode::BadTime, path, detail);
        let (time, is_number) = match self {
            Self::Millis(millis) => (Timestamp::from_millis(*millis), true),
            Self::Text(text) => (
                duly_core::parse_time(text).map_err(|error| fault(error.detail))?,
                text.trim().bytes().all(|byte| byte.is_ascii_digit()),
            ),
        };
        let number = time.as_millis();
        if !is_number || number >= DUE_MILLIS_MIN {
            return Ok(time);
        }
        if number == 0 {
            let field = path.rsplit('.').next().unwrap_or(path);
            return Err(fault(format!("0 is the year 1970; to say no time, leave {field} out")));
        }
        let example = "a time such as \"2026-11-15T18:15:00Z\"";
        let advice = if number <= Timestamp::MAX.as_millis() / 1_000 {
            format!("this looks like seconds; send {number}000, or {example}")
        } else {
            format!("a number counts milliseconds, and one before 2001 is a mistake; send {example}")
        };
        Err(fault(format!("{number} milliseconds since 1970 is {time}: {advice}")))
    }
}

/// As it stands in a query.
impl fmt::Display for Moment {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Millis(millis) => write!(f, "{millis}"),
            Self::Text(text) => f.write_str(text),
        }
    }
}

impl From<Duration> for Delay {
    fn from(span: Duration) -> Self {
        // Rounded up: a message is never early.
        Self::Millis(u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX))
    }
}

// By hand rather than untagged: an untagged enum copies its input first, and its errors say nothing.
macro_rules! text_or_millis {
    ($name:ident, $expected:literal) => {
        impl<'de> Deserialize<'de> for $name {
            fn deserialize<D: Deserializer<'de>>(input: D) -> Result<Self, D::Error> {
                struct Visitor;
                impl de::Visitor<'_> for Visitor {
                    type Value = $name;
                    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                        f.write_str($expected)
                    }
                    fn visit_u64<E: de::Error>(self, millis: u64) -> Result<$name, E> {
                        Ok($name::Millis(millis))
                    }
                    fn visit_f64<E: de::Error>(self, number: f64) -> Result<$name, E> {
                        super::number::exact(number)
                            .map($name::Millis)
                            .ok_or_else(|| E::invalid_type(de::Unexpected::Float(number), &self))
                    }
                    fn visit_str<E: de::Error>(self, text: &str) -> Result<$name, E> {
                        Ok($name::Text(text.to_owned()))
                    }
                    fn visit_string<E: de::Error>(self, text: String) -> Result<$name, E> {
                        Ok($name::Text(text))
                    }
                }
                input.deserialize_any(Visitor)
            }
        }
    };
}

text_or_millis!(Delay, "a duration such as \"15m\", or whole milliseconds from 0");
text_or_millis!(Moment, "an RFC 3339 time, or whole milliseconds since 1970");

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_rounded_up_to_the_next_millisecond() {
        let millis = |micros| match Delay::from(Duration::from_micros(micros)) {
            Delay::Millis(millis) => millis,
            Delay::Text(text) => panic!("{text}"),
        };
        assert_eq!([0, 1, 999, 1_000, 1_001].map(millis), [0, 1, 1, 1, 2]);
    }
}
