//! Cases: the exact meanings around the contract's lines.

use std::collections::BTreeSet;

use duly_core::{
    Body, LeaseLoss, Outcome, Priority, Receipt, State,
    store::{Changed, Claim, Holder, Inserted, Settle, Settled, Settlement, StoreErrorKind},
};

use super::{Lab, harness::*};

const DONE: Changed = Changed::Done { maybe_delivered: false };
const PAST_THE_LEASE: u64 = LEASE.as_millis() as u64 + 1;

/// Pending, in flight, delivered, dead: a duplicate that shows the first one's time and state. Cancelled: afresh.
pub async fn the_same_id_again_is_judged_by_its_state(lab: &Lab) {
    let t = lab.harness().await;
    for state in [State::InFlight, State::Delivered, State::Dead, State::Cancelled, State::Pending] {
        let text = state.as_str();
        t.bring(message(text, 0), state).await;
        let again = t.insert(message(text, 999)).await;
        if state == State::Cancelled {
            assert_eq!(again, Inserted::Accepted);
            assert_eq!(t.record(text).await.message.due, ms(999));
        } else {
            assert_eq!(again, Inserted::Duplicate { due: ms(0), state });
        }
    }
}

/// One Duly, one name space.
pub async fn ids_are_unique_across_sinks_and_topics(lab: &Lab) {
    let t = lab.harness().await;
    t.accept([message_for("queue", "a", "x", 0)]).await;
    for (sink, topic) in [("queue", "b"), ("kafka", "a")] {
        assert_eq!(t.insert(message_for(sink, topic, "x", 0)).await, Inserted::Conflict);
    }
}

/// A batch is judged as if its messages came one after the other.
pub async fn the_same_id_twice_in_one_batch_is_a_duplicate(lab: &Lab) {
    let t = lab.harness().await;
    let mut other = message("a", 0);
    other.body = Body::text("other");
    let answers = t.try_insert(vec![message("a", 5), message("a", 9), other, message("b", 0)]).await.unwrap();
    let duplicate = Inserted::Duplicate { due: ms(5), state: State::Pending };
    assert_eq!(answers, [Inserted::Accepted, duplicate, Inserted::Conflict, Inserted::Accepted]);
    assert_eq!(t.store().totals().await.unwrap().accepted, 2);
}

/// One answer per item, in the order of the items, for every call that takes many.
pub async fn a_batch_is_answered_in_its_order(lab: &Lab) {
    let t = lab.harness().await;
    t.accept(["a", "b", "c"].map(|text| message(text, 0))).await;
    let leased = t.claim(3).await;
    t.deliver(&leased[1]).await;
    let settle = |n: usize| Settle { receipt: leased[n].receipt.clone(), settlement: Settlement::Release };
    let settled = t.store().settle(t.now(), vec![settle(0), settle(1), settle(2), settle(0)]).await.unwrap();
    assert_eq!(settled, [Settled::Done, Settled::Lost, Settled::Done, Settled::Lost]);
    let moved = t.store().reschedule(t.now(), &[(id("x"), ms(1)), (id("c"), ms(1)), (id("b"), ms(1))]).await;
    assert_eq!(moved.unwrap(), [Changed::Unknown, DONE, Changed::TooLate(State::Delivered)]);
    let cancelled = t.store().cancel(t.now(), &[id("b"), id("a"), id("a")]).await.unwrap();
    let too_late = [Changed::TooLate(State::Delivered), DONE, Changed::TooLate(State::Cancelled)];
    assert_eq!(cancelled, too_late);
    t.check_books().await;
}

