//! Policies: retries, trimming, dead letters.

use std::time::Duration;

use duly_core::{Backoff, RetryPolicy};
use serde::{Deserialize, Deserializer, de};

use super::span;
use crate::Error;

/// The fault of waits that contradict each other.
pub(super) const MIN_ABOVE_MAX: &str = "retry.min is at most retry.max";

/// Number of attempts, and the waits between them.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// Attempts in all; then the entry is a dead letter. 0: no limit. Default 5.
    pub attempts: u32,
    /// How the wait grows from attempt to attempt: `"fixed"`, `"linear"` or `"exponential"` (the default).
    #[serde(deserialize_with = "backoff")]
    pub backoff: Backoff,
    /// The shortest wait, which is the first one. Default 1 s.
    #[serde(with = "span")]
    pub min: Duration,
    /// The longest wait. Default 1 min.
    #[serde(with = "span")]
    pub max: Duration,
    /// After this many crashes of a process that handled nothing but this entry, the entry is a dead letter. Default 3.
    pub crashes: u32,
}

/// Reads the same words as the configuration of Duly.
fn backoff<'de, D: Deserializer<'de>>(from: D) -> Result<Backoff, D::Error> {
    let word = String::deserialize(from)?;
    Backoff::ALL.into_iter().find(|backoff| backoff.as_str() == word).ok_or_else(|| {
        let words = Backoff::ALL.map(Backoff::as_str).join(", ");
        de::Error::custom(format!("there is no backoff {word:?}; write one of {words}"))
    })
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 5,
            backoff: Backoff::Exponential,
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
            crashes: 3,
        }
    }
}

/// Converts the policy of Duly's handlers. The waits grow as there, without jitter.
impl From<RetryPolicy> for Retry {
    fn from(RetryPolicy { attempts, backoff, min, max }: RetryPolicy) -> Self {
        // 0 would mean no limit here.
        Self { attempts: attempts.max(1), backoff, min, max, ..Self::default() }
    }
}

impl Retry {
    /// The wait after this failure, counted from 1. It has no jitter: entries that failed together were read at different times.
    pub(crate) fn wait(&self, failure: u32) -> Duration {
        self.backoff.base_wait(self.min, failure).min(self.max)
    }

    /// Refuses waits that contradict each other.
    pub(crate) fn check(&self) -> Result<(), Error> {
        if self.min > self.max { Err(Error::Invalid(MIN_ABOVE_MAX.into())) } else { Ok(()) }
    }

    /// Whether an entry with these counts is given up.
    pub(crate) fn is_exhausted(&self, failures: u32, crashes: u32) -> bool {
        crashes >= self.crashes || self.attempts > 0 && failures + crashes >= self.attempts
    }
}

/// How a stream is trimmed. Without a length and an age it is not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trim {
    /// Entries to keep.
    pub max_len: Option<u64>,
    /// How long entries are kept.
    #[serde(deserialize_with = "span::optional::deserialize")]
    pub max_age: Option<Duration>,
    /// What happens to entries that some group has not acknowledged.
    pub unacknowledged: Unacknowledged,
}

/// Whether unacknowledged entries may be trimmed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Unacknowledged {
    /// Never: the stream grows past its limit until every group has caught up, and the group that prevents trimming is
    /// reported. A stream without a group is not trimmed.
    #[default]
    Keep,
    /// Trim at the limit, acknowledged or not. Entries lost in this way are reported.
    Drop,
}

/// What happens to entries that are given up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadLetterPolicy {
    /// Keep them: entries in the stream `<topic>_dlq`, timers among the [dead](crate::ExpiryTimers::dead) ones of their
    /// prefix. If false, they are acknowledged and logged. Default true.
    pub keep: bool,
    /// About how many to keep per topic or prefix, the newest. Default: no limit.
    pub max_len: Option<u64>,
}

impl Default for DeadLetterPolicy {
    fn default() -> Self {
        Self { keep: true, max_len: None }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn waits_grow_up_to_the_longest() {
        let retry = Retry { min: Duration::from_secs(1), max: Duration::from_secs(5), ..Retry::default() };
        let waits: Vec<_> = [1, 2, 3, 4, 100].map(|failure| retry.wait(failure).as_secs()).to_vec();
        assert_eq!(waits, [1, 2, 4, 5, 5]);
        let linear = Retry { backoff: Backoff::Linear, ..retry.clone() };
        assert_eq!([1, 2, 3, 9].map(|failure| linear.wait(failure).as_secs()), [1, 2, 3, 5]);
        assert_eq!(Retry { backoff: Backoff::Fixed, ..retry }.wait(9).as_secs(), 1);
    }

    #[test]
    fn a_policy_of_duly_is_a_policy_here() {
        let policy = RetryPolicy { attempts: 0, backoff: Backoff::Linear, ..RetryPolicy::default() };
        let retry = Retry::from(policy.clone());
        assert_eq!((retry.attempts, retry.backoff), (1, Backoff::Linear), "0 is not for ever there");
        assert_eq!((retry.min, retry.max, retry.crashes), (policy.min, policy.max, 3));
    }

    #[test]
    fn an_entry_is_over_at_either_limit() {
        let retry = Retry { attempts: 4, crashes: 2, ..Retry::default() };
        assert!(!retry.is_exhausted(3, 0) && retry.is_exhausted(4, 0));
        assert!(!retry.is_exhausted(2, 1) && retry.is_exhausted(3, 1) && retry.is_exhausted(0, 2));
        let ever = Retry { attempts: 0, ..retry };
        assert!(!ever.is_exhausted(u32::MAX - 1, 1) && ever.is_exhausted(0, 2));
    }
}
