//! Spans of time and sizes, as people write them.

use std::time::Duration;

/// Reads a size: `1MiB`, `64KiB`, `2GB`, or whole bytes.
pub(super) fn parse_size(text: &str) -> Result<u64, String> {
    let text = text.trim();
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let factor: u64 = match unit.trim().to_ascii_lowercase().as_str() {
        "" | "b" => 1,
        "kib" => 1 << 10,
        "mib" => 1 << 20,
        "gib" => 1 << 30,
        "kb" => 1_000,
        "mb" => 1_000_000,
        "gb" => 1_000_000_000,
        _ => return Err(size_fault(text)),
    };
    number.parse::<u64>().ok().and_then(|number| number.checked_mul(factor)).ok_or_else(|| size_fault(text))
}

fn size_fault(text: &str) -> String {
    format!("{text:?} is not a size; write 64KiB, 1MiB or whole bytes")
}

/// A size in its largest whole unit.
pub(super) fn show_size(bytes: u64) -> String {
    for (unit, factor) in [("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes >= factor && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

/// A span as it would be written: `1h30m`, `10s`, `250ms`.
pub(crate) fn show_span(span: Duration) -> String {
    let mut millis = span.as_millis();
    if millis == 0 {
        return "0s".into();
    }
    let mut text = String::new();
    for (unit, factor) in [("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1_000), ("ms", 1)] {
        // A day is shown only when it is whole: 24h is how people say it, and 36h too.
        let whole_only = unit == "d" && (!millis.is_multiple_of(factor) || millis <= factor);
        if millis >= factor && !whole_only {
            text.push_str(&format!("{}{unit}", millis / factor));
            millis %= factor;
        }
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_are_read_and_shown() {
        for (text, bytes) in [
            ("0", 0),
            ("17", 17),
            ("1KiB", 1024),
            ("1 MiB", 1 << 20),
            ("2gib", 2 << 30),
            ("3kB", 3_000),
            ("5MB", 5_000_000),
        ] {
            assert_eq!(parse_size(text), Ok(bytes), "{text}");
            assert_eq!(parse_size(&show_size(bytes)), Ok(bytes));
        }
        for bad in ["", "MiB", "1.5MiB", "-1", "1TiB", "99999999999GiB", "one"] {
            assert!(parse_size(bad).is_err(), "{bad}");
        }
        assert_eq!(show_size(1 << 20), "1MiB");
        assert_eq!(show_size(1000), "1000B");
    }

    #[test]
    fn spans_are_shown_as_they_are_written() {
        for text in ["0s", "20ms", "10s", "1h30m", "24h", "36h", "3653d", "1s500ms", "5m"] {
            let span = duly::parse_delay(text).unwrap();
            assert_eq!(show_span(span), text);
        }
    }
}
