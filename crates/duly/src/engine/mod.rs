//! The runtime: one task that performs what the scheduler decides.
//!
//! [`Driver`] owns the scheduler and every claimed message. Calls to the store and to sinks run as tasks of
//! their own and come back as [`Completion`]s, so that nothing slow ever holds up the driver. How many there can be
//! is bounded by the limits of the lanes.

mod attempt_results;
mod driver;
mod hints;
mod in_store;
mod perform;
mod reply;
mod report;
mod work;

use std::sync::Arc;

use duly_core::{
    Lane, Monotonic, SinkError,
    schedule::{DeliveryKey, Job, LaneKey, LaneSettings, LaneSnapshot},
    store::{Claimed, Settled, Settlement, StoreError, Sweep},
};
use tokio::sync::oneshot;

use attempt_results::AttemptResults;
pub(crate) use driver::{Driver, Parts};
pub(crate) use hints::Hints;
pub(crate) use work::{Worker, caught, is_in_handler};

/// What the driver is sent.
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

/// A request from the front of the library.
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
        asked: Monotonic,
        moved: usize,
        result: Result<Claimed, StoreError>,
    },
    /// Some results of a delivery are known.
    Results {
        results: Arc<AttemptResults>,
    },
    Delivered {
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
        asked: Monotonic,
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
