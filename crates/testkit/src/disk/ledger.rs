//! What a store answered, written down outside it.

use std::collections::BTreeMap;

use duly_core::{MessageId, State, Timestamp};

/// Where a message may stand.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ExpectedState {
    /// Never accepted, or purged: nothing is known of it.
    Unknown,
    /// Waiting, or claimed and not settled.
    Waiting {
        /// When it is due.
        due: Timestamp,
    },
    /// Delivered, and said so.
    Delivered,
    /// Cancelled, and said so.
    Cancelled,
    /// Given up.
    Dead,
}

impl ExpectedState {
    /// Whether a store that says `state` and `due` tells of this fate.
    pub fn fits(self, seen: Option<(State, Timestamp)>) -> bool {
        match (self, seen) {
            (Self::Unknown, None) => true,
            (Self::Waiting { due }, Some((State::Pending | State::InFlight, at))) => due == at,
            (Self::Delivered, Some((State::Delivered, _)))
            | (Self::Cancelled, Some((State::Cancelled, _)))
            | (Self::Dead, Some((State::Dead, _))) => true,
            _ => false,
        }
    }
}

/// The fates of one message, in order; from the one at `answered` on, all are possible.
#[derive(Debug, Clone)]
struct Life {
    body: String,
    expected_states: Vec<ExpectedState>,
    answered: usize,
}

/// The lives of all messages of a run.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    lives: BTreeMap<MessageId, Life>,
}

impl Ledger {
    /// A message is about to be inserted.
    pub fn offer(&mut self, id: &MessageId, due: Timestamp, body: &str) {
        let fresh =
            Life { body: body.to_owned(), expected_states: vec![ExpectedState::Unknown], answered: 0 };
        let life = self.lives.entry(id.clone()).or_insert(fresh);
        life.body = body.to_owned();
        life.expected_states.push(ExpectedState::Waiting { due });
    }

    /// Something is about to be asked of the store that makes `expected_state` of a message.
    pub fn ask(&mut self, id: &MessageId, expected_state: ExpectedState) {
        self.life(id).expected_states.push(expected_state);
    }

    /// It was answered: done.
    pub fn done(&mut self, id: &MessageId) {
        let life = self.life(id);
        life.answered = life.expected_states.len() - 1;
    }

    /// It was answered: no, nothing changed.
    pub fn refused(&mut self, id: &MessageId) {
        let life = self.life(id);
        life.expected_states.truncate(life.answered + 1);
    }

    /// The fate that was answered last.
    pub fn expected_state(&self, id: &MessageId) -> ExpectedState {
        self.lives[id].expected_states[self.lives[id].answered]
    }

    /// The body it was sent with.
    pub fn body(&self, id: &MessageId) -> &str {
        &self.lives[id].body
    }

    /// Every message ever offered.
    pub fn ids(&self) -> Vec<MessageId> {
        self.lives.keys().cloned().collect()
    }

    /// Checks what a store says of a message that was stopped between `self` and `later`, and goes on from there.
    ///
    /// # Panics
    /// If what was answered is not so.
    pub fn judge(&mut self, later: &Self, id: &MessageId, seen: Option<(State, Timestamp)>) {
        let from = self.lives.get(id).map_or(0, |life| life.answered);
        let life = &later.lives[id];
        // What was answered before is among the possible; so is everything asked since.
        let possible = life.expected_states.get(from..).unwrap_or_default();
        let Some(expected_state) = possible.iter().rev().find(|expected_state| expected_state.fits(seen))
        else {
            panic!(
                "{id} is {seen:?}, and can only be one of {possible:?}; its life: {:?}",
                life.expected_states
            );
        };
        self.lives.insert(
            id.clone(),
            Life { body: life.body.clone(), expected_states: vec![*expected_state], answered: 0 },
        );
    }

    fn life(&mut self, id: &MessageId) -> &mut Life {
        self.lives.get_mut(id).unwrap()
    }
}
