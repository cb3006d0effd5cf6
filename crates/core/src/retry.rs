//! Retry policies.

use std::time::Duration;

use crate::{ErrorCode, Invalid};

/// How the wait grows from attempt to attempt, before jitter and maximum: [`RetryPolicy::wait`] adds both, duly-streams the maximum alone.
///
/// These numbers are on disk and in Redis, where 0 means "not said", and the words in databases: never change or reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Backoff {
    /// Does not grow: `min` each time.
    Fixed = 1,
    /// Grows by `min` with each attempt: `min`, 2 × `min`, 3 × `min` …
    Linear = 2,
    /// Doubles with each attempt: `min`, 2 × `min`, 4 × `min` …
    Exponential = 3,
}

impl Backoff {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Linear, Self::Exponential];

    /// The variant of this number, as stores write it.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|backoff| *backoff as u8 == number)
    }

    /// The wait after attempt number `attempt` (from 1), before jitter and maximum.
    pub fn base_wait(self, min: Duration, attempt: u32) -> Duration {
        let attempt = attempt.max(1);
        match self {
            Self::Fixed => min,
            Self::Linear => min.saturating_mul(attempt),
            Self::Exponential => min.saturating_mul(1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX)),
        }
    }

    /// The word in configuration and databases.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Linear => "linear",
            Self::Exponential => "exponential",
        }
    }
}

/// The retry policy of a lane: attempts, and the waits between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Attempts; then the message is a dead letter.
    pub attempts: u32,
    /// How the wait grows.
    pub backoff: Backoff,
    /// The shortest wait, and the first one before jitter.
    pub min: Duration,
    /// The longest wait.
    pub max: Duration,
}

impl Default for RetryPolicy {
    fn default() -> Self {
        Self {
            attempts: 16,
            backoff: Backoff::Exponential,
            min: Duration::from_secs(1),
            max: Duration::from_secs(300),
        }
    }
}

/// Retry settings of one message; the rest is the lane's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryOverride {
    /// Attempts.
    pub attempts: Option<u32>,
    /// How the wait grows.
    pub backoff: Option<Backoff>,
    /// The shortest wait, and the first one before jitter.
    pub min: Option<Duration>,
    /// The longest wait.
    pub max: Option<Duration>,
}

impl RetryPolicy {
    /// Refuses a shortest wait that exceeds the longest. `path` is the place of the policy.
    pub fn check(&self, path: &str) -> Result<(), Invalid> {
        if self.min <= self.max {
            return Ok(());
        }
        let detail = format!("it is {:?}, longer than max, which is {:?}", self.min, self.max);
        Err(Invalid::new(ErrorCode::BadRetry, format!("{path}.min"), detail))
    }

    /// This policy with the values of the message.
    pub fn with(&self, message: Option<&RetryOverride>) -> Self {
        let Some(own) = message else { return self.clone() };
        Self {
            attempts: own.attempts.unwrap_or(self.attempts).max(1),
            backoff: own.backoff.unwrap_or(self.backoff),
            min: own.min.unwrap_or(self.min),
            max: own.max.unwrap_or(self.max),
        }
    }

    /// The wait after attempt number `attempt` (from 1): `random` picks between half of the grown wait and all of it,
    /// never less than `min`. Where that leaves no room (after the first attempt, and with a fixed wait), it picks up to a quarter
    /// more, but no longer than `max`: with `min` equal to `max`, each wait is exactly that. Messages that failed together do not
    /// come back together, and the sum of all waits has a lower bound.
    pub fn wait(&self, attempt: u32, random: u64) -> Duration {
        let grown = self.backoff.base_wait(self.min, attempt).min(self.max).max(self.min);
        let shortest = (grown / 2).max(self.min);
        let longest = shortest.saturating_add(shortest / 4).min(self.max).max(grown);
        let spread = u64::try_from((longest - shortest).as_millis()).unwrap_or(u64::MAX);
        shortest.saturating_add(Duration::from_millis(random % spread.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn policy(backoff: Backoff) -> RetryPolicy {
        RetryPolicy { attempts: 5, backoff, min: Duration::from_secs(1), max: Duration::from_secs(10) }
    }

    /// The longest wait that any randomness can draw.
    fn longest(policy: &RetryPolicy, attempt: u32) -> u64 {
        (0..20_000).map(|random| policy.wait(attempt, random).as_millis() as u64).max().unwrap_or(0)
    }

    #[test]
    fn waits_grow_as_named_and_stop_at_the_maximum() {
        let most = |backoff| (1..=6).map(|n| longest(&policy(backoff), n)).collect::<Vec<_>>();
        assert_eq!(most(Backoff::Fixed), [1_250; 6]);
        assert_eq!(most(Backoff::Linear), [1_250, 2_000, 3_000, 4_000, 5_000, 6_000]);
        assert_eq!(most(Backoff::Exponential), [1_250, 2_000, 4_000, 8_000, 10_000, 10_000]);
        assert_eq!(longest(&policy(Backoff::Exponential), u32::MAX), 10_000);
    }

    /// A thousand messages that failed in the same moment, each with a draw of its own.
    #[test]
    fn what_fails_together_comes_back_apart_and_never_before_the_minimum() {
        for backoff in Backoff::ALL {
            for attempt in 1..=6 {
                let waits: BTreeSet<_> =
                    (0..1000).map(|random| policy(backoff).wait(attempt, random * 7_919)).collect();
                let (first, last) = (waits.first().copied().unwrap(), waits.last().copied().unwrap());
                assert!(first >= Duration::from_secs(1), "{backoff:?} {attempt}: {first:?}");
                assert!(last - first >= first / 5, "{backoff:?} {attempt}: {first:?} to {last:?}");
                assert!(waits.len() >= 250, "{backoff:?} {attempt}: {} instants", waits.len());
            }
        }
    }

    #[test]
    fn a_wait_that_may_not_be_longer_is_exact() {
        let second = Duration::from_secs(1);
        for backoff in Backoff::ALL {
            let exact = RetryPolicy { max: second, ..policy(backoff) };
            assert!(
                (0..1000).all(|random| exact.wait(1 + random as u32 % 9, random) == second),
                "{backoff:?}"
            );
        }
    }

    #[test]
    fn no_wait_is_shorter_than_half_of_what_it_has_grown_to() {
        let shortest = (0..20_000).map(|random| policy(Backoff::Exponential).wait(4, random)).min();
        assert_eq!(shortest, Some(Duration::from_secs(4)));
    }

    #[test]
    fn waits_as_long_as_time_itself_overflow_nothing() {
        for (min, max) in [
            (Duration::from_secs(1 << 40), Duration::MAX),
            (Duration::MAX, Duration::MAX),
            (Duration::MAX, Duration::ZERO),
        ] {
            for backoff in [Backoff::Fixed, Backoff::Linear, Backoff::Exponential] {
                let policy = RetryPolicy { attempts: 5, backoff, min, max };
                assert!([1, 2, u32::MAX].iter().all(|attempt| policy.wait(*attempt, u64::MAX) >= min));
            }
        }
    }

    #[test]
    fn a_message_overrides_only_what_it_names() {
        let own = RetryOverride { attempts: Some(2), ..RetryOverride::default() };
        let merged = policy(Backoff::Linear).with(Some(&own));
        assert_eq!(merged, RetryPolicy { attempts: 2, ..policy(Backoff::Linear) });
    }
}
