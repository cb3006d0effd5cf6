//! Settlements: what the result of an attempt means for the claim.

use super::{AttemptResult, DeliveryTerms, LaneSettings, LaneWorker};
use crate::{Attempt, DeadReason, Outcome, RetryPolicy, Timestamp, store::Settlement};

/// The settlement of a claim by the result of its attempt. `outage_end` is when an unreachable target is tried again.
pub fn settlement_of(
    now: Timestamp,
    settings: &LaneSettings,
    terms: &DeliveryTerms,
    result: AttemptResult,
    outage_end: Timestamp,
    random: u64,
) -> Settlement {
    let (outcome, detail, retry_after) = match result {
        AttemptResult::Delivered { receipt } => return Settlement::Delivered { receipt },
        AttemptResult::Failed { outcome, detail, retry_after, .. } => (outcome, detail, retry_after),
    };
    let attempt = Attempt::new(now, outcome, detail);
    if !outcome.counts() {
        return Settlement::Retry {
            at: outage_end.max(now.saturating_add(retry_after.unwrap_or_default())),
            attempt,
        };
    }
    if outcome == Outcome::Refused {
        return Settlement::Dead { reason: DeadReason::Refused, attempt: Some(attempt) };
    }
    if terms.attempt >= terms.attempts(&settings.retry) {
        return Settlement::Dead { reason: DeadReason::Exhausted, attempt: Some(attempt) };
    }
    let wait = || policy(settings, terms, outcome).wait(terms.attempt, random);
    let wait = match (&settings.worker, retry_after) {
        // A handler gets the wait that it asks for; a target may ask for more than the policy, not for less.
        (LaneWorker::Handler { .. }, Some(requested)) => requested,
        (_, requested) => wait().max(requested.unwrap_or_default()),
    };
    Settlement::Retry { at: now.saturating_add(wait), attempt }
}

