//! Whether the store takes calls.

use duly_core::store::{StoreError, StoreErrorKind};

/// Open, open with a full disk, closed, or stopped.
///
/// Invariants:
/// - A store that was closed stays closed, with the first reason.
/// - Stopped implies closed: the threads end only after no call is answered any more.
#[derive(Default)]
pub(super) struct Lifecycle {
    /// The disk has no room: new messages are refused.
    full: bool,
    /// Why the store takes no call any more.
    closed: Option<String>,
    /// Its threads end.
    stopped: bool,
}

impl Lifecycle {
    pub(super) fn check_open(&self) -> Result<(), StoreError> {
        match &self.closed {
            None => Ok(()),
            Some(why) => Err(StoreError::new(StoreErrorKind::Closed, why.clone())),
        }
    }

    /// Takes no call any more. The threads go on, for the last checkpoint.
    pub(super) fn close(&mut self, why: String) {
        self.closed.get_or_insert(why);
    }

    /// Takes no call any more, and ends the threads.
    pub(super) fn stop(&mut self, why: String) {
        self.close(why);
        self.stopped = true;
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped
    }

    pub(super) fn is_full(&self) -> bool {
        self.full
    }

    /// Notes whether the disk is full. Returns whether it was before.
    pub(super) fn set_full(&mut self, full: bool) -> bool {
        std::mem::replace(&mut self.full, full)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_closed_store_stays_closed_for_the_first_reason() {
        let mut lifecycle = Lifecycle::default();
        assert_eq!((lifecycle.check_open(), lifecycle.is_stopped()), (Ok(()), false));
        lifecycle.close("first".into());
        assert!(!lifecycle.is_stopped());
        lifecycle.stop("second".into());
        let error = lifecycle.check_open().unwrap_err();
        assert_eq!((error.kind, error.what.as_str()), (StoreErrorKind::Closed, "first"));
        assert!(lifecycle.is_stopped());
    }
}
