//! How a [`RedisMq`](crate::RedisMq) works.

use std::time::Duration;

use crate::Error;

/// How events are sent and listened to. Everything has a default.
///
/// ```
/// use redis_mq::Settings;
/// use std::time::Duration;
///
/// let settings = Settings { group: "billing".into(), processing_timeout: Duration::from_secs(30), ..Settings::default() };
/// ```
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Settings {
    /// Whether this process works on events. If not, it only sends: its listeners hear nothing, and what it sends for later
    /// is delivered by others. On.
    pub enabled: bool,
    /// The longest that a read waits for an entry, and that the sweep which backs up the timers of delayed events sleeps when
    /// nothing is near. New entries and due events do not wait for it. One second.
    pub poll_interval: Duration,
    /// How long a handler may take. One that takes longer is ended; what nobody finished within a quarter more is tried again, by
    /// whichever process finds it first. Within two seconds to ten, it is also how long a process that was killed is waited
    /// for before others deliver its share of what is for later. Ten seconds.
    pub processing_timeout: Duration,
    /// The consumer group: each group handles every event, each event is handled by one process of a group. `redis-mq`.
    pub group: String,
    /// This process's name in the group, which no other has at the same time: whoever comes with a name that is taken takes its
    /// place. After a restart under the same name, what it left
    /// unfinished is tried again at once. Made anew at each start unless set.
    pub consumer: Option<String>,
    /// Events of one listener that are handled at the same time. 16.
    pub batch: usize,
    /// Streams are kept at about so many entries as they grow, handled or not. No limit unless set.
    pub max_len: Option<u64>,
    /// Where a group begins that is new.
    pub from: StartFrom,
    /// The store of delayed events, one of several that may share a Redis. `mq`.
    pub store: String,
    /// Keep delayed events in a Redis that may lose them: without its append-only file, or evicting. Off.
    pub allow_volatile: bool,
}

/// Where a new group begins to listen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
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
            enabled: true,
            poll_interval: Duration::from_secs(1),
            processing_timeout: Duration::from_secs(10),
            group: "redis-mq".into(),
            consumer: None,
            batch: 16,
            max_len: None,
            from: StartFrom::Oldest,
            store: "mq".into(),
            allow_volatile: false,
        }
    }
}

/// The longest wait of a read: a connection that is silent for longer is taken for dead by what lies between.
const POLL_MAX: Duration = Duration::from_secs(60);
const BATCH_MAX: usize = 10_000;

impl Settings {
    pub(crate) fn check(&self) -> Result<(), Error> {
        let fault = |what: &str| Err(Error::Invalid(what.to_owned()));
        if self.poll_interval < Duration::from_millis(1) || self.poll_interval > POLL_MAX {
            return fault("poll_interval goes from a millisecond to a minute");
        }
        if self.processing_timeout < Duration::from_millis(1) {
            return fault("processing_timeout is at least a millisecond");
        }
        if self.batch == 0 || self.batch > BATCH_MAX {
            return fault("batch goes from 1 to 10,000");
        }
        if self.max_len == Some(0) {
            return fault("max_len is at least 1; leave it out for no limit");
        }
        if self.group.is_empty() || self.consumer.as_deref() == Some("") {
            return fault("a group and a consumer have names that are not empty");
        }
        Ok(())
    }

    /// What was read and not acknowledged for so long is nobody's any more.
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
    // On a cluster, what will lie beside the stream is put there by braces of our own.
    if event.chars().any(|c| c.is_control() || c == '{' || c == '}') {
        return Err(Error::Invalid("the name of an event has no braces and no control characters".into()));
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
        assert_eq!(settings.max_len, None);
        settings.check().unwrap();
    }

    #[test]
    fn settings_that_cannot_be_meant_are_refused() {
        let bad = [
            Settings { poll_interval: Duration::ZERO, ..Settings::default() },
            Settings { processing_timeout: Duration::ZERO, ..Settings::default() },
            Settings { batch: 0, ..Settings::default() },
            Settings { max_len: Some(0), ..Settings::default() },
            Settings { group: String::new(), ..Settings::default() },
        ];
        for settings in bad {
            assert!(settings.check().is_err(), "{settings:?}");
        }
        for event in ["", "a{b}", "a\nb", &"x".repeat(256)] {
            assert!(check_event(event).is_err(), "{event}");
        }
        check_event("order.paid").unwrap();
    }
}
