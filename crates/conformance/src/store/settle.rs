//! Cases: settling.

use std::time::Duration;

use duly_core::{
    Body, DeadReason, LeaseLoss, Outcome, State,
    store::{Settled, Settlement},
};

use super::{Lab, harness::*};

const PAST_THE_LEASE: u64 = LEASE.as_millis() as u64 + 1;

/// Once the lease ended, nothing the old holder says changes anything.
pub async fn settle_with_a_lost_lease_changes_nothing(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let stale = t.claim_one("a").await;
    t.pass(PAST_THE_LEASE);
    t.sweep(&["work"]).await;
    let before = t.record("a").await;
    let settlements = || {
        let attempt = duly_core::Attempt::new(ms(0), Outcome::Failed, "");
        [
            Settlement::Delivered { receipt: None },
            Settlement::Retry { at: ms(1), attempt: attempt.clone() },
            Settlement::Dead { reason: DeadReason::Refused, attempt: Some(attempt) },
            Settlement::Release,
            Settlement::Defer { at: ms(1) },
        ]
    };
    for settlement in settlements() {
        assert_eq!(t.settle(&stale.receipt, settlement).await, Settled::Lost);
        assert_eq!(t.record("a").await, before);
    }
    let fresh = t.claim_one("a").await;
    for settlement in settlements() {
        assert_eq!(t.settle(&stale.receipt, settlement).await, Settled::Lost);
    }
    t.deliver(&fresh).await;
    assert_eq!(t.record("a").await.state, State::Delivered);
}

/// The first settle decides.
pub async fn settle_twice_is_lost_the_second_time(lab: &Lab) {
    let t = lab.harness().await;
    t.accept([message("a", 0), message("b", 0)]).await;
    let a = t.claim_one("a").await;
    t.deliver(&a).await;
    let attempt = duly_core::Attempt::new(ms(0), Outcome::Failed, "");
    let retry = Settlement::Retry { at: ms(0), attempt };
    assert_eq!(t.settle(&a.receipt, retry.clone()).await, Settled::Lost);
    assert_eq!(t.record("a").await.state, State::Delivered);

    let b = t.claim_one("b").await;
    assert_eq!(t.settle(&b.receipt, retry.clone()).await, Settled::Done);
    assert_eq!(t.settle(&b.receipt, retry).await, Settled::Lost);
    assert_eq!(t.record("b").await.attempts, 1);
}

/// After a failed try the message waits until the given time, and the try counts.
pub async fn a_retry_waits_and_counts(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let outcomes = [Outcome::Unknown, Outcome::Refused, Outcome::Again, Outcome::Failed];
    for (tries, outcome) in (1u32..).zip(outcomes) {
        let leased = t.claim_one("a").await;
        assert_eq!((leased.attempt, leased.lost), (tries, LeaseLoss::None));
        t.retry(&leased, 1000, outcome).await;
        let record = t.record("a").await;
        assert_eq!((record.state, record.attempts), (State::Pending, tries), "{outcome:?}");
        assert_eq!(record.ready, t.now().wall().saturating_add(Duration::from_secs(1)));
        assert_eq!(record.history.len(), tries as usize);
        let last = record.history.last().unwrap();
        assert_eq!((last.outcome, last.detail.as_str(), last.at), (outcome, "words", t.now().wall()));
        t.pass(999);
        assert_eq!(ids(&t.claim(10).await), [""; 0]);
        t.pass(1);
    }
    assert_eq!(t.claim_one("a").await.attempt, 5);
}

/// An outage is told in the history and uses up nothing.
pub async fn an_outage_counts_nothing(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    for outcome in [Outcome::Unreachable, Outcome::Throttled, Outcome::Misconfigured] {
        let leased = t.claim_one("a").await;
        assert_eq!(leased.attempt, 1, "before {outcome:?}");
        t.retry(&leased, 1000, outcome).await;
        let record = t.record("a").await;
        assert_eq!((record.attempts, record.maybe_delivered), (0, false), "{outcome:?}");
        assert_eq!(record.history.last().unwrap().outcome, outcome);
        t.pass(1000);
    }
    assert_eq!(t.claim_one("a").await.attempt, 1);
}

/// A hand-back leaves everything as it was before the claim.
pub async fn a_release_counts_nothing_and_is_ready_at_once(lab: &Lab) {
    let t = lab.harness().await;
    t.accept([message("a", 0), message("b", 0)]).await;
    let before = t.record("a").await;
    let leased = t.claim_one("a").await;
    t.release(&leased).await;
    assert_eq!(t.record("a").await, before);
    let again = t.claim(10).await;
    assert_eq!(ids(&again), ["a", "b"]);
    assert_eq!((again[0].attempt, again[0].lost), (1, LeaseLoss::None));
}

