//! Delays and times as people write them.

use std::time::Duration;

use jiff::{SignedDuration, Span};

use crate::{Invalid, Timestamp};

/// The longest delay that can be written down; [`Limits::delay_max`](crate::Limits) is usually shorter.
const DELAY_MAX: Duration = Duration::from_millis(Timestamp::MAX.as_millis());

/// Reads a delay: integer milliseconds (`900000`), `15m`, `1h30m`, `1.5s`, or ISO 8601 `PT15M`.
///
/// Days are 24 hours. Months and years have no fixed length and are refused, as are negative delays and a
/// number with no unit that is not an integer. Fractions of a millisecond are rounded up.
pub fn parse_delay(text: &str) -> Result<Duration, Invalid> {
    let fault = |why: &str| {
        let detail =
            format!("{text:?} is not a delay: {why}; write 15m, 1h30m, PT15M or integer milliseconds");
        Invalid::new("bad_delay", "delay", detail)
    };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(fault("it is empty"));
    }
    if trimmed.bytes().all(|b| b.is_ascii_digit()) {
        let millis = trimmed.parse().map_err(|_| fault("it is too large"))?;
        return within(Duration::from_millis(millis)).ok_or_else(|| fault("it is too large"));
    }
    // A span keeps the units apart, so that months can be refused instead of guessed.
    let span: Span = trimmed.parse().map_err(|e: jiff::Error| fault(&e.to_string()))?;
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(fault("months and years have no fixed length, use days or deliver_at"));
    }
    let exact: SignedDuration =
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|e| fault(&e.to_string()))?;
    let delay = Duration::try_from(exact).map_err(|_| fault("it is negative"))?;
    within(delay).ok_or_else(|| fault("it is too large"))
}

fn within(delay: Duration) -> Option<Duration> {
    (delay <= DELAY_MAX).then(|| Timestamp::default().saturating_add(delay).since(Timestamp::default()))
}

/// Reads a time: RFC 3339 with an offset (`2026-11-15T18:15:00Z`) or integer milliseconds since the epoch.
///
/// A time without an offset is refused: it would mean something else on every machine. Fractions of a
/// millisecond are rounded up.
pub fn parse_time(text: &str) -> Result<Timestamp, Invalid> {
    let fault = |why: &str| {
        let detail = format!(
            "{text:?} is not a time: {why}; write 2026-11-15T18:15:00Z or integer epoch milliseconds"
        );
        Invalid::new("bad_time", "deliver_at", detail)
    };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(fault("it is empty"));
    }
    if trimmed.bytes().all(|b| b.is_ascii_digit()) {
        let millis: u64 = trimmed.parse().map_err(|_| fault("it is too large"))?;
        let time = Timestamp::from_millis(millis);
        return if time.as_millis() == millis { Ok(time) } else { Err(fault("it is after the year 9999")) };
    }
    let time: jiff::Timestamp = trimmed.parse().map_err(|e: jiff::Error| fault(&e.to_string()))?;
    let nanos = u128::try_from(time.as_nanosecond()).map_err(|_| fault("it is before 1970"))?;
    let millis = u64::try_from(nanos.div_ceil(1_000_000)).map_err(|_| fault("it is too large"))?;
    Ok(Timestamp::from_millis(millis))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_in_every_documented_form() {
        let minutes = |n: u64| Duration::from_secs(n * 60);
        for (text, want) in [
            ("900000", minutes(15)),
            ("15m", minutes(15)),
            ("1h30m", minutes(90)),
            ("PT15M", minutes(15)),
            ("P1DT1H", minutes(25 * 60)),
            ("2d", minutes(48 * 60)),
            ("1w", minutes(7 * 24 * 60)),
            ("250ms", Duration::from_millis(250)),
            ("1.5s", Duration::from_millis(1500)),
            ("1.0001s", Duration::from_millis(1001)),
            ("0", Duration::ZERO),
            ("0s", Duration::ZERO),
            ("1us", Duration::from_millis(1)),
        ] {
            assert_eq!(parse_delay(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn delays_that_mean_nothing_are_refused() {
        for text in [
            "",
            " ",
            "-5m",
            "-1",
            "PT-5M",
            "1 month",
            "1y",
            "P1M",
            "15",
            "1.5",
            "5x",
            "m",
            "1e3",
            "99999999999999999999",
            "∞",
        ] {
            if text == "15" {
                assert_eq!(parse_delay(text), Ok(Duration::from_millis(15)));
                continue;
            }
            assert_eq!(parse_delay(text).unwrap_err().code, "bad_delay", "{text}");
        }
    }

    #[test]
    fn times_in_every_documented_form() {
        let want = Timestamp::from_millis(1_794_852_900_000);
        for text in [
            "1794852900000",
            "2026-11-16T18:15:00Z",
            "2026-11-16T19:15:00+01:00",
            "2026-11-16T18:14:59.9999Z",
        ] {
            assert_eq!(parse_time(text), Ok(want), "{text}");
        }
    }

    #[test]
    fn times_that_are_ambiguous_or_out_of_range_are_refused() {
        for text in [
            "",
            "2026-11-16T18:15:00",
            "2026-11-16",
            "18:15",
            "1969-12-31T23:59:59Z",
            "999999999999999999",
            "-1",
            "tomorrow",
        ] {
            assert_eq!(parse_time(text).unwrap_err().code, "bad_time", "{text}");
        }
    }
}
