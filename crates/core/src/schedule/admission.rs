//! What becomes of a message by the state of its destination.

use crate::{Attempt, Outcome, Timestamp};

/// A message that needs a slot.
#[derive(Debug, Clone, Copy)]
pub(super) struct Candidate {
    pub(super) destination: u64,
    /// It is sent in a call of its own.
    pub(super) is_alone: bool,
    /// It is a suspect: it may have killed a process.
    pub(super) is_suspect: bool,
}

/// A message that is not sent now; no attempt counts.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Deferral {
    pub(super) at: Timestamp,
    pub(super) outcome: Outcome,
    pub(super) detail: String,
}

/// What to do with a message, by the state of its destination.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Admission {
    /// Send it, perhaps as the trial of its destination.
    Go {
        is_trial: bool,
        is_newcomer: bool,
    },
    /// Keep it until its destination, or newcomers have a free slot.
    Park {
        is_newcomer: bool,
    },
    Defer(Deferral),
    /// It would be denied like several before: fail it without a call.
    Deny {
        detail: String,
    },
}

/// The detail of a deferral because all slots of the destination are taken.
pub(super) fn busy_detail() -> String {
    not_sent("the destination has as many messages under way as it may have")
}

/// The detail of a deferral because all slots of newcomers are taken.
pub(super) fn newcomers_detail() -> String {
    not_sent("destinations that have not answered of late have as many messages under way as they may have")
}

/// The detail of a message that was not sent, because of `why`.
pub(super) fn not_sent(why: &str) -> String {
    format!("{}{why}", Attempt::DEFERRED_DETAIL_PREFIX)
}
