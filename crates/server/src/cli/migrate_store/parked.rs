//! Copies that wait at the target until the source has let go of its own, and the marker of a move.
//!
//! A parked copy is an ordinary pending message whose due time lies so far ahead that no node delivers it. How far
//! ahead says when it is due in truth: so nothing but the copy itself is needed to finish it.

use duly::{Body, MessageId, SinkName, Timestamp, Topic};
use duly_core::Message;

use crate::cli::Failure;

/// A parked copy is due so many ms later than in truth: in the year 5138 or after. No message may wait for so long otherwise:
/// the limit of a delay is a hundred years.
const LATER_MS: u64 = 100_000_000_000_000;

/// The id and the topic of the marker.
const MARKER: &str = "duly.migrate-store";
const MARKER_SAYS: &str = "messages are being moved into this store by `duly migrate-store`, or a run of it was cut short: run it again";

/// What is due from here on is parked.
pub(super) const FIRST: Timestamp = Timestamp::from_millis(LATER_MS);

/// The due time of a parked copy of something due at `due`; nothing if that is itself parked.
pub(super) fn park(due: Timestamp) -> Option<Timestamp> {
    (due < FIRST).then(|| Timestamp::from_millis(due.as_millis() + LATER_MS))
}

/// When a parked copy is due in truth; nothing if it is not parked.
pub(super) fn unpark(due: Timestamp) -> Option<Timestamp> {
    due.as_millis().checked_sub(LATER_MS).map(Timestamp::from_millis)
}

/// The marker of a move under way: a parked message at the target, which is due in truth at the instant of the latest cancel
/// at the source. What was cancelled there at that very instant was cancelled by the move: it lies before the moment at which the
/// message was still seen pending, so nobody else can have done it then.
pub(super) struct Marker {
    id: MessageId,
    topic: Topic,
}

impl Marker {
    pub(super) fn new() -> Result<Self, Failure> {
        let wrong = |fault: duly::Invalid| Failure::failed(fault.to_string());
        Ok(Self { id: MessageId::parse(MARKER).map_err(wrong)?, topic: Topic::parse(MARKER).map_err(wrong)? })
    }

    pub(super) fn id(&self) -> &MessageId {
        &self.id
    }

    /// The marker as it is put there: what was cancelled before, and when, is not known.
    pub(super) fn message(&self) -> Message {
        let mut message = Message::new(self.id.clone(), SinkName::queue(), self.topic.clone(), FIRST);
        message.body = Body::text(MARKER_SAYS);
        message
    }

    /// An instant at which nothing was ever cancelled: until the first cancel, everything was somebody else's.
    pub(super) const NEVER: Timestamp = Timestamp::from_millis(1);

    /// The instant that a marker with this due time stands for, if that is known.
    pub(super) fn asked(due: Timestamp) -> Option<Timestamp> {
        unpark(due).filter(|asked| *asked > Timestamp::default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_true_time_comes_back_from_the_parked_one() {
        for ms in [0, 1, 1_794_852_900_123, 6_000_000_000_000, LATER_MS - 1] {
            let due = Timestamp::from_millis(ms);
            let parked = park(due).unwrap();
            assert!(parked >= FIRST && parked <= Timestamp::MAX);
            assert_eq!(unpark(parked), Some(due));
            assert_eq!(unpark(due), None, "{due} is not parked");
        }
        assert_eq!(park(FIRST), None, "what is parked is not parked again");
    }

    #[test]
    fn a_new_marker_knows_no_instant_and_a_marked_one_does() {
        let marker = Marker::new().unwrap();
        assert_eq!(Marker::asked(marker.message().due), None);
        for at in [Marker::NEVER, Timestamp::from_millis(1_794_852_900_123)] {
            assert_eq!(Marker::asked(park(at).unwrap()), Some(at));
        }
    }
}
