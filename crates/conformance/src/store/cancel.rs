//! Cases: changing one's mind.

use duly_core::{DeadReason, Outcome, State, store::Changed};

use super::{Lab, harness::*};

const DONE: Changed = Changed::Done { maybe_delivered: false };

/// Cancelled before the claim, it never goes out.
pub async fn cancel_before_the_claim_is_done(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("due", 0), message("later", 500)]).await;
    assert_eq!([t.cancel("due").await, t.cancel("later").await], [DONE, DONE]);
    t.pass(1000);
    assert_eq!(ids(&t.claim_all(10).await), [""; 0]);
    let record = t.record("later").await;
    assert_eq!((record.state, record.ended), (State::Cancelled, Some(ms(0))));
    assert_eq!(t.cancel("later").await, Changed::TooLate(State::Cancelled));
}

/// From the claim on it is too late, and the answer says where the message stands.
pub async fn cancel_after_the_claim_is_too_late(lab: &Lab) {
    let t = lab.harness().await;
    for (text, state) in [("flying", State::InFlight), ("delivered", State::Delivered), ("dead", State::Dead)]
    {
        t.bring(message(text, 0), state).await;
        assert_eq!(t.cancel(text).await, Changed::TooLate(state));
        assert_eq!(t.record(text).await.state, state);
    }
}

/// An id that was never here is unknown to all four.
pub async fn cancel_of_a_stranger_is_unknown(lab: &Lab) {
    let t = lab.harness().await;
    t.accept([message("known", 0)]).await;
    assert_eq!(t.cancel("stranger").await, Changed::Unknown);
    assert_eq!(t.reschedule("stranger", 5).await, Changed::Unknown);
    assert_eq!(t.replay("stranger").await, Changed::Unknown);
    assert_eq!(t.purge("stranger").await, Changed::Unknown);
    assert_eq!(t.get("stranger").await, None);
    let answers = t.store().cancel(t.now(), &[id("stranger"), id("known")]).await.unwrap();
    assert_eq!(answers, [Changed::Unknown, DONE]);
}

/// If a try may have arrived, a cancel is done and says so; a plain failure raises no doubt.
pub async fn cancel_after_an_unknown_outcome_says_maybe(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept(["unknown", "failed", "lost"].map(|text| message(text, 0))).await;
    for leased in t.claim(10).await {
        match leased.message.id.as_str() {
            "unknown" => t.retry(&leased, 1000, Outcome::Unknown).await,
            "failed" => t.retry(&leased, 1000, Outcome::Failed).await,
            _ => {}
        }
    }
    t.pass(LEASE.as_millis() as u64 + 1);
    t.sweep(&["work"]).await;
    let maybe = Changed::Done { maybe_delivered: true };
    assert_eq!(t.cancel("unknown").await, maybe);
    assert_eq!(t.cancel("failed").await, DONE);
    assert_eq!(t.cancel("lost").await, maybe);
}

/// Earlier or later, into the past or out of it: the last word counts.
pub async fn reschedule_moves_both_ways(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 1000), message("b", 1000), message("c", 0), message("d", 60_000)]).await;
    assert_eq!(t.reschedule("a", 500).await, DONE);
    assert_eq!(t.reschedule("b", 2000).await, DONE);
    assert_eq!(t.reschedule("c", 700).await, DONE, "due but not claimed: it can still wait");
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    assert_eq!(t.record("b").await.message.due, ms(2000));
    t.pass(1000);
    assert_eq!(ids(&t.claim_all(10).await), ["a", "c"]);
    assert_eq!(t.reschedule("d", 1000).await, DONE, "fire: due now");
    assert_eq!(ids(&t.claim_all(10).await), ["d"]);
    t.pass(1000);
    assert_eq!(ids(&t.claim_all(10).await), ["b"]);
}

/// What is in flight or ended cannot be moved.
pub async fn reschedule_in_flight_is_too_late(lab: &Lab) {
    let t = lab.harness().await;
    for (text, state) in [
        ("flying", State::InFlight),
        ("delivered", State::Delivered),
        ("dead", State::Dead),
        ("cancelled", State::Cancelled),
    ] {
        t.bring(message(text, 0), state).await;
        assert_eq!(t.reschedule(text, 5000).await, Changed::TooLate(state));
        let record = t.record(text).await;
        assert_eq!((record.state, record.message.due), (state, ms(0)));
    }
}

/// What waits too long is a dead letter without a claim; what was claimed or moved meanwhile is not.
pub async fn expire_gives_up_what_waits(lab: &Lab) {
    let mut t = lab.harness().await;
    t.bring(message("flying", 0), State::InFlight).await;
    t.accept([message("late", 0), message("moved", 500)]).await;
    t.pass(1000);
    let batch = ["late", "moved", "flying", "stranger"].map(|text| (id(text), ms(0)));
    let answers = t.store().expire(t.now(), &batch).await.unwrap();
    let (pending, flying) = (Changed::TooLate(State::Pending), Changed::TooLate(State::InFlight));
    assert_eq!(answers, [DONE, pending, flying, Changed::Unknown]);
    let record = t.record("late").await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Expired)));
    assert_eq!((record.ended, record.message.due, record.attempts), (Some(ms(1000)), ms(0), 0));
    assert_eq!(record.message.body, message("late", 0).body);
    let totals = t.store().totals().await.unwrap();
    assert_eq!((totals.pending, totals.dead, totals.balance()), (1, 1, true));
    assert_eq!(ids(&t.claim(10).await), ["moved"]);
    assert_eq!(t.replay("late").await, DONE);
    assert_eq!(t.claim_one("late").await.message.body, message("late", 0).body);
}

/// A replayed dead letter is due now, with all its attempts before it.
pub async fn replay_starts_afresh(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let leased = t.claim_one("a").await;
    t.retry(&leased, 0, Outcome::Failed).await;
    let leased = t.claim_one("a").await;
    t.bury(&leased).await;
    t.pass(5000);
    assert_eq!(t.replay("a").await, DONE);
    let record = t.record("a").await;
    assert_eq!((record.state, record.attempts), (State::Pending, 0));
    assert_eq!((record.reason, record.ended, record.message.due), (None, None, ms(5000)));
    let leased = t.claim_one("a").await;
    assert_eq!((leased.attempt, leased.message.body), (1, message("a", 0).body));
    assert_eq!(t.store().totals().await.unwrap().accepted, 1);
}

/// Purged, a dead letter was never here, but the books remember.
pub async fn purge_forgets(lab: &Lab) {
    let t = lab.harness().await;
    t.bring(message("a", 0), State::Dead).await;
    assert_eq!(t.purge("a").await, DONE);
    assert_eq!(t.get("a").await, None);
    assert_eq!(t.purge("a").await, Changed::Unknown);
    assert_eq!(t.replay("a").await, Changed::Unknown);
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    let totals = t.store().totals().await.unwrap();
    assert_eq!((totals.accepted, totals.dead, totals.purged), (1, 0, 1));
}
