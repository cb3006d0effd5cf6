//! What the scheduler wants done.

use std::{sync::Arc, time::Duration};

use super::{DeliveryKey, Job, LaneKey};
use crate::{Monotonic, store::Settlement};

/// Something to do. Each is answered by an [`Event`](super::Event), unless it says otherwise.
#[derive(Debug, Clone)]
pub enum Action {
    /// Claim from the lane.
    Claim {
        /// Where.
        lane: LaneKey,
        /// Claim at most so many.
        limit: usize,
        /// Before that, let the store move up to so many by itself; all in all no more than the larger of the two.
        movable: usize,
        /// For how long.
        lease: Duration,
    },
    /// Hand these to the lane's sink or handler, as one call.
    Deliver {
        /// The call's name.
        delivery: DeliveryKey,
        /// What to hand over, in order.
        jobs: Vec<Job>,
    },
    /// The call took too long: end it. Unanswered; its result is ignored.
    Abandon {
        /// Which.
        delivery: DeliveryKey,
    },
    /// End these claims.
    Settle {
        /// The settle's name.
        settle: u64,
        /// What ends, and how.
        batch: Arc<[(Job, Settlement)]>,
    },
    /// Renew these leases.
    Extend {
        /// Whose.
        jobs: Vec<Job>,
        /// For how long.
        lease: Duration,
    },
    /// These are no longer ours: whoever works on them should know. Unanswered.
    Forget {
        /// Which.
        jobs: Vec<Job>,
    },
    /// Sweep these lanes.
    Sweep {
        /// Which.
        lanes: Vec<LaneKey>,
    },
    /// Ask the lane's sink whether its target could take messages.
    Probe {
        /// Which.
        lane: LaneKey,
    },
    /// The lane is served no more and holds nothing. Unanswered.
    LaneRemoved {
        /// Which.
        lane: LaneKey,
    },
    /// Tell people. Unanswered.
    Report(Report),
}

/// Something that people should hear of.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Wall time stepped against monotonic time.
    ClockJumped {
        /// By how much; negative: backwards.
        by_us: i64,
    },
    /// The target of a lane is away: deliveries wait.
    BreakerOpened {
        /// Which lane.
        lane: LaneKey,
        /// When it is tried again.
        until: Monotonic,
        /// What the target said.
        detail: String,
    },
    /// The target of a lane is back.
    BreakerClosed {
        /// Which lane.
        lane: LaneKey,
    },
    /// A destination inside the target of a lane is away: its messages wait, the others go on.
    DestinationOpened {
        /// The message that showed it, still in hand.
        job: Job,
        /// Which destination, by its [key](super::DeliveryTerms::destination).
        destination: u64,
        /// When it is tried again.
        until: Monotonic,
        /// What the target said.
        detail: String,
    },
    /// A destination takes messages again.
    DestinationClosed {
        /// The message that showed it, still in hand.
        job: Job,
        /// Which destination, by its [key](super::DeliveryTerms::destination).
        destination: u64,
    },
    /// Leases ended while the messages were being worked on, or before their outcomes could be recorded: they come
    /// again.
    LeasesLost {
        /// Which lane.
        lane: LaneKey,
        /// How many.
        count: usize,
    },
    /// The store does not answer as it should; it is tried again.
    StoreFailing {
        /// How often in a row.
        times: u32,
    },
}