/// Beyond the limit nothing of the batch is taken; known ids need no room; room returns as messages leave.
pub async fn more_pending_than_allowed_is_refused_whole(lab: &Lab) {
    let t = lab.harness_with(Keep { pending_max: 3, ..Keep::default() }).await;
    t.accept([message("a", 0), message("b", 0)]).await;
    let error = t.try_insert(vec![message("c", 0), message("d", 0)]).await.unwrap_err();
    assert_eq!(error.kind, StoreErrorKind::TooMany);
    assert_eq!((t.get("c").await, t.get("d").await), (None, None));
    t.accept([message("c", 0)]).await;
    assert!(matches!(t.insert(message("a", 0)).await, Inserted::Duplicate { .. }));
    t.cancel("a").await;
    t.accept([message("d", 0)]).await;
    assert_eq!(t.try_insert(vec![message("e", 0)]).await.unwrap_err().kind, StoreErrorKind::TooMany);
}

/// Priority decides within a millisecond only.
pub async fn priority_never_overtakes_an_older_time(lab: &Lab) {
    let mut t = lab.harness().await;
    let high = |text: &str, due| {
        let mut message = message(text, due);
        message.priority = Priority::new(9).unwrap();
        message
    };
    t.accept([high("z-high-later", 2), message("b", 1), high("y-high", 1), message("a", 1)]).await;
    t.pass(10);
    for expected in ["y-high", "a", "b", "z-high-later"] {
        t.claim_one(expected).await;
    }
}

/// Many at once claim from one lane: nobody gets what another has.
pub async fn two_claimers_never_share_a_message(lab: &Lab) {
    let t = lab.harness().await;
    t.accept((0..500).map(|n| message(&format!("m{n:03}"), 0))).await;
    let claimers: Vec<_> = (0..8)
        .map(|_| {
            let (store, now) = (t.store(), t.now());
            tokio::spawn(async move {
                let mut mine = Vec::new();
                for _ in 0..40 {
                    let claim = Claim { lane: lane("work"), limit: 3, lease: LEASE, holder: Holder::Process };
                    mine.extend(store.claim(now, claim).await.unwrap().messages);
                    tokio::task::yield_now().await;
                }
                mine
            })
        })
        .collect();
    let mut all = Vec::new();
    for claimer in claimers {
        all.extend(claimer.await.unwrap());
    }
    all.extend(t.claim_all(100).await);
    let distinct: BTreeSet<_> = all.iter().map(|leased| leased.message.id.clone()).collect();
    assert_eq!((all.len(), distinct.len()), (500, 500));
}

/// A look ahead decides nothing: the claim does.
pub async fn what_was_cancelled_after_a_look_is_never_given(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 50), message("b", 50), message("c", 0)]).await;
    t.sweep(&["work"]).await;
    assert_eq!(ids(&t.claim(1).await), ["c"]);
    assert_eq!(t.cancel("a").await, DONE);
    t.pass(100);
    assert_eq!(ids(&t.claim_all(10).await), ["b"]);
}

/// A stale entry of a look ahead neither comes early nor hides the message.
pub async fn what_was_moved_after_a_look_comes_at_its_new_time(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("later", 50), message("earlier", 80), message("there-and-back", 50)]).await;
    t.sweep(&["work"]).await;
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.reschedule("later", 500).await;
    t.reschedule("earlier", 20).await;
    t.reschedule("there-and-back", 900).await;
    t.reschedule("there-and-back", 50).await;
    t.pass(19);
    assert_eq!(ids(&t.claim_all(10).await), [""; 0]);
    t.pass(1);
    assert_eq!(ids(&t.claim_all(10).await), ["earlier"]);
    t.pass(30);
    assert_eq!(ids(&t.claim_all(10).await), ["there-and-back"]);
    t.pass(449);
    assert_eq!(ids(&t.claim_all(10).await), [""; 0]);
    t.pass(1);
    assert_eq!(ids(&t.claim_all(10).await), ["later"]);
    t.pass(1000);
    assert_eq!(ids(&t.claim_all(10).await), [""; 0]);
}

/// Wall time steps back while a message is in flight: its next try still waits for the due time.
pub async fn a_retry_is_never_before_the_due_time(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept(["a", "b"].map(|text| message(text, 60_000))).await;
    t.pass(60_000);
    let leased = t.claim(2).await;
    t.step_wall(10_000);
    t.retry(&leased[0], 1000, Outcome::Failed).await;
    t.release(&leased[1]).await;
    t.pass(2000);
    assert_eq!(ids(&t.claim_all(10).await), [""; 0]);
    t.pass(48_000);
    assert_eq!(ids(&t.claim_all(10).await), ["a", "b"]);
}

