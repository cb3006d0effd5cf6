//! What the senders know: what they asked for, and what they were told.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard},
};

/// Where a message goes.
pub(crate) const SINKS: [&str; 3] = ["here", "there", "hook"];

/// One message, as its sender knows it. Times are milliseconds of the machine's wall time, which is that of Redis here.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(crate) sink: &'static str,
    /// Before the first try to send it.
    pub(crate) asked_ms: u64,
    pub(crate) delay_ms: u64,
    /// How many tries to send it had no good answer.
    pub(crate) unknown: u32,
    pub(crate) accepted: Option<Accepted>,
    /// What the nodes were asked, if it may be asked again at any time: it is never cancelled.
    pub(crate) again: Option<String>,
    pub(crate) cancel: Cancel,
    /// When that was answered.
    pub(crate) cancelled_ms: u64,
}

/// A 2xx answer.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Accepted {
    pub(crate) at_ms: u64,
    pub(crate) due_ms: u64,
}

/// What became of the wish to cancel.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Cancel {
    /// There was none, or it came too late.
    None,
    /// It will not be delivered, and never was.
    Done,
    /// It is cancelled, and an earlier try may have arrived; or the answer that says which got lost.
    Maybe,
    /// The nodes say that there is no such message.
    Missing,
}

#[derive(Debug, Default)]
pub(crate) struct Ledger {
    entries: Mutex<HashMap<String, Entry>>,
}

impl Ledger {
    fn lock(&self) -> MutexGuard<'_, HashMap<String, Entry>> {
        self.entries.lock().unwrap()
    }

    pub(crate) fn ask(&self, id: &str, sink: &'static str, asked_ms: u64, delay_ms: u64) {
        let entry = Entry {
            sink,
            asked_ms,
            delay_ms,
            unknown: 0,
            accepted: None,
            again: None,
            cancel: Cancel::None,
            cancelled_ms: 0,
        };
        assert!(self.lock().insert(id.into(), entry).is_none(), "ids are the sender's, and used once");
    }

    pub(crate) fn change(&self, id: &str, change: impl FnOnce(&mut Entry)) {
        change(self.lock().get_mut(id).unwrap());
    }

    /// How many were accepted so far.
    pub(crate) fn accepted(&self) -> usize {
        self.lock().values().filter(|entry| entry.accepted.is_some()).count()
    }

    pub(crate) fn all(&self) -> HashMap<String, Entry> {
        self.lock().clone()
    }
}
