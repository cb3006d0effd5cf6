//! Which messages were accepted, and which were received.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering::SeqCst},
};

const ACCEPTED: u8 = 1;
const RECEIVED: u8 = 2;

/// A byte per message, by connection and number. A message that is received twice counts once. One that is received but was not
/// accepted, because the answer was lost, does not stand for a missing one.
pub(super) struct Deliveries {
    connections: Vec<Mutex<Vec<u8>>>,
    missing: AtomicU64,
    delivered: AtomicU64,
    duplicates: AtomicU64,
}

impl Deliveries {
    pub(super) fn new(connections: usize) -> Self {
        Self {
            connections: (0..connections).map(|_| Mutex::default()).collect(),
            missing: AtomicU64::new(0),
            delivered: AtomicU64::new(0),
            duplicates: AtomicU64::new(0),
        }
    }

    pub(super) fn accepted(&self, connection: usize, number: u64) {
        // Counted before it is marked: a receiver in between subtracts from this count.
        self.missing.fetch_add(1, SeqCst);
        if self.mark(connection, number, ACCEPTED) != Some(0) {
            self.missing.fetch_sub(1, SeqCst);
        }
    }

    pub(super) fn received(&self, connection: usize, number: u64) {
        match self.mark(connection, number, RECEIVED) {
            Some(before) if before & RECEIVED != 0 => {
                self.duplicates.fetch_add(1, SeqCst);
            }
            Some(before) => {
                self.delivered.fetch_add(1, SeqCst);
                if before & ACCEPTED != 0 {
                    self.missing.fetch_sub(1, SeqCst);
                }
            }
            None => {}
        }
    }

    /// Messages accepted and not received yet.
    pub(super) fn missing(&self) -> u64 {
        self.missing.load(SeqCst)
    }

    /// Messages received, each counted once.
    pub(super) fn delivered(&self) -> u64 {
        self.delivered.load(SeqCst)
    }

    /// Messages received again.
    pub(super) fn duplicates(&self) -> u64 {
        self.duplicates.load(SeqCst)
    }

    /// Sets a mark and gives what was there before.
    fn mark(&self, connection: usize, number: u64, mark: u8) -> Option<u8> {
        let mut numbers = self.connections.get(connection)?.lock().unwrap_or_else(PoisonError::into_inner);
        let number = usize::try_from(number).ok()?;
        if numbers.len() <= number {
            numbers.resize(number + 1, 0);
        }
        let before = numbers[number];
        numbers[number] |= mark;
        Some(before)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_twice_or_unanswered_hides_nothing_that_is_missing() {
        let deliveries = Deliveries::new(1);
        deliveries.accepted(0, 0);
        deliveries.accepted(0, 1);
        deliveries.received(0, 0);
        deliveries.received(0, 0);
        deliveries.received(0, 2);
        assert_eq!((deliveries.missing(), deliveries.delivered(), deliveries.duplicates()), (1, 2, 1));
        // The answer came after the message itself.
        deliveries.accepted(0, 2);
        deliveries.received(0, 1);
        assert_eq!((deliveries.missing(), deliveries.delivered()), (0, 3));
    }

    #[test]
    fn ids_of_nobody_count_for_nothing() {
        let deliveries = Deliveries::new(1);
        deliveries.received(7, 0);
        assert_eq!(deliveries.delivered(), 0);
    }
}