/// A deferral is a hand-back with a time: nothing is counted or told, and a suspect is still claimed alone.
pub async fn a_deferral_waits_and_changes_nothing_else(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let mut expected = t.record("a").await;
    expected.ready = ms(1000);
    let leased = t.claim_one("a").await;
    assert_eq!((leased.lost, leased.lost_at), (LeaseLoss::None, None));
    t.defer(&leased, 1000).await;
    assert_eq!(t.record("a").await, expected);
    t.pass(999);
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.pass(1);
    t.claim_one("a").await;

    t.pass(PAST_THE_LEASE);
    t.sweep(&["work"]).await;
    let lost_at = Some(t.now().wall());
    let leased = t.claim_one("a").await;
    assert_eq!((leased.attempt, leased.lost, leased.lost_at), (2, LeaseLoss::InBatch, lost_at));
    assert_eq!(leased.ready, ms(1000), "a loss leaves it alone");
    t.defer(&leased, 5000).await;
    let waiting = t.record("a").await;
    assert_eq!((waiting.attempts, waiting.history.len()), (1, 1));
    t.crash().await;
    assert_eq!(t.record("a").await, waiting);
    t.pass(4999);
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.pass(1);
    t.accept([message("b", 0)]).await;
    let (first, second) = (t.claim(10).await, t.claim(10).await);
    let suspect = first.iter().chain(&second).find(|leased| leased.message.id == id("a")).unwrap();
    assert_eq!((first.len(), second.len()), (1, 1), "a suspect is claimed alone");
    assert_eq!((suspect.attempt, suspect.lost, suspect.lost_at), (2, LeaseLoss::InBatch, lost_at));
    assert_eq!(Some(suspect.ready), lost_at.map(|at| at.saturating_add(Duration::from_secs(5))));
    t.retry(suspect, 0, Outcome::Failed).await;
    assert_eq!(t.claim_one("a").await.lost_at, None, "it was tried since");
}

/// The due time is the producer's; a retry has a time of its own.
pub async fn a_retry_keeps_the_due_time(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 10)]).await;
    t.pass(10);
    let leased = t.claim_one("a").await;
    t.retry(&leased, 5000, Outcome::Failed).await;
    let record = t.record("a").await;
    assert_eq!((record.message.due, record.ready), (ms(10), ms(5010)));
    t.pass(5000);
    let leased = t.claim_one("a").await;
    assert_eq!((leased.message.due, leased.ready), (ms(10), ms(5010)));
}

/// A dead letter tells why, and keeps what it carries.
pub async fn dead_letters_keep_their_bodies(lab: &Lab) {
    let mut t = lab.harness().await;
    let mut sent = message("a", 0);
    sent.properties.set("tenant", "x").unwrap();
    t.accept([sent.clone(), message("expired", 0)]).await;
    let leased = t.claim_one("a").await;
    t.pass(7);
    t.bury(&leased).await;
    let record = t.record("a").await;
    assert_eq!(record.message, sent);
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Refused)));
    assert_eq!((record.ended, record.attempts), (Some(ms(7)), 1));
    assert_eq!(record.history.last().unwrap().detail, "no such order");

    let leased = t.claim_one("expired").await;
    let settlement = Settlement::Dead { reason: DeadReason::Expired, attempt: None };
    assert_eq!(t.settle(&leased.receipt, settlement).await, Settled::Done);
    let record = t.record("expired").await;
    assert_eq!((record.reason, record.attempts), (Some(DeadReason::Expired), 0));
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
}

/// What was delivered is remembered without its body.
pub async fn delivered_ones_lose_them(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let leased = t.claim_one("a").await;
    t.pass(7);
    t.deliver(&leased).await;
    let record = t.record("a").await;
    assert_eq!((record.state, record.ended), (State::Delivered, Some(ms(7))));
    assert_eq!(record.receipt.as_deref(), Some("proof"));
    assert!(record.message.body.is_empty());
    assert_eq!(record.message.topic, message("a", 0).topic);
    t.bring(message("c", 0), State::Cancelled).await;
    assert_eq!(t.record("c").await.message.body, Body::default());
}

/// Extended in time, a lease goes on; extended too late, the holder is told.
pub async fn extend_keeps_the_lease(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let leased = t.claim_one("a").await;
    let receipts = [leased.receipt.clone()];
    for _ in 0..4 {
        t.pass(PAST_THE_LEASE / 2);
        assert_eq!(t.store().extend(t.now(), &receipts, LEASE).await.unwrap(), [Settled::Done]);
        assert_eq!(t.sweep(&["work"]).await.leases_ended, 0);
        assert_eq!(ids(&t.claim(10).await), [""; 0]);
    }
    t.pass(PAST_THE_LEASE);
    t.sweep(&["work"]).await;
    assert_eq!(t.store().extend(t.now(), &receipts, LEASE).await.unwrap(), [Settled::Lost]);
    assert_eq!(t.claim_one("a").await.attempt, 2);
    assert_eq!(t.store().extend(t.now(), &receipts, LEASE).await.unwrap(), [Settled::Lost]);
}
