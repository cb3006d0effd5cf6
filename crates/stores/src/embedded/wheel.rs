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

    /// What `self` should become at `now`. It never goes back, whatever wall time does.
    pub(super) fn wanted(&self, now: Timestamp) -> Self {
        let mut wanted = *self;
        for (level, (opened, lead)) in (0..).zip(wanted.0.iter_mut().zip(LEAD_MS)) {
            let ahead = Timestamp::from_millis(now.as_millis() + lead);
            *opened = (*opened).max(Slot::at(level, ahead).number + 1);
        }
        wanted
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
    fn opening_never_goes_back_with_the_clock() {
        let opened = Opened::default().wanted(Timestamp::from_millis(1_794_852_900_000));
        assert_eq!(opened.wanted(Timestamp::from_millis(1_000)), opened);
    }
}
