//! A message queue on Redis Streams: send now or later, listen by type, and lose nothing on the way. All it needs is Redis 7.0 or newer.
//!
//! # In five minutes
//!
//! ```no_run
//! use redis_mq::{Entry, RedisMq};
//! use serde::{Deserialize, Serialize};
//! use std::time::Duration;
//!
//! #[derive(Serialize, Deserialize)]
//! struct Order {
//!     number: u64,
//! }
//!
//! # async fn run() -> Result<(), redis_mq::Error> {
//! let mq = RedisMq::connect("redis://127.0.0.1").await?;
//!
//! // Every process that runs this shares the work: each event is handled by one of them.
//! mq.listener("order.unpaid", |order: Entry<Order>| async move {
//!     println!("order {} was not paid in time", order.value.number);
//!     Ok::<_, std::io::Error>(())
//! })
//! .start()
//! .await?;
//!
//! mq.send("order.placed", &Order { number: 42 }).await?;
//!
//! // With the feature `delayed`: kept in Redis, appended to the stream in fifteen minutes, once.
//! # #[cfg(feature = "delayed")] {
//! let id = mq.delay_send("order.unpaid", &Order { number: 42 }, Duration::from_secs(15 * 60)).await?;
//! mq.cancel(&id).await?; // it was paid
//! # }
//!
//! mq.shutdown().await
//! # }
//! ```
//!
//! **Send** one value and wait for its id ([`send`](RedisMq::send)), without waiting ([`send_async`](RedisMq::send_async)), many at once
//! ([`send_batch`](RedisMq::send_batch)), fields as they are ([`send_fields`](RedisMq::send_fields)), or a [`Message`] with properties and a
//! [`Priority`].
//!
//! **Listen** with an `async` closure as above, or with a [`Handler`] that blocks its thread, takes many entries at once, or both. The
//! [`Subscription`] says what else is wanted: a group and a name ([`subscribe`](RedisMq::subscribe)), how many at a time, only
//! [some](Subscription::filter) of them, in the [order](Subscription::ordered_by_field) of a key. As plain as with annotations it is by
//! [`#[consumer]`](macro@consumer).
//!
//! **Fail** by answering with an error. It is counted, and the entry is tried again [after a while](Retry) while others are handled. After the last
//! try it is a dead letter, and waits for somebody to mend what was wrong:
//!
//! ```no_run
//! # async fn run(mq: redis_mq::RedisMq) -> Result<(), redis_mq::Error> {
//! let dead = mq.dead_letters("order.placed")?;
//! for letter in dead.list(None, 100).await? {
//!     println!("{} was tried {} times: {}", letter.original_id, letter.attempts, letter.reason);
//! }
//! let would = dead.replay_all().only(|letter| letter.reason.contains("timeout")).dry_run().run().await?;
//! println!("{} would go back", would.entries.len());
//! dead.replay_all().only(|letter| letter.reason.contains("timeout")).run().await?;
//! # Ok(()) }
//! ```
//!
//! A handler that knows more than "failed" answers with a [`Verdict`]; operators [acknowledge, retry or give up](Group) by id.
//!
//! **Configure** all of it by [`Settings`], which serde reads from wherever the service keeps its configuration.
//!
//! # What is promised
//!
//! 1. **Each event is one entry.** Two equal values are two entries. What was sent for later is appended once, whichever
//!    process is killed and whenever, and never before its time.
//! 2. **At least once.** An entry is acknowledged after the handler said `Ok`, and not before. Whatever else happens (an
//!    error, a panic, a handler that takes [too long](Settings::processing_timeout), a process that dies), it is handled
//!    again, or is a dead letter in the end, never both and never neither. Make handlers safe to repeat; [`Entry::message_id`] is the same on every
//!    copy.
//! 3. **One bad event stops nobody and blames nobody.** Only a handler's failure counts, and what kills its process is found out by itself.
//! 4. **No try more than the limit**, through restarts and takeovers.
//! 5. **Nothing is trimmed that a group still needs**, unless [asked for](Unacknowledged::Drop), and what is lost then is told.
//! 6. **No order**, unless asked for: up to [`concurrency`](Settings::concurrency) events are handled at the same time.
//!
//! The guide "What goes wrong with Redis Streams, and how redis-mq avoids it" (`docs/guide/redis-streams-traps.md`) has the reasons, and a test for
//! each.
//!
//! # Futures that are dropped
//!
//! What was asked of Redis by a future that is dropped midway may have been done or not, as after
//! [`Unanswered`](Error::Unanswered). Every method says under "Cancel safety" what that means for it.
//!
//! # What stands in Redis
//!
//! | key | what it is |
//! |---|---|
//! | `<topic>` | the stream |
//! | `{<topic>}:high`, `{<topic>}:low` | the streams of what was sent with a [`Priority`] |
//! | `<topic>_dlq`, on a Cluster `{<topic>}_dlq` | [dead letters](DeadLetter) |
//! | `{<topic>}:mq:tries:…` | failures of entries that are not settled |
//! | `{<topic>}:mq:due:…` | entries that wait for their next try |
//! | `{<topic>}:mq:reader:…`, `{<topic>}:mq:dead-reader:…` | who works in a group that keeps order, of the topic and of its dead letters |
//! | `redis-mq:timers:{…}:…` | [timers](expiry), and those that were given up |
//!
//! Entries have the fields `body` (JSON), `content-type`, one for each property, `duly-id`, `duly-due` (milliseconds
//! since 1970) and `duly-attempt`, the same that Duly's server writes by its sink `redis_streams`; so either may send what the
//! other's users listen to, and so may anybody who can `XADD`. A replayed one has `duly-group`: only that group handles it.
//!
//! # Figures
//!
//! Through the [`metrics`] facade, with the labels `topic` and `group`: `redis_mq_backlog`, `redis_mq_lag`, `redis_mq_pending`, `redis_mq_waiting`,
//! `redis_mq_oldest_pending_seconds`, `redis_mq_dead_letters`, `redis_mq_trim_held_up`, `redis_mq_handling_seconds`, `redis_mq_handled_total`,
//! `redis_mq_failures_total`, `redis_mq_dead_letters_total`, `redis_mq_trimmed_unhandled_total`; and by `prefix`, `redis_mq_dead_timers_total`. Install a recorder before listeners start.
//!
//! # Locks, and keys that expire
//!
//! [`lock`] has one holder at a time over all processes; [`expiry`] calls a handler with keys whose time to live is over, and has timers that lose none.
//!
//! # Which Redis
//!
//! `redis://`, `rediss://`, `redis-cluster://a,b,c`, `redis-sentinel://a,b,c/name`. Delayed events need one that keeps what it was
//! given: its append-only file on, and no eviction. On any other sending for later is refused, unless
//! [`allow_volatile`](Settings::allow_volatile) says that losing some is fine; everything else works.

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
mod mq;
mod priority;
mod produce;
mod scripts;
mod settings;

