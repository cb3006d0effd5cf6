//! The scheduler: a pure value that decides when to claim, deliver, retry or give up.
//!
//! [`Scheduler::step`] takes the time and one [`Event`], and pushes the [`Action`]s that a runtime performs. The result
//! of each action comes back as an event. Nothing here does I/O, reads a clock or waits, so that a test runs a day of
//! traffic in a millisecond.
//!
//! Per lane the scheduler knows only a lower bound of the next due time. At that time it asks the store, which alone
//! knows what is due. Wake-ups are hints; the [sweep](SweepSettings) is the truth.

mod action;
mod admission;
mod answers;
mod breaker;
mod budget;
mod call;
mod call_timeouts;
mod claim_timing;
mod claims;
mod deliver;
mod destination;
mod destinations;
mod event;
mod gate;
mod lane;
mod lease;
mod newcomers;
mod random;
mod rate;
mod scheduler;
mod settings;
mod settle_queue;
mod settlement;
mod stop;
mod suspect;
mod sweep;
mod triage;
mod wheel;

#[cfg(test)]
mod tests;

pub use action::{Action, Report};
pub use event::{AttemptResult, ClaimedJob, Event};
pub use lane::{BreakerState, LaneSnapshot};
pub use random::Random;
pub use scheduler::Scheduler;
pub use settings::{LaneSettings, LaneWorker, Rate, Settings};
pub use settlement::settlement_of;
pub use sweep::SweepSettings;
pub use triage::{DeliveryTerms, Triage, triage, wait_after_loss};

/// The number of a lane between the scheduler and its runtime.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct LaneKey(pub u32);

/// The key of a claimed message. The runtime keeps the message, the scheduler its key.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Job {
    /// The lane.
    pub lane: LaneKey,
    /// Never used twice by one runtime.
    pub serial: u64,
}

/// One call of a sink or a handler.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct DeliveryKey {
    /// The lane.
    pub lane: LaneKey,
    /// Never used twice by one scheduler.
    pub serial: u64,
}
