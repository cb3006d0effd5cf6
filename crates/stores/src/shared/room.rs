//! Whether there may be more pending messages than allowed, without asking the server each time.

use std::{
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use duly_core::{
    MessageId, Record, State,
    store::{Insert, StoreError, StoreErrorKind, Totals},
};

/// An upper bound of what waits: what the server last said, and all that was sent since.
#[derive(Debug, Default)]
pub(crate) struct Room {
    sent: AtomicU64,
    answered: AtomicU64,
    measured: Mutex<Measured>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Measured {
    held: u64,
    answered_before: u64,
}

impl Room {
    /// Before a batch is sent: whether it fits for sure.
    pub(crate) fn fits(&self, count: u64, max: u64) -> bool {
        let measured = *self.measured.lock().unwrap_or_else(PoisonError::into_inner);
        let since = self.sent.load(Ordering::SeqCst).saturating_sub(measured.answered_before);
        measured.held.saturating_add(since).saturating_add(count) <= max
    }

    /// A batch is being sent.
    pub(crate) fn send(&self, count: u64) {
        self.sent.fetch_add(count, Ordering::SeqCst);
    }

    /// Its answer came.
    pub(crate) fn answer(&self, count: u64) {
        self.answered.fetch_add(count, Ordering::SeqCst);
    }

    /// Before the server is asked how much it holds. What was answered by now it will count.
    pub(crate) fn ask(&self) -> u64 {
        self.answered.load(Ordering::SeqCst)
    }

    /// What the server said: pending or in flight, which may be pending soon.
    pub(crate) fn update(&self, answered_before: u64, held: u64) {
        *self.measured.lock().unwrap_or_else(PoisonError::into_inner) = Measured { held, answered_before };
    }
}

/// The ids of a batch that would wait: dead letters need no room.
pub(crate) fn waiting_ids(batch: &[Insert]) -> Vec<MessageId> {
    let waits = batch.iter().filter(|insert| !insert.is_dead());
    let ids: HashSet<_> = waits.map(|insert| insert.message.id.clone()).collect();
    ids.into_iter().collect()
}

/// The exact check, with what the store has of each id: one that it has needs no room.
pub(crate) fn check_limit(
    totals: &Totals,
    stored: impl IntoIterator<Item = Option<Record>>,
    max: u64,
) -> Result<(), StoreError> {
    let is_new =
        |record: &Option<Record>| record.as_ref().is_none_or(|record| record.state == State::Cancelled);
    let new = stored.into_iter().filter(is_new).count();
    if new > 0 && totals.pending + new as u64 > max {
        let what = format!("{} messages are waiting and the limit is {max}", totals.pending);
        return Err(StoreError::new(StoreErrorKind::TooMany, what));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_since_the_server_was_asked_counts() {
        let room = Room::default();
        room.send(5);
        assert!(room.fits(5, 10) && !room.fits(6, 10));
        let answered_before = room.ask();
        room.answer(5);
        room.update(answered_before, 5);
        assert!(!room.fits(1, 10), "whether the server counted it already is not known");
        room.update(room.ask(), 5);
        assert!(room.fits(5, 10) && !room.fits(6, 10));
    }
}
