//! Inserts and their results.

use crate::{Attempt, DeadReason, Record, State, StoredMessage, Timestamp};

/// One message to insert.
#[derive(Debug, Clone)]
pub struct Insert {
    /// The message.
    pub message: StoredMessage,
    /// Whether Duly generated the id: then it is new, and no lookup is needed.
    pub id_is_generated: bool,
    /// Its history in another store; `None`: it is new. Boxed, because few inserts have one.
    pub past: Option<Box<Past>>,
}

impl Insert {
    /// A new message with a client's id.
    pub fn new(message: StoredMessage) -> Self {
        Self { message, id_is_generated: false, past: None }
    }

    /// A message of another store: pending, or a dead letter if it is one there.
    pub fn moved(record: Record) -> Self {
        let Record { message, state, accepted, ready, attempts, history, maybe_delivered, .. } = record;
        let reason = record.reason.unwrap_or(DeadReason::Exhausted);
        let dead = (state == State::Dead).then(|| (reason, record.ended.unwrap_or(ready)));
        let past = Past { accepted, attempts, history, maybe_delivered, dead };
        Self { past: Some(Box::new(past)), ..Self::new(message) }
    }

    /// Whether it is inserted as a dead letter.
    pub fn is_dead(&self) -> bool {
        self.past.as_ref().is_some_and(|past| past.dead.is_some())
    }

    /// The record of the message, if it is accepted at `now`.
    pub fn into_record(self, now: Timestamp) -> Record {
        let record = Record::accepted(self.message, Some(now));
        match self.past {
            Some(past) => past.into_record(record),
            None => record,
        }
    }
}

/// The history of a message that is moved between stores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    /// When it was accepted; if unknown, the time of the insert.
    pub accepted: Option<Timestamp>,
    /// Attempts that count.
    pub attempts: u32,
    /// The latest attempts, oldest first, at most [`Attempt::KEPT_MAX`].
    pub history: Vec<Attempt>,
    /// Whether an earlier attempt may have arrived.
    pub maybe_delivered: bool,
    /// Reason and time, if it is inserted as a dead letter.
    pub dead: Option<(DeadReason, Timestamp)>,
}

impl Past {
    /// The record of a message with this history.
    fn into_record(self, new: Record) -> Record {
        let Self { accepted, attempts, mut history, maybe_delivered, dead } = self;
        history.drain(..history.len().saturating_sub(Attempt::KEPT_MAX));
        let history =
            history.into_iter().map(|Attempt { at, outcome, detail }| Attempt::new(at, outcome, detail));
        Record {
            state: if dead.is_some() { State::Dead } else { State::Pending },
            accepted: accepted.or(new.accepted),
            attempts,
            history: history.collect(),
            maybe_delivered,
            ended: dead.map(|(_, at)| at),
            reason: dead.map(|(reason, _)| reason),
            ..new
        }
    }
}

/// The result of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// Durable.
    Accepted,
    /// The id is known with the same content: nothing changed. Due time and state are those of the first message.
    Duplicate {
        /// The due time of the first message.
        due: Timestamp,
        /// The state of the first message.
        state: State,
    },
    /// The id is known with other content: nothing changed.
    Conflict,
}
