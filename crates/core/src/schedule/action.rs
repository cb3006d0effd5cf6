//! Actions: what the scheduler asks the runtime to do.

use std::{sync::Arc, time::Duration};

use super::{DeliveryKey, Job, LaneKey};
use crate::{Monotonic, store::Settlement};

/// An action. Each is answered by an [`Event`](super::Event), unless it says otherwise.
#[derive(Debug, Clone)]
pub enum Action {
    /// Claim from the lane.
    Claim {
        /// The lane.
        lane: LaneKey,
        /// The limit of the claim.
        limit: usize,
        /// Before the claim, the store may deliver up to this many by itself. Claimed and delivered messages together
        /// do not exceed the larger of the two limits.
        in_store_max: usize,
        /// The lease.
        lease: Duration,
    },
    /// Pass these to the lane's sink or handler, as one call.
    Deliver {
        /// The key of the call.
        delivery: DeliveryKey,
        /// The messages, in order.
        jobs: Vec<Job>,
    },
    /// The call timed out: cancel it. Not answered; its result is ignored.
    Abandon {
        /// The call.
        delivery: DeliveryKey,
    },
    /// End these claims.
    Settle {
        /// The number of the settle.
        settle: u64,
        /// The claims, and how each is settled.
        batch: Arc<[(Job, Settlement)]>,
    },
    /// Renew these leases.
    Extend {
        /// The claims.
        jobs: Vec<Job>,
        /// The lease.
        lease: Duration,
    },
    /// The leases of these claims are lost; handlers that run for them are told. Not answered.
    Forget {
        /// The claims.
        jobs: Vec<Job>,
    },
    /// Sweep these lanes.
    Sweep {
        /// The lanes.
        lanes: Vec<LaneKey>,
    },
    /// Ask the lane's sink whether its target could take messages.
    Probe {
        /// The lane.
        lane: LaneKey,
    },
    /// The lane has stopped and holds no claims. Not answered.
    LaneRemoved {
        /// The lane.
        lane: LaneKey,
    },
    /// Log and publish it. Not answered.
    Report(Report),
}

/// Something that operators should know.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Report {
    /// Wall time jumped against monotonic time.
    ClockJumped {
        /// Microseconds; negative is backwards.
        by_us: i64,
    },
    /// The target of a lane is unreachable: deliveries wait.
    BreakerOpened {
        /// The lane.
        lane: LaneKey,
        /// When it is probed or tried again.
        until: Monotonic,
        /// The error of the target.
        detail: String,
    },
    /// The target of a lane has recovered.
    BreakerClosed {
        /// The lane.
        lane: LaneKey,
    },
    /// A destination of the lane is unreachable: its messages wait, others go on.
    DestinationOpened {
        /// The message that showed it, still claimed.
        job: Job,
        /// The destination, by its [key](super::DeliveryTerms::destination).
        destination: u64,
        /// When a message is tried there again.
        until: Monotonic,
        /// The error of the target.
        detail: String,
    },
    /// A destination has recovered.
    DestinationClosed {
        /// The message that showed it, still claimed.
        job: Job,
        /// The destination, by its [key](super::DeliveryTerms::destination).
        destination: u64,
    },
    /// Leases ended before their messages were settled: the messages are delivered again.
    LeasesLost {
        /// The lane.
        lane: LaneKey,
        /// The number of leases.
        count: usize,
    },
    /// Calls of the store fail; they are repeated.
    StoreFailing {
        /// Failures in a row.
        times: u32,
    },
}
