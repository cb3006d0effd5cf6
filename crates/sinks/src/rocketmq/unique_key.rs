//! `UNIQ_KEY`: the id of a message that RocketMQ's clients make. Consumers return it as the message id, and brokers index it.

use duly_core::{MessageId, Timestamp};
use sha1::{Digest, Sha1};

/// Characters of a key.
pub(super) const LENGTH: usize = 32;
const DAY_MS: u64 = 24 * 60 * 60 * 1_000;
/// Days from the first of March of the year 0 to 1970.
const DAYS_BEFORE: u64 = 719_468;
/// Who searches for a key reads its time in a time zone of his own, and finds nothing that was stored before it.
const ZONES_MS: u64 = 12 * 60 * 60 * 1_000;

/// The key of a message: the same for each try.
///
/// Clients make it of their address and process (10 bytes), the milliseconds of the month (4 bytes) and a counter (2 bytes); only the
/// time is ever read. Ours has a hash of the id instead of the others, and the due time, which is never later than the send.
pub(super) fn of(id: &MessageId, due: Timestamp) -> String {
    let hash = Sha1::digest(id.as_str().as_bytes());
    let mut key = [0; 16];
    key[..10].copy_from_slice(&hash[..10]);
    key[10..14].copy_from_slice(&month_ms(due.as_millis().saturating_sub(ZONES_MS)).to_be_bytes());
    key[14..].copy_from_slice(&hash[10..12]);
    format!("{:0LENGTH$X}", u128::from_be_bytes(key))
}

/// Milliseconds since the month began, by UTC: 31 days fit.
fn month_ms(at: u64) -> u32 {
    // The calendar repeats every 400 years. A year begins in March, so that a leap day is its last.
    let day = (at / DAY_MS + DAYS_BEFORE) % 146_097;
    let year = (day - day / 1_460 + day / 36_524 - day / 146_096) / 365;
    let day = day - (365 * year + year / 4 - year / 100);
    let month = (5 * day + 2) / 153;
    let day = day - (153 * month + 2) / 5;
    u32::try_from(day * DAY_MS + at % DAY_MS).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_month_begins_on_its_first_day() {
        let ms = |day: u64, rest: u64| u32::try_from((day - 1) * DAY_MS + rest).unwrap();
        // By `date -u -d … +%s`.
        for (at, day) in [
            (0, 1),
            (951_782_400, 29),   // 2000-02-29
            (951_868_800, 1),    // 2000-03-01
            (1_709_164_800, 29), // 2024-02-29
            (1_740_787_200, 1),  // 2025-03-01
            (1_767_139_200, 31), // 2025-12-31
            (1_767_225_600, 1),  // 2026-01-01
            (4_107_542_400, 1),  // 2100-03-01
        ] {
            assert_eq!(month_ms(at * 1_000 + 17), ms(day, 17), "{at}");
        }
    }

    #[test]
    fn a_key_is_of_the_id_and_the_due_time_alone() {
        let of = |id: &str, at: u64| of(&id.parse().unwrap(), Timestamp::from_millis(at));
        // 2026-01-02T13:00:00.005Z, twelve hours earlier: one day, one hour and five milliseconds of the month.
        let key = of("order-42", 1_767_358_800_005);
        assert_eq!(key, of("order-42", 1_767_358_800_005));
        assert_eq!((key.len(), &key[20..28]), (LENGTH, "055D4A85"));
        assert_ne!(key, of("order-43", 1_767_358_800_005));
        assert_eq!(of("a", 0).len(), LENGTH);
    }
}
