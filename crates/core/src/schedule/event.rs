//! Events: the input of the scheduler.

use std::time::Duration;

use super::{DeliveryKey, DeliveryTerms, Job, LaneKey, LaneSettings};
use crate::{ErrorScope, Monotonic, Outcome, SinkError, Timestamp};

/// An event.
#[derive(Debug, Clone)]
pub enum Event {
    /// Time passed.
    Tick,
    /// A lane is served from now on.
    LaneAdded {
        /// Its number.
        lane: LaneKey,
        /// Its settings.
        settings: LaneSettings,
        /// Whether an operator paused it before.
        paused: bool,
    },
    /// A lane is no longer served. Running calls may finish until `grace_end`; other claims are released.
    LaneStopped {
        /// The lane.
        lane: LaneKey,
        /// When running calls are cancelled.
        grace_end: Monotonic,
    },
    /// All lanes are no longer served.
    Shutdown {
        /// When running calls are cancelled.
        grace_end: Monotonic,
    },
    /// A message of the lane is due at `due`. Hints may be lost or wrong.
    Hint {
        /// The lane.
        lane: LaneKey,
        /// The due time.
        due: Timestamp,
    },
    /// A claim was answered.
    Claimed {
        /// The lane.
        lane: LaneKey,
        /// The claimed messages, in order.
        taken: Vec<ClaimedJob>,
        /// Messages that the store delivered by itself.
        delivered_in_store: usize,
        /// Lower bound of the next due time.
        next: Option<Timestamp>,
        /// When the call began: leases count from here.
        requested_at: Monotonic,
    },
    /// A claim failed.
    ClaimFailed {
        /// The lane.
        lane: LaneKey,
    },
    /// Results of a call are known, of deliveries and of failures.
    CallResults {
        /// The call.
        delivery: DeliveryKey,
        /// Results by index into the jobs of the delivery. The first result of a message counts.
        results: Vec<(usize, AttemptResult)>,
        /// Whether the call has ended: messages without a result get none.
        is_over: bool,
    },
    /// A settle was answered.
    Settled {
        /// The settle.
        settle: u64,
        /// Claims whose lease had ended: nothing changed for them.
        lost: Vec<Job>,
    },
    /// A settle failed.
    SettleFailed {
        /// The settle.
        settle: u64,
    },
    /// Leases were renewed.
    Extended {
        /// The claims.
        jobs: Vec<Job>,
        /// Claims whose lease had ended.
        lost: Vec<Job>,
        /// When the call began: the leases count from here.
        requested_at: Monotonic,
    },
    /// A sweep was answered.
    Swept {
        /// Lower bound of the next due time, per lane.
        next: Vec<(LaneKey, Timestamp)>,
        /// Leases that had ended.
        leases_ended: usize,
        /// When the next lease ends.
        next_lease_end: Option<Monotonic>,
        /// The store asks for the next sweep within this time.
        again_within: Option<Duration>,
        /// The paused lanes, if another node may have paused or resumed one.
        paused: Option<Vec<LaneKey>>,
    },
    /// A sweep failed.
    SweepFailed,
    /// A probe was answered.
    Probed {
        /// The lane.
        lane: LaneKey,
        /// The result of the probe.
        result: Result<(), SinkError>,
    },
    /// An operator asks for a probe now.
    ProbeNow {
        /// The lane.
        lane: LaneKey,
    },
    /// An operator paused the lane.
    Paused {
        /// The lane.
        lane: LaneKey,
    },
    /// An operator resumed the lane.
    Resumed {
        /// The lane.
        lane: LaneKey,
    },
}

/// A claimed message, as far as the scheduler needs it.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// Its key.
    pub job: Job,
    /// Its delivery terms.
    pub terms: DeliveryTerms,
}

/// The result of one delivery attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    /// The target or handler took it.
    Delivered {
        /// The acknowledgement of the target.
        receipt: Option<String>,
    },
    /// It failed.
    Failed {
        /// The kind of failure. Never [`Outcome::Delivered`].
        outcome: Outcome,
        /// The error text.
        detail: String,
        /// The wait that the target asked for.
        retry_after: Option<Duration>,
        /// Whether it concerns the target or the destination.
        scope: ErrorScope,
    },
}

impl AttemptResult {
    /// A failure without a wait asked for.
    pub fn failed(outcome: Outcome, detail: impl Into<String>) -> Self {
        let scope = if outcome == Outcome::Denied { ErrorScope::Destination } else { ErrorScope::Target };
        Self::Failed { outcome, detail: detail.into(), retry_after: None, scope }
    }

    /// Whether both failed with the same outcome and text.
    pub(super) fn is_same_failure(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Failed { outcome, detail, .. }, Self::Failed { outcome: other, detail: words, .. }) => {
                outcome == other && detail == words
            }
            _ => false,
        }
    }

    /// The destination did not answer in time.
    pub(super) fn no_answer(detail: impl Into<String>) -> Self {
        let scope = ErrorScope::Destination;
        Self::Failed { outcome: Outcome::Unknown, detail: detail.into(), retry_after: None, scope }
    }
}

impl From<SinkError> for AttemptResult {
    fn from(error: SinkError) -> Self {
        let SinkError { kind, detail, retry_after, scope } = error;
        Self::Failed { outcome: kind.outcome(), detail, retry_after, scope }
    }
}
