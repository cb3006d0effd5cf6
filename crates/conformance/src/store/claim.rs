//! Cases: claiming.

use duly_core::{
    Body, LeaseLoss, Outcome, Priority, State,
    store::{Claim, Holder, Settled, Settlement},
};

use super::{Lab, harness::*};

/// Results ascend by ready time, then priority descending, then id; nothing is early by a millisecond.
pub async fn claim_is_ordered_and_never_early(lab: &Lab) {
    let mut t = lab.harness().await;
    let with = |text: &str, due, priority| {
        let mut message = message(text, due);
        message.priority = Priority::new(priority).unwrap();
        message
    };
    t.accept([with("e", 11, 9), with("d", 10, 0), with("b", 10, 4), with("c", 10, 4), with("a", 9, 0)]).await;
    t.accept([with("f", 10, 9)]).await;
    t.pass(8);
    assert_eq!(ids(&t.claim_all(10).await), [""; 0]);
    t.pass(2);
    let leased = t.claim_all(10).await;
    assert_eq!(ids(&leased), ["a", "f", "b", "c", "d"]);
    assert_eq!(leased[0].ready, ms(9));
    t.pass(1);
    assert_eq!(ids(&t.claim_all(10).await), ["e"]);
}

/// A claim gives messages of its own lane only; a push sink is one lane whatever the topic.
pub async fn claim_takes_one_lane_only(lab: &Lab) {
    let t = lab.harness().await;
    t.accept([message_for("queue", "a", "qa", 0), message_for("queue", "b", "qb", 0)]).await;
    t.accept([message_for("kafka", "a", "ka", 0), message_for("kafka", "b", "kb", 0)]).await;
    let kafka = message_for("kafka", "a", "x", 0).lane();
    assert_eq!(ids(&t.claim_from("a", 10).await), ["qa"]);
    assert_eq!(ids(&t.claimed(&kafka, 10, Holder::Process).await.messages), ["ka", "kb"]);
    assert_eq!(ids(&t.claim_from("b", 10).await), ["qb"]);
    assert_eq!(ids(&t.claim_from("c", 10).await), [""; 0]);
}

/// However much waits undrained in one lane, another gives what is due at once.
pub async fn a_full_lane_does_not_hide_another(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept((0..3000).map(|n| message_for("queue", "full", &format!("f{n}"), n % 7))).await;
    t.accept([message_for("queue", "free", "one", 3)]).await;
    t.pass(10);
    t.sweep(&["full", "free"]).await;
    assert_eq!(ids(&t.claim_from("free", 10).await), ["one"]);
    t.accept([message_for("queue", "free", "two", 5)]).await;
    assert_eq!(ids(&t.claim_from("free", 10).await), ["two"]);
}

/// Nobody else is given the message before the lease ends; then somebody is.
pub async fn claim_hides_until_the_lease_ends(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    t.claim_one("a").await;
    assert_eq!(t.record("a").await.state, State::InFlight);
    let lease = LEASE.as_millis() as u64;
    for _ in 0..3 {
        assert_eq!(ids(&t.claim(10).await), [""; 0]);
        t.pass(lease / 3 - 1);
        t.sweep(&["work"]).await;
    }
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.pass(4);
    t.sweep(&["work"]).await;
    assert_eq!(ids(&t.claim(10).await), ["a"]);
}

/// A lease that ran out uses up an attempt, its history says so, and the next claim too.
pub async fn a_lost_lease_counts_an_attempt(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let first = t.claim_one("a").await;
    assert_eq!((first.attempt, first.lost), (1, LeaseLoss::None));
    t.pass(LEASE.as_millis() as u64 + 1);
    assert_eq!(t.sweep(&["work"]).await.leases_ended, 1);
    let record = t.record("a").await;
    assert_eq!((record.state, record.attempts, record.maybe_delivered), (State::Pending, 1, true));
    assert_eq!(record.history.last().unwrap().outcome, Outcome::Lost);
    let second = t.claim_one("a").await;
    assert_eq!((second.attempt, second.lost), (2, LeaseLoss::InBatch));
}

