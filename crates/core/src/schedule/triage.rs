//! Whether a claimed message is still worth a try.

use std::time::Duration;

use super::{LaneSettings, Work, settlement::policy};
use crate::{DeadReason, LeaseLoss, Outcome, RetryOverride, RetryPolicy, Timestamp, store::LeasedMessage};

/// What decides about a claimed message.
#[derive(Debug, Clone)]
pub struct DeliveryTerms {
    /// When it is due.
    pub due: Timestamp,
    /// The number of this try, from 1.
    pub attempt: u32,
    /// How its last claim ended, if nobody settled it.
    pub lost: LeaseLoss,
    /// When its last claim was lost, unless it was tried or has waited since.
    pub lost_at: Option<Timestamp>,
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

impl DeliveryTerms {
    /// The terms of a claimed message, whatever its destination.
    pub fn of(leased: &LeasedMessage) -> Self {
        Self {
            due: leased.message.due,
            attempt: leased.attempt,
            lost: leased.lost,
            // A loss leaves the ready time alone, so that a later one is that of a wait, or of an operator.
            lost_at: leased.lost_at.filter(|at| leased.ready <= *at),
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
pub fn triage(now: Timestamp, terms: &DeliveryTerms, lane: &RetryPolicy) -> Triage {
    if terms.due > now {
        return Triage::Early;
    }
    if terms.max_lateness.is_some_and(|late| now > terms.due.saturating_add(late)) {
        return Triage::Dead(DeadReason::Expired);
    }
    // Lost in company, it may be innocent: one try alone tells, whatever was counted.
    if terms.attempt > terms.attempts(lane) && terms.lost != LeaseLoss::InBatch {
        return Triage::Dead(DeadReason::Exhausted);
    }
    Triage::Deliver
}

/// When a message comes again whose last claim was lost: as after a failed try. `None`: now, or never.
///
/// Only handlers and receivers wait. What a sink has in hand when its process ends says nothing about the target.
pub fn wait_after_loss(
    now: Timestamp,
    terms: &DeliveryTerms,
    settings: &LaneSettings,
    draw: impl FnOnce() -> u64,
) -> Option<Timestamp> {
    let lost_at = terms.lost_at.filter(|_| settings.work != Work::Sink)?;
    if triage(now, terms, &settings.retry) != Triage::Deliver {
        return None;
    }
    let tried = terms.attempt.saturating_sub(1);
    let wait = policy(settings, terms, Outcome::Lost).wait(tried, draw());
    Some(lost_at.saturating_add(wait)).filter(|at| *at > now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Backoff;

    const NOW: Timestamp = Timestamp::from_millis(10_000);

    fn terms() -> DeliveryTerms {
        DeliveryTerms {
            due: NOW,
            attempt: 1,
            lost: LeaseLoss::None,
            lost_at: None,
            max_lateness: None,
            retry: None,
            bytes: 0,
            message: 0,
            destination: 0,
        }
    }

    fn decide(terms: &DeliveryTerms) -> Triage {
        triage(NOW, terms, &RetryPolicy { attempts: 3, ..RetryPolicy::default() })
    }

    #[test]
    fn what_is_early_again_is_handed_back() {
        assert_eq!(decide(&DeliveryTerms { due: Timestamp::from_millis(10_001), ..terms() }), Triage::Early);
        assert_eq!(decide(&terms()), Triage::Deliver);
    }

    #[test]
    fn what_is_too_late_is_expired() {
        let late = |ms| DeliveryTerms {
            due: Timestamp::from_millis(9_000),
            max_lateness: Some(Duration::from_millis(ms)),
            ..terms()
        };
        assert_eq!(decide(&late(999)), Triage::Dead(DeadReason::Expired));
        assert_eq!(decide(&late(1000)), Triage::Deliver);
    }

    #[test]
    fn what_used_up_its_attempts_is_exhausted() {
        assert_eq!(decide(&DeliveryTerms { attempt: 3, ..terms() }), Triage::Deliver);
        assert_eq!(decide(&DeliveryTerms { attempt: 4, ..terms() }), Triage::Dead(DeadReason::Exhausted));
        let alone = DeliveryTerms { attempt: 4, lost: LeaseLoss::Alone, ..terms() };
        assert_eq!(decide(&alone), Triage::Dead(DeadReason::Exhausted));
    }

    #[test]
    fn what_was_lost_in_company_gets_its_try_alone() {
        assert_eq!(
            decide(&DeliveryTerms { attempt: 9, lost: LeaseLoss::InBatch, ..terms() }),
            Triage::Deliver
        );
    }

    #[test]
    fn a_message_may_have_its_own_limit() {
        let own = RetryOverride { attempts: Some(1), ..RetryOverride::default() };
        let terms = DeliveryTerms { attempt: 2, retry: Some(Box::new(own)), ..terms() };
        assert_eq!(decide(&terms), Triage::Dead(DeadReason::Exhausted));
    }

    fn queue() -> LaneSettings {
        LaneSettings {
            in_flight: 10,
            buffered: 10,
            concurrency: 1,
            batch: 10,
            timeout: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            retry: RetryPolicy {
                attempts: 5,
                backoff: Backoff::Exponential,
                min: Duration::from_secs(1),
                max: Duration::from_secs(30),
            },
            rate: None,
            movable: 0,
            work: Work::Handler { again: Duration::from_secs(1), failed: Duration::from_secs(5) },
        }
    }

    /// Lost at `NOW`, for the time number `times`.
    fn lost(times: u32) -> DeliveryTerms {
        DeliveryTerms { attempt: times + 1, lost: LeaseLoss::Alone, lost_at: Some(NOW), ..terms() }
    }

    /// The wait from the loss on, with the shortest draw.
    fn wait(terms: &DeliveryTerms) -> Option<u64> {
        wait_after_loss(NOW, terms, &queue(), || 0).map(|at| at.as_millis() - NOW.as_millis())
    }

    #[test]
    fn what_was_lost_waits_as_after_a_failure_and_longer_each_time() {
        let waits: Vec<_> = (1..5).map(|times| wait(&lost(times))).collect();
        assert_eq!(waits, [Some(5_000), Some(5_000), Some(10_000), Some(15_000)]);
    }

    #[test]
    fn the_wait_runs_from_the_loss_and_not_from_the_claim_that_meets_it() {
        let at = |ms| wait_after_loss(Timestamp::from_millis(ms), &lost(1), &queue(), || 0);
        assert_eq!(at(14_999), Some(Timestamp::from_millis(15_000)));
        assert_eq!(at(15_000), None);
    }

    #[test]
    fn a_message_has_its_own_wait_after_a_loss() {
        let own = RetryOverride {
            backoff: Some(Backoff::Fixed),
            min: Some(Duration::from_secs(7)),
            ..RetryOverride::default()
        };
        assert_eq!(wait(&DeliveryTerms { retry: Some(Box::new(own)), ..lost(3) }), Some(7_000));
    }

    #[test]
    fn what_is_dead_or_has_waited_or_goes_to_a_sink_does_not_wait() {
        assert_eq!(wait(&lost(5)), None, "its attempts are used up");
        assert_eq!(wait(&DeliveryTerms { lost_at: None, ..lost(1) }), None);
        let sink = LaneSettings { work: Work::Sink, ..queue() };
        assert_eq!(wait_after_loss(NOW, &lost(1), &sink, || 0), None);
    }

    #[test]
    fn what_was_lost_in_company_waits_before_its_try_alone() {
        assert_eq!(wait(&DeliveryTerms { lost: LeaseLoss::InBatch, ..lost(9) }), Some(15_000));
    }
}
