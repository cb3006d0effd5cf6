//! Timeouts of running calls.

use std::collections::VecDeque;

use crate::Monotonic;

/// The deadlines of a lane's calls, by time: all calls of a lane have the same timeout.
#[derive(Debug, Default)]
pub(super) struct CallTimeouts {
    queue: VecDeque<(Monotonic, u64)>,
    is_armed: bool,
}

impl CallTimeouts {
    pub(super) fn push(&mut self, timeout_at: Monotonic, serial: u64) {
        self.queue.push_back((timeout_at, serial));
    }

    /// Drops the first ones while their calls have ended.
    pub(super) fn drop_ended(&mut self, is_running: impl Fn(u64) -> bool) {
        while self.queue.front().is_some_and(|(_, serial)| !is_running(*serial)) {
            self.queue.pop_front();
        }
    }

    /// The timer fired: it must be armed again.
    pub(super) fn disarm(&mut self) {
        self.is_armed = false;
    }

    /// The next call that has timed out.
    pub(super) fn pop_overdue(&mut self, now: Monotonic) -> Option<u64> {
        let is_over = self.queue.front().is_some_and(|&(timeout_at, _)| timeout_at <= now);
        if is_over { self.queue.pop_front().map(|(_, serial)| serial) } else { None }
    }

    /// The time to set a timer for, unless one is set.
    pub(super) fn arm(&mut self) -> Option<Monotonic> {
        let first = self.queue.front().map(|(timeout_at, _)| *timeout_at);
        let first = first.filter(|_| !self.is_armed)?;
        self.is_armed = true;
        Some(first)
    }
}
