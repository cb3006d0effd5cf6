//! When a score says that a member is due.

use clap::ValueEnum;

/// Below this a score counts seconds: as milliseconds it would be before the spring of 1973.
const MILLIS_FROM: f64 = 1e11;
/// From here on it is neither: as milliseconds it is past the year 5138.
const MILLIS_END: f64 = 1e14;
/// The rounding error of a score in ms: scores are binary fractions.
const GRAIN_MS: f64 = 0.000_5;

/// The unit of a score, since 1970.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, ValueEnum)]
pub(super) enum Unit {
    /// Seconds or milliseconds, told apart by their size.
    #[default]
    Auto,
    /// Milliseconds.
    Ms,
    /// Seconds, perhaps with a fraction.
    S,
}

impl Unit {
    /// The due time in ms since 1970, rounded up; or why the score is none.
    pub(super) fn due(self, score: f64) -> Result<u64, String> {
        let millis = match self {
            Self::Ms => score,
            Self::S => score * 1_000.0,
            Self::Auto if score < MILLIS_FROM => score * 1_000.0,
            Self::Auto => score,
        };
        if !(0.0..MILLIS_END).contains(&millis) {
            return Err(format!("its score, {score}, is no time since 1970 in seconds or milliseconds"));
        }
        #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "checked just before")]
        Ok((millis - GRAIN_MS).ceil() as u64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_and_milliseconds_are_told_apart_by_their_size() {
        assert_eq!(Unit::Auto.due(1_794_852_900.0), Ok(1_794_852_900_000));
        assert_eq!(Unit::Auto.due(1_794_852_900_123.0), Ok(1_794_852_900_123));
        assert_eq!(Unit::Ms.due(5_000.0), Ok(5_000));
        assert_eq!(Unit::S.due(5_000.0), Ok(5_000_000));
        assert_eq!(Unit::Auto.due(0.0), Ok(0));
    }

    #[test]
    fn a_fraction_is_kept_to_the_millisecond_and_never_early() {
        for millis in [123_u64, 1, 999, 500, 7] {
            let score: f64 = format!("1794852900.{millis:03}").parse().unwrap();
            assert_eq!(Unit::Auto.due(score), Ok(1_794_852_900_000 + millis));
        }
        assert_eq!(Unit::Ms.due(10.5), Ok(11));
    }

    #[test]
    fn what_is_no_time_is_refused() {
        for score in [-1.0, f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 1e15] {
            assert!(Unit::Auto.due(score).unwrap_err().contains("its score"), "{score}");
        }
    }
}
