//! A disk on which reads of tables fail, or wait at a gate.

use std::{
    io,
    ops::Range,
    sync::{
        Arc, Condvar, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    thread::ThreadId,
};

use duly_stores::embedded::disk::RealDisk;
use testkit::disk::{HookedDisk, Hooks};
use tokio::sync::Notify;

#[derive(Default)]
struct GateState {
    /// The thread whose reads fail.
    fails_for: Mutex<Option<ThreadId>>,
    failed: AtomicUsize,
    /// Reads that still pass; `None`: all of them.
    passes: Mutex<Option<usize>>,
    opened: Condvar,
    reached: Notify,
}

/// The machine's own disk, behind a gate.
#[derive(Clone, Default)]
pub(super) struct Gate(Arc<GateState>);

impl Gate {
    pub(super) fn disk(&self) -> Arc<HookedDisk> {
        HookedDisk::on(RealDisk, self.0.clone())
    }

    /// Whether reads of tables by this thread fail from now on. The store's own threads read what they want.
    pub(super) fn fail_reads(&self, fails: bool) {
        *self.0.fails_for.lock().unwrap() = fails.then(|| std::thread::current().id());
    }

    /// How many reads have failed.
    pub(super) fn failed(&self) -> usize {
        self.0.failed.load(Ordering::SeqCst)
    }

    /// Lets so many more reads of tables pass, and then none.
    pub(super) fn close_after(&self, reads: usize) {
        *self.0.passes.lock().unwrap() = Some(reads);
    }

    /// Waits until somebody stands at the gate.
    pub(super) async fn reached(&self) {
        self.0.reached.notified().await;
    }

    pub(super) fn open(&self) {
        *self.0.passes.lock().unwrap() = None;
        self.0.opened.notify_all();
    }
}

impl Hooks for GateState {
    fn read(&self, name: &str, _: Range<u64>) -> io::Result<()> {
        if !name.ends_with(".data") {
            return Ok(());
        }
        if *self.fails_for.lock().unwrap() == Some(std::thread::current().id()) {
            self.failed.fetch_add(1, Ordering::SeqCst);
            return Err(io::Error::other("the disk does not answer"));
        }
        let mut passes = self.passes.lock().unwrap();
        while *passes == Some(0) {
            self.reached.notify_one();
            passes = self.opened.wait(passes).unwrap();
        }
        *passes = passes.map(|left| left - 1);
        Ok(())
    }
}
