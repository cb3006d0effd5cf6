//! Paces each destination by its confirms. RabbitMQ stops reading from a connection when one of its queues stalls, so unconfirmed
//! messages must not pile up: a single silent queue would stall all others.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use duly_core::Monotonic;

/// Unconfirmed for this long: the destination is paused.
pub(super) const OVERDUE: Duration = Duration::from_millis(250);
/// Interval of trial messages to a paused destination.
const TRY_EVERY: Duration = Duration::from_secs(1);

/// By the hash of the destination. Only destinations with unconfirmed messages are in it.
#[derive(Default)]
pub(super) struct ConfirmPace(Mutex<HashMap<u64, ConfirmProgress>>);

struct ConfirmProgress {
    under_way: usize,
    /// When it last confirmed, or when the first unconfirmed message was sent.
    progress: Monotonic,
    last_sent: Monotonic,
}

/// Whether a message may go now.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PublishDecision {
    Send,
    Wait,
}

impl ConfirmPace {
    pub(super) fn decide(&self, destination: u64, now: Monotonic) -> PublishDecision {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let Some(state) = all.get_mut(&destination) else { return PublishDecision::Send };
        let is_overdue = now.since(state.progress) > OVERDUE;
        if is_overdue && now.since(state.last_sent) < TRY_EVERY {
            return PublishDecision::Wait;
        }
        state.last_sent = now;
        PublishDecision::Send
    }

    /// Whether the destination has unconfirmed messages and is overdue.
    pub(super) fn is_overdue(&self, destination: u64, now: Monotonic) -> bool {
        let all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.get(&destination).is_some_and(|state| now.since(state.progress) > OVERDUE)
    }

    /// Counts a message as unconfirmed until the slot is dropped.
    pub(super) fn sent(self: &Arc<Self>, destination: u64, now: Monotonic) -> Slot {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let state =
            all.entry(destination).or_insert(ConfirmProgress { under_way: 0, progress: now, last_sent: now });
        state.under_way += 1;
        state.last_sent = now;
        Slot { confirm_pace: self.clone(), destination }
    }
}

pub(super) struct Slot {
    confirm_pace: Arc<ConfirmPace>,
    destination: u64,
}

impl Slot {
    /// The destination confirmed or rejected the message.
    pub(super) fn answered(self, now: Monotonic) {
        let mut all = self.confirm_pace.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = all.get_mut(&self.destination) {
            state.progress = now;
        }
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        let mut all = self.confirm_pace.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = all.get_mut(&self.destination) {
            state.under_way -= 1;
            if state.under_way == 0 {
                all.remove(&self.destination);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_destination_that_confirms_nothing_gets_one_message_in_a_while() {
        let confirm_pace = Arc::new(ConfirmPace::default());
        let at = |millis| Monotonic::default().saturating_add(Duration::from_millis(millis));
        let slots: Vec<_> = (0..3).map(|_| confirm_pace.sent(1, at(0))).collect();
        assert_eq!(confirm_pace.decide(1, at(200)), PublishDecision::Send);
        assert_eq!(confirm_pace.decide(1, at(600)), PublishDecision::Wait);
        assert_eq!(confirm_pace.decide(2, at(600)), PublishDecision::Send, "others are not affected");
        assert_eq!(confirm_pace.decide(1, at(1_300)), PublishDecision::Send, "one shows whether it is back");
        assert_eq!(confirm_pace.decide(1, at(1_301)), PublishDecision::Wait);
        let mut slots = slots.into_iter();
        slots.next().unwrap().answered(at(1_400));
        assert_eq!(confirm_pace.decide(1, at(1_500)), PublishDecision::Send, "it confirms again");
        drop(slots);
        assert!(confirm_pace.0.lock().unwrap().is_empty(), "nothing is kept of what has nothing under way");
    }
}
