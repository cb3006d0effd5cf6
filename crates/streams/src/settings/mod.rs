//! How a [`Streams`](crate::Streams) works.

mod policy;
mod span;

use std::{fmt, time::Duration};

use serde::Deserialize;

use crate::Error;

pub use self::policy::{DeadLetterPolicy, Retry, Trim, Unacknowledged};

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

/// Settings of a [`Streams`](crate::Streams). Everything has a default, and serde reads all of it: durations are
/// `"250ms"`, `"10s"`, `"15m"`, `"1h"`, `"7d"`, or a number of milliseconds.
///
/// ```
/// use duly_streams::{Retry, Settings};
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
    /// Address: `redis://`, `rediss://`, `redis-cluster://a,b,c`, `redis-sentinel://a,b,c/name`. Default
    /// `redis://127.0.0.1`.
    pub url: RedisUrl,
    /// Whether this process handles events. If not, it only sends: its listeners do not read, and other processes
    /// deliver its delayed events. Default true.
    pub enabled: bool,
    /// The `BLOCK` time of reads, and the longest interval of the sweep for delayed events. New entries and due events
    /// do not wait for it. Default 1 s.
    #[serde(with = "span")]
    pub poll_interval: Duration,
    /// How long a handler may take. A longer call is cancelled and counts as failed. Entries of a process without
    /// heartbeats for 1.25 × this time are reclaimed. Clamped to 2–10 s, it is also the lease of a process in the store
    /// of delayed events. Default 10 s.
    #[serde(with = "span")]
    pub processing_timeout: Duration,
    /// The consumer group. Each group handles every event; one process of a group handles each event. Default
    /// `duly-streams`.
    pub group: String,
    /// The name of this process in the group; no other process may use it at the same time, or it replaces this one.
    /// After a restart with the same name, unfinished entries are retried at once. Default: generated at each start.
    pub consumer: Option<String>,
    /// Handler calls of one listener that run at the same time. Default 16.
    pub concurrency: usize,
    /// The largest batch of a batch handler. Default 100.
    pub batch: usize,
    /// Retries of failed entries.
    pub retry: Retry,
    /// How streams are trimmed. Default: not at all.
    pub trim: Trim,
    /// What happens to entries that are given up.
    pub dead_letters: DeadLetterPolicy,
    /// How often listeners trim, measure, and remove idle consumers. Default 5 s.
    #[serde(with = "span")]
    pub maintenance_interval: Duration,
    /// A consumer without pending entries that is idle for this long is removed from its group. Default 1 h.
    #[serde(with = "span")]
    pub consumer_idle_max: Duration,
    /// A group with a backlog of this size is reported as stalled. Default 100,000.
    pub backlog_alert: u64,
    /// Where a new group begins.
    pub from: StartFrom,
    /// The name of the store of delayed events; several may share a Redis. Default `streams`.
    pub store: String,
    /// Whether a Redis that may lose data, without append-only file or with eviction, may keep delayed events. Default
    /// false.
    pub allow_volatile: bool,
}

/// Where a new group begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum StartFrom {
    /// With the oldest entry: events sent before the group existed are handled.
    #[default]
    Oldest,
    /// With events sent from now on.
    Now,
}

impl Default for Settings {
    fn default() -> Self {
        Self {
            url: "redis://127.0.0.1".into(),
            enabled: true,
            poll_interval: Duration::from_secs(1),
            processing_timeout: Duration::from_secs(10),
            group: "duly-streams".into(),
            consumer: None,
            concurrency: 16,
            batch: 100,
            retry: Retry::default(),
            trim: Trim::default(),
            dead_letters: DeadLetterPolicy::default(),
            maintenance_interval: Duration::from_secs(5),
            consumer_idle_max: Duration::from_secs(3_600),
            backlog_alert: 100_000,
            from: StartFrom::Oldest,
            store: "streams".into(),
            allow_volatile: false,
        }
    }
}

