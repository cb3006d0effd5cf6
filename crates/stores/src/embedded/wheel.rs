//! Which bucket a time belongs to: narrow buckets near the present, wide ones far away.
//!
//! A bucket of level L covers 2^(10 + 6 L) ms: one second, one minute, one hour, three days, half a year, 35 years.
//! It is opened as it comes near: its messages move to the 64 buckets below it, and from level 0 into memory. A message
//! is so rewritten at most five times in ten years, and once or not at all on the usual delays of minutes.

use duly_core::Timestamp;

/// How many levels.
pub(super) const LEVELS: usize = 6;
/// Children of a bucket.
pub(super) const FAN: usize = 64;

/// One bucket: its level and its number on that level.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Slot {
    pub(super) level: u8,
    pub(super) number: u64,
}

/// 2^shift ms is the width of a bucket of the level.
pub(super) const fn shift(level: u8) -> u32 {
    10 + 6 * level as u32
}

impl Slot {
    pub(super) fn at(level: u8, time: Timestamp) -> Self {
        Self { level, number: time.as_millis() >> shift(level) }
    }

    pub(super) fn start(self) -> Timestamp {
        Timestamp::from_millis(self.number << shift(self.level))
    }

    /// Its last millisecond.
    pub(super) fn last(self) -> Timestamp {
        Timestamp::from_millis(((self.number + 1) << shift(self.level)) - 1)
    }

    /// Which of the 64 parts of the bucket holds `time`.
    pub(super) fn part(self, time: Timestamp) -> usize {
        (time.as_millis() >> (shift(self.level) - 6)) as usize % FAN
    }

    /// Where part number `part` begins, and how many ms it covers.
    pub(super) fn part_range(self, part: usize) -> (u64, u64) {
        let width = 1 << (shift(self.level) - 6);
        (self.start().as_millis() + part as u64 * width, width)
    }
}

/// How long before its start a bucket of each level is opened: time enough to move what is in it.
const LEAD_MS: [u64; LEVELS] = [1_500, 20_000, 600_000, 3_600_000, 86_400_000, 86_400_000];

/// How far the clock may step back before what was opened is closed again: callers' clocks differ by a little, and the
/// buckets of the present must not be opened and closed by turns.
const STEP_BACK_MS: u64 = 60_000;

/// Where a time belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Route {
    /// In memory: its bucket of level 0 was opened.
    Near,
    /// In this bucket.
    Bucket(Slot),
}

/// Per level, the number of the first bucket that was not opened yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Opened(pub(super) [u64; LEVELS]);

impl Opened {
    pub(super) fn route(&self, time: Timestamp) -> Route {
        if Slot::at(0, time).number < self.0[0] {
            return Route::Near;
        }
        let level =
            (1..LEVELS).find(|&level| Slot::at(level as u8, time).number < self.0[level]).unwrap_or(LEVELS);
        Route::Bucket(Slot::at(level as u8 - 1, time))
    }

    /// Where the buckets begin: all before this is near.
    pub(super) fn near_end(&self) -> u64 {
        self.0[0] << shift(0)
    }

    /// What `self` should become at `now`. A small step back of the clock closes nothing; after a large one, what was
    /// opened for a time that has not come is forgotten, or all that is due until then would be near.
    pub(super) fn wanted(&self, now: Timestamp) -> Self {
        let mut wanted = *self;
        for (level, opened) in (0..).zip(&mut wanted.0) {
            let least = Self::at(level, now);
            let most = Self::at(level, Timestamp::from_millis(now.as_millis().saturating_add(STEP_BACK_MS)));
            *opened = (*opened).clamp(least, most);
        }
        wanted
    }

    /// The first bucket of the level that is not opened yet at `now`.
    fn at(level: u8, now: Timestamp) -> u64 {
        let ahead = now.as_millis().saturating_add(LEAD_MS[usize::from(level)]);
        Slot::at(level, Timestamp::from_millis(ahead)).number + 1
    }

    /// When a bucket is to be opened.
    pub(super) fn opens_at(slot: Slot) -> Timestamp {
        Timestamp::from_millis(slot.start().as_millis().saturating_sub(LEAD_MS[usize::from(slot.level)]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_time_has_exactly_one_bucket_and_it_contains_the_time() {
        let now = Timestamp::from_millis(1_794_852_900_123);
        let opened = Opened::default().wanted(now);
        for delay in [0, 1, 999, 1_500, 5_000, 60_000, 900_000, 86_400_000, 31_536_000_000, 315_360_000_000] {
            let time = Timestamp::from_millis(now.as_millis() + delay);
            match opened.route(time) {
                Route::Near => assert!(Slot::at(0, time).number < opened.0[0], "{delay}"),
                Route::Bucket(slot) => {
                    assert!(Slot::at(0, time).number >= opened.0[0], "{delay}");
                    assert_eq!(Slot::at(slot.level, time), slot);
                    let (from, width) = slot.part_range(slot.part(time));
                    assert!((from..from + width).contains(&time.as_millis()));
                }
            }
        }
    }

    #[test]
    fn a_small_step_back_of_the_clock_closes_nothing() {
        let now = 1_794_852_900_000;
        let opened = Opened::default().wanted(Timestamp::from_millis(now));
        assert_eq!(opened.wanted(Timestamp::from_millis(now - STEP_BACK_MS)), opened);
    }

    #[test]
    fn a_clock_far_ahead_is_forgotten_once_it_is_right_again() {
        let now = Timestamp::from_millis(1_794_852_900_000);
        let right = Opened::default().wanted(now);
        let ahead = right.wanted(Timestamp::from_millis(now.as_millis() + 31_536_000_000));
        let back = ahead.wanted(now);
        for delay in [120_000, 3_600_000, 86_400_000, 30_000_000_000] {
            let time = Timestamp::from_millis(now.as_millis() + delay);
            assert_eq!(ahead.route(time), Route::Near, "{delay}");
            assert_ne!(back.route(time), Route::Near, "{delay}");
        }
        for level in 0..LEVELS {
            assert!((right.0[level]..=right.0[level] + 60).contains(&back.0[level]), "{level}");
        }
    }
}
