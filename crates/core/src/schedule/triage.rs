//! Whether a claimed message is still worth a try.

use std::time::Duration;

use crate::{DeadReason, Lost, RetryOverride, RetryPolicy, Timestamp, store::Leased};

/// What decides about a claimed message.
#[derive(Debug, Clone)]
pub struct Terms {
    /// When it is due.
    pub due: Timestamp,
    /// The number of this try, from 1.
    pub attempt: u32,
    /// How its last claim ended, if nobody settled it.
    pub lost: Lost,
    /// How late it may be.
    pub max_lateness: Option<Duration>,
    /// What it says about its own retries.
    pub retry: Option<Box<RetryOverride>>,
    /// How large its body is: what it costs to have it in hand.
    pub bytes: usize,
    /// The message, by a number of its id.
    pub message: u64,
    /// Where inside the target it goes, by a number of the [destination](crate::Sink::destination).
    pub destination: u64,
}

impl Terms {
    /// The terms of a claimed message, whatever its destination.
    pub fn of(leased: &Leased) -> Self {
        Self {
            due: leased.message.due,
            attempt: leased.attempt,
            lost: leased.lost,
            max_lateness: leased.message.max_lateness,
            retry: leased.message.retry.clone(),
            bytes: leased.message.body.len(),
            message: number_of(leased.message.id.as_str()),
            destination: 0,
        }
    }

    /// The same for a message that goes to `destination`.
    #[must_use]
    pub fn to(self, destination: &str) -> Self {
        Self { destination: number_of(destination), ..self }
    }

    /// The total tries it has, given its lane's.
    pub fn attempts(&self, lane: &RetryPolicy) -> u32 {
        self.retry.as_ref().and_then(|own| own.attempts).unwrap_or(lane.attempts).max(1)
    }
}

/// The same text has the same number in every run, so that a simulation can be repeated (FNV-1a).
fn number_of(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// What to do with a claimed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Triage {
    /// Try.
    Deliver,
    /// Give up without a try.
    Dead(DeadReason),
    /// Wall time stepped back after the claim: hand it back, it is early again.
    Early,
}

/// Decides about a claimed message at the moment before its try.
pub fn triage(now: Timestamp, terms: &Terms, lane: &RetryPolicy) -> Triage {
    if terms.due > now {
        return Triage::Early;
    }
    if terms.max_lateness.is_some_and(|late| now > terms.due.saturating_add(late)) {
        return Triage::Dead(DeadReason::Expired);
    }
    // Lost in company, it may be innocent: one try alone tells, whatever was counted.
    if terms.attempt > terms.attempts(lane) && terms.lost != Lost::InCompany {
        return Triage::Dead(DeadReason::Exhausted);
    }
    Triage::Deliver
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp::from_millis(10_000);

    fn terms() -> Terms {
        Terms {
            due: NOW,
            attempt: 1,
            lost: Lost::No,
            max_lateness: None,
            retry: None,
            bytes: 0,
            message: 0,
            destination: 0,
        }
    }

    fn decide(terms: &Terms) -> Triage {
        triage(NOW, terms, &RetryPolicy { attempts: 3, ..RetryPolicy::default() })
    }

    #[test]
    fn what_is_early_again_is_handed_back() {
        assert_eq!(decide(&Terms { due: Timestamp::from_millis(10_001), ..terms() }), Triage::Early);
        assert_eq!(decide(&terms()), Triage::Deliver);
    }

    #[test]
    fn what_is_too_late_is_expired() {
        let late = |ms| Terms {
            due: Timestamp::from_millis(9_000),
            max_lateness: Some(Duration::from_millis(ms)),
            ..terms()
        };
        assert_eq!(decide(&late(999)), Triage::Dead(DeadReason::Expired));
        assert_eq!(decide(&late(1000)), Triage::Deliver);
    }

    #[test]
    fn what_used_up_its_attempts_is_exhausted() {
        assert_eq!(decide(&Terms { attempt: 3, ..terms() }), Triage::Deliver);
        assert_eq!(decide(&Terms { attempt: 4, ..terms() }), Triage::Dead(DeadReason::Exhausted));
        let alone = Terms { attempt: 4, lost: Lost::Alone, ..terms() };
        assert_eq!(decide(&alone), Triage::Dead(DeadReason::Exhausted));
    }

    #[test]
    fn what_was_lost_in_company_gets_its_try_alone() {
        assert_eq!(decide(&Terms { attempt: 9, lost: Lost::InCompany, ..terms() }), Triage::Deliver);
    }

    #[test]
    fn a_message_may_have_its_own_limit() {
        let own = RetryOverride { attempts: Some(1), ..RetryOverride::default() };
        let terms = Terms { attempt: 2, retry: Some(Box::new(own)), ..terms() };
        assert_eq!(decide(&terms), Triage::Dead(DeadReason::Exhausted));
    }
}
