//! The memory that a lane's messages in hand may take.

/// Bytes of bodies that one lane holds, about: a claim cannot say how large its messages are, so the limit may be
/// passed by one claim of messages larger than those before.
const BYTES_MAX: usize = 64 << 20;
/// What a message is taken to be until one was seen.
const TYPICAL: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Budget {
    held: usize,
    /// The size of the messages of late, the newest weighing most.
    typical: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { held: 0, typical: TYPICAL }
    }
}

impl Budget {
    pub(super) fn take(&mut self, bytes: usize) {
        self.held += bytes;
        self.typical = (self.typical * 7 + bytes).div_ceil(8);
    }

    pub(super) fn give_back(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// How many more messages fit, about. One always does when nothing is held.
    pub(super) fn room(&self) -> usize {
        let room = BYTES_MAX.saturating_sub(self.held) / self.typical.max(1);
        if self.held == 0 { room.max(1) } else { room }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn large_messages_leave_room_for_fewer() {
        let mut budget = Budget::default();
        assert!(budget.room() >= 1_024);
        for _ in 0..60 {
            budget.take(1 << 20);
        }
        assert!(budget.room() <= 5, "{}", budget.room());
        for _ in 0..60 {
            budget.give_back(1 << 20);
        }
        assert!((40..=100).contains(&budget.room()), "{}", budget.room());
    }

    #[test]
    fn a_message_larger_than_the_budget_goes_alone() {
        let mut budget = Budget::default();
        budget.take(BYTES_MAX * 2);
        assert_eq!(budget.room(), 0);
        budget.give_back(BYTES_MAX * 2);
        assert!(budget.room() >= 1);
    }
}
