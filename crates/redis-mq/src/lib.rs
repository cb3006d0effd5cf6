//! Events on Redis Streams: send now or later, listen by type. All it needs is Redis 7.0 or newer.
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
//! # What is promised
//!
//! 1. **Each event is one entry.** Two equal values are two entries. What was sent for later is appended once, whichever
//!    process is killed and whenever, and never before its time.
//! 2. **At least once.** An entry is acknowledged after the handler said `Ok`, and not before. Whatever else happens (an
//!    error, a panic, a handler that takes [too long](Settings::processing_timeout), a process that dies), it is handled
//!    again. Make handlers safe to repeat; [`Entry::message_id`] is the same on every copy.
//! 3. **One bad event stops nobody.** It is logged and waits for its next try while others are handled.
//! 4. **No order.** Up to [`batch`](Settings::batch) events are handled at the same time.
//!
//! An entry that is not of the type that is listened for can never be handled: it is logged, told to
//! [`on_undecodable`](Listening::on_undecodable), acknowledged, and stays in the stream. One that always fails is
//! tried for ever; there are no dead letters yet.
//!
//! # What stands in a stream
//!
//! The stream has the name of the event. Its entries have the fields `body` (JSON), `content-type`, `duly-id`, `duly-due` (milliseconds
//! since 1970) and `duly-attempt`, the same that Duly's server writes by its sink `redis_streams`; so either may send what the
//! other's users listen to, and so may anybody who can `XADD`.
//!
//! # Locks, and keys that expire
//!
//! [`lock`] has one holder at a time over all processes; [`expiry`] calls a handler with keys whose time to live is over, and has timers that lose none.
//!
//! # Which Redis
//!
//! `redis://`, `rediss://`, `redis-cluster://a,b,c`, `redis-sentinel://a,b,c/name`. Delayed events need one that keeps what it was
//! given: its append-only file on, and no eviction. Otherwise connecting is refused, unless
//! [`allow_volatile`](Settings::allow_volatile) says that losing some is fine.

mod clock;
#[cfg(feature = "delayed")]
mod delayed;
mod entry;
mod error;
pub mod expiry;
mod listen;
pub mod lock;
mod mq;
mod settings;

#[cfg(feature = "delayed")]
pub use delayed::{Changed, MessageId};
pub use entry::{Entry, EntryId};
pub use error::Error;
pub use expiry::{
    Cancelled, Expired, ExpiredKey, Expiring, ExpiryListener, ExpiryTimers, Gap, Timer, TimerListener,
};
pub use listen::{Listener, Listening, Undecodable};
pub use lock::{Lock, LockGuard, Released};
pub use mq::RedisMq;
pub use settings::{Settings, StartFrom};
