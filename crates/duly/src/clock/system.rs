//! The system clocks, with an alarm thread.

use std::{
    cmp::Reverse,
    collections::{BinaryHeap, HashMap},
    future::Future,
    panic::{AssertUnwindSafe, catch_unwind},
    pin::Pin,
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError},
    task::{Context, Poll, Waker},
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use duly_core::{Clock, Monotonic, Now, Sleep};

/// The system's wall and monotonic clocks.
///
/// A thread of its own ends sleeps at the exact time: timers of the async runtime have a resolution of a millisecond,
/// which would add to the lateness of every message.
#[derive(Debug, Clone)]
pub struct SystemClock {
    alarm: Arc<Alarm>,
    _close_on_drop: Arc<CloseOnDrop>,
}

/// Ends the thread when the last clock and the last sleep are dropped.
#[derive(Debug)]
struct CloseOnDrop(Arc<Alarm>);

#[derive(Debug)]
struct Alarm {
    start: Instant,
    state: Mutex<Sleepers>,
    changed: Condvar,
}

#[derive(Debug, Default)]
struct Sleepers {
    by_time: BinaryHeap<Reverse<(Monotonic, u64)>>,
    /// Dropped sleeps are missing here, and their times are skipped.
    wakers: HashMap<u64, Waker>,
    serial: u64,
    closed: bool,
}

/// How long the thread sleeps without sleepers.
const IDLE: Duration = Duration::from_secs(3600);

impl SystemClock {
    /// Starts the alarm thread.
    #[expect(clippy::disallowed_methods, reason = "this is the Clock that everybody else asks")]
    pub fn new() -> std::io::Result<Self> {
        let alarm = Arc::new(Alarm {
            start: Instant::now(),
            state: Mutex::new(Sleepers::default()),
            changed: Condvar::new(),
        });
        let alarm_thread = alarm.clone();
        std::thread::Builder::new().name("duly-alarm".into()).spawn(move || run_alarm(&alarm_thread))?;
        Ok(Self { _close_on_drop: Arc::new(CloseOnDrop(alarm.clone())), alarm })
    }
}

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the Clock that everybody else asks")]
    fn now(&self) -> Now {
        let mono = self.alarm.mono();
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        Now::new(u64::try_from(wall.as_micros()).unwrap_or(u64::MAX), mono)
    }

    fn sleep_until(&self, until: Monotonic) -> Sleep {
        Box::pin(SystemSleep { clock: self.clone(), until, serial: None })
    }
}

impl Alarm {
    fn mono(&self) -> Monotonic {
        Monotonic::from_micros(u64::try_from(self.start.elapsed().as_micros()).unwrap_or(u64::MAX))
    }

    fn lock(&self) -> MutexGuard<'_, Sleepers> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The alarm thread: waits for the earliest sleeper, and wakes all whose time has come.
fn run_alarm(alarm: &Alarm) {
    let mut sleepers = alarm.lock();
    while !sleepers.closed {
        let now = alarm.mono();
        let mut due = Vec::new();
        while let Some(&Reverse((until, serial))) = sleepers.by_time.peek() {
            if until > now && sleepers.wakers.contains_key(&serial) {
                break;
            }
            sleepers.by_time.pop();
            due.extend(sleepers.wakers.remove(&serial));
        }
        if !due.is_empty() {
            drop(sleepers);
            due.into_iter().for_each(wake);
            sleepers = alarm.lock();
            continue;
        }
        let wait = sleepers.by_time.peek().map_or(IDLE, |Reverse((until, _))| until.since(now));
        sleepers = alarm.changed.wait_timeout(sleepers, wait).unwrap_or_else(PoisonError::into_inner).0;
    }
}

/// Wakers belong to whoever polls a sleep. One that panics must not end the thread: no sleep of the process would end any more.
fn wake(waker: Waker) {
    if catch_unwind(AssertUnwindSafe(|| waker.wake())).is_err() {
        tracing::error!("waker panicked");
    }
}

struct SystemSleep {
    clock: SystemClock,
    until: Monotonic,
    serial: Option<u64>,
}

impl Future for SystemSleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<()> {
        if self.clock.alarm.mono() >= self.until {
            return Poll::Ready(());
        }
        let until = self.until;
        let alarm = self.clock.alarm.clone();
        let mut sleepers = alarm.lock();
        match self.serial {
            // Still waiting: only the waker may be another.
            Some(serial) if sleepers.wakers.contains_key(&serial) => {
                sleepers.wakers.insert(serial, context.waker().clone());
            }
            _ => {
                sleepers.serial += 1;
                let serial = sleepers.serial;
                self.serial = Some(serial);
                let first = sleepers.by_time.peek().is_none_or(|Reverse((first, _))| until < *first);
                sleepers.by_time.push(Reverse((until, serial)));
                sleepers.wakers.insert(serial, context.waker().clone());
                if first {
                    alarm.changed.notify_one();
                }
            }
        }
        Poll::Pending
    }
}

