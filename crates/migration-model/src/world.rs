//! What the model is about: messages at two stores, the calls of a move, and what others do.

use std::collections::BTreeSet;

use duly_core::{MessageId, Record, SinkName, State, StoredMessage, Timestamp, Topic, store::Changed};

pub(crate) const DUE: Timestamp = Timestamp::from_millis(1_000);
/// The instant of every cancel by somebody else.
pub(crate) const OTHERS: u8 = 100;
/// How often an id is sent: the first message, and another after a cancel.
pub(crate) const CONTENTS: usize = 2;

/// One id at both stores.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Both {
    pub(crate) source: Source,
    /// Which of the messages with this id the source has.
    pub(crate) content: usize,
    /// Whether that was tried.
    pub(crate) tried: bool,
    pub(crate) target: Target,
    /// The same of what the target has.
    pub(crate) copy: usize,
    pub(crate) copy_tried: bool,
    /// Somebody made a dead letter pending again.
    pub(crate) replayed: bool,
    pub(crate) messages: [Ledger; CONTENTS],
}

/// What senders of a message were answered, and what became of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub(crate) struct Ledger {
    pub(crate) deliveries: u8,
    pub(crate) is_cancelled: bool,
    /// A call of the move that was about an earlier message with its id met this one: calls name nothing but the id.
    pub(crate) was_mistaken: bool,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Source {
    Pending,
    InFlight,
    Delivered,
    Dead,
    Cancelled(u8),
    /// Purged, or past retention.
    Unknown,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Target {
    None,
    Parked,
    Live,
    Delivered,
    Withdrawn,
    Dead,
}

/// A call of the move about one message; what it was read as, where that matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) enum MigrationCall {
    Park(usize, usize, bool),
    Cancel(usize, u8, usize),
    Live(usize),
    Drop(usize),
    /// Names a dead letter at the target.
    Mark(usize),
    CopyDead(usize, usize),
    Purge(usize, usize),
    PurgeCopy(usize),
    Unmark(usize),
}

#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct World {
    pub(crate) messages: Vec<Both>,
    /// The instants that markers at the target stand for.
    pub(crate) markers: BTreeSet<u8>,
    /// The dead letters that markers at the target name.
    pub(crate) marked: BTreeSet<usize>,
    /// The same, as far as the process knows them.
    pub(crate) unfinished: BTreeSet<usize>,
    /// The instant of the next batch.
    pub(crate) next: u8,
    pub(crate) tool: super::model::Tool,
    /// Calls that nobody heard of any more: each may still be done, or never.
    pub(crate) late: BTreeSet<MigrationCall>,
    /// The process reckons with such calls.
    pub(crate) may_come_late: bool,
    /// A run has begun and was not ended.
    pub(crate) has_begun: bool,
    pub(crate) faults: u8,
    pub(crate) crashes: u8,
}

impl World {
    pub(crate) fn do_it(&mut self, call: MigrationCall) {
        match call {
            MigrationCall::Mark(i) => _ = self.marked.insert(i),
            MigrationCall::Unmark(i) => _ = self.marked.remove(&i),
            MigrationCall::Park(i, ..)
            | MigrationCall::Cancel(i, ..)
            | MigrationCall::Live(i)
            | MigrationCall::Drop(i) => self.messages[i].do_it(call),
            MigrationCall::CopyDead(i, _) | MigrationCall::Purge(i, _) | MigrationCall::PurgeCopy(i) => {
                self.messages[i].do_it(call)
            }
        }
    }
}

impl Both {
    pub(crate) fn new() -> Self {
        Self {
            source: Source::Pending,
            content: 0,
            tried: false,
            target: Target::None,
            copy: 0,
            copy_tried: false,
            replayed: false,
            messages: [Ledger::default(); CONTENTS],
        }
    }

    fn do_it(&mut self, call: MigrationCall) {
        match (call, self.source, self.target) {
            (MigrationCall::Park(_, content, tried), _, Target::None | Target::Withdrawn) => {
                (self.target, self.copy, self.copy_tried) = (Target::Parked, content, tried);
            }
            (MigrationCall::Cancel(_, at, content), Source::Pending, _) => {
                self.source = Source::Cancelled(at);
                self.messages[self.content].was_mistaken |= content != self.content;
            }
            (MigrationCall::Live(_), _, Target::Parked) => self.target = Target::Live,
            (MigrationCall::Drop(_), _, Target::Parked | Target::Live) => self.target = Target::Withdrawn,
            (MigrationCall::CopyDead(_, content), _, Target::None | Target::Withdrawn) => {
                (self.target, self.copy, self.copy_tried) = (Target::Dead, content, true);
            }
            (MigrationCall::Purge(_, content), Source::Dead, _) => {
                self.source = Source::Unknown;
                self.messages[self.content].was_mistaken |= content != self.content;
            }
            (MigrationCall::PurgeCopy(_), _, Target::Dead) => self.target = Target::None,
            _ => {}
        }
    }

    /// What the source knows of it.
    pub(crate) fn record(&self) -> Option<Record> {
        let (id, topic) = (MessageId::parse("a").unwrap(), Topic::parse("order").unwrap());
        let message = StoredMessage::new(id, SinkName::queue(), topic, DUE);
        let (state, ended) = match self.source {
            Source::Pending => (State::Pending, None),
            Source::InFlight => (State::InFlight, None),
            Source::Delivered => (State::Delivered, Some(DUE)),
            Source::Dead => (State::Dead, Some(DUE)),
            Source::Cancelled(at) => (State::Cancelled, Some(Timestamp::from_millis(at.into()))),
            Source::Unknown => return None,
        };
        let mut record = Record::accepted(message, accepted(self.content));
        (record.state, record.ended) = (state, ended);
        Some(record)
    }

    /// The source's answer to a call that changes what is in the state `from`, before it is done.
    pub(crate) fn answer(&self, from: State) -> Changed {
        match self.record().map(|record| record.state) {
            None => Changed::Unknown,
            Some(state) if state == from => Changed::Done { maybe_delivered: false },
            Some(state) => Changed::TooLate(state),
        }
    }

    /// Whether the target takes a copy with this id.
    pub(crate) fn is_free(&self) -> bool {
        matches!(self.target, Target::None | Target::Withdrawn)
    }

    /// Whether the target has what the source has.
    pub(crate) fn is_same(&self) -> bool {
        self.copy == self.content
    }

    pub(crate) fn is_open_at_source(&self) -> bool {
        matches!(self.source, Source::Pending | Source::InFlight)
    }

    /// Whether a message with this id is over or somewhere, or was met by a call that was about another.
    pub(crate) fn is_kept(&self, content: usize) -> bool {
        let Ledger { deliveries, is_cancelled, was_mistaken } = self.messages[content];
        let is_at_source =
            content == self.content && (self.is_open_at_source() || self.source == Source::Dead);
        let is_at_target =
            content == self.copy && matches!(self.target, Target::Parked | Target::Live | Target::Dead);
        let is_sent = content <= self.content;
        !is_sent || is_cancelled || deliveries > 0 || was_mistaken || is_at_source || is_at_target
    }
}

/// When a message was accepted.
pub(crate) fn accepted(content: usize) -> Option<Timestamp> {
    Some(Timestamp::from_millis(content as u64 + 1))
}
