//! The memory budget of a lane's claimed messages.

/// About how many bytes of bodies and properties one lane holds. A claim cannot know the size of its messages in
/// advance, so that one claim of larger messages may exceed it.
const BYTES_MAX: usize = 64 << 20;
/// The assumed size of the first message.
const TYPICAL_BYTES: usize = 16 << 10;

#[derive(Debug)]
pub(super) struct Budget {
    held: usize,
    /// Moving average of message sizes.
    typical: usize,
}

impl Default for Budget {
    fn default() -> Self {
        Self { held: 0, typical: TYPICAL_BYTES }
    }
}

impl Budget {
    pub(super) fn take(&mut self, bytes: usize) {
        self.held += bytes;
        self.typical = (self.typical * 7 + bytes).div_ceil(8);
    }

    pub(super) fn release(&mut self, bytes: usize) {
        self.held = self.held.saturating_sub(bytes);
    }

    /// About how many more messages fit. At least one if none is held.
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
            budget.release(1 << 20);
        }
        assert!((40..=100).contains(&budget.room()), "{}", budget.room());
    }

    #[test]
    fn a_message_larger_than_the_budget_goes_alone() {
        let mut budget = Budget::default();
        budget.take(BYTES_MAX * 2);
        assert_eq!(budget.room(), 0);
        budget.release(BYTES_MAX * 2);
        assert!(budget.room() >= 1);
    }
}
