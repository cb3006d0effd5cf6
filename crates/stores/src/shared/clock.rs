//! The time of the server behind a store, as it is known here.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use duly_core::{Clock, Monotonic, Now, Sleep};

/// Two clocks run apart by no more than this many microseconds in a second; good ones by a tenth of it.
const DRIFT_PER_SECOND_US: i64 = 100;

/// A clock whose wall time is that of the store's server, so that all nodes of a store go by one.
///
/// It is the machine's monotonic clock and a measured offset, known within bounds: the server read its clock after the
/// question left and before the answer came. [`Now::wall`] is the earliest that it may be there, and
/// [`Now::latest_micros`] the latest.
#[derive(Clone)]
pub struct ServerClock {
    machine: Arc<dyn Clock>,
    measured: Arc<Mutex<Option<Measurement>>>,
}

/// Between which bounds the time of the server is ahead of the machine's monotonic time, and when that was known.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Measurement {
    from_us: i64,
    to_us: i64,
    at: Monotonic,
    /// How far the machine's wall time is ahead of that of the server.
    skew_us: i64,
}

impl ServerClock {
    /// A clock that has yet to be measured: until then it is the machine's.
    pub(crate) fn new(machine: Arc<dyn Clock>) -> Self {
        Self { machine, measured: Arc::default() }
    }

    /// The machine's own clocks.
    pub(crate) fn machine(&self) -> Now {
        self.machine.now()
    }

    /// The server said that it was `server_us` at some moment between `sent_at` and now.
    pub(crate) fn record_reply(&self, sent_at: Monotonic, server_us: u64) {
        let received = self.machine.now();
        let server = server_us as i64;
        let (from_us, to_us) =
            (server - received.mono().as_micros() as i64, server - sent_at.as_micros() as i64);
        let offset = received.wall_micros() as i64 - received.mono().as_micros() as i64;
        let new =
            Measurement { from_us, to_us, at: received.mono(), skew_us: offset - (from_us + to_us) / 2 };
        let mut measured = self.lock();
        *measured = Some(measured.map_or(new, |measured| measured.narrowed(new)));
    }

    /// How far the machine's wall time is ahead of that of the server, in microseconds.
    pub(crate) fn skew_us(&self) -> Option<i64> {
        self.lock().map(|measured| measured.skew_us)
    }

    fn lock(&self) -> MutexGuard<'_, Option<Measurement>> {
        self.measured.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Measurement {
    /// What is known of it now, if the clocks run apart as much as they may.
    fn aged(self, at: Monotonic) -> Self {
        let drift = at.since(self.at).as_micros() as i64 * DRIFT_PER_SECOND_US / 1_000_000;
        Self { from_us: self.from_us - drift, to_us: self.to_us + drift, at, ..self }
    }

    /// Both hold, unless the clock of the server was set meanwhile: then only the new one does.
    fn narrowed(self, new: Self) -> Self {
        let old = self.aged(new.at);
        let both = Self { from_us: old.from_us.max(new.from_us), to_us: old.to_us.min(new.to_us), ..new };
        if both.from_us <= both.to_us { both } else { new }
    }
}

impl Clock for ServerClock {
    fn now(&self) -> Now {
        let machine = self.machine.now();
        let Some(measured) = *self.lock() else { return machine };
        let Measurement { from_us, to_us, .. } = measured.aged(machine.mono());
        let wall = |offset: i64| machine.mono().as_micros().saturating_add_signed(offset);
        Now::new(wall(from_us), machine.mono()).or_later_by(wall(to_us) - wall(from_us))
    }

    fn sleep_until(&self, until: Monotonic) -> Sleep {
        self.machine.sleep_until(until)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A machine whose wall time is an hour off.
    struct Machine(Mutex<u64>);

    const HOUR_US: u64 = 3_600_000_000;

    impl Clock for Machine {
        fn now(&self) -> Now {
            let mono = *self.0.lock().unwrap();
            Now::new(mono + 2 * HOUR_US, Monotonic::from_micros(mono))
        }

        fn sleep_until(&self, _: Monotonic) -> Sleep {
            Box::pin(std::future::ready(()))
        }
    }

    /// The clock, and how to move the machine's. True time there is an hour more than the machine's monotonic time.
    fn clock() -> (ServerClock, Arc<Machine>) {
        let machine = Arc::new(Machine(Mutex::new(0)));
        (ServerClock::new(machine.clone()), machine)
    }

    fn ask(clock: &ServerClock, machine: &Machine, sent_at: u64, read: u64, received: u64) {
        *machine.0.lock().unwrap() = received;
        clock.record_reply(Monotonic::from_micros(sent_at), read + HOUR_US);
    }

    #[test]
    fn the_true_time_is_never_outside_the_bounds_and_they_grow_narrow() {
        let (clock, machine) = clock();
        let mut doubt = u64::MAX;
        for (n, (before, after)) in [(900, 100), (50, 700), (400, 30), (5_000, 5_000)].into_iter().enumerate()
        {
            let sent_at = 1_000_000 * n as u64;
            ask(&clock, &machine, sent_at, sent_at + before, sent_at + before + after);
            let (now, truth) = (clock.now(), sent_at + before + after + HOUR_US);
            assert!(now.wall_micros() <= truth && truth <= now.latest_micros(), "{now:?} and it is {truth}");
            // A slow answer is less exact. It does not widen the bound by more than the drift.
            assert!(now.latest_micros() - now.wall_micros() <= doubt.saturating_add(200), "{now:?}");
            doubt = doubt.min(now.latest_micros() - now.wall_micros());
        }
        assert!(doubt < 200, "{doubt}");
    }

    #[test]
    fn bounds_widen_as_time_goes_by() {
        let (clock, machine) = clock();
        ask(&clock, &machine, 0, 50, 100);
        *machine.0.lock().unwrap() = 100 + 60_000_000;
        let now = clock.now();
        assert_eq!(now.latest_micros() - now.wall_micros(), 100 + 2 * 6_000);
    }

    #[test]
    fn a_clock_that_was_set_is_followed() {
        let (clock, machine) = clock();
        ask(&clock, &machine, 0, 50, 100);
        ask(&clock, &machine, 1_000_000, 9_000_050, 1_000_100);
        assert!(clock.now().wall_micros().abs_diff(HOUR_US + 9_000_050) <= 100);
    }

    #[test]
    fn the_machines_own_wall_time_counts_for_nothing_but_the_skew() {
        let (clock, machine) = clock();
        assert_eq!(clock.skew_us(), None);
        ask(&clock, &machine, 0, 50, 100);
        assert_eq!(clock.skew_us(), Some(HOUR_US as i64));
        assert!(clock.now().wall_micros().abs_diff(HOUR_US + 100) <= 100);
    }
}
