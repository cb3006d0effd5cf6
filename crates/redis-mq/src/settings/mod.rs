//! How a [`RedisMq`](crate::RedisMq) works.

mod policy;
mod span;

use std::{fmt, time::Duration};

use serde::Deserialize;

use crate::Error;

pub use self::policy::{Backoff, DeadLetterPolicy, Retry, Trim, Unacknowledged};

/// Where Redis is. Its debug form does not show it, as it may hold a password.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct RedisUrl(String);

impl RedisUrl {
    pub(crate) fn as_str(&self) -> &str {
        &self.0
    }
}

impl<T: Into<String>> From<T> for RedisUrl {
    fn from(url: T) -> Self {
        Self(url.into())
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("RedisUrl(..)")
    }
}

/// How events are sent and listened to. Everything has a default, and all of it can be read from a file by serde: times are
/// `"250ms"`, `"10s"`, `"15m"`, `"1h"`, `"7d"`, or a number of milliseconds.
///
/// ```
/// use redis_mq::{Retry, Settings};
/// use std::time::Duration;
///
/// let settings = Settings { group: "billing".into(), processing_timeout: Duration::from_secs(30), ..Settings::default() };
///
/// let from_a_file: Settings = serde_json::from_str(
///     r#"{
///         "url": "redis-cluster://a,b,c",
///         "group": "billing",
///         "concurrency": 64,
///         "retry": { "attempts": 8, "backoff": "exponential", "min": "2s", "max": "10m" },
///         "trim": { "max_len": 1000000, "max_age": "7d" },
///         "dead_letters": { "max_len": 10000 }
///     }"#,
/// )?;
/// assert_eq!(from_a_file.retry.attempts, 8);
/// # Ok::<_, serde_json::Error>(())
/// ```
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Settings {
    /// Where Redis is: `redis://`, `rediss://`, `redis-cluster://a,b,c`, `redis-sentinel://a,b,c/name`. `redis://127.0.0.1`.
    pub url: RedisUrl,
    /// Whether this process works on events. If not, it only sends: its listeners hear nothing, and what it sends for later
    /// is delivered by others. On.
    pub enabled: bool,
    /// The longest that a read waits for an entry (the block time), and that the sweep which backs up the timers of delayed events
    /// sleeps when nothing is near. New entries and due events do not wait for it. One second.
    #[serde(with = "span")]
    pub poll_interval: Duration,
    /// How long a handler may take. One that takes longer is ended, and that is a failure. What a process held that says nothing for
    /// a quarter more is taken over by others. Within two seconds to ten, it is also how long a process that was killed is
    /// waited for before others deliver its share of what is for later. Ten seconds.
    #[serde(with = "span")]
    pub processing_timeout: Duration,
    /// The consumer group: each group handles every event, each event is handled by one process of a group. `redis-mq`.
    pub group: String,
    /// This process's name in the group, which no other has at the same time: whoever comes with a name that is taken takes its
    /// place. After a restart under the same name, what it left
    /// unfinished is tried again at once. Made anew at each start unless set.
    pub consumer: Option<String>,
    /// Calls of one listener's handler that run at the same time. 16.
    pub concurrency: usize,
    /// The most entries that a handler of batches is given at once. 100.
    pub batch: usize,
    /// What becomes of what a handler could not handle.
    pub retry: Retry,
    /// How streams are kept short. Not at all unless set.
    pub trim: Trim,
    /// Where entries go that are given up.
    pub dead_letters: DeadLetterPolicy,
    /// How often listeners trim, measure, and look for consumers that are gone. Five seconds.
    #[serde(with = "span")]
    pub tidy_interval: Duration,
    /// A consumer that said nothing for so long and holds nothing is taken out of its group. One hour.
    #[serde(with = "span")]
    pub consumer_gone_after: Duration,
    /// A group with so many entries before it is reported as falling behind. 100,000.
    pub backlog_alert: u64,
    /// Where a group begins that is new.
    pub from: StartFrom,
    /// The store of delayed events, one of several that may share a Redis. `mq`.
    pub store: String,
    /// Keep delayed events in a Redis that may lose them: without its append-only file, or evicting. Off.
    pub allow_volatile: bool,
}

/// Where a new group begins to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StartFrom {
    /// With the oldest entry that is there: what was sent before anybody listened is handled.
    #[default]
    Oldest,
    /// With what is sent from now on.
    Now,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1".into(),
            enabled: true,
            poll_interval: Duration::from_secs(1),
            processing_timeout: Duration::from_secs(10),
            group: "redis-mq".into(),
            consumer: None,
            concurrency: 16,
            batch: 100,
            retry: Retry::default(),
            trim: Trim::default(),
            dead_letters: DeadLetterPolicy::default(),
            tidy_interval: Duration::from_secs(5),
            consumer_gone_after: Duration::from_secs(3_600),
            backlog_alert: 100_000,
            from: StartFrom::Oldest,
            store: "mq".into(),
            allow_volatile: false,
        }
    }
}

/// The longest wait of a read: a connection that is silent for longer is taken for dead by what lies between.
const POLL_MAX: Duration = Duration::from_secs(60);
/// The most calls at once, and the most entries in one.
pub(crate) const BATCH_MAX: usize = 10_000;

