//! Delayed messages, never early and never lost, inside your own process.
//!
//! A message is sent now and delivered later: to a handler, to a [receiver](Duly::receive) of the built-in queue, or to
//! a [sink](ports::Sink). Until then it waits in a local folder, synced to disk before [`send`](Duly::send) returns.
//!
//! ```
//! use duly::{Duly, Message, Task, Verdict, millis};
//!
//! # #[tokio::main(flavor = "current_thread")]
//! # async fn main() -> Result<(), Box<dyn std::error::Error>> {
//! # let folder = tempfile::tempdir()?;
//! # let folder = folder.path();
//! let duly = Duly::open(folder).await?;
//!
//! // At its time, every message of the queue `order` comes here.
//! let (done, mut cancelled) = tokio::sync::mpsc::unbounded_channel();
//! duly.handle("order", move |task: Task| {
//!     let done = done.clone();
//!     async move {
//!         let order: u64 = task.json()?;
//!         // ... look whether it is paid, cancel it if not ...
//!         let _ = done.send(order);
//!         Ok::<_, duly::Error>(Verdict::Done)
//!     }
//! })
//! .concurrency(32)
//! .start()
//! .await?;
//!
//! // Fifteen minutes in earnest; here a few milliseconds.
//! let unpaid = duly.send(Message::to("order").json(&42)?.after(millis(20))).await?;
//! let paid = duly.send(Message::to("order").json(&43)?.after(millis(20))).await?;
//! duly.cancel(&paid).await?;
//!
//! assert_eq!(cancelled.recv().await, Some(42));
//! duly.shutdown().await?;
//! # let _ = unpaid;
//! # Ok(())
//! # }
//! ```
//!
//! # Guarantees
//!
//! 1. **Never early**: no attempt begins before the due millisecond of the message.
//! 2. **Never lost**: a message for which `send` returned `Ok` survives what the store [survives](Duly::durability).
//! 3. **At least once**: retried until it is acknowledged, cancelled, or its attempts or lateness limit are used up;
//!    then it is a [dead letter](Duly::dead), kept with its body. An outage of the target uses up no attempts.
//! 4. **Exact cancel**: [`Changed`] says done, too late, or unknown.
//! 5. **Isolation**: every sink and every queue is a lane of its own; one bad target affects no other.
//!
//! # Features
//!
//! One per store, so that nobody compiles a client of a server they do not use: `embedded` (the default: [`Duly::open`], [`Builder::folder`]),
//! `redis`, `sql` (MySQL, MariaDB, PostgreSQL and their `outbox`), `redis_and_mysql`. [`Builder::memory`] is always there.
//!
//! # Where to look
//!
//! | to | see |
//! |---|---|
//! | build, with sinks, levels and limits | [`Duly::builder`], [`Builder`] |
//! | send | [`Message`], [`Duly::send`], [`Duly::send_batch`] |
//! | cancel or reschedule | [`Duly::cancel`], [`Duly::reschedule`], [`Duly::fire`] |
//! | handle in this process | [`Duly::handle`], [`Duly::handle_json`], [`Duly::with_state`], [`Task`], [`Verdict`] |
//! | receive | [`Duly::receive`], [`Duly::ack`], [`Duly::nack`], [`Duly::extend`] |
//! | the plain task calls | [`Duly::add_task`], [`Duly::ready_tasks`], [`Duly::poll_ready_tasks`] |
//! | query | [`Duly::get`], [`Duly::list`], [`Duly::lanes`], [`Duly::totals`], [`Duly::forecast`] |
//! | operate | [`Duly::dead`], [`Duly::replay`], [`Duly::purge`], [`Duly::pause_queue`] |
//! | monitor | [`Duly::events`], [`Duly::stats`], [`Duly::metrics`], [`Duly::health`], [`Duly::failed`] |
//! | trace | spans of the crate `tracing`: `accept`, `claim`, `deliver`, `settle`; [`Builder::tracer`] |
//! | test without waiting | [`ManualClock`], [`Builder::memory`], [`Duly::idle`] |
//! | write a store, a sink or a clock | [`ports`] |

mod builder;
mod clock;
mod counters;
mod duly;
mod engine;
mod error;
mod events;
mod expiry;
mod handle;
mod health;
mod idle;
mod into_message_id;
mod levels;
mod manage;
mod message;
mod nack;
mod options;
mod queue;
mod queue_arguments;
mod receipt_cache;
mod shutdown;
mod spans;
mod stats;
mod store_monitor;
mod task;
mod tasks;
mod topic_guard;
mod trace;

pub use builder::Builder;
pub use clock::{ManualClock, SystemClock};
pub use duly::{Accepted, Duly};
pub use error::Error;
pub use events::{Event, Events};
pub use handle::{HandlerBuilder, WithState};
pub use health::Health;
pub use into_message_id::IntoMessageId;
pub use levels::Levels;
pub use message::Message;
pub use nack::Nack;
pub use options::{HandlerOptions, SinkOptions};
pub use queue::{Receive, Received};
pub use spans::{days, hours, millis, minutes, seconds};
pub use stats::{LaneMetrics, Metrics, Quantiles, Stats};
pub use task::{HandlerResult, Task};
pub use trace::{TraceContext, Tracer};

pub use duly_core::StoredMessage;
pub use duly_stores::MemoryStore;
#[cfg(feature = "sql")]
pub use duly_stores::sql::outbox;

pub use duly_core::{
    Attempt, Backoff, Body, Cause, Clock, ContentKind, DeadReason, ErrorCode, Histogram, HistogramSnapshot,
    Invalid, Key, Lane, Limits, MessageId, NodeStatus, Outcome, Priority, Properties, Record, RetryOverride,
    RetryPolicy, ShardOwner, ShardStatus, SinkName, State, Tag, Timestamp, Topic, TopicPatterns, Verdict,
    matches_pattern, parse_delay, parse_time,
    schedule::{BreakerState, LaneSnapshot, Rate, SweepSettings},
    store::{Changed, Durability, LaneStatus, Page, Query, Settled, StoreError, StoreErrorKind, Totals},
};

/// For authors of stores, sinks and clocks: the ports and their types.
///
/// Users of Duly need none of it. The types of store calls are in [`ports::store`].
pub mod ports {
    pub use duly_core::{
        Clock, Delivery, DeliveryResult, ErrorScope, Fence, InStoreDelivered, InStoreDelivery,
        InStoreMessage, Monotonic, Now, Outcomes, Receipt, Remaining, Sink, SinkError, SinkErrorKind, Sleep,
        Store, store,
    };
}

#[doc(hidden)]
pub use ports::{
    Delivery, DeliveryResult, ErrorScope, Fence, InStoreDelivered, InStoreDelivery, InStoreMessage,
    Monotonic, Now, Outcomes, Remaining, Sink, SinkError, SinkErrorKind, Sleep, Store,
};

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
