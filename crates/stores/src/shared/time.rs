//! The store's time: leases end in it.

use duly_core::{Monotonic, Now};

use super::ServerClock;

/// The time in which leases end, in microseconds since the epoch.
///
/// A process that uses the time of the server has nothing to add to it: that is the one time of all nodes. Without it, it is wall
/// time as it was when the store was opened, going on as the monotonic clock does: leases run on the monotonic clock, which
/// starts again with every process, but they are written where the next process reads them. So steps of wall time while the
/// store is open do not touch them, and what stepped between two processes is put right when the store is opened.
#[derive(Clone)]
pub(crate) struct StoreTime {
    clock: Option<ServerClock>,
    wall_micros: u64,
    mono: Monotonic,
}

impl StoreTime {
    pub(crate) fn begin(clock: Option<ServerClock>, now: Now) -> Self {
        Self { clock, wall_micros: now.wall_micros(), mono: now.mono() }
    }

    /// The clock of the server, if this process uses it.
    pub(crate) fn clock(&self) -> Option<&ServerClock> {
        self.clock.as_ref()
    }

    /// How far this machine's clock is ahead of the server's, in microseconds.
    pub(crate) fn skew_us(&self) -> Option<i64> {
        self.clock.as_ref().and_then(ServerClock::skew_us)
    }

    /// The store's time at `now`: the earliest that it may be, so that no lease ends early.
    pub(crate) fn tick(&self, now: Now) -> u64 {
        if self.clock.is_some() { now.wall_micros() } else { self.at(now) }
    }

    /// The latest that it may be: leases run from here, whoever looks at them later.
    pub(crate) fn latest_tick(&self, now: Now) -> u64 {
        if self.clock.is_some() { now.latest_micros() } else { self.at(now) }
    }

    /// The monotonic moment of the store's time `at`, as seen at `now`.
    pub(crate) fn mono(&self, now: Now, at: u64) -> Monotonic {
        let (from, mono) = match self.clock {
            Some(_) => (now.wall_micros(), now.mono()),
            None => (self.wall_micros, self.mono),
        };
        Monotonic::from_micros(mono.as_micros().saturating_add(at.saturating_sub(from)))
    }

    fn at(&self, now: Now) -> u64 {
        self.wall_micros + u64::try_from(now.mono().since(self.mono).as_micros()).unwrap_or(u64::MAX >> 12)
    }
}
