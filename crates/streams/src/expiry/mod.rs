//! Expired keys: as [events](Streams::expiry_listener), for applications that set keys with a time to live anyway, and
//! as [timers](Streams::expiry_timers), which lose nothing.
//!
//! ```no_run
//! use duly_streams::{ExpiredKey, ExpiredTimer, Streams};
//! use std::time::Duration;
//!
//! # async fn run(streams: Streams) -> Result<(), duly_streams::Error> {
//! // Events: of all processes that run this, one is called with each key that expires.
//! streams.expiry_listener("session:", |expired: ExpiredKey| async move {
//!     println!("{} is over", expired.key);
//!     Ok::<_, std::io::Error>(())
//! })
//! .start()
//! .await?;
//!
//! // Timers: also what became due while no process ran, with its value, until it has succeeded.
//! let timers = streams.expiry_timers("alarm:")?;
//! timers
//!     .listener(|alarm: ExpiredTimer<String>| async move {
//!         println!("{} after five minutes: {}", alarm.key, alarm.value);
//!         Ok::<_, std::io::Error>(())
//!     })
//!     .start()
//!     .await?;
//! timers.set("alarm:42", "pump 3 is hot", Duration::from_secs(300)).await?;
//! timers.cancel("alarm:42").await?; // somebody has read it
//! # Ok(())
//! # }
//! ```
//!
//! # Events
//!
//! Redis publishes the expiry of a key once, to current subscribers, and without the value. On top of that:
//! - **One process handles it.** Every process receives every event; one of each [group](crate::Settings::group) calls
//!   its handler. Events are told apart: a key that is set and expires again a millisecond later is handled again, and
//!   a process that receives the first event late does not take it for another. Which event was handled is kept beside
//!   the key for a minute.
//! - **All servers**, also of a Cluster, where each master publishes the events of its own keys. Servers that join,
//!   leave or fail over are followed.
//! - **The setting is maintained.** `E` and `x` are added to the flags of `notify-keyspace-events`, and none is
//!   removed, at the start and after every new connection, because a restarted server may have lost them. If that is
//!   not allowed, the error says what to set.
//! - **Gaps are reported**: [`on_gap`](ExpiryListener::on_gap). Events in a gap are lost, and so is the key that a
//!   process handled when it died. Redis may also be late: it publishes the event when it deletes the key, which with
//!   many keys may be a while after the expiry.
//!
//! # Timers
//!
//! [`set`](ExpiryTimers::set) writes the key and, by the same script, its shadow: due time and value. The shadow is the
//! truth; events are only hints, and everything works without them. So:
//! - **Nothing is missed.** A timer that became due while nobody listened runs when somebody does; never before its
//!   time, by the clock of Redis.
//! - **At least once**, and exactly once as long as no process dies or is paused for longer than its lease (a little
//!   more than the [processing timeout](crate::Settings::processing_timeout)). A handler that fails is called again,
//!   with growing waits.
//! - **Bounded**: after a hundred attempts by [default](TimerListener::attempts) it is [given up](ExpiryTimers::dead),
//!   and kept with the reason until it is [replayed](ExpiryTimers::replay).
//! - **Exact cancel**: [`cancel`](ExpiryTimers::cancel) says done, too late, or unknown.
//! - Timers are as durable as their Redis: turn its append-only file on, and eviction off.
//!
//! The shadow does not see `DEL` and `EXPIRE` of the key by others: cancel or set the timer instead. All timers of a
//! prefix are in one slot.

mod dead;
mod handle;
mod listener;
mod masters;
mod notify;
mod outcome;
mod shadow;
mod subscriber;
mod timers;
mod worker;

#[cfg(doc)]
use crate::Streams;

pub use self::{
    dead::{DeadTimer, TimerReplayed},
    handle::ExpiryHandle,
    listener::{ExpiredKey, ExpiryListener},
    subscriber::EventGap,
    timers::{Cancelled, ExpiredTimer, ExpiryTimers, Timer, TimerListener},
};
pub(crate) use handle::ExpiryHandles;

/// Prefix of this library's own keys. Events of those are ignored.
const RESERVED_PREFIX: &str = "duly-streams:";

/// The part of a key in the first braces, which decides its slot on a Cluster.
fn hash_tag(key: &str) -> Option<&str> {
    let (_, rest) = key.split_once('{')?;
    let (tag, _) = rest.split_once('}')?;
    Some(tag).filter(|tag| !tag.is_empty())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_tag_is_what_stands_in_the_first_braces() {
        let cases =
            [("{a}:b", Some("a")), ("x{a}{b}", Some("a")), ("a:b", None), ("{}{a}", None), ("{a", None)];
        for (key, tag) in cases {
            assert_eq!(hash_tag(key), tag, "{key}");
        }
    }
}
