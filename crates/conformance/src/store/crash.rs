//! Cases: what a crash and a clean restart leave.

use duly_core::{
    LeaseLoss, Outcome, State,
    store::{Changed, Holder, Settled, Settlement},
};

use super::{Lab, harness::*};

/// Whatever was answered "accepted" is there, due when it was due.
pub async fn what_was_accepted_survives_a_crash(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept((0..100).map(|n| message(&format!("m{n:03}"), n))).await;
    t.accept([message("year", 366 * 24 * 3600 * 1000)]).await;
    t.crash().await;
    t.crash().await;
    assert_eq!(t.store().totals().await.unwrap().pending, 101);
    assert_eq!(t.record("m042").await.message, message("m042", 42));
    assert_eq!(t.record("year").await.message, message("year", 366 * 24 * 3600 * 1000));
    t.pass(49);
    assert_eq!(t.claim_all(1000).await.len(), 50);
    t.pass(1000);
    assert_eq!(t.claim_all(1000).await.len(), 50);
}

/// Delivered stays delivered, dead stays dead, a retry keeps its time and count.
pub async fn what_was_settled_survives_a_crash(lab: &Lab) {
    let mut t = lab.harness().await;
    t.bring(message("delivered", 0), State::Delivered).await;
    t.bring(message("dead", 0), State::Dead).await;
    t.bring(message("purged", 0), State::Dead).await;
    t.purge("purged").await;
    t.bring(message("replayed", 0), State::Dead).await;
    t.pass(10);
    t.replay("replayed").await;
    let leased = t.claim_one("replayed").await;
    t.retry(&leased, 5000, Outcome::Unknown).await;
    let names = ["delivered", "dead", "replayed"].map(id);
    let before = t.store().get(&names).await.unwrap();
    t.crash().await;
    assert_eq!(t.store().get(&names).await.unwrap(), before);
    assert_eq!(t.get("purged").await, None);
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.pass(5000);
    assert_eq!(t.claim_one("replayed").await.attempt, 2);
}

/// A cancel or a reschedule that was answered is never undone.
pub async fn what_was_cancelled_or_moved_survives_a_crash(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept(["cancelled", "earlier", "later"].map(|text| message(text, 1000))).await;
    t.cancel("cancelled").await;
    t.reschedule("earlier", 500).await;
    t.reschedule("later", 2000).await;
    t.crash().await;
    t.pass(1000);
    assert_eq!(ids(&t.claim_all(10).await), ["earlier"]);
    t.crash().await;
    t.pass(1000);
    let mut names = ids(&t.claim_all(10).await).into_iter().map(String::from).collect::<Vec<_>>();
    names.sort();
    assert_eq!(names, ["earlier", "later"]);
    assert_eq!(t.record("cancelled").await.state, State::Cancelled);
}

/// What a process held when it died is ready at once, and the try counts.
pub async fn process_claims_are_lost_by_a_crash_and_count(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept(["a", "b"].map(|text| message(text, 0))).await;
    let held = t.claim(10).await;
    t.crash().await;
    for text in ["a", "b"] {
        let record = t.record(text).await;
        assert_eq!((record.state, record.attempts, record.maybe_delivered), (State::Pending, 1, true));
        assert_eq!(record.history.last().unwrap().outcome, Outcome::Lost);
    }
    let settled = t.settle(&held[0].receipt, Settlement::Delivered { receipt: None }).await;
    assert_eq!(settled, Settled::Lost, "the dead process's receipt is worth nothing");
    let again = t.claim(10).await;
    assert_eq!((again.len(), again[0].attempt, again[0].lost), (1, 2, LeaseLoss::InBatch));
}

/// A client's receipt is good at the next process too.
pub async fn client_claims_survive_a_crash(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept(["a", "b", "c"].map(|text| message(text, 0))).await;
    let held = t.claimed(&lane("work"), 10, Holder::Client).await.messages;
    t.crash().await;
    assert_eq!(t.record("a").await.state, State::InFlight);
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.pass(1000);
    t.deliver(&held[0]).await;
    let extended = t.store().extend(t.now(), &[held[1].receipt.clone()], LEASE).await.unwrap();
    assert_eq!(extended, [Settled::Done]);
    t.retry(&held[2], 0, Outcome::Again).await;
    let again = t.claim_one("c").await;
    assert_eq!((again.attempt, again.lost), (2, LeaseLoss::None));
    t.reopen().await;
    t.deliver(&held[1]).await;
}