/// The retry policy of a message: its own values over those of the lane.
pub(super) fn policy(settings: &LaneSettings, terms: &DeliveryTerms, outcome: Outcome) -> RetryPolicy {
    let mut lane = settings.retry.clone();
    if let LaneWorker::Handler { again, failed } = settings.worker {
        lane.min = if outcome == Outcome::Again { again } else { failed };
    }
    let own = terms.retry.as_deref();
    let mut policy = lane.with(own);
    // A message that sets only `max` bounds the first wait, too.
    if own.is_some_and(|own| own.min.is_none() && own.max.is_some()) {
        policy.min = policy.min.min(policy.max);
    }
    // A message that sets only `min`, beyond the lane's `max`, replaces that: it waits so long, and up to a quarter more for the jitter.
    if own.is_some_and(|own| own.min.is_some() && own.max.is_none()) && policy.min > policy.max {
        policy.max = policy.min.saturating_add(policy.min / 4);
    }
    policy
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::{Backoff, ErrorScope, LeaseLoss, RetryOverride};

    const NOW: Timestamp = Timestamp::from_millis(10_000);
    const OUTAGE_END: Timestamp = Timestamp::from_millis(12_345);

    fn settings(worker: LaneWorker) -> LaneSettings {
        LaneSettings {
            in_flight: 10,
            buffered: LaneSettings::BUFFERED_MAX,
            concurrency: 1,
            batch: 10,
            timeout: Duration::from_secs(1),
            lease: Duration::from_secs(10),
            retry: RetryPolicy {
                attempts: 3,
                backoff: Backoff::Fixed,
                min: Duration::from_secs(2),
                max: Duration::from_secs(2),
            },
            rate: None,
            in_store_max: 0,
            worker,
        }
    }

    fn handler() -> LaneSettings {
        settings(LaneWorker::Handler { again: Duration::from_secs(1), failed: Duration::from_secs(5) })
    }

    fn terms(attempt: u32) -> DeliveryTerms {
        DeliveryTerms {
            due: NOW,
            attempt,
            lost: LeaseLoss::None,
            lost_at: None,
            max_lateness: None,
            retry: None,
            bytes: 0,
            message: 0,
            destination: 0,
        }
    }

    fn retry_at(settlement: Settlement) -> u64 {
        match settlement {
            Settlement::Retry { at, .. } => at.as_millis(),
            other => panic!("not a retry: {other:?}"),
        }
    }

    fn decide(settings: &LaneSettings, terms: &DeliveryTerms, result: AttemptResult) -> Settlement {
        settlement_of(NOW, settings, terms, result, OUTAGE_END, 0)
    }

    #[test]
    fn an_outage_waits_for_its_end_whatever_the_attempt() {
        for outcome in [Outcome::Unreachable, Outcome::Throttled, Outcome::Misconfigured] {
            let settlement =
                decide(&settings(LaneWorker::Sink), &terms(99), AttemptResult::failed(outcome, "away"));
            assert_eq!(retry_at(settlement), OUTAGE_END.as_millis());
        }
    }

    #[test]
    fn an_unknown_outcome_waits_by_the_policy_until_the_attempts_are_used_up() {
        let unknown = || AttemptResult::failed(Outcome::Unknown, "no answer");
        assert_eq!(retry_at(decide(&settings(LaneWorker::Sink), &terms(2), unknown())), 12_000);
        assert!(matches!(
            decide(&settings(LaneWorker::Sink), &terms(3), unknown()),
            Settlement::Dead { reason: DeadReason::Exhausted, attempt: Some(_) }
        ));
    }

    #[test]
    fn a_refusal_is_dead_at_once() {
        assert!(matches!(
            decide(&settings(LaneWorker::Sink), &terms(1), AttemptResult::failed(Outcome::Refused, "no")),
            Settlement::Dead { reason: DeadReason::Refused, .. }
        ));
    }

    #[test]
    fn a_handler_that_says_no_waits_less_than_one_that_fails() {
        assert_eq!(
            retry_at(decide(&handler(), &terms(1), AttemptResult::failed(Outcome::Again, ""))),
            11_000
        );
        assert_eq!(
            retry_at(decide(&handler(), &terms(1), AttemptResult::failed(Outcome::Failed, "x"))),
            15_000
        );
        assert!(matches!(
            decide(&handler(), &terms(3), AttemptResult::failed(Outcome::Again, "")),
            Settlement::Dead { reason: DeadReason::Exhausted, .. }
        ));
    }

    #[test]
    fn the_targets_wish_and_the_messages_own_policy_are_honoured() {
        let result = AttemptResult::Failed {
            outcome: Outcome::Unknown,
            detail: String::new(),
            retry_after: Some(Duration::from_secs(60)),
            scope: ErrorScope::Target,
        };
        assert_eq!(retry_at(decide(&settings(LaneWorker::Sink), &terms(1), result)), 70_000);
        let own = RetryOverride {
            min: Some(Duration::from_secs(7)),
            max: Some(Duration::from_secs(7)),
            ..RetryOverride::default()
        };
        let terms = DeliveryTerms { retry: Some(Box::new(own)), ..terms(1) };
        assert_eq!(retry_at(decide(&handler(), &terms, AttemptResult::failed(Outcome::Failed, "x"))), 17_000);
        assert_eq!(retry_at(decide(&handler(), &terms, AttemptResult::failed(Outcome::Again, ""))), 17_000);
    }

    #[test]
    fn a_handlers_waits_grow_by_the_policy_from_the_first_wait_of_the_outcome() {
        let grows = LaneSettings {
            retry: RetryPolicy {
                attempts: 99,
                backoff: Backoff::Exponential,
                min: Duration::ZERO,
                max: Duration::from_secs(60),
            },
            ..handler()
        };
        // Without randomness a wait is half of what it has grown to, and never less than the first.
        let wait = |outcome, attempt| {
            retry_at(decide(&grows, &terms(attempt), AttemptResult::failed(outcome, ""))) - 10_000
        };
        assert_eq!([1, 2, 4, 9].map(|n| wait(Outcome::Again, n)), [1_000, 1_000, 4_000, 30_000]);
        assert_eq!([1, 2, 4, 9].map(|n| wait(Outcome::Failed, n)), [5_000, 5_000, 20_000, 30_000]);
    }

    #[test]
    fn a_message_that_names_only_its_first_wait_comes_apart_from_its_neighbours() {
        let own = RetryOverride { min: Some(Duration::from_secs(60)), ..RetryOverride::default() };
        let terms = DeliveryTerms { retry: Some(Box::new(own)), ..terms(1) };
        for settings in [handler(), settings(LaneWorker::Sink)] {
            let result = || AttemptResult::failed(Outcome::Failed, "x");
            let at = |random| retry_at(settlement_of(NOW, &settings, &terms, result(), OUTAGE_END, random));
            assert_eq!((at(0), at(15_000)), (70_000, 85_000));
        }
    }

    #[test]
    fn a_message_that_names_only_its_first_wait_waits_no_longer_than_the_lane_allows() {
        for min in [1_700, 2_000] {
            let own = RetryOverride { min: Some(Duration::from_millis(min)), ..RetryOverride::default() };
            let terms = DeliveryTerms { retry: Some(Box::new(own)), ..terms(1) };
            for settings in [handler(), settings(LaneWorker::Sink)] {
                let result = || AttemptResult::failed(Outcome::Failed, "x");
                let at =
                    |random| retry_at(settlement_of(NOW, &settings, &terms, result(), OUTAGE_END, random));
                let waits: Vec<_> = (0..1_000).map(|random| at(random) - NOW.as_millis()).collect();
                assert_eq!((waits.iter().min(), waits.iter().max()), (Some(&min), Some(&2_000)), "{min}");
            }
        }
    }

    #[test]
    fn a_message_that_names_only_its_longest_wait_waits_no_longer() {
        let own = RetryOverride { max: Some(Duration::from_millis(300)), ..RetryOverride::default() };
        let terms = DeliveryTerms { retry: Some(Box::new(own)), ..terms(1) };
        assert_eq!(retry_at(decide(&handler(), &terms, AttemptResult::failed(Outcome::Failed, "x"))), 10_300);
        assert_eq!(
            retry_at(decide(
                &settings(LaneWorker::Sink),
                &terms,
                AttemptResult::failed(Outcome::Unknown, "x")
            )),
            10_300
        );
    }

    #[test]
    fn a_handler_that_names_its_wait_gets_exactly_that() {
        let result = |after| AttemptResult::Failed {
            outcome: Outcome::Again,
            detail: String::new(),
            retry_after: Some(Duration::from_millis(after)),
            scope: ErrorScope::Target,
        };
        assert_eq!(retry_at(decide(&handler(), &terms(2), result(10))), 10_010);
        assert_eq!(retry_at(decide(&handler(), &terms(2), result(90_000))), 100_000);
    }
}
