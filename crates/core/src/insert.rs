//! What a store is given to keep, and what became of that.

use crate::{Attempt, DeadReason, Record, State, StoredMessage, Timestamp};

/// One message to take.
#[derive(Debug, Clone)]
pub struct Insert {
    /// The message.
    pub message: StoredMessage,
    /// Whether Duly made the id: then it is new, and need not be looked for.
    pub id_is_generated: bool,
    /// What happened to the message in another store before; `None`: it is new. Boxed, as hardly any insert has one.
    pub past: Option<Box<Past>>,
}

impl Insert {
    /// A new message, whose id may be known.
    pub fn new(message: StoredMessage) -> Self {
        Self { message, id_is_generated: false, past: None }
    }

    /// A message as another store has it: pending, or a dead letter if it is one there.
    pub fn moved(record: Record) -> Self {
        let Record { message, state, accepted, ready, attempts, history, maybe_delivered, .. } = record;
        let reason = record.reason.unwrap_or(DeadReason::Exhausted);
        let dead = (state == State::Dead).then(|| (reason, record.ended.unwrap_or(ready)));
        let past = Past { accepted, attempts, history, maybe_delivered, dead };
        Self { past: Some(Box::new(past)), ..Self::new(message) }
    }

    /// Whether it comes as a dead letter, so that it does not wait.
    pub fn is_dead(&self) -> bool {
        self.past.as_ref().is_some_and(|past| past.dead.is_some())
    }

    /// The record that the store keeps of it, if it is accepted at `now`.
    pub fn into_record(self, now: Timestamp) -> Record {
        let record = Record::accepted(self.message, Some(now));
        match self.past {
            Some(past) => past.into_record(record),
            None => record,
        }
    }
}

/// What happened to a message before it was inserted: how it is moved between stores.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Past {
    /// When it was accepted; if that is unknown, the time of the insert counts.
    pub accepted: Option<Timestamp>,
    /// Tries that count.
    pub attempts: u32,
    /// The latest tries, oldest first; of more than [`Attempt::KEPT_MAX`], the latest are kept.
    pub history: Vec<Attempt>,
    /// An earlier try may have arrived.
    pub maybe_delivered: bool,
    /// Why and when it was given up: it is inserted as a dead letter.
    pub dead: Option<(DeadReason, Timestamp)>,
}

impl Past {
    /// The record of a message that has this past.
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

/// What became of an insert.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Inserted {
    /// Durable.
    Accepted,
    /// Known with the same content: nothing changed. The first one's time and state.
    Duplicate {
        /// When the first one is or was due.
        due: Timestamp,
        /// Where the first one stands.
        state: State,
    },
    /// The id is known with other content: nothing changed.
    Conflict,
}
