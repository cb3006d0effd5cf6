//! A message queue on Redis Streams: send now or later, typed listeners, retries, dead letters. All it needs is Redis
//! 7.0 or newer.
//!
//! # In five minutes
//!
//! ```no_run
//! use duly_streams::{Entry, Streams};
//! use serde::{Deserialize, Serialize};
//! use std::time::Duration;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order {
//!     number: u64,
//! }
//!
//! # async fn run() -> Result<(), duly_streams::Error> {
//! let streams = Streams::connect("redis://127.0.0.1").await?;
//!
//! // Every process that runs this shares the work: each event is handled by one of them.
//! streams.listener("order.unpaid", |order: Entry<Order>| async move {
//!     println!("order {} was not paid in time", order.value.number);
//!     Ok::<_, std::io::Error>(())
//! })
//! .start()
//! .await?;
//!
//! streams.send("order.placed", &Order { number: 42 }).await?;
//!
//! // With the feature `delayed`: kept in Redis, appended to the stream in fifteen minutes, once.
//! # #[cfg(feature = "delayed")] {
//! let id = streams.delay_send("order.unpaid", &Order { number: 42 }, Duration::from_secs(15 * 60)).await?;
//! streams.cancel(&id).await?; // it was paid
//! # }
//!
//! streams.shutdown().await
//! # }
//! ```
//!
//! **Send** one value and wait for its id ([`send`](Streams::send)), without waiting
//! ([`send_async`](Streams::send_async)), many at once ([`send_batch`](Streams::send_batch)), raw fields
//! ([`send_fields`](Streams::send_fields)), or a [`Message`] with properties and a [`Priority`].
//!
//! **Listen** with an async closure as above, or with a [`Handler`] that blocks, takes batches, or both. The
//! [`Subscription`] has the options: group and consumer ([`subscribe`](Streams::subscribe)), concurrency, a
//! [filter](Subscription::filter), [order](Subscription::ordered_by_field) by key. The attribute
//! [`#[consumer]`](macro@consumer) makes a listener of a function, and shares state with it. A closure, also that of a
//! timer or of an expired key, shares what it has captured: clone an `Arc` into it.
//!
//! **Fail** by returning an error. It counts as an attempt, and the entry is [retried](Retry) while others are handled.
//! After the last attempt it is a dead letter:
//!
//! ```no_run
//! # async fn run(streams: duly_streams::Streams) -> Result<(), duly_streams::Error> {
//! let dead = streams.dead_letters("order.placed")?;
//! for letter in dead.list(None, 100).await? {
//!     println!("{} was tried {} times: {}", letter.original_id, letter.attempts, letter.reason);
//! }
//! let would = dead.replay_all().only(|letter| letter.reason.contains("timeout")).dry_run().run().await?;
//! println!("{} would go back", would.entries.len());
//! dead.replay_all().only(|letter| letter.reason.contains("timeout")).run().await?;
//! # Ok(()) }
//! ```
//!
//! A handler that knows more than "failed" returns a [`Verdict`]; operators [acknowledge, retry or give up](Group) by
//! id.
//!
//! **Configure** all of it by [`Settings`], which serde reads from the configuration of your service.
//!
//! # Guarantees
//!
//! 1. **Each event is one entry.** Two equal values are two entries. A delayed event is appended once, whichever
//!    process dies, and never early.
//! 2. **At least once.** An entry is acknowledged only after the handler returned `Ok`. After an error, a panic, a
//!    [timeout](Settings::processing_timeout) or a crash it is handled again or becomes a dead letter, never both and
//!    never neither. Make handlers idempotent; [`Entry::message_id`] is the same on every copy.
//! 3. **One bad event affects no other.** Only failures of its own handler count, and an entry that kills its process
//!    is found by handling suspects alone.
//! 4. **Never more attempts than the limit**, across restarts and reclaims.
//! 5. **Nothing is trimmed that a group still needs**, unless [configured](Unacknowledged::Drop), and lost entries are
//!    reported.
//! 6. **No order**, unless requested: up to [`concurrency`](Settings::concurrency) events are handled at the same time.
//!
//! The guide "What goes wrong with Redis Streams, and how duly-streams avoids it" (`docs/guide/redis-streams-traps.md`) has the reasons, and a test for
//! each.
//!
//! # Cancel safety
//!
//! The call of a future that is dropped midway may be done or not, as after [`Unanswered`](Error::Unanswered). Every
//! method says under "Cancel safety" what that means for it.
//!
//! # Keys in Redis
//!
//! | key | what it is |
//! |---|---|
//! | `<topic>` | the stream |
//! | `{<topic>}:high`, `{<topic>}:low` | the streams of what was sent with a [`Priority`] |
//! | `<topic>_dlq`, on a Cluster `{<topic>}_dlq` | [dead letters](DeadLetter) |
//! | `{<topic>}:duly-streams:counts:…` | failures and crashes of pending entries |
//! | `{<topic>}:duly-streams:due:…` | entries that wait for a retry, or for others of their key |
//! | `{<topic>}:duly-streams:leader:…`, `{<topic>}:duly-streams:dead-leader:…` | leader of an ordered group, of the topic and of its dead letters |
//! | `duly-streams:timers:{…}:…` | [timers](expiry), and those that were given up |
//!
//! Entries have the fields `body` (JSON), `content-type`, one for each property, `duly-id`, `duly-due` (milliseconds
//! since 1970) and `duly-attempt`, as Duly's sink `redis_streams` writes them. So either may send what the other's
//! users listen to, and so may anybody who can `XADD`. A replayed entry has `duly-group`: only that group handles it.
//!
//! # Metrics
//!
//! Through the [`metrics`] facade, with the labels `topic` and `group`: `duly_streams_backlog`, `duly_streams_lag`, `duly_streams_pending`, `duly_streams_waiting`,
//! `duly_streams_oldest_pending_seconds`, `duly_streams_dead_letters`, `duly_streams_trim_blocked`, `duly_streams_handling_seconds`, `duly_streams_handled_total`,
//! `duly_streams_failures_total`, `duly_streams_dead_letters_total`, `duly_streams_trimmed_unhandled_total`; and by `prefix`, `duly_streams_dead_timers_total`. Install a recorder before listeners start.
//!
//! # Locks, and keys that expire
//!
//! [`lock`] has distributed locks; [`expiry`] calls a handler with expired keys, and has timers that lose nothing.
//!
//! # Which Redis
//!
//! `redis://`, `rediss://`, `redis-cluster://a,b,c`, `redis-sentinel://a,b,c/name`. Delayed events need a Redis that
//! keeps its data: append-only file on, no eviction. On any other, delayed sends are refused unless
//! [`allow_volatile`](Settings::allow_volatile) is set; everything else works.

