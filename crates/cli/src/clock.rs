//! The command line's own look at the clock: for words such as "in 15m", and for measuring.

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// Microseconds since 1970.
#[expect(clippy::disallowed_methods, reason = "the command line is outside the server: it has no Clock port")]
pub(crate) fn now_us() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_micros()).unwrap_or(u64::MAX)
}

/// Milliseconds since 1970.
pub(crate) fn now_ms() -> u64 {
    now_us() / 1_000
}

/// A point to measure from.
#[expect(clippy::disallowed_methods, reason = "the command line is outside the server: it has no Clock port")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}

/// Waits.
#[expect(clippy::disallowed_methods, reason = "the command line is outside the server: it has no Clock port")]
pub(crate) async fn sleep(span: Duration) {
    tokio::time::sleep(span).await;
}

/// A span in the two largest of its units: `2d 3h`, `15m`, `1.2s`, `40ms`.
pub(crate) fn span(millis: u64) -> String {
    const UNITS: [(u64, &str); 4] = [(86_400_000, "d"), (3_600_000, "h"), (60_000, "m"), (1_000, "s")];
    if millis < 1_000 {
        return format!("{millis}ms");
    }
    if millis < 10_000 && !millis.is_multiple_of(1_000) {
        return format!("{:.1}s", millis as f64 / 1_000.0);
    }
    let at = UNITS.iter().position(|(unit, _)| millis >= *unit).unwrap_or(UNITS.len() - 1);
    let (unit, name) = UNITS[at];
    match UNITS.get(at + 1) {
        Some((next, small)) if millis % unit >= *next => {
            format!("{}{name} {}{small}", millis / unit, millis % unit / next)
        }
        _ => format!("{}{name}", millis / unit),
    }
}

/// The time from now to `at` in words: `in 15m`, `2s ago`.
pub(crate) fn relative(at_ms: u64) -> String {
    let now = now_ms();
    if at_ms > now { format!("in {}", span(at_ms - now)) } else { format!("{} ago", span(now - at_ms)) }
}

/// Thousands apart: `1,234,567`.
pub(crate) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut out = String::with_capacity(digits.len() + digits.len() / 3);
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            out.push(',');
        }
        out.push(digit);
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_span_is_told_in_its_two_largest_units() {
        for (millis, words) in [
            (0, "0ms"),
            (999, "999ms"),
            (1_000, "1s"),
            (1_234, "1.2s"),
            (59_999, "59s"),
            (900_000, "15m"),
            (5_400_000, "1h 30m"),
            (86_400_000 + 60_000, "1d"),
            (2 * 86_400_000 + 3 * 3_600_000, "2d 3h"),
        ] {
            assert_eq!(span(millis), words, "{millis}");
        }
    }

    #[test]
    fn large_numbers_are_told_in_threes() {
        assert_eq!(
            [grouped(0), grouped(999), grouped(1_000), grouped(1_234_567)],
            ["0", "999", "1,000", "1,234,567"]
        );
    }
}
