//! What everybody in one run shares.

use std::{
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicBool, AtomicU32, Ordering},
    },
    time::Duration,
};

use duly::{Clock, ManualClock};

use super::{
    Fault, Mix,
    dice::Dice,
    ledger::{Broken, Ledger},
};

/// One run's time, chance, faults and ledger.
pub(super) struct World {
    pub(super) clock: ManualClock,
    pub(super) mix: Mix,
    seed: u64,
    ledger: Mutex<Ledger>,
    healed: AtomicBool,
    traced: bool,
    calls: AtomicU32,
    /// One operator: pauses and resumes are asked for one after the other.
    pub(super) operator: tokio::sync::Mutex<()>,
}

/// More calls of the store than any single moment needs.
const CALLS_MAX: u32 = 20_000;

impl World {
    /// `traced`: whether the run is told on stderr while it goes.
    pub(super) fn new(mix: Mix, seed: u64, traced: bool) -> Arc<Self> {
        // The same seed means another run in every mix.
        let seed = seed.wrapping_mul(64).wrapping_add(u64::from(mix.bits()));
        let (ledger, healed, calls) = (Mutex::default(), AtomicBool::new(false), AtomicU32::new(0));
        Arc::new(Self {
            clock: ManualClock::new(),
            mix,
            seed,
            ledger,
            healed,
            traced,
            calls,
            operator: tokio::sync::Mutex::default(),
        })
    }

    /// Chance for one purpose.
    pub(super) fn dice(&self, stream: u64) -> Dice {
        Dice::new(self.seed, stream)
    }

    pub(super) fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    /// Whether `fault` may strike now.
    pub(super) fn may(&self, fault: Fault) -> bool {
        self.mix.has(fault) && !self.healed.load(Ordering::Relaxed)
    }

    /// From now on nothing fails any more.
    pub(super) fn heal(&self) {
        self.healed.store(true, Ordering::Relaxed);
    }

    /// A new moment begins.
    pub(super) fn next_moment(&self) {
        self.calls.store(0, Ordering::Relaxed);
    }

    /// Somebody calls the store. An engine that calls without end never lets time pass: it is stopped here.
    pub(super) async fn called(&self) {
        if self.calls.fetch_add(1, Ordering::Relaxed) > CALLS_MAX {
            let what = format!("more than {CALLS_MAX} calls of the store in one moment");
            self.ledger().break_promise(Broken::Stuck(what));
            std::future::pending().await
        }
    }

    /// Tells what happens, if anybody wants to hear it.
    pub(super) fn trace(&self, what: impl FnOnce() -> String) {
        if self.traced {
            let now = self.clock.now();
            eprintln!("{:>12} µs  {}  {}", now.mono().as_micros(), now.wall(), what());
        }
    }

    pub(super) async fn sleep(&self, span: Duration) {
        self.clock.sleep_until(self.clock.now().mono().saturating_add(span)).await;
    }
}
