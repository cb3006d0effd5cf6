//! What becomes of entries that fail, and of those that are old.

use std::time::Duration;

use duly_core::RetryPolicy;
use serde::Deserialize;

use super::span;

/// How often an entry is tried, and how long after a failure.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Retry {
    /// How many tries there are in all; then it is a dead letter. 0: it is tried for ever. 5.
    pub attempts: u32,
    /// How the wait grows.
    pub backoff: Backoff,
    /// The wait after the first failure. One second.
    #[serde(with = "span")]
    pub min: Duration,
    /// The longest wait. One minute.
    #[serde(with = "span")]
    pub max: Duration,
    /// An entry in whose handling, while nothing else was handled, the process died so often is a dead letter: it kills whoever
    /// touches it. 3.
    pub crashes: u32,
}

/// How the wait between tries grows.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Backoff {
    /// Always the shortest.
    Fixed,
    /// The shortest, twice, three times as long, up to the longest.
    Linear,
    /// Twice as long each time, up to the longest.
    #[default]
    Exponential,
}

impl Default for Retry {
    fn default() -> Self {
        Self {
            attempts: 5,
            backoff: Backoff::default(),
            min: Duration::from_secs(1),
            max: Duration::from_secs(60),
            crashes: 3,
        }
    }
}

/// The policy that Duly's own handlers take. Its waits have no jitter here: entries that failed together were read at different times.
impl From<RetryPolicy> for Retry {
    fn from(RetryPolicy { attempts, backoff, min, max }: RetryPolicy) -> Self {
        let backoff = match backoff {
            duly_core::Backoff::Fixed => Backoff::Fixed,
            duly_core::Backoff::Linear => Backoff::Linear,
            _ => Backoff::Exponential,
        };
        // There is always one try; 0 would mean for ever.
        Self { attempts: attempts.max(1), backoff, min, max, ..Self::default() }
    }
}

impl Retry {
    /// How long to wait after the failure of that number, from 1 on.
    pub(crate) fn wait(&self, failure: u32) -> Duration {
        match self.backoff {
            Backoff::Fixed => self.min,
            Backoff::Linear => self.min.saturating_mul(failure.max(1)).min(self.max),
            Backoff::Exponential => {
                self.min.saturating_mul(1 << failure.saturating_sub(1).min(30)).min(self.max)
            }
        }
    }

    /// Whether an entry that has come so far is given up.
    pub(crate) fn is_over(&self, failures: u32, crashes: u32) -> bool {
        crashes >= self.crashes || self.attempts > 0 && failures + crashes >= self.attempts
    }
}

/// How a stream is kept short. Without a length and an age it is not.
#[derive(Debug, Clone, PartialEq, Eq, Default, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Trim {
    /// Keep so many entries.
    pub max_len: Option<u64>,
    /// Keep entries for so long.
    #[serde(deserialize_with = "span::optional::deserialize")]
    pub max_age: Option<Duration>,
    /// What of those that not every group has acknowledged.
    pub unacknowledged: Unacknowledged,
}

/// Whether trimming may take what somebody still waits for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Deserialize)]
#[serde(rename_all = "lowercase")]
#[non_exhaustive]
pub enum Unacknowledged {
    /// Never: the stream grows past its limit until every group has caught up, and the group that holds it up is reported. A stream
    /// that has no group yet is not trimmed.
    #[default]
    Keep,
    /// Trim at the limit, as entries are appended, handled or not. What is lost in this way is reported.
    Drop,
}

/// Where entries go that are given up.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DeadLetterPolicy {
    /// Keep them, in the stream `<topic>_dlq`, and timers among the [dead](crate::ExpiryTimers::dead) ones of their prefix. If not, what is
    /// given up is acknowledged and logged. On.
    pub keep: bool,
    /// Keep about so many of a topic or a prefix, the newest. No limit unless set.
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
        let policy =
            RetryPolicy { attempts: 0, backoff: duly_core::Backoff::Linear, ..RetryPolicy::default() };
        let retry = Retry::from(policy.clone());
        assert_eq!((retry.attempts, retry.backoff), (1, Backoff::Linear), "0 is not for ever there");
        assert_eq!((retry.min, retry.max, retry.crashes), (policy.min, policy.max, 3));
    }

    #[test]
    fn an_entry_is_over_at_either_limit() {
        let retry = Retry { attempts: 4, crashes: 2, ..Retry::default() };
        assert!(!retry.is_over(3, 0) && retry.is_over(4, 0));
        assert!(!retry.is_over(2, 1) && retry.is_over(3, 1) && retry.is_over(0, 2));
        let ever = Retry { attempts: 0, ..retry };
        assert!(!ever.is_over(u32::MAX - 1, 1) && ever.is_over(0, 2));
    }
}
