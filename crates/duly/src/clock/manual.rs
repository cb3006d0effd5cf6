//! A clock that tests move.

use std::{
    collections::BTreeMap,
    future::Future,
    pin::Pin,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::Duration,
};

use duly_core::{Clock, Monotonic, Now, Sleep, Timestamp};

/// A clock for tests: time stands still until it is advanced.
///
/// ```
/// use duly::{Clock, ManualClock, minutes};
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(minutes(15));
/// assert_eq!(clock.now().wall().since(before.wall()), minutes(15));
/// ```
#[derive(Debug, Clone, Default)]
pub struct ManualClock {
    time: Arc<Mutex<Time>>,
}

#[derive(Debug)]
struct Time {
    wall_us: u64,
    mono_us: u64,
    serial: u64,
    sleepers: BTreeMap<(Monotonic, u64), Waker>,
}

impl Default for Time {
    fn default() -> Self {
        // 2026-01-01T00:00:00Z, the same in every run.
        Self { wall_us: 1_767_225_600_000_000, mono_us: 1_000_000, serial: 0, sleepers: BTreeMap::new() }
    }
}

impl Time {
    fn move_to(&mut self, mono_us: u64) -> Vec<Waker> {
        let by = mono_us.saturating_sub(self.mono_us);
        self.mono_us += by;
        self.wall_us = self.wall_us.saturating_add(by);
        let rest = self.sleepers.split_off(&(Monotonic::from_micros(self.mono_us.saturating_add(1)), 0));
        std::mem::replace(&mut self.sleepers, rest).into_values().collect()
    }
}

impl ManualClock {
    /// A clock at the beginning of 2026.
    pub fn new() -> Self {
        Self::default()
    }

    /// Advances both clocks, and wakes sleepers whose time has come.
    pub fn advance(&self, by: Duration) {
        self.advance_to(self.now().mono().saturating_add(by));
    }

    /// Advances both clocks until `mono`.
    pub fn advance_to(&self, mono: Monotonic) {
        let wakers = self.lock().move_to(mono.as_micros());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Sets wall time only, as an operator or a time server would.
    pub fn set_wall(&self, wall: Timestamp) {
        self.lock().wall_us = wall.as_millis().saturating_mul(1000);
    }

    /// The time of the earliest sleeper.
    pub fn next_deadline(&self) -> Option<Monotonic> {
        self.lock().sleepers.keys().next().map(|(until, _)| *until)
    }

    fn lock(&self) -> MutexGuard<'_, Time> {
        self.time.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Now {
        let time = self.lock();
        Now::new(time.wall_us, Monotonic::from_micros(time.mono_us))
    }

    fn sleep_until(&self, until: Monotonic) -> Sleep {
        Box::pin(ManualSleep { clock: self.clone(), until, serial: None })
    }

    fn runs_by_itself(&self) -> bool {
        false
    }
}

struct ManualSleep {
    clock: ManualClock,
    until: Monotonic,
    serial: Option<u64>,
}

impl Future for ManualSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        let clock = self.clock.clone();
        let mut time = clock.lock();
        if time.mono_us >= self.until.as_micros() {
            return Poll::Ready(());
        }
        let serial = *self.serial.get_or_insert_with(|| {
            time.serial += 1;
            time.serial
        });
        time.sleepers.insert((self.until, serial), context.waker().clone());
        Poll::Pending
    }
}

impl Drop for ManualSleep {
    fn drop(&mut self) {
        if let Some(serial) = self.serial {
            self.clock.lock().sleepers.remove(&(self.until, serial));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sleepers_wake_when_their_time_is_reached_and_not_before() {
        let clock = ManualClock::new();
        let until = clock.now().mono().saturating_add(Duration::from_secs(5));
        let sleeper = tokio::spawn(clock.sleep_until(until));
        tokio::task::yield_now().await;
        assert_eq!(clock.next_deadline(), Some(until));
        clock.advance(Duration::from_millis(4_999));
        tokio::task::yield_now().await;
        assert!(!sleeper.is_finished());
        clock.advance(Duration::from_millis(1));
        sleeper.await.unwrap();
        assert_eq!(clock.next_deadline(), None);
    }

    #[test]
    fn wall_time_steps_alone() {
        let clock = ManualClock::new();
        let before = clock.now();
        clock.set_wall(Timestamp::from_millis(5));
        assert_eq!((clock.now().wall().as_millis(), clock.now().mono()), (5, before.mono()));
    }
}