/// The longest `BLOCK` time: network devices drop connections that are silent for longer.
const POLL_MAX: Duration = Duration::from_secs(60);
/// The largest concurrency and batch.
pub(crate) const BATCH_MAX: usize = 10_000;

impl Settings {
    /// Checks the settings, and reports all faults at once.
    pub(crate) fn check(&self) -> Result<(), Error> {
        let moment = Duration::from_millis(1);
        let sizes = 1..=BATCH_MAX;
        let faults = [
            (
                self.poll_interval < moment || self.poll_interval > POLL_MAX,
                "poll_interval goes from a millisecond to a minute",
            ),
            (self.processing_timeout < moment, "processing_timeout is at least a millisecond"),
            (self.maintenance_interval < moment, "maintenance_interval is at least a millisecond"),
            (!sizes.contains(&self.concurrency), "concurrency goes from 1 to 10,000"),
            (!sizes.contains(&self.batch), "batch goes from 1 to 10,000"),
            (
                self.trim.max_len == Some(0) || self.dead_letters.max_len == Some(0),
                "max_len is at least 1; leave it out for no limit",
            ),
            (self.retry.crashes == 0, "retry.crashes is at least 1"),
            (self.retry.check().is_err(), policy::MIN_ABOVE_MAX),
            (
                self.group.is_empty() || self.consumer.as_deref() == Some(""),
                "a group and a consumer have names that are not empty",
            ),
        ];
        let words: Vec<_> = faults.iter().filter(|(is_so, _)| *is_so).map(|(_, words)| *words).collect();
        if words.is_empty() { Ok(()) } else { Err(Error::Invalid(words.join("; "))) }
    }

    /// How long an entry must be without a heartbeat before it is reclaimed.
    pub(crate) fn abandoned_after(&self) -> Duration {
        self.processing_timeout + self.processing_timeout / 4
    }
}

/// Bytes of an event name.
const EVENT_MAX: usize = 255;

/// Checks the name of an event, which is the name of its stream.
pub(crate) fn check_event(event: &str) -> Result<(), Error> {
    if event.is_empty() || event.len() > EVENT_MAX {
        return Err(Error::Invalid(format!(
            "the name of an event has 1 to {EVENT_MAX} bytes, this one has {}",
            event.len()
        )));
    }
    // Keys beside the stream have the event in braces.
    if event.chars().any(|c| c.is_control() || c == '{' || c == '}') {
        return Err(Error::Invalid("the name of an event has no braces and no control characters".into()));
    }
    // Outside of a Cluster that is the stream of another event's dead letters: trimming it would lose them.
    if let Some(topic) = event.strip_suffix("_dlq") {
        return Err(Error::Invalid(format!(
            "no event is called {event:?}: there are the dead letters of {topic:?}, which dead_letters() reads"
        )));
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use duly_core::Backoff;

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
        let text = r#"{"url": "redis://:secret@a", "poll_interval": "250ms", "consumer_idle_max": 5000,
            "retry": {"attempts": 0, "backoff": "fixed", "min": "1s"},
            "trim": {"max_len": 10, "unacknowledged": "drop"}, "from": "now"}"#;
        let settings: Settings = serde_json::from_str(text).unwrap();
        assert_eq!(settings.poll_interval, Duration::from_millis(250));
        assert_eq!(settings.consumer_idle_max, Duration::from_secs(5));
        assert_eq!((settings.retry.attempts, settings.retry.backoff), (0, Backoff::Fixed));
        assert_eq!(settings.trim.unacknowledged, Unacknowledged::Drop);
        assert!(!format!("{settings:?}").contains("secret"));
        assert!(serde_json::from_str::<Settings>(r#"{"pol_interval": 1}"#).is_err(), "a slip of the pen");
        assert!(serde_json::from_str::<Settings>(r#"{"poll_interval": "soon"}"#).is_err());
        let slow =
            serde_json::from_str::<Settings>(r#"{"retry": {"backoff": "slow"}}"#).unwrap_err().to_string();
        assert!(slow.contains("fixed, linear, exponential"), "{slow}");
    }
}