/// What was the only message of a client's claim is lost alone; what came with others, or beside others from another lane, may be innocent. A
/// hand-back clears it of both, and an extension and a crash of the process of neither.
pub async fn a_client_that_was_given_one_loses_it_alone(lab: &Lab) {
    for (holder, count, lost) in [
        (Holder::Client, 1, LeaseLoss::Alone),
        (Holder::Client, 2, LeaseLoss::InBatch),
        (Holder::ClientOfMany, 1, LeaseLoss::InBatch),
    ] {
        let mut t = lab.harness().await;
        t.accept(["a", "b"][..count].iter().map(|text| message(text, 0))).await;
        let first = t.claimed(&lane("work"), 10, holder).await.messages;
        assert_eq!(first.len(), count);
        for leased in &first {
            t.release(leased).await;
        }
        let again = t.claimed(&lane("work"), 10, holder).await.messages;
        assert!(
            again.iter().all(|leased| (leased.attempt, leased.lost) == (1, LeaseLoss::None)),
            "{again:?}"
        );
        let receipts = [again[0].receipt.clone()];
        assert_eq!(t.store().extend(t.now(), &receipts, LEASE).await.unwrap(), [Settled::Done]);
        t.crash().await;
        t.pass(LEASE.as_millis() as u64 + 1000);
        t.sweep(&["work"]).await;
        let next = t.claim_one("a").await;
        assert_eq!((next.attempt, next.lost), (2, lost), "{count} by {holder:?}");
    }
}

/// A later claim has the larger fencing token, of the same message and of another.
pub async fn tokens_grow(lab: &Lab) {
    let t = lab.harness().await;
    t.accept([message("a", 0), message("b", 0)]).await;
    let first = t.claim_one("a").await;
    let other = t.claim_one("b").await;
    t.release(&first).await;
    let again = t.claim_one("a").await;
    t.retry(&again, 0, Outcome::Failed).await;
    let third = t.claim_one("a").await;
    let tokens = [&first, &other, &again, &third].map(|leased| leased.receipt.token);
    assert!(tokens.is_sorted_by(|earlier, later| earlier < later), "{tokens:?}");
}

/// A claim gives either messages never lost, or exactly one that was.
pub async fn what_was_lost_is_claimed_alone(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept(["b", "c", "d"].map(|text| message(text, 5))).await;
    t.pass(5);
    assert_eq!(t.claim(10).await.len(), 3);
    t.accept([message("a", 1), message("bb", 5), message("z", 9)]).await;
    t.pass(LEASE.as_millis() as u64 + 1);
    t.sweep(&["work"]).await;
    let mut seen = Vec::new();
    for _ in 0..20 {
        let leased = t.claim(10).await;
        if leased.is_empty() {
            break;
        }
        let lost = leased.iter().filter(|leased| leased.lost != LeaseLoss::None).count();
        assert!(lost == 0 || leased.len() == 1, "a lost one came in company: {:?}", ids(&leased));
        seen.extend(leased.iter().map(|leased| leased.message.id.to_string()));
    }
    seen.sort();
    assert_eq!(seen, ["a", "b", "bb", "c", "d", "z"]);
}

/// Nothing of the lane is due before `next`, and what is due then is given then.
pub async fn claim_says_when_to_look_again(lab: &Lab) {
    let mut t = lab.harness().await;
    let work = lane("work");
    assert_eq!(t.claimed(&work, 10, Holder::Process).await.next, None);
    t.accept([message("soon", 700), message("later", 90_000), message("far", 40 * 24 * 3600 * 1000)]).await;
    for (text, due) in [("soon", 700), ("later", 90_000), ("far", 40 * 24 * 3600 * 1000)] {
        let mut looks = 0;
        loop {
            let claimed = t.claimed(&work, 10, Holder::Process).await;
            if !claimed.messages.is_empty() {
                assert_eq!(ids(&claimed.messages), [text]);
                assert_eq!(t.now().wall(), ms(due), "{text} came late by looking only when told");
                t.deliver(&claimed.messages[0]).await;
                break;
            }
            let next = claimed.next.unwrap_or_else(|| panic!("{text} is waiting, yet nothing is to come"));
            assert!(next <= ms(due), "{text} is due before {next}");
            t.pass(next.since(t.now().wall()).as_millis() as u64);
            looks += 1;
            assert!(looks < 1000, "a thousand looks for one message");
        }
    }
    assert_eq!(t.claimed(&work, 10, Holder::Process).await.next, None);
}

