//! Delays and times as people write them.

use std::time::Duration;

use jiff::{SignedDuration, Span, civil};

use crate::{ErrorCode, Invalid, Timestamp};

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
        Invalid::new(ErrorCode::BadDelay, "delay", detail)
    };
    let too_long = || {
        let days = DELAY_MAX.as_secs() / 86_400;
        let detail =
            format!("{text:?} is too long: a delay is at most {days}d, {} ms", DELAY_MAX.as_millis());
        Invalid::new(ErrorCode::BadDelay, "delay", detail)
    };
    let trimmed = text.trim();
    if trimmed.is_empty() {
        return Err(fault("it is empty"));
    }
    if trimmed.bytes().all(|b| b.is_ascii_digit()) {
        let millis = trimmed.parse().map_err(|_| too_long())?;
        return within(Duration::from_millis(millis)).ok_or_else(too_long);
    }
    // A span keeps the units apart, so that months can be refused instead of guessed.
    let (span, is_exact) = match trimmed.parse::<Span>() {
        Ok(span) => (span, true),
        // A number beyond the parser's range is a delay all the same, and too long: the rest of the text decides.
        Err(_) => {
            let small = with_small_numbers(trimmed);
            (small.parse().map_err(|_| fault("a number and a unit are expected"))?, false)
        }
    };
    if span.get_years() != 0 || span.get_months() != 0 {
        return Err(fault("months and years have no fixed length, use days or deliver_at"));
    }
    let exact: SignedDuration =
        span.to_duration(jiff::SpanRelativeTo::days_are_24_hours()).map_err(|_| too_long())?;
    let delay = Duration::try_from(exact).map_err(|_| fault("it is negative"))?;
    within(delay).filter(|_| is_exact).ok_or_else(too_long)
}

/// The same text with 1 in place of every whole number; fractions stay.
fn with_small_numbers(text: &str) -> String {
    let mut small = String::with_capacity(text.len());
    let mut before = ' ';
    let mut is_fraction = false;
    for sign in text.chars() {
        if !sign.is_ascii_digit() {
            is_fraction = matches!(sign, '.' | ',');
            small.push(sign);
        } else if is_fraction {
            small.push(sign);
        } else if !before.is_ascii_digit() {
            small.push('1');
        }
        before = sign;
    }
    small
}

fn within(delay: Duration) -> Option<Duration> {
    (delay <= DELAY_MAX).then(|| Timestamp::default().saturating_add(delay).since(Timestamp::default()))
}

/// The offsets that clocks on Earth have are within this many minutes of UTC.
const OFFSET_MINUTES_MAX: i64 = 14 * 60;

/// Reads a time: RFC 3339 with an offset (`2026-11-15T18:15:00Z`) or integer milliseconds since the epoch.
///
/// A time without an offset is refused: it would mean something else on every machine. Fractions of a
/// millisecond are rounded up, and so is the second 60. What is after the year 9999 is its last millisecond.
pub fn parse_time(text: &str) -> Result<Timestamp, Invalid> {
    let trimmed = text.trim();
    let time = if trimmed.is_empty() {
        Err("it is empty")
    } else if trimmed.bytes().all(|b| b.is_ascii_digit()) {
        Ok(Timestamp::from_millis(trimmed.parse().unwrap_or(u64::MAX)))
    } else {
        rfc_3339(trimmed)
    };
    time.map_err(|why| {
        let detail = format!(
            "{text:?} is not a time: {why}; write 2026-11-15T18:15:00Z or integer epoch milliseconds"
        );
        Invalid::new(ErrorCode::BadTime, "deliver_at", detail)
    })
}

/// By hand: a general parser makes 59 of the second 60, which is early, and takes offsets of more than a day.
fn rfc_3339(text: &str) -> Result<Timestamp, &'static str> {
    const SHAPE: &str = "it is not of the form of RFC 3339";
    let mut rest = text;
    let year = digits(&mut rest, 4).ok_or(SHAPE)?;
    let month = after(&mut rest, &['-']).and_then(|_| digits(&mut rest, 2)).ok_or(SHAPE)?;
    let day = after(&mut rest, &['-']).and_then(|_| digits(&mut rest, 2)).ok_or(SHAPE)?;
    let hour = after(&mut rest, &['T', 't', ' ']).and_then(|_| digits(&mut rest, 2)).ok_or(SHAPE)?;
    let minute = after(&mut rest, &[':']).and_then(|_| digits(&mut rest, 2)).ok_or(SHAPE)?;
    let second = match after(&mut rest, &[':']) {
        Some(_) => digits(&mut rest, 2).ok_or(SHAPE)?,
        None => 0,
    };
    let nanos = match after(&mut rest, &['.']) {
        Some(_) => fraction(&mut rest).ok_or(SHAPE)?,
        None => 0,
    };
    let offset = offset_minutes(rest)?;
    let narrow = |number: i64| i8::try_from(number).map_err(|_| SHAPE);
    let year = i16::try_from(year).map_err(|_| SHAPE)?;
    let date = civil::Date::new(year, narrow(month)?, narrow(day)?).map_err(|_| "there is no such day")?;
    if hour > 23 || minute > 59 || second > 60 {
        return Err("there is no such time of day");
    }
    let days = date.duration_since(civil::date(1970, 1, 1)).as_hours() / 24;
    let seconds = ((days * 24 + hour) * 60 + minute - offset) * 60 + second;
    let seconds = u64::try_from(seconds).map_err(|_| "it is before 1970")?;
    Ok(Timestamp::from_millis(seconds * 1_000 + nanos.div_ceil(1_000_000)))
}

