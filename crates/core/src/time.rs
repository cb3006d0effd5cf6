//! Points in time. Wall time says when a message is due; monotonic time measures leases and waits.

use std::{
    fmt,
    time::{Duration, SystemTime, UNIX_EPOCH},
};

/// A point in wall time: milliseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Timestamp(u64);

impl Timestamp {
    /// The last millisecond that can be written as RFC 3339: 9999-12-31T23:59:59.999Z. Fits in 48 bits.
    pub const MAX: Self = Self(253_402_300_799_999);

    /// From milliseconds since the epoch, at most [`MAX`](Self::MAX).
    pub const fn from_millis(millis: u64) -> Self {
        if millis > Self::MAX.0 { Self::MAX } else { Self(millis) }
    }

    /// Milliseconds since the epoch.
    pub const fn as_millis(self) -> u64 {
        self.0
    }

    /// Later by `delay`, rounded up to the next millisecond, at most [`MAX`](Self::MAX).
    pub fn saturating_add(self, delay: Duration) -> Self {
        Self::from_millis(self.0.saturating_add(millis_up(delay)))
    }

    /// Earlier by `span`, at least the epoch.
    pub fn saturating_sub(self, span: Duration) -> Self {
        Self(self.0.saturating_sub(millis_up(span)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_millis(self.0.saturating_sub(earlier.0))
    }
}

fn millis_up(span: Duration) -> u64 {
    u64::try_from(span.as_nanos().div_ceil(1_000_000)).unwrap_or(u64::MAX)
}

impl From<SystemTime> for Timestamp {
    /// Rounded up to the next millisecond, so that nothing is early; at least the epoch.
    fn from(time: SystemTime) -> Self {
        Self::default().saturating_add(time.duration_since(UNIX_EPOCH).unwrap_or_default())
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match jiff::Timestamp::from_millisecond(self.0 as i64) {
            Ok(time) => write!(f, "{time:.3}"),
            // The last day of the year 9999, which jiff leaves to those whose offset is not UTC.
            Err(_) => {
                let since = jiff::SignedDuration::from_millis(self.0 as i64);
                write!(f, "{:.3}Z", jiff::civil::date(1970, 1, 1).at(0, 0, 0, 0).saturating_add(since))
            }
        }
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{self}")
    }
}

/// A point on a clock that never steps: microseconds since some start of its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Monotonic(u64);

impl Monotonic {
    /// From microseconds since the clock's start.
    pub const fn from_micros(micros: u64) -> Self {
        Self(micros)
    }

    /// Microseconds since the clock's start.
    pub const fn as_micros(self) -> u64 {
        self.0
    }

    /// Later by `span`.
    pub fn saturating_add(self, span: Duration) -> Self {
        Self(self.0.saturating_add(u64::try_from(span.as_micros()).unwrap_or(u64::MAX)))
    }

    /// How long after `earlier` this is; zero if it is not.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(self.0.saturating_sub(earlier.0))
    }
}

/// One reading of both clocks.
///
/// Wall time may be known only within bounds, when it is another machine's. What is claimed goes by the earliest that it
/// may be, what is accepted by the latest: so nothing is early, whoever accepts and whoever delivers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Now {
    wall_us: u64,
    mono: Monotonic,
    doubt_us: u64,
}

impl Now {
    /// A reading: wall time in microseconds since the epoch, and the monotonic time of the same moment.
    pub const fn new(wall_us: u64, mono: Monotonic) -> Self {
        Self { wall_us, mono, doubt_us: 0 }
    }

    /// The same reading, when wall time may also be up to `doubt_us` microseconds later.
    pub const fn or_later_by(self, doubt_us: u64) -> Self {
        Self { doubt_us, ..self }
    }

    /// The latest that wall time may be, in microseconds since the epoch.
    pub const fn latest_micros(self) -> u64 {
        self.wall_us.saturating_add(self.doubt_us)
    }

    /// Wall time, the millisecond that has begun: what is due by it is not early.
    pub const fn wall(self) -> Timestamp {
        Timestamp::from_millis(self.wall_us / 1000)
    }

    /// Wall time in microseconds since the epoch.
    pub const fn wall_micros(self) -> u64 {
        self.wall_us
    }

    /// Monotonic time.
    pub const fn mono(self) -> Monotonic {
        self.mono
    }

    /// The monotonic moment at which wall time reaches `at`, if it does not step: now, if it has passed.
    pub fn mono_at(self, at: Timestamp) -> Monotonic {
        let ahead = at.as_millis().saturating_mul(1000).saturating_sub(self.wall_us);
        Monotonic(self.mono.0.saturating_add(ahead))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn delays_round_up_to_the_next_millisecond() {
        let at = Timestamp::from_millis(10);
        assert_eq!(at.saturating_add(Duration::from_nanos(1)), Timestamp::from_millis(11));
        assert_eq!(at.saturating_add(Duration::from_millis(1)), Timestamp::from_millis(11));
        assert_eq!(at.saturating_add(Duration::MAX), Timestamp::MAX);
    }

    #[test]
    fn a_system_time_rounds_up_and_begins_at_the_epoch() {
        let at = |nanos| Timestamp::from(UNIX_EPOCH + Duration::from_nanos(nanos));
        assert_eq!((at(1_000_000).as_millis(), at(1_000_001).as_millis()), (1, 2));
        assert_eq!(Timestamp::from(UNIX_EPOCH - Duration::from_secs(1)).as_millis(), 0);
    }

    #[test]
    fn the_begun_millisecond_is_never_early() {
        let now = Now::new(10_999, Monotonic::from_micros(500));
        assert_eq!(now.wall(), Timestamp::from_millis(10));
        assert_eq!(now.mono_at(Timestamp::from_millis(11)), Monotonic::from_micros(501));
        assert_eq!(now.mono_at(Timestamp::from_millis(1)), Monotonic::from_micros(500));
    }

    #[test]
    fn times_print_as_rfc_3339_with_milliseconds() {
        assert_eq!(Timestamp::from_millis(1_794_852_900_000).to_string(), "2026-11-16T18:15:00.000Z");
    }
}
