//! What the scheduler is told.

use std::time::Duration;

use super::{DeliveryKey, DeliveryTerms, Job, LaneKey, LaneSettings};
use crate::{ErrorScope, Monotonic, Outcome, SinkError, Timestamp};

/// Something happened.
#[derive(Debug, Clone)]
pub enum Event {
    /// Time went by.
    Tick,
    /// Serve a lane from now on.
    LaneAdded {
        /// Its name between the two.
        lane: LaneKey,
        /// How to serve it.
        settings: LaneSettings,
        /// Whether an operator paused it before.
        paused: bool,
    },
    /// Serve a lane no more: what runs may finish until `grace_end`, the rest is handed back.
    LaneStopped {
        /// Which.
        lane: LaneKey,
        /// When what still runs is given up.
        grace_end: Monotonic,
    },
    /// The same for every lane.
    Shutdown {
        /// When what still runs is given up.
        grace_end: Monotonic,
    },
    /// Something of the lane is due at `due`. May be lost, may be wrong.
    Hint {
        /// Where.
        lane: LaneKey,
        /// When.
        due: Timestamp,
    },
    /// A claim was answered.
    Claimed {
        /// For whom.
        lane: LaneKey,
        /// What came, in order.
        taken: Vec<ClaimedJob>,
        /// How many more were due and are delivered already: the store moved them by itself.
        moved: usize,
        /// Nothing else is due before then.
        next: Option<Timestamp>,
        /// When it was asked: leases run from here.
        asked: Monotonic,
    },
    /// A claim failed in the store.
    ClaimFailed {
        /// For whom.
        lane: LaneKey,
    },
    /// Outcomes of a delivery are known.
    Delivered {
        /// Which.
        delivery: DeliveryKey,
        /// How messages ended, each with its index among the jobs of the delivery. The first end of a message stands.
        ends: Vec<(usize, AttemptResult)>,
        /// Whether the delivery is over: what has no end yet gets none.
        is_over: bool,
    },
    /// A settle was answered.
    Settled {
        /// Which.
        settle: u64,
        /// Those whose lease had ended before: nothing changed for them.
        lost: Vec<Job>,
    },
    /// A settle failed in the store.
    SettleFailed {
        /// Which.
        settle: u64,
    },
    /// Leases were renewed.
    Extended {
        /// Whose.
        jobs: Vec<Job>,
        /// Those of them whose lease had ended before.
        lost: Vec<Job>,
        /// When it was asked: the leases run from here.
        asked: Monotonic,
    },
    /// The sweep was answered.
    Swept {
        /// Per lane: nothing due before then.
        next: Vec<(LaneKey, Timestamp)>,
        /// How many leases had run out.
        leases_ended: usize,
        /// When the next lease runs out.
        next_lease_end: Option<Monotonic>,
        /// The store wants to be swept again within this span.
        again_within: Option<Duration>,
        /// The lanes that are paused, if another node may have paused or resumed them.
        paused: Option<Vec<LaneKey>>,
    },
    /// The sweep failed in the store.
    SweepFailed,
    /// A probe was answered.
    Probed {
        /// Which lane's.
        lane: LaneKey,
        /// What the target said.
        result: Result<(), SinkError>,
    },
    /// An operator wants the target tried now rather than at the breaker's next time.
    ProbeNow {
        /// Which lane's.
        lane: LaneKey,
    },
    /// An operator paused the lane.
    Paused {
        /// Which.
        lane: LaneKey,
    },
    /// An operator resumed the lane.
    Resumed {
        /// Which.
        lane: LaneKey,
    },
}

/// A claimed message, as much of it as the scheduler needs.
#[derive(Debug, Clone)]
pub struct ClaimedJob {
    /// Its name between scheduler and runtime.
    pub job: Job,
    /// What decides about it.
    pub terms: DeliveryTerms,
}

/// How the delivery of one message ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum AttemptResult {
    /// The target or handler took it.
    Delivered {
        /// What the target gave as proof.
        receipt: Option<String>,
    },
    /// It did not.
    Failed {
        /// Why, by kind. Never [`Outcome::Delivered`].
        outcome: Outcome,
        /// Why, in words.
        detail: String,
        /// When the target wants to be asked again.
        retry_after: Option<Duration>,
        /// How much of the target it is about.
        scope: ErrorScope,
    },
}

impl AttemptResult {
    /// A failure with no wish for a time.
    pub fn failed(outcome: Outcome, detail: impl Into<String>) -> Self {
        let scope = if outcome == Outcome::Denied { ErrorScope::Destination } else { ErrorScope::Target };
        Self::Failed { outcome, detail: detail.into(), retry_after: None, scope }
    }

    /// Whether both failed in the same words.
    pub(super) fn says_the_same(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Failed { outcome, detail, .. }, Self::Failed { outcome: other, detail: words, .. }) => {
                outcome == other && detail == words
            }
            _ => false,
        }
    }

    /// No answer from the destination in time.
    pub(super) fn silent(detail: impl Into<String>) -> Self {
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