fn digits(rest: &mut &str, count: usize) -> Option<i64> {
    let (number, after) = rest.split_at_checked(count)?;
    *rest = after;
    number.bytes().all(|b| b.is_ascii_digit()).then(|| number.parse().ok())?
}

fn after(rest: &mut &str, signs: &[char]) -> Option<char> {
    let sign = rest.chars().next().filter(|sign| signs.contains(sign))?;
    *rest = &rest[sign.len_utf8()..];
    Some(sign)
}

/// The digits after the dot as nanoseconds, rounded up.
fn fraction(rest: &mut &str) -> Option<u64> {
    let count = rest.bytes().take_while(u8::is_ascii_digit).count();
    let (digits, after) = rest.split_at_checked(count)?;
    *rest = after;
    if digits.is_empty() {
        return None;
    }
    let (kept, beyond) = digits.split_at(count.min(9));
    let nanos: u64 = format!("{kept:0<9}").parse().ok()?;
    Some(nanos + u64::from(beyond.bytes().any(|digit| digit != b'0')))
}

fn offset_minutes(text: &str) -> Result<i64, &'static str> {
    const SHAPE: &str = "it does not end with Z or an offset such as +01:00";
    let mut rest = text;
    let sign = match after(&mut rest, &['Z', 'z', '+', '-']).ok_or(SHAPE)? {
        'Z' | 'z' => return if rest.is_empty() { Ok(0) } else { Err(SHAPE) },
        '-' => -1,
        _ => 1,
    };
    let hours = digits(&mut rest, 2).ok_or(SHAPE)?;
    let minutes = match rest {
        "" => 0,
        _ => {
            after(&mut rest, &[':']);
            digits(&mut rest, 2).filter(|_| rest.is_empty()).ok_or(SHAPE)?
        }
    };
    let minutes_all = hours * 60 + minutes;
    if minutes > 59 || minutes_all > OFFSET_MINUTES_MAX {
        return Err("no clock is more than 14 hours away from UTC");
    }
    Ok(sign * minutes_all)
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
    fn a_delay_beyond_the_range_is_too_long_and_the_limit_is_told() {
        for text in [
            "253402300800000",
            "99999999999999999999",
            "2932897d",
            "9999999999999d",
            "1h99999999999999999999m",
            "P9999999999D",
            "999999999999999999999.5s",
        ] {
            let fault = parse_delay(text).unwrap_err();
            assert_eq!(fault.code, "bad_delay", "{text}");
            let says = format!("{text:?} is too long: a delay is at most 2932896d, 253402300799999 ms");
            assert_eq!(fault.detail, says);
        }
        assert_eq!(parse_delay("253402300799999"), Ok(DELAY_MAX));
        assert!(parse_delay("2932896d").is_ok());
        for (text, says) in [("-9999999999999d", "negative"), ("9999999999999y", "months and years")] {
            assert!(parse_delay(text).unwrap_err().detail.contains(says), "{text}");
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
            "2026-11-16T18:14:59.9990000000001Z",
            "2026-11-16T18:14:60Z",
            "2026-11-17 08:15:00+14:00",
            "2026-11-16t06:15:00.000-1200",
            "2026-11-16T18:15z",
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
            "-1",
            "tomorrow",
            "2026-11-16T18:15:00+14:01",
            "2026-11-16T18:15:00-15:00",
            "2026-11-16T18:15:00+01:60",
            "2026-11-16T18:15:61Z",
            "2026-11-16T24:00:00Z",
            "2026-02-29T18:15:00Z",
            "2026-11-16T18:15:00.Z",
            "2026-11-16T18:15:00ZZ",
            "2026-11-16T18:15:0０Z",
        ] {
            assert_eq!(parse_time(text).unwrap_err().code, "bad_time", "{text}");
        }
    }

    #[test]
    fn the_end_of_the_year_9999_is_a_time_that_reads_back() {
        for text in
            ["9999-12-31T23:59:59.999Z", "9999-12-31T23:59:60Z", "253402300799999", "99999999999999999999"]
        {
            assert_eq!(parse_time(text), Ok(Timestamp::MAX), "{text}");
        }
        assert_eq!(Timestamp::MAX.to_string(), "9999-12-31T23:59:59.999Z");
    }

    #[test]
    fn an_error_names_no_parser() {
        for text in ["soon", "1 fortnight", "5x", "1h1h"] {
            let detail = parse_delay(text).unwrap_err().detail;
            assert!(detail.contains("a number and a unit are expected"), "{detail}");
        }
    }
}