pub use consumer::Consumer;
pub use dead::{DeadLetter, DeadLetters, Replay, ReplayFor, Replayed};
#[cfg(feature = "delayed")]
pub use delayed::When;
#[cfg(feature = "delayed")]
pub use duly::{
    Changed, Error as DelayedError, ErrorCode, IntoMessageId, Invalid, State, StoreError, StoreErrorKind,
    Timestamp,
};
pub use duly_core::{Cause, MessageId, RetryPolicy, Verdict};
pub use entry::{Entry, EntryId};
pub use error::Error;
pub use expiry::{
    Cancelled, DeadTimer, Expired, ExpiredKey, Expiring, ExpiryListener, ExpiryTimers, Gap, Timer,
    TimerListener, TimerReplayed,
};
pub use group::{Group, Settled, Stats};
pub use listen::{Handler, IntoHandler, Listener, Lost, Stalled, Subscription, Undecodable, Verdicts};
pub use lock::{Lock, LockGuard, Released};
pub use mq::RedisMq;
pub use priority::Priority;
pub use produce::{Message, Sending};
/// Makes of a function a [`Consumer`]: a service then reads as plainly as with annotations.
///
/// ```no_run
/// use redis_mq::{Entry, RedisMq, consumer};
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
/// # async fn run() -> Result<(), redis_mq::Error> {
/// let mq = RedisMq::connect("redis://127.0.0.1").await?;
/// mq.start(&[&bill, &count]).await?;
/// # Ok(()) }
/// ```
///
/// A function that needs more than the entry has a second argument, its state, which is cloned for every call and given once:
///
/// ```no_run
/// # use redis_mq::{Entry, RedisMq, consumer};
/// # #[derive(serde::Deserialize)] struct Order { number: u64 }
/// # #[derive(Clone)] struct Database;
/// #[consumer(topic = "order.placed")]
/// async fn store(order: Entry<Order>, database: Database) -> Result<(), std::io::Error> {
///     let _ = (order.value.number, database);
///     Ok(())
/// }
///
/// # async fn run(mq: RedisMq) -> Result<(), redis_mq::Error> {
/// mq.start(&[&store.with(Database)]).await?;
/// # Ok(()) }
/// ```
///
/// The function takes an [`Entry`] or a `Vec` of them, is `async` or blocks its thread, and answers with a `Result` as every
/// [`Handler`] does. Besides `topic` there are `group`, `consumer`, `concurrency`, `batch`, `attempts` and `ordered_by_field`, each
/// an expression; what is left out is as in the [`Settings`].
pub use redis_mq_macros::consumer;
pub use settings::{Backoff, DeadLetterPolicy, RedisUrl, Retry, Settings, StartFrom, Trim, Unacknowledged};
