//! Copies that wait at the target until the source has let go of its own, and the marker of a move.
//!
//! A parked copy is an ordinary pending message whose due time lies so far ahead that no node delivers it. How far
//! ahead says when it is due in truth: so nothing but the copy itself is needed to finish it.

use duly::{Body, MessageId, SinkName, Timestamp, Topic};
use duly_core::StoredMessage;
use serde::{Deserialize, Serialize};

use crate::Failure;

/// Milliseconds that are added to the due time of a parked copy: it is due in the year 5138 or later. No other message can be, as the
/// limit of a delay is a hundred years.
const LATER_MS: u64 = 100_000_000_000_000;

/// The id and the topic of the marker.
const MARKER: &str = "duly.migrate-store";
const MARKER_SAYS: &str = "messages are being moved into this store by `duly migrate-store`, or a run of it was cut short: run it again";

/// A due time from here on means that a message is parked.
pub(super) const FIRST: Timestamp = Timestamp::from_millis(LATER_MS);

/// The due time of a parked copy of something due at `due`; `None` if that is itself parked.
pub(super) fn park(due: Timestamp) -> Option<Timestamp> {
    (due < FIRST).then(|| Timestamp::from_millis(due.as_millis() + LATER_MS))
}

/// The real due time of a parked copy; `None` if it is not parked.
pub(super) fn unpark(due: Timestamp) -> Option<Timestamp> {
    due.as_millis().checked_sub(LATER_MS).map(Timestamp::from_millis)
}

/// The markers of a move under way: parked messages at the target.
///
/// One says that a move is under way. Each batch adds one of its own, which is due in truth at the instant of the batch's cancel at
/// the source. What was cancelled there at such an instant was cancelled by the move: the instant lies before the moment at which
/// the message was still seen pending, so nobody else can have done it then. A batch's marker stays until no copy is in doubt: a
/// cancel whose answer got lost may be done long after a later one.
///
/// Before dead letters are copied to the target, a marker names them: each copy there is the move's own until the marker goes.
pub(super) struct Marker {
    id: MessageId,
    topic: Topic,
    /// What the ids of this run's batches begin with: no late call of another run can be about them.
    own: String,
    batches: u64,
}

impl Marker {
    pub(super) fn new(own: &str) -> Result<Self, Failure> {
        let (id, topic) = (MessageId::parse(MARKER).map_err(wrong)?, Topic::parse(MARKER).map_err(wrong)?);
        Ok(Self { id, topic, own: own.to_owned(), batches: 0 })
    }

    pub(super) fn id(&self) -> &MessageId {
        &self.id
    }

    pub(super) fn topic(&self) -> &Topic {
        &self.topic
    }

    /// Whether a parked message is one of the markers. Somebody else's topic may have the same name; ids like theirs are not moved.
    pub(super) fn is(&self, message: &StoredMessage) -> bool {
        message.topic == self.topic && message.sink.is_queue() && self.has_id(&message.id)
    }

    /// Whether an id is that of a marker, of this run or another.
    pub(super) fn has_id(&self, id: &MessageId) -> bool {
        id.as_str().strip_prefix(MARKER).is_some_and(|rest| rest.is_empty() || rest.starts_with('.'))
    }

    /// The marker of the move as it is put there: what was cancelled before, and when, is not known.
    pub(super) fn message(&self) -> StoredMessage {
        self.at(self.id.clone(), FIRST)
    }

    /// The marker of the next batch, which is cancelled at `asked`.
    pub(super) fn of_batch(&mut self, asked: Timestamp) -> Result<StoredMessage, Failure> {
        self.batches += 1;
        let id = MessageId::parse(&format!("{MARKER}.{}{}", self.own, self.batches)).map_err(wrong)?;
        Ok(self.at(id, park(asked).unwrap_or(FIRST)))
    }

    /// The marker of the next batch of dead letters, whose copies the target does not have yet.
    pub(super) fn of_dead(&mut self, ids: &[MessageId]) -> Result<StoredMessage, Failure> {
        self.batches += 1;
        let id = MessageId::parse(&format!("{MARKER}.{}dead-{}", self.own, self.batches)).map_err(wrong)?;
        let dead = ids.iter().map(MessageId::to_string).collect();
        let mut message = self.at(id, FIRST);
        message.body = Body::json(&DeadBatch { says: MARKER_SAYS.into(), dead }).map_err(wrong)?;
        Ok(message)
    }

    /// Whether a marker is that of a batch of dead letters. Those of other batches are due later, the one of the move has another id.
    pub(super) fn is_of_dead(&self, message: &StoredMessage) -> bool {
        self.is(message) && message.due == FIRST && message.id != self.id
    }

    /// The dead letters that a marker names.
    pub(super) fn dead_of(message: &StoredMessage) -> Result<Vec<MessageId>, Failure> {
        let garbled = || Failure::failed(format!("the marker {} does not name its dead letters", message.id));
        let batch: DeadBatch = serde_json::from_slice(message.body.as_bytes()).map_err(|_| garbled())?;
        batch.dead.iter().map(|id| MessageId::parse(id).map_err(|_| garbled())).collect()
    }

    fn at(&self, id: MessageId, due: Timestamp) -> StoredMessage {
        let mut message = StoredMessage::new(id, SinkName::queue(), self.topic.clone(), due);
        message.body = Body::text(MARKER_SAYS);
        message
    }

    /// An instant at which nothing was ever cancelled: from now on, every cancel of the move has a marker.
    pub(super) const NEVER: Timestamp = Timestamp::from_millis(1);

    /// The instant that a marker with this due time stands for, if that is known.
    pub(super) fn asked(due: Timestamp) -> Option<Timestamp> {
        unpark(due).filter(|asked| *asked > Timestamp::default())
    }
}

/// The content of the marker of a batch of dead letters.
#[derive(Debug, Serialize, Deserialize)]
struct DeadBatch {
    says: String,
    dead: Vec<String>,
}

fn wrong(fault: duly::Invalid) -> Failure {
    Failure::failed(fault.to_string())
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
        let mut marker = Marker::new("run-").unwrap();
        assert_eq!(Marker::asked(marker.message().due), None);
        for at in [Marker::NEVER, Timestamp::from_millis(1_794_852_900_123)] {
            let message = marker.of_batch(at).unwrap();
            assert_eq!(Marker::asked(message.due), Some(at));
            assert!(marker.is(&message));
        }
        let mut other = marker.message();
        other.id = MessageId::parse("order-1").unwrap();
        assert!(!marker.is(&other), "a message of the same topic is none");
        let ids = [MessageId::parse("order-1").unwrap(), MessageId::parse("A.b_c:d-9").unwrap()];
        let dead = marker.of_dead(&ids).unwrap();
        assert!(marker.is(&dead) && marker.is_of_dead(&dead) && Marker::asked(dead.due).is_none());
        assert_eq!(Marker::dead_of(&dead).unwrap(), ids);
        assert!(!marker.is_of_dead(&marker.message()));
        let batch = marker.of_batch(Marker::NEVER).unwrap();
        assert!(!marker.is_of_dead(&batch));
        assert_ne!(marker.of_batch(Marker::NEVER).unwrap().id, marker.of_batch(Marker::NEVER).unwrap().id);
    }
}