impl Settings {
    /// Every fault at once, not the first only.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let moment = Duration::from_millis(1);
        let sizes = 1..=BATCH_MAX;
        let faults = [
            (
                self.poll_interval < moment || self.poll_interval > POLL_MAX,
                "poll_interval goes from a millisecond to a minute",
            ),
            (self.processing_timeout < moment, "processing_timeout is at least a millisecond"),
            (self.tidy_interval < moment, "tidy_interval is at least a millisecond"),
            (!sizes.contains(&self.concurrency), "concurrency goes from 1 to 10,000"),
            (!sizes.contains(&self.batch), "batch goes from 1 to 10,000"),
            (
                self.trim.max_len == Some(0) || self.dead_letters.max_len == Some(0),
                "max_len is at least 1; leave it out for no limit",
            ),
            (self.retry.crashes == 0, "retry.crashes is at least 1"),
            (self.retry.min > self.retry.max, "retry.min is at most retry.max"),
            (
                self.group.is_empty() || self.consumer.as_deref() == Some(""),
                "a group and a consumer have names that are not empty",
            ),
        ];
        let words: Vec<_> = faults.iter().filter(|(is_so, _)| *is_so).map(|(_, words)| *words).collect();
        if words.is_empty() { Ok(()) } else { Err(Error::Invalid(words.join("; "))) }
    }

    /// What was read and not acknowledged for so long, by a process that says nothing, is nobody's any more.
    pub(crate) fn abandoned_after(&self) -> Duration {
        self.processing_timeout + self.processing_timeout / 4
    }
}

/// The most bytes of an event's name.
const EVENT_MAX: usize = 255;

/// An event's name is that of its stream.
pub(crate) fn check_event(event: &str) -> Result<(), Error> {
    if event.is_empty() || event.len() > EVENT_MAX {
        return Err(Error::Invalid(format!(
            "the name of an event has 1 to {EVENT_MAX} bytes, this one has {}",
            event.len()
        )));
    }
    // On a cluster, what lies beside the stream is put there by braces of our own.
    if event.chars().any(|c| c.is_control() || c == '{' || c == '}') {
        return Err(Error::Invalid("the name of an event has no braces and no control characters".into()));
    }
    // Outside of a cluster that is the stream of another topic's dead letters: trimming it would lose them.
    if let Some(topic) = event.strip_suffix("_dlq") {
        return Err(Error::Invalid(format!(
            "no event is called {event:?}: there are the dead letters of {topic:?}, which dead_letters() reads"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_defaults_are_those_of_the_design_and_hold() {
        let settings = Settings::default();
        assert!(settings.enabled);
        assert_eq!(settings.poll_interval, Duration::from_millis(1_000));
        assert_eq!(settings.processing_timeout, Duration::from_millis(10_000));
        assert_eq!(
            settings.trim,
            Trim { max_len: None, max_age: None, unacknowledged: Unacknowledged::Keep }
        );
        settings.check().unwrap();
    }

    #[test]
    fn settings_that_cannot_be_meant_are_refused_all_at_once() {
        let bad = [
            Settings { poll_interval: Duration::ZERO, ..Settings::default() },
            Settings { processing_timeout: Duration::ZERO, ..Settings::default() },
            Settings { batch: 0, ..Settings::default() },
            Settings { concurrency: 0, ..Settings::default() },
            Settings { trim: Trim { max_len: Some(0), ..Trim::default() }, ..Settings::default() },
            Settings { retry: Retry { crashes: 0, ..Retry::default() }, ..Settings::default() },
            Settings { group: String::new(), ..Settings::default() },
        ];
        for settings in bad {
            assert!(settings.check().is_err(), "{settings:?}");
        }
        let two = Settings { batch: 0, group: String::new(), ..Settings::default() };
        let words = two.check().unwrap_err().to_string();
        assert!(words.contains("batch") && words.contains("group"), "{words}");
        for event in ["", "a{b}", "a\nb", "order_dlq", &"x".repeat(256)] {
            assert!(check_event(event).is_err(), "{event}");
        }
        check_event("order.paid").unwrap();
    }

    #[test]
    fn all_of_it_can_be_read_from_a_file_and_the_address_is_never_shown() {
        let text = r#"{"url": "redis://:secret@a", "poll_interval": "250ms", "consumer_gone_after": 5000,
            "retry": {"attempts": 0, "backoff": "fixed", "min": "1s"},
            "trim": {"max_len": 10, "unacknowledged": "drop"}, "from": "now"}"#;
        let settings: Settings = serde_json::from_str(text).unwrap();
        assert_eq!(settings.poll_interval, Duration::from_millis(250));
        assert_eq!(settings.consumer_gone_after, Duration::from_secs(5));
        assert_eq!((settings.retry.attempts, settings.retry.backoff), (0, Backoff::Fixed));
        assert_eq!(settings.trim.unacknowledged, Unacknowledged::Drop);
        assert!(!format!("{settings:?}").contains("secret"));
        assert!(serde_json::from_str::<Settings>(r#"{"pol_interval": 1}"#).is_err(), "a slip of the pen");
        assert!(serde_json::from_str::<Settings>(r#"{"poll_interval": "soon"}"#).is_err());
    }
}
