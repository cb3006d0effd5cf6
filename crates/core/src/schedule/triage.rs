//! Triage: whether a claimed message is still to be delivered.

use std::time::Duration;

use super::{LaneSettings, LaneWorker, settlement::policy};
use crate::{DeadReason, LeaseLoss, Outcome, RetryOverride, RetryPolicy, Timestamp, store::LeasedMessage};

/// The facts that decide whether and how a claimed message is delivered.
#[derive(Debug, Clone)]
pub struct DeliveryTerms {
    /// When it is due.
    pub due: Timestamp,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How its last lease was lost, if it was.
    pub lost: LeaseLoss,
    /// When its last lease was lost, unless it was tried or deferred since.
    pub lost_at: Option<Timestamp>,
    /// Its lateness limit.
    pub max_lateness: Option<Duration>,
    /// Its own retry settings.
    pub retry: Option<Box<RetryOverride>>,
    /// Its [bytes](crate::StoredMessage::bytes).
    pub bytes: usize,
    /// A hash of its id.
    pub message: u64,
    /// A hash of its [destination](crate::Sink::destination).
    pub destination: u64,
}

impl DeliveryTerms {
    /// The terms of a claimed message, without its destination.
    pub fn of(leased: &LeasedMessage) -> Self {
        Self {
            due: leased.message.due,
            attempt: leased.attempt,
            lost: leased.lost,
            // A loss does not change the ready time: a later one comes from a wait or an operator.
            lost_at: leased.lost_at.filter(|at| leased.ready <= *at),
            max_lateness: leased.message.max_lateness,
            retry: leased.message.retry.clone(),
            bytes: leased.message.bytes(),
            message: hash_of(leased.message.id.as_str()),
            destination: 0,
        }
    }

    /// Sets the destination.
    #[must_use]
    pub fn to(self, destination: &str) -> Self {
        Self { destination: hash_of(destination), ..self }
    }

    /// Its attempts, by its own limit or that of the lane.
    pub fn attempts(&self, lane: &RetryPolicy) -> u32 {
        self.retry.as_ref().and_then(|own| own.attempts).unwrap_or(lane.attempts).max(1)
    }
}

/// FNV-1a, because it is the same in every run, so that a simulation is repeatable.
fn hash_of(text: &str) -> u64 {
    text.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01b3)
    })
}

/// What to do with a claimed message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Triage {
    /// Deliver it.
    Deliver,
    /// Give it up without an attempt.
    Dead(DeadReason),
    /// Wall time stepped back after the claim: release it, it is early again.
    Early,
}

/// Decides about a claimed message right before its attempt.
pub fn triage(now: Timestamp, terms: &DeliveryTerms, lane: &RetryPolicy) -> Triage {
    if terms.due > now {
        return Triage::Early;
    }
    if terms.max_lateness.is_some_and(|late| now > terms.due.saturating_add(late)) {
        return Triage::Dead(DeadReason::Expired);
    }
    // Lost in a batch, it may not be the culprit: it gets one attempt alone, whatever was counted.
    if terms.attempt > terms.attempts(lane) && terms.lost != LeaseLoss::InBatch {
        return Triage::Dead(DeadReason::Exhausted);
    }
    Triage::Deliver
}

/// When a message whose lease was lost is delivered again, as after a failed attempt. `None`: now, or never.
///
/// Only messages of handlers and receivers wait: a lost lease of a sink says nothing about its target.
pub fn wait_after_loss(
    now: Timestamp,
    terms: &DeliveryTerms,
    settings: &LaneSettings,
    draw: impl FnOnce() -> u64,
) -> Option<Timestamp> {
    let lost_at = terms.lost_at.filter(|_| settings.worker != LaneWorker::Sink)?;
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
    use crate::{Backoff, MessageId, Receipt, SinkName, StoredMessage, Topic};

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
    fn the_bytes_of_a_claim_are_those_of_body_and_properties() {
        let (id, topic) = (MessageId::parse("a").unwrap(), Topic::parse("t").unwrap());
        let mut message = StoredMessage::new(id.clone(), SinkName::queue(), topic, NOW);
        message.properties.put("name", &"v".repeat(4_096));
        let receipt = Receipt { shard: 0, id, token: 1 };
        let leased = LeasedMessage {
            message,
            receipt,
            ready: NOW,
            attempt: 1,
            lost: LeaseLoss::None,
            lost_at: None,
            fence: None,
        };
        assert_eq!(DeliveryTerms::of(&leased).bytes, 4 + 4_096);
    }

    #[test]
    fn what_is_early_again_is_released() {
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
            in_store_max: 0,
            worker: LaneWorker::Handler { again: Duration::from_secs(1), failed: Duration::from_secs(5) },
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
        let sink = LaneSettings { worker: LaneWorker::Sink, ..queue() };
        assert_eq!(wait_after_loss(NOW, &lost(1), &sink, || 0), None);
    }

    #[test]
    fn what_was_lost_in_company_waits_before_its_try_alone() {
        assert_eq!(wait(&DeliveryTerms { lost: LeaseLoss::InBatch, ..lost(9) }), Some(15_000));
    }
}
