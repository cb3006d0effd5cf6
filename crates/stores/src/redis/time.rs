//! The store's time: leases end in it.

use duly_core::{Monotonic, Now};

use super::RedisStore;

/// Wall time as it was when the store was opened, going on as the monotonic clock does.
///
/// Leases run on the monotonic clock, which starts anew with every process, but they are written where the next process
/// reads them. So their ends are told in microseconds since the epoch, and steps of wall time while the store is open
/// do not touch them. What stepped between two processes is put right when the store is opened.
///
/// A process that goes by the time of Redis has no need of this: that is the one time of all nodes.
#[derive(Debug, Clone, Copy)]
pub(super) struct StoreTime {
    wall_micros: u64,
    mono: Monotonic,
}

impl StoreTime {
    pub(super) fn begin(now: Now) -> Self {
        Self { wall_micros: now.wall_micros(), mono: now.mono() }
    }

    /// The store's time at `now`, in microseconds.
    pub(super) fn at(&self, now: Now) -> u64 {
        self.wall_micros + u64::try_from(now.mono().since(self.mono).as_micros()).unwrap_or(u64::MAX >> 12)
    }

    /// The monotonic moment of the store's time `at`.
    pub(super) fn mono(&self, at: u64) -> Monotonic {
        Monotonic::from_micros(self.mono.as_micros() + at.saturating_sub(self.wall_micros))
    }
}

impl RedisStore {
    /// The store's time at `now`, in microseconds: the earliest that it may be, so that no lease ends early.
    pub(super) fn tick(&self, now: Now) -> u64 {
        if self.clock.is_some() { now.wall_micros() } else { self.time.at(now) }
    }

    /// The latest that it may be: leases run from here, whoever looks at them later.
    pub(super) fn latest_tick(&self, now: Now) -> u64 {
        if self.clock.is_some() { now.latest_micros() } else { self.time.at(now) }
    }

    /// The monotonic moment of the store's time `at`, as seen at `now`.
    pub(super) fn mono(&self, now: Now, at: u64) -> Monotonic {
        if self.clock.is_some() {
            let ahead = at.saturating_sub(now.wall_micros());
            return Monotonic::from_micros(now.mono().as_micros().saturating_add(ahead));
        }
        self.time.mono(at)
    }
}