/// The next process's monotonic clock begins anywhere; the lease goes on regardless.
pub async fn client_claims_survive_a_clock_that_starts_anew(lab: &Lab) {
    let mut t = lab.harness().await;
    t.pass(3_600_000);
    t.accept([message("a", 0)]).await;
    let held = t.claimed(&lane("work"), 10, Holder::Client).await.messages;
    t.pass(1000);
    t.new_monotonic();
    t.crash().await;
    t.pass(LEASE.as_millis() as u64 - 2000);
    t.sweep(&["work"]).await;
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.deliver(&held[0]).await;

    t.accept([message("b", 0)]).await;
    t.claimed(&lane("work"), 10, Holder::Client).await;
    t.new_monotonic();
    t.crash().await;
    t.pass(LEASE.as_millis() as u64 + 1000);
    t.sweep(&["work"]).await;
    assert_eq!(ids(&t.claim(10).await), ["b"], "the lease must not last longer than before");
}

/// A client that never comes back loses its claim after the crash as before it.
pub async fn client_claims_end_with_their_lease_after_a_crash(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let held = t.claimed(&lane("work"), 10, Holder::Client).await.messages;
    t.crash().await;
    t.pass(LEASE.as_millis() as u64 + 1000);
    assert_eq!(t.sweep(&["work"]).await.leases_ended, 1);
    assert_eq!(t.settle(&held[0].receipt, Settlement::Release).await, Settled::Lost);
    assert_eq!(t.claim_one("a").await.attempt, 2);
}

/// Wall time stepped back before the crash: a client's lease still ends within its own length.
pub async fn a_crash_makes_no_lease_longer(lab: &Lab) {
    let mut t = lab.harness().await;
    t.pass(3_600_000);
    t.accept([message("a", 0)]).await;
    t.claimed(&lane("work"), 10, Holder::Client).await;
    t.step_wall(0);
    t.crash().await;
    t.pass(LEASE.as_millis() as u64 + 1000);
    assert_eq!(t.sweep(&["work"]).await.leases_ended, 1);
    assert_eq!(ids(&t.claim(10).await), ["a"]);
}

/// If a suspect was in flight when the process died, it alone is blamed; the others are only to be looked at alone.
pub async fn a_suspect_in_flight_at_a_crash_is_blamed_alone(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("suspect", 0), message_for("queue", "mail", "suspected", 0)]).await;
    t.claim_one("suspect").await;
    t.crash().await;

    assert_eq!(t.claim_one("suspect").await.lost, LeaseLoss::InBatch);
    t.claim_from("mail", 1).await;
    t.accept([message_for("queue", "mail", "neighbour", 0)]).await;
    t.claim_from("mail", 1).await;
    t.crash().await;

    let suspect = t.record("suspect").await;
    assert_eq!((suspect.attempts, suspect.history.len()), (2, 2));
    for text in ["suspected", "neighbour"] {
        let record = t.record(text).await;
        assert_eq!((record.attempts, record.state), (0, State::Pending), "{text} is innocent");
        assert!(record.maybe_delivered, "{text} may have arrived all the same");
    }
    let suspect = t.claim_one("suspect").await;
    assert_eq!((suspect.attempt, suspect.lost), (3, LeaseLoss::Alone));
    for _ in 0..2 {
        let leased = t.claim_from("mail", 10).await;
        assert_eq!((leased.len(), leased[0].attempt, leased[0].lost), (1, 1, LeaseLoss::InBatch));
    }
    assert_eq!(t.cancel("suspect").await, Changed::TooLate(State::InFlight));
}

/// Fencing tokens never start again: an old receipt must not fit a new claim.
pub async fn tokens_grow_across_a_crash(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let mut last = 0;
    for round in 0..6 {
        let leased = t.claim_one("a").await;
        assert!(leased.receipt.token > last, "round {round}: {} after {last}", leased.receipt.token);
        last = leased.receipt.token;
        t.release(&leased).await;
        if round % 2 == 0 { t.crash().await } else { t.reopen().await }
    }
}

/// Closed and opened again, everything is as it was.
pub async fn every_state_survives_a_clean_reopen(lab: &Lab) {
    let mut t = lab.harness().await;
    let states = [State::Delivered, State::Dead, State::Cancelled, State::Pending];
    for state in states {
        t.bring(message(state.as_str(), 0), state).await;
    }
    t.accept([message_for("queue", "client", "in_flight", 0), message("later", 90_000_000)]).await;
    t.claimed(&lane("client"), 1, Holder::Client).await;
    let names = ["delivered", "dead", "cancelled", "pending", "in_flight", "later"].map(id);
    let before = t.store().get(&names).await.unwrap();
    let totals = t.store().totals().await.unwrap();
    let lanes = t.store().lanes(t.now()).await.unwrap();
    for _ in 0..3 {
        t.reopen().await;
        assert_eq!(t.store().get(&names).await.unwrap(), before);
        assert_eq!(t.store().totals().await.unwrap(), totals);
        assert_eq!(t.store().lanes(t.now()).await.unwrap().len(), lanes.len());
    }
    assert_eq!(ids(&t.claim_all(10).await), ["pending"]);
}
