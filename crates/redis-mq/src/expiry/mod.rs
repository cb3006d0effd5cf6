//! Keys that expire: as [events](RedisMq::expiry_listener), for applications that set keys with a time to live anyway, and as
//! [timers](RedisMq::expiry_timers), which lose nothing.
//!
//! ```no_run
//! use redis_mq::{Expired, ExpiredKey, RedisMq};
//! use std::time::Duration;
//!
//! # async fn run(mq: RedisMq) -> Result<(), redis_mq::Error> {
//! // Events: of all processes that run this, one is called with each key that expires.
//! mq.expiry_listener("session:", |expired: ExpiredKey| async move {
//!     println!("{} is over", expired.key);
//!     Ok::<_, std::io::Error>(())
//! })
//! .start()
//! .await?;
//!
//! // Timers: also what became due while no process ran, with its value, until it has succeeded.
//! let timers = mq.expiry_timers("alarm:")?;
//! timers
//!     .listener(|alarm: Expired<String>| async move {
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
//! Redis tells of an expired key once, to whoever listens at that moment, and without its value. On that:
//! - **One acts.** Every process hears every event, one of each [group](crate::Settings::group) calls its handler. Occurrences are told
//!   apart: a key that is set again and expires again is handled again, also if that is a millisecond later; and a process that hears of the first
//!   one late does not take it for another. Who heard what is kept beside the key for a minute.
//! - **Every server is heard**, on a cluster too, where each tells only of its own keys. Servers that come, go or fail over are followed.
//! - **The setting is looked after.** `E` and `x` are added to the flags of `notify-keyspace-events`, and none is taken away, at the start and after
//!   every new connection, as a server that was restarted may have forgotten them. Where that is not allowed, the error says what to set.
//! - **It is told when some may have been missed**: [`on_gap`](ExpiryListener::on_gap). They are lost, as is what a process was at when it died.
//!   Redis may also be late: it tells of a key when it removes it, which with many keys may be a while after it expired.
//!
//! # Timers
//!
//! [`set`](ExpiryTimers::set) writes the key and, by the same script, its shadow: when it is due, and its value. The shadow is the truth; events
//! only say that it is worth a look, and everything works without them. So:
//! - **Nothing is missed.** What became due while nobody listened runs when somebody does; never before its time, by the clock of Redis.
//! - **At least once**, and exactly once as long as no process dies or is paused with one in hand for longer than its lease (the
//!   [processing timeout](crate::Settings::processing_timeout) and a little more). A handler that fails is called again, with growing waits.
//! - **Not for ever**: after a hundred tries, unless [said otherwise](TimerListener::attempts), it is [given up](ExpiryTimers::dead), and kept with the
//!   reason until it is [replayed](ExpiryTimers::replay).
//! - **Taken back exactly**: [`cancel`](ExpiryTimers::cancel) says done, too late, or unknown.
//! - It is as durable as the Redis it is in: turn on its append-only file, and eviction off.
//!
//! To the shadow, `DEL` and `EXPIRE` of the key by somebody else are unknown: cancel or set the timer instead. All timers of a prefix are in one slot.

mod dead;
mod hearing;
mod listener;
mod masters;
mod notify;
mod outcome;
mod running;
mod shadow;
mod timers;
mod working;

#[cfg(doc)]
use crate::RedisMq;

pub use self::{
    dead::{DeadTimer, TimerReplayed},
    hearing::Gap,
    listener::{ExpiredKey, ExpiryListener},
    running::Expiring,
    timers::{Cancelled, Expired, ExpiryTimers, Timer, TimerListener},
};
pub(crate) use running::Running;

/// What our own keys begin with; those of them that expire are nobody's business.
const OWN: &str = "redis-mq:";

/// The part of a key that decides its slot on a cluster, if it is not the whole: what stands in the first braces.
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