/// Only the token of the claim that holds the message settles it.
pub async fn a_forged_receipt_settles_nothing(lab: &Lab) {
    let t = lab.harness().await;
    t.accept([message("a", 0), message("waiting", 9999)]).await;
    let leased = t.claim_one("a").await;
    let genuine = &leased.receipt;
    let forged = [
        Receipt { token: genuine.token + 1, ..genuine.clone() },
        Receipt { token: 0, ..genuine.clone() },
        Receipt { id: id("waiting"), ..genuine.clone() },
        Receipt { id: id("stranger"), ..genuine.clone() },
    ];
    for receipt in &forged {
        assert_eq!(t.settle(receipt, Settlement::Delivered { receipt: None }).await, Settled::Lost);
    }
    assert_eq!(t.store().extend(t.now(), &forged, LEASE).await.unwrap(), [Settled::Lost; 4]);
    t.deliver(&leased).await;
}

/// An answer, even a bad one, clears a message of having killed its process.
pub async fn a_lost_lease_that_is_settled_is_no_longer_suspect(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept(["a", "b"].map(|text| message(text, 0))).await;
    t.claim(2).await;
    t.pass(PAST_THE_LEASE);
    t.sweep(&["work"]).await;
    for _ in 0..2 {
        let leased = t.claim(10).await.remove(0);
        assert_eq!(leased.lost, LeaseLoss::InBatch);
        t.retry(&leased, 10, Outcome::Failed).await;
    }
    t.pass(10);
    let leased = t.claim(10).await;
    assert_eq!(ids(&leased), ["a", "b"]);
    assert!(leased.iter().all(|leased| leased.lost == LeaseLoss::None && leased.attempt == 3));
}

/// Handed back, it is as it was before the claim, suspicion included.
pub async fn a_suspect_that_is_released_stays_one(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    t.claim_one("a").await;
    t.pass(PAST_THE_LEASE);
    t.sweep(&["work"]).await;
    for _ in 0..3 {
        let leased = t.claim_one("a").await;
        assert_eq!((leased.attempt, leased.lost), (2, LeaseLoss::InBatch));
        t.release(&leased).await;
    }
}

/// Lost while it was claimed alone, it is the suspect.
pub async fn a_suspect_lost_again_is_lost_alone(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    for (attempt, lost) in
        [(1, LeaseLoss::None), (2, LeaseLoss::InBatch), (3, LeaseLoss::Alone), (4, LeaseLoss::Alone)]
    {
        let leased = t.claim_one("a").await;
        assert_eq!((leased.attempt, leased.lost), (attempt, lost));
        t.pass(PAST_THE_LEASE);
        t.sweep(&["work"]).await;
    }
    assert_eq!(t.record("a").await.attempts, 4);
}

/// Per lane: nothing is due before then. Lanes with nothing to come are left out.
pub async fn the_sweep_names_the_next_time_of_each_lane(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 300), message("b", 40_000), message_for("queue", "mail", "m", 800)]).await;
    t.accept([message_for("queue", "unasked", "u", 0)]).await;
    let sweep = t.sweep(&["work", "mail", "empty"]).await;
    assert_eq!(sweep.leases_ended, 0);
    let next = |sweep: &duly_core::store::Sweep, topic: &str| {
        sweep.next.iter().find(|(known, _)| *known == lane(topic)).map(|(_, next)| *next)
    };
    assert!(next(&sweep, "work").is_some_and(|next| next <= ms(300)), "{sweep:?}");
    assert!(next(&sweep, "mail").is_some_and(|next| next <= ms(800)), "{sweep:?}");
    assert_eq!((next(&sweep, "empty"), next(&sweep, "unasked")), (None, None));
    t.pass(300);
    let leased = t.claim_one("a").await;
    t.retry(&leased, 100, Outcome::Failed).await;
    let sweep = t.sweep(&["work"]).await;
    assert!(next(&sweep, "work").is_some_and(|next| next <= ms(400)), "{sweep:?}");
}