/// A look ahead hides nothing that is inserted behind it, also after wall time stepped back.
pub async fn an_earlier_insert_after_a_look_is_found(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("later", 5000)]).await;
    t.sweep(&["work"]).await;
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.accept([message("earlier", 1000)]).await;
    t.pass(1000);
    assert_eq!(ids(&t.claim(10).await), ["earlier"]);
    t.pass(9000);
    t.sweep(&["work"]).await;
    assert_eq!(ids(&t.claim(10).await), ["later"]);

    t.step_wall(2000);
    t.accept([message("behind", 2500)]).await;
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    let sweep = t.sweep(&["work"]).await;
    assert!(sweep.next.iter().any(|(_, next)| *next <= ms(2500)), "{sweep:?}");
    t.pass(500);
    assert_eq!(ids(&t.claim(10).await), ["behind"]);
}

/// Paused, a lane gives nothing; resumed, everything. Other lanes never notice.
pub async fn a_paused_lane_gives_nothing(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0), message("b", 50), message_for("queue", "free", "c", 0)]).await;
    let held = t.claim_one("a").await;
    t.store().set_paused(&lane("work"), true).await.unwrap();
    t.pass(100);
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    assert_eq!(ids(&t.claim_from("free", 10).await), ["c"]);
    let delivered = Settlement::Delivered { receipt: None };
    assert_eq!(t.settle(&held.receipt, delivered).await, Settled::Done, "what is in flight may still end");
    assert_eq!(t.cancel("b").await, duly_core::store::Changed::Done { maybe_delivered: false });
    t.accept([message("d", 0)]).await;
    assert_eq!(ids(&t.claim(10).await), [""; 0]);
    t.store().set_paused(&lane("work"), false).await.unwrap();
    assert_eq!(ids(&t.claim(10).await), ["d"]);
}

/// However many are asked for, a claim gives no more bytes than it may; the rest is due at once and comes in order.
pub async fn a_claim_stops_at_its_byte_budget(lab: &Lab) {
    // Small enough for the smallest window of a store, and together more than one claim gives.
    const LARGE: usize = 48 * 1024;
    let t = lab.harness().await;
    let all: Vec<_> = (0..400).map(|n| format!("m{n:03}")).collect();
    let large = |text: &String| {
        let mut large = message(text, 0);
        large.body = Body::bytes(vec![text.as_bytes()[3]; LARGE]);
        large
    };
    for part in all.chunks(4) {
        t.accept(part.iter().map(large)).await;
    }
    let mut seen = Vec::new();
    while seen.len() < all.len() {
        let claimed = t.claimed(&lane("work"), 1000, Holder::Process).await;
        let bytes: usize = claimed.messages.iter().map(|leased| leased.message.body.len()).sum();
        assert!(bytes <= Claim::BYTES_MAX, "{bytes} bytes in one claim");
        assert!(!claimed.messages.is_empty(), "{seen:?} and nothing more");
        for leased in &claimed.messages {
            assert_eq!(leased.message, large(&leased.message.id.to_string()));
        }
        seen.extend(claimed.messages.iter().map(|leased| leased.message.id.to_string()));
        let next = claimed.next.filter(|next| *next <= t.now().wall());
        assert!(seen.len() == all.len() || next.is_some(), "the rest is due: {:?}", claimed.next);
    }
    assert_eq!(seen, all);
}
