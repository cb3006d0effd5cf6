//! Delayed messages that are never early and never lost.

mod builder;
mod clock;
mod duly;
mod engine;
mod error;
mod events;
mod handle;
mod lateness;
mod levels;
mod manage;
mod message;
mod open;
mod options;
mod queue;
mod spans;
mod task;
mod tasks;

pub use builder::Builder;
pub use clock::{ManualClock, SystemClock};
pub use duly::{Accepted, Duly, Named};
pub use error::Error;
pub use events::{Event, Events, Stats};
pub use handle::Handling;
pub use lateness::Quantiles;
pub use levels::Levels;
pub use message::Message;
pub use options::{HandlerOptions, SinkOptions};
pub use queue::{Receive, Received};
pub use spans::{days, hours, millis, minutes, seconds};
pub use task::{Answer, Handled, Task};

pub use duly_core::{
    Backoff, Body, Clock, DeadReason, Delivery, Invalid, Lane, Limits, MessageId, Outcome, Properties,
    Record, RetryOverride, RetryPolicy, Sink, SinkError, SinkErrorKind, State, Store, Timestamp, parse_delay,
    parse_time,
    schedule::{Pace, Rate},
    store::{Books, Changed, Durability, LaneStatus, Page, Query, Settled, StoreError, StoreErrorKind},
};
