//! The domain of Duly: messages, the ports for stores, sinks and clocks, and the scheduler.
//!
//! Nothing in this crate does I/O, reads a clock or draws a random number. Read it in the order of a message's life:
//!
//! 1. [`StoredMessage`] and its validated parts ([`MessageId`], [`SinkName`], [`Topic`], [`Body`] …), bounded by [`Limits`];
//! 2. [`Store`], the port behind which it waits, divided into [`Lane`]s;
//! 3. [`schedule`], the pure value that decides when to claim, deliver, retry or give up;
//! 4. [`Sink`], the port through which it leaves;
//! 5. [`Clock`], the only source of time.

mod budget;
mod cause;
mod clock;
mod content;
mod durability;
mod error_code;
mod health;
mod histogram;
mod id;
mod in_store_delivery;
mod insert;
mod invalid;
mod limits;
mod message;
mod names;
mod node;
mod pattern;
mod receipt;
mod record;
mod retry;
pub mod schedule;
pub mod secret;
mod shard_assignment;
mod sink;
mod status;
pub mod store;
mod store_error;
mod time;
mod time_text;
mod verdict;

pub use cause::Cause;
pub use clock::{Clock, Sleep};
pub use content::{Body, ContentKind, Properties};
pub use error_code::ErrorCode;
pub use histogram::{Histogram, HistogramSnapshot};
pub use id::MessageId;
pub use in_store_delivery::{InStoreDelivered, InStoreDelivery, InStoreMessage, Remaining};
pub use invalid::Invalid;
pub use limits::Limits;
pub use message::{Priority, StoredMessage};
pub use names::{Key, Lane, SinkName, Tag, Topic};
pub use node::{NodeStatus, ShardOwner, ShardStatus};
pub use pattern::{TopicPatterns, matches_pattern};
pub use receipt::Receipt;
pub use record::{Attempt, DeadReason, LeaseLoss, Outcome, Record, State};
pub use retry::{Backoff, RetryOverride, RetryPolicy};
pub use secret::Secret;
pub use shard_assignment::assign_shards;
pub use sink::{Delivery, DeliveryResult, ErrorScope, Fence, Outcomes, Sink, SinkError, SinkErrorKind};
pub use store::Store;
pub use time::{Monotonic, Now, Timestamp};
pub use time_text::{parse_delay, parse_time};
pub use verdict::Verdict;