mod clock;
mod consumer;
mod dead;
#[cfg(feature = "delayed")]
mod delayed;
mod entry;
mod error;
pub mod expiry;
mod group;
mod handler_scope;
mod keys;
mod listen;
pub mod lock;
mod meter;
mod priority;
mod produce;
mod scripts;
mod settings;
mod stop;
mod streams;

pub use consumer::Consumer;
pub use dead::{DeadLetter, DeadLetters, Replay, ReplayFor, Replayed};
#[cfg(feature = "delayed")]
pub use delayed::When;
#[cfg(feature = "delayed")]
pub use duly::{
    Changed, Error as DelayedError, ErrorCode, IntoMessageId, Invalid, State, StoreError, StoreErrorKind,
    Timestamp,
};
pub use duly_core::{Backoff, Cause, MessageId, RetryPolicy, Verdict};
/// Makes a [`Consumer`] of a function.
///
/// ```no_run
/// use duly_streams::{Entry, Streams, consumer};
/// # #[derive(serde::Deserialize)] struct Order { number: u64 }
///
/// #[consumer(topic = "order.placed", group = "billing", concurrency = 8)]
/// async fn bill(order: Entry<Order>) -> Result<(), std::io::Error> {
///     println!("order {} is billed", order.value.number);
///     Ok(())
/// }
///
/// #[consumer(topic = "order.placed", group = "statistics", batch = 500)]
/// fn count(orders: Vec<Entry<Order>>) -> Result<(), String> {
///     println!("{} more", orders.len());
///     Ok(())
/// }
///
/// # async fn run() -> Result<(), duly_streams::Error> {
/// let streams = Streams::connect("redis://127.0.0.1").await?;
/// streams.start(&[&bill, &count]).await?;
/// # Ok(()) }
/// ```
///
/// A function that needs more than the entry has a second argument, its state, which is cloned for every call:
///
/// ```no_run
/// # use duly_streams::{Entry, Streams, consumer};
/// # #[derive(serde::Deserialize)] struct Order { number: u64 }
/// # #[derive(Clone)] struct Database;
/// #[consumer(topic = "order.placed")]
/// async fn store(order: Entry<Order>, database: Database) -> Result<(), std::io::Error> {
///     let _ = (order.value.number, database);
///     Ok(())
/// }
///
/// # async fn run(streams: Streams) -> Result<(), duly_streams::Error> {
/// streams.start(&[&store.with(Database)]).await?;
/// # Ok(()) }
/// ```
///
/// The function takes an [`Entry`] or a `Vec` of them, is async or blocking, and returns a `Result` like every
/// [`Handler`]. Options besides `topic` are `group`, `consumer`, `concurrency`, `batch`, `attempts` and
/// `ordered_by_field`, each an expression; the defaults are in the [`Settings`].
pub use duly_streams_macros::consumer;
pub use entry::{Entry, EntryId};
pub use error::Error;
pub use expiry::{
    Cancelled, DeadTimer, EventGap, ExpiredKey, ExpiredTimer, ExpiryHandle, ExpiryListener, ExpiryTimers,
    Timer, TimerListener, TimerReplayed,
};
pub use group::{Group, Settled, Stats};
pub use listen::{
    EntriesLost, GroupStalled, Handler, IntoHandler, Listener, Subscription, UndecodableEntry, Verdicts,
};
pub use lock::{Lock, LockGuard, Released};
pub use priority::Priority;
pub use produce::{Message, SendFuture};
pub use settings::{DeadLetterPolicy, RedisUrl, Retry, Settings, StartFrom, Trim, Unacknowledged};
pub use streams::Streams;

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;