/// Whoever sleeps until then misses no lost lease.
pub async fn the_sweep_names_the_next_end_of_a_lease(lab: &Lab) {
    let mut t = lab.harness().await;
    assert_eq!(t.sweep(&["work"]).await.next_lease_end, None);
    t.accept([message("a", 0), message("b", 0)]).await;
    t.claim_one("a").await;
    let end = t.now().mono().saturating_add(LEASE);
    t.pass(1000);
    t.claim_one("b").await;
    let next = t.sweep(&["work"]).await.next_lease_end;
    assert!(next.is_some_and(|next| next <= end), "{next:?} is after {end:?}");
    t.pass(LEASE.as_millis() as u64 - 999);
    let sweep = t.sweep(&["work"]).await;
    assert_eq!(sweep.leases_ended, 1);
    assert!(sweep.next.iter().any(|(_, next)| *next <= t.now().wall()), "a lost one is ready at once");
    assert!(sweep.next_lease_end.is_some(), "b is still leased");
}

/// Ten years ahead is a day like any other.
pub async fn far_future_messages_wait_for_their_day(lab: &Lab) {
    let mut t = lab.harness().await;
    let day = 24 * 3600 * 1000;
    let dues = [1, 30, 366, 3652].map(|days| (format!("d{days}"), days * day));
    t.accept(dues.iter().map(|(text, due)| message(text, *due))).await;
    t.reopen().await;
    for (text, due) in &dues {
        t.step_wall(due - 1);
        t.sweep(&["work"]).await;
        assert_eq!(ids(&t.claim(10).await), [""; 0], "{text}");
        t.pass(1);
        assert_eq!(ids(&t.claim(10).await), [text.as_str()]);
        t.crash().await;
        let leased = t.claim_one(text).await;
        t.deliver(&leased).await;
    }
}

/// A reschedule between tries changes the time and nothing else.
pub async fn a_reschedule_of_the_waiting_keeps_its_tries(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let leased = t.claim_one("a").await;
    t.retry(&leased, 60_000, Outcome::Unknown).await;
    assert_eq!(t.reschedule("a", 500).await, Changed::Done { maybe_delivered: true });
    let record = t.record("a").await;
    assert_eq!((record.attempts, record.maybe_delivered, record.history.len()), (1, true, 1));
    assert_eq!((record.message.due, record.ready), (ms(500), ms(500)));
    t.pass(500);
    assert_eq!(t.claim_one("a").await.attempt, 2);
}

/// A replay is the same message again, and stays known under its id.
pub async fn replay_keeps_id_and_content(lab: &Lab) {
    let mut t = lab.harness().await;
    t.bring(message("a", 0), State::Dead).await;
    t.pass(100);
    assert_eq!(t.replay("a").await, DONE);
    assert_eq!(t.replay("a").await, Changed::TooLate(State::Pending));
    assert!(matches!(t.insert(message("a", 0)).await, Inserted::Duplicate { state: State::Pending, .. }));
    t.crash().await;
    let leased = t.claim_one("a").await;
    assert!(leased.message.same_content(&message("a", 0)));
    t.deliver(&leased).await;
    let totals = t.store().totals().await.unwrap();
    assert_eq!((totals.accepted, totals.delivered, totals.dead), (1, 1, 0));
}

/// In every other state the answer is: too late, and nothing happens.
pub async fn only_dead_letters_are_replayed_or_purged(lab: &Lab) {
    let t = lab.harness().await;
    for state in [State::InFlight, State::Delivered, State::Cancelled, State::Pending] {
        let text = state.as_str();
        t.bring(message(text, 0), state).await;
        assert_eq!(t.replay(text).await, Changed::TooLate(state));
        assert_eq!(t.purge(text).await, Changed::TooLate(state));
        assert_eq!(t.record(text).await.state, state);
    }
}
