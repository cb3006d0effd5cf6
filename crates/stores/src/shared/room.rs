//! Whether there may be more pending messages than allowed, without asking the server each time.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

/// An upper bound of what waits: what the server last said, and all that was sent since.
#[derive(Debug, Default)]
pub(crate) struct Room {
    sent: AtomicU64,
    answered: AtomicU64,
    told: Mutex<Told>,
}

#[derive(Debug, Default, Clone, Copy)]
struct Told {
    held: u64,
    answered_before: u64,
}

impl Room {
    /// Before a batch is sent: whether it fits for sure.
    pub(crate) fn fits(&self, count: u64, max: u64) -> bool {
        let told = *self.told.lock().unwrap_or_else(PoisonError::into_inner);
        let since = self.sent.load(Ordering::SeqCst).saturating_sub(told.answered_before);
        told.held.saturating_add(since).saturating_add(count) <= max
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
    pub(crate) fn tell(&self, answered_before: u64, held: u64) {
        *self.told.lock().unwrap_or_else(PoisonError::into_inner) = Told { held, answered_before };
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_sent_since_the_server_was_asked_counts() {
        let room = Room::default();
        room.send(5);
        assert!(room.fits(5, 10) && !room.fits(6, 10));
        let asked = room.ask();
        room.answer(5);
        room.tell(asked, 5);
        assert!(!room.fits(1, 10), "whether the server counted it already is not known");
        room.tell(room.ask(), 5);
        assert!(room.fits(5, 10) && !room.fits(6, 10));
    }
}