impl Drop for SystemSleep {
    fn drop(&mut self) {
        if let Some(serial) = self.serial {
            self.clock.alarm.lock().wakers.remove(&serial);
        }
    }
}

impl Drop for CloseOnDrop {
    fn drop(&mut self) {
        self.0.lock().closed = true;
        self.0.changed.notify_all();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_sleep_never_ends_early_and_one_into_the_past_ends_at_once() {
        let clock = SystemClock::new().unwrap();
        for millis in [0, 1, 5, 2] {
            let until = clock.now().mono().saturating_add(Duration::from_millis(millis));
            clock.sleep_until(until).await;
            assert!(clock.now().mono() >= until);
        }
        clock.sleep_until(Monotonic::default()).await;
    }

    /// Says that it was called, and panics if it is to.
    struct Signal {
        called: tokio::sync::Notify,
        panics: bool,
    }

    impl Signal {
        fn new(panics: bool) -> Arc<Self> {
            Arc::new(Self { called: tokio::sync::Notify::new(), panics })
        }
    }

    impl std::task::Wake for Signal {
        fn wake(self: Arc<Self>) {
            self.called.notify_one();
            assert!(!self.panics, "a waker that panics");
        }
    }

    /// A short sleep that waits, with this waker. One whose time is over before it is polled does not wait.
    fn short_sleep(clock: &SystemClock, signal: &Arc<Signal>) -> Sleep {
        let waker = Waker::from(signal.clone());
        let mut sleeps = (1..).map(|millis| {
            clock.sleep_until(clock.now().mono().saturating_add(Duration::from_millis(millis)))
        });
        let waits = |sleep: &mut Sleep| sleep.as_mut().poll(&mut Context::from_waker(&waker)).is_pending();
        sleeps.find_map(|mut sleep| waits(&mut sleep).then_some(sleep)).unwrap()
    }

    #[tokio::test]
    async fn a_waker_that_panics_keeps_no_other_sleep_from_ending() {
        let clock = SystemClock::new().unwrap();
        let (panics, other) = (Signal::new(true), Signal::new(false));
        let _first = short_sleep(&clock, &panics);
        panics.called.notified().await;
        let _second = short_sleep(&clock, &other);
        let called = tokio::time::timeout(Duration::from_secs(20), other.called.notified()).await;
        assert!(called.is_ok(), "the alarm thread goes on");
    }

    #[tokio::test]
    async fn a_dropped_sleep_leaves_no_waker_behind() {
        let clock = SystemClock::new().unwrap();
        let far = clock.now().mono().saturating_add(Duration::from_secs(3600));
        let mut sleep = clock.sleep_until(far);
        let pending = std::future::poll_fn(|cx| Poll::Ready(sleep.as_mut().poll(cx).is_pending())).await;
        assert!(pending);
        drop(sleep);
        assert!(clock.alarm.lock().wakers.is_empty());
    }
}
