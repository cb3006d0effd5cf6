//! The runtime: one task that performs what the scheduler decides.
//!
//! [`Driver`] owns the scheduler and every claimed message. Calls to the store and to sinks run as tasks of
//! their own and come back as [`Note`]s, so that nothing slow ever holds up the driver. How many there can be
//! is bounded by the limits of the lanes.

mod driver;
mod ends;
mod guard;
mod hints;
mod moving;
mod perform;
mod tell;
mod work;

use std::sync::Arc;

use duly_core::{
    Lane, Monotonic, SinkError,
    schedule::{DeliveryKey, Job, LaneKey, LaneSettings, LaneSnapshot},
    store::{Claimed, Settled, Settlement, StoreError, Sweep},
};
use tokio::sync::oneshot;

pub(crate) use driver::{Driver, Parts};
use ends::Ends;
pub(crate) use hints::Hints;
pub(crate) use work::{Worker, caught, is_in_handler};

/// Something that the driver is told: a wish from outside, or the answer to something it started.
pub(crate) enum Note {
    AddLane {
        lane: Lane,
        settings: LaneSettings,
        worker: Worker,
        paused: bool,
    },
    StopLane {
        lane: Lane,
        grace_end: Monotonic,
        gone: oneshot::Sender<()>,
    },
    Pause {
        lane: Lane,
        paused: bool,
    },
    Probe {
        lane: Lane,
    },
    Look {
        answer: oneshot::Sender<Vec<(Lane, LaneSnapshot)>>,
    },
    Shutdown {
        grace_end: Monotonic,
        gone: oneshot::Sender<()>,
    },
    Claimed {
        lane: LaneKey,
        asked: Monotonic,
        moved: usize,
        result: Result<Claimed, StoreError>,
    },
    /// Ends of a delivery are waiting to be taken.
    Ends {
        ends: Arc<Ends>,
    },
    Delivered {
        delivery: DeliveryKey,
        ends: Arc<Ends>,
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
