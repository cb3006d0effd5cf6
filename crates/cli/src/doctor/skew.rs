//! Whether two clocks agree.

use std::ops::RangeInclusive;

use super::{super::clock, Finding};

/// Clocks further apart than this are told.
const APART_MAX_MS: u64 = 500;
/// Zones lie half hours apart, and clocks that are set by hand are set to a minute or two.
const ZONE_STEP_MS: u64 = 30 * 60_000;
const ZONE_NEAR_MS: u64 = 2 * 60_000;
/// No two zones are further apart.
const ZONES_MAX_MS: u64 = 26 * 3_600_000;

/// `whose` clock told its time somewhere within `asked`, by this machine's.
pub(super) fn check(whose: &str, asked: RangeInclusive<u64>, theirs: u64) -> Finding {
    let apart = asked.start().saturating_sub(theirs).max(theirs.saturating_sub(*asked.end()));
    if apart <= APART_MAX_MS {
        return Finding::ok("clock skew", format!("this machine's clock and that of {whose} agree"));
    }
    let detail = format!("this machine's clock and that of {whose} are {} apart", clock::span(apart));
    let steps = (apart + ZONE_STEP_MS / 2) / ZONE_STEP_MS;
    if steps > 0
        && apart.abs_diff(steps * ZONE_STEP_MS) <= ZONE_NEAR_MS
        && apart <= ZONES_MAX_MS + ZONE_NEAR_MS
    {
        let detail = format!(
            "{detail}, about a whole number of half hours: one of them seems to be set to the time of a zone"
        );
        let remedy = "set the clocks of both machines to UTC (NTP does), and let their zones say what is shown: `date -u` tells on each";
        return Finding::warn("clock skew", detail, remedy);
    }
    Finding::warn("clock skew", detail, "keep both set (NTP)")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::doctor::Severity;

    #[test]
    fn clocks_that_are_apart_are_told() {
        assert_eq!(check("Redis", 1000..=1100, 1050).state, Severity::Ok);
        assert_eq!(check("Redis", 1000..=1100, 1500).state, Severity::Ok);
        assert_eq!(check("Redis", 1000..=1100, 2000).state, Severity::Warn);
        assert_eq!(check("Redis", 9000..=9100, 2000).state, Severity::Warn);
    }

    #[test]
    fn clocks_that_are_a_zone_apart_smell_of_it() {
        const HOUR: u64 = 3_600_000;
        let smells =
            |apart: u64| check("MySQL", 100 * HOUR..=100 * HOUR, 100 * HOUR - apart).detail.contains("zone");
        for apart in [8 * HOUR, 8 * HOUR + 40_000, 5 * HOUR + HOUR / 2 - 90_000, HOUR / 2] {
            assert!(smells(apart), "{apart}");
        }
        for apart in [1000, 60_000, HOUR / 4, 8 * HOUR + 600_000, 48 * HOUR] {
            assert!(!smells(apart), "{apart}");
        }
    }
}
