//! How often and how soon a delivery is tried again.

use std::time::Duration;

use crate::{ErrorCode, Invalid};

/// How the longest wait grows from try to try.
///
/// These numbers are on disk and in Redis, where 0 means "not said", and the words in databases: never change or reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
#[repr(u8)]
pub enum Backoff {
    /// Always `min`.
    Fixed = 1,
    /// `min`, 2 × `min`, 3 × `min` …
    Linear = 2,
    /// `min`, 2 × `min`, 4 × `min` …
    Exponential = 3,
}

impl Backoff {
    /// All of them.
    pub const ALL: [Self; 3] = [Self::Fixed, Self::Linear, Self::Exponential];

    /// The one of this number, as stores write it.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|backoff| *backoff as u8 == number)
    }

    /// The word that users write and databases keep.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Fixed => "fixed",
            Self::Linear => "linear",
            Self::Exponential => "exponential",
        }
    }
}

/// The retries of a lane: total tries, and the wait between them.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RetryPolicy {
    /// Total tries; then the message is a dead letter.
    pub attempts: u32,
    /// How the wait grows.
    pub backoff: Backoff,
    /// The first wait.
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

/// What one message says about its own retries; what it leaves out is the lane's.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct RetryOverride {
    /// Total tries.
    pub attempts: Option<u32>,
    /// How the wait grows.
    pub backoff: Option<Backoff>,
    /// The first wait.
    pub min: Option<Duration>,
    /// The longest wait.
    pub max: Option<Duration>,
}

impl RetryPolicy {
    /// Refuses a first wait that is longer than the longest. `path` is where the policy stands.
    pub fn check(&self, path: &str) -> Result<(), Invalid> {
        if self.min <= self.max {
            return Ok(());
        }
        let detail = format!("it is {:?}, longer than max, which is {:?}", self.min, self.max);
        Err(Invalid::new(ErrorCode::BadRetry, format!("{path}.min"), detail))
    }

    /// This policy with what the message says instead.
    pub fn with(&self, message: Option<&RetryOverride>) -> Self {
        let Some(own) = message else { return self.clone() };
        Self {
            attempts: own.attempts.unwrap_or(self.attempts).max(1),
            backoff: own.backoff.unwrap_or(self.backoff),
            min: own.min.unwrap_or(self.min),
            max: own.max.unwrap_or(self.max),
        }
    }

    /// The wait after try number `attempt` (from 1): `random` picks between half the grown wait and all of it, never less
    /// than `min`. What failed together does not come back together, and the waits of all attempts have a lower bound
    /// that outages can be compared with.
    pub fn wait(&self, attempt: u32, random: u64) -> Duration {
        let attempt = attempt.max(1);
        let grown = match self.backoff {
            Backoff::Fixed => self.min,
            Backoff::Linear => self.min.saturating_mul(attempt),
            Backoff::Exponential => {
                self.min.saturating_mul(1u32.checked_shl(attempt - 1).unwrap_or(u32::MAX))
            }
        };
        let top = grown.min(self.max).max(self.min);
        let bottom = (top / 2).max(self.min);
        let spread = u64::try_from((top - bottom).as_millis()).unwrap_or(u64::MAX);
        bottom.saturating_add(Duration::from_millis(random % spread.saturating_add(1)))
    }
}

#[cfg(test)]
mod tests {
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
        let seconds = |backoff| (1..=6).map(|n| longest(&policy(backoff), n) / 1000).collect::<Vec<_>>();
        assert_eq!(seconds(Backoff::Fixed), [1, 1, 1, 1, 1, 1]);
        assert_eq!(seconds(Backoff::Linear), [1, 2, 3, 4, 5, 6]);
        assert_eq!(seconds(Backoff::Exponential), [1, 2, 4, 8, 10, 10]);
        assert_eq!(longest(&policy(Backoff::Exponential), u32::MAX), 10_000);
    }

    #[test]
    fn no_wait_is_shorter_than_the_minimum() {
        assert!(
            (0..1000).all(|random| policy(Backoff::Exponential).wait(1, random) >= Duration::from_secs(1))
        );
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
