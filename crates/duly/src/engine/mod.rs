//! The runtime: one task that performs what the scheduler decides.
//!
//! [`Driver`] owns the scheduler and all claimed messages. Calls of the store and of sinks run as tasks and return as
//! [`Completion`]s, so that nothing slow holds up the driver. Their number is bounded by the limits of the lanes.

mod attempt_results;
mod driver;
mod hints;
mod in_store;
mod outage_log;
mod perform;
mod reply;
mod report;
mod worker;

use std::sync::Arc;

use duly_core::{
    Lane, Monotonic, SinkError,
    schedule::{DeliveryKey, Job, LaneKey, LaneSettings, LaneSnapshot},
    store::{Claimed, Settled, Settlement, StoreError, Sweep},
};
use tokio::sync::oneshot;

use attempt_results::AttemptResults;
pub(crate) use driver::{Driver, EngineHandles};
pub(crate) use hints::Hints;
pub(crate) use worker::{Worker, catch_panic, is_in_handler};

/// An input of the driver.
pub(crate) enum Input {
    Command(Command),
    Completion(Completion),
}

impl From<Command> for Input {
    fn from(command: Command) -> Self {
        Self::Command(command)
    }
}

impl From<Completion> for Input {
    fn from(completion: Completion) -> Self {
        Self::Completion(completion)
    }
}

/// A request of `Duly`.
pub(crate) enum Command {
    AddLane {
        lane: Lane,
        settings: LaneSettings,
        worker: Worker,
        paused: bool,
    },
    StopLane {
        lane: Lane,
        grace_end: Monotonic,
        stopped_tx: oneshot::Sender<()>,
    },
    Pause {
        lane: Lane,
        paused: bool,
    },
    Probe {
        lane: Lane,
    },
    /// Asks for the state of every lane.
    Snapshot {
        answer: oneshot::Sender<Vec<(Lane, LaneSnapshot)>>,
    },
    Shutdown {
        grace_end: Monotonic,
        stopped_tx: oneshot::Sender<()>,
    },
}

/// The result of work that the driver started.
pub(crate) enum Completion {
    Claimed {
        lane: LaneKey,
        requested_at: Monotonic,
        delivered_in_store: usize,
        result: Result<Claimed, StoreError>,
    },
    /// Some results of a call are known.
    CallResults {
        results: Arc<AttemptResults>,
    },
    /// A call has ended; its last results.
    CallEnded {
        delivery: DeliveryKey,
        results: Arc<AttemptResults>,
    },
    Settled {
        settle: u64,
        batch: Arc<[(Job, Settlement)]>,
        result: Result<Vec<Settled>, StoreError>,
    },
    Extended {
        jobs: Vec<Job>,
        requested_at: Monotonic,
        result: Result<Vec<Settled>, StoreError>,
    },
    Swept {
        result: Result<Sweep, StoreError>,
    },
    Probed {
        lane: LaneKey,
        result: Result<(), SinkError>,
    },
}
