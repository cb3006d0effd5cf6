//! Cases: accepting.

use duly_core::{
    Attempt, Body, DeadReason, Outcome, Priority, RetryOverride, State, StoredMessage,
    store::{Changed, Insert, Inserted, Past, Query},
};

use super::{Lab, harness::*};

/// A known id with the same content changes nothing and is a duplicate.
pub async fn insert_twice_keeps_the_first(lab: &Lab) {
    let t = lab.harness().await;
    t.accept([message("a", 1000)]).await;
    let mut again = message("a", 5000);
    again.priority = Priority::new(9).unwrap();
    again.retry = Some(Box::new(RetryOverride { attempts: Some(2), ..RetryOverride::default() }));
    assert_eq!(t.insert(again).await, Inserted::Duplicate { due: ms(1000), state: State::Pending });
    assert_eq!(t.record("a").await.message, message("a", 1000));
    assert_eq!(t.store().totals().await.unwrap().accepted, 1);
}

/// A known id with other content changes nothing, whatever part of the content differs.
pub async fn insert_with_other_content_conflicts(lab: &Lab) {
    let t = lab.harness().await;
    let changes: [fn(&mut StoredMessage); 6] = [
        |m| m.topic = "other".parse().unwrap(),
        |m| m.sink = "kafka".parse().unwrap(),
        |m| m.tag = Some("red".parse().unwrap()),
        |m| m.key = Some("k".parse().unwrap()),
        |m| m.body = Body::text("other"),
        |m| m.properties.set("tenant", "b").unwrap(),
    ];
    t.accept([message("a", 1000)]).await;
    for change in changes {
        let mut other = message("a", 1000);
        change(&mut other);
        assert_eq!(t.insert(other.clone()).await, Inserted::Conflict, "{other:?}");
    }
    assert_eq!(t.record("a").await.message, message("a", 1000));
    assert_eq!(t.store().totals().await.unwrap().accepted, 1);
}

/// Cancelled, purged or past retention: the id is free again.
pub async fn a_cancelled_id_is_accepted_afresh(lab: &Lab) {
    let mut t = lab.harness().await;
    t.bring(message("cancelled", 0), State::Cancelled).await;
    t.bring(message("purged", 0), State::Dead).await;
    t.purge("purged").await;
    t.bring(message("delivered", 0), State::Delivered).await;
    t.accept([message_for("queue", "work", "cancelled", 500), message("purged", 500)]).await;
    // Past retention of the harness's day, with room for stores that forget in slices.
    t.pass(10 * 24 * 3600 * 1000);
    t.sweep(&["work"]).await;
    t.accept([message("delivered", 500)]).await;
    for text in ["cancelled", "purged", "delivered"] {
        let record = t.record(text).await;
        assert_eq!((record.state, record.attempts), (State::Pending, 0), "{text}");
        assert_eq!(record.message, message(text, 500));
    }
    assert_eq!(t.store().totals().await.unwrap().accepted, 6);
}

/// What was delivered or is dead is a duplicate, and with other content a conflict, though the body is gone.
pub async fn delivered_and_dead_ids_are_duplicates(lab: &Lab) {
    let t = lab.harness().await;
    for (text, state) in [("delivered", State::Delivered), ("dead", State::Dead)] {
        t.bring(message(text, 0), state).await;
        assert_eq!(t.insert(message(text, 700)).await, Inserted::Duplicate { due: ms(0), state });
        let mut other = message(text, 0);
        other.body = Body::text("other");
        assert_eq!(t.insert(other).await, Inserted::Conflict, "{text}");
        assert_eq!(t.record(text).await.state, state);
    }
}

/// Two ids with the same payload are two messages.
pub async fn equal_payloads_stay_two_messages(lab: &Lab) {
    let t = lab.harness().await;
    let twins = ["a", "b"].map(|text| {
        let mut twin = message(text, 0);
        twin.body = Body::text("the same");
        twin
    });
    t.accept(twins).await;
    let leased = t.claim_all(10).await;
    assert_eq!(ids(&leased), ["a", "b"]);
    assert!(leased.iter().all(|leased| leased.message.body == Body::text("the same")));
}

/// A due time in the past is due at once, and stays what it was.
pub async fn insert_into_the_past_is_due_at_once(lab: &Lab) {
    let mut t = lab.harness().await;
    t.pass(60_000);
    t.accept([message("now", 60_000), message("past", 1), message("soon", 60_001)]).await;
    let leased = t.claim_all(10).await;
    assert_eq!(ids(&leased), ["past", "now"]);
    assert_eq!(leased[0].message.due, ms(1));
    t.retry(&leased[0], 0, Outcome::Failed).await;
    assert_eq!(ids(&t.claim_all(10).await), ["past"]);
}

/// What happened to a message in another store is what its record begins with; a dead letter comes as one.
pub async fn an_insert_may_carry_its_past(lab: &Lab) {
    let mut t = lab.harness().await;
    t.pass(60_000);
    let attempt = |at: u64| Attempt::new(ms(at), Outcome::Unknown, format!("no answer №{at}\0"));
    let past = |text: &str, dead| {
        let history = (0..Attempt::KEPT_MAX as u64 + 2).map(attempt).collect();
        let accepted = Some(ms(123));
        let past = Past { accepted, attempts: 1_000_000, history, maybe_delivered: true, dead };
        Insert { past: Some(Box::new(past)), ..Insert::new(message(text, 59_000)) }
    };
    let given_up = Some((DeadReason::Refused, ms(4_567)));
    let batch = vec![
        past("waits", None),
        past("dead", given_up),
        past("purged", given_up),
        Insert { past: Some(Box::default()), ..Insert::new(message("nothing", 70_000)) },
        Insert::new(message("new", 80_000)),
    ];
    assert_eq!(t.try_insert_all(batch.clone()).await.unwrap(), [const { Inserted::Accepted }; 5]);
    let totals = t.store().totals().await.unwrap();
    assert_eq!((totals.accepted, totals.pending, totals.dead), (5, 3, 2));
    for round in 0..3 {
        for (text, state) in [("waits", State::Pending), ("dead", State::Dead), ("purged", State::Dead)] {
            let record = t.record(text).await;
            assert_eq!((record.state, record.message), (state, message(text, 59_000)), "{text}");
            assert_eq!((record.accepted, record.attempts), (Some(ms(123)), 1_000_000), "{text}");
            assert_eq!((record.maybe_delivered, record.ready), (true, ms(59_000)), "{text}");
            assert_eq!(record.history, (2..).take(Attempt::KEPT_MAX).map(attempt).collect::<Vec<_>>());
            let is_dead = state == State::Dead;
            assert_eq!(record.ended, is_dead.then(|| ms(4_567)), "{text}");
            assert_eq!(record.reason, is_dead.then_some(DeadReason::Refused), "{text}");
        }
        assert_eq!(t.record("nothing").await.attempts, 0);
        if round == 0 { t.crash().await } else { t.reopen().await }
    }
    let listed = t.list(&Query::all(State::Dead)).await.records;
    assert_eq!(
        listed.iter().map(|record| record.message.id.as_str()).collect::<Vec<_>>(),
        ["dead", "purged"]
    );
    let lane = t.store().lanes(t.now()).await.unwrap().remove(0);
    assert_eq!((lane.pending, lane.dead), (3, 2));

    // The same again is a duplicate, whatever its past says, and the first one's past stays.
    let again = past("waits", given_up);
    let known = Inserted::Duplicate { due: ms(59_000), state: State::Pending };
    assert_eq!(t.try_insert_all(vec![again]).await.unwrap(), [known]);
    let known = Inserted::Duplicate { due: ms(59_000), state: State::Dead };
    assert_eq!(t.insert(message("dead", 0)).await, known);

    // The next try goes on counting; what is dead is not given out until it is replayed.
    let leased = t.claim_one("waits").await;
    assert_eq!(leased.attempt, 1_000_001);
    t.retry(&leased, 1_000_000, Outcome::Failed).await;
    assert_eq!(t.record("waits").await.attempts, 1_000_001);
    assert_eq!(t.cancel("waits").await, Changed::Done { maybe_delivered: true });
    assert!(t.claim_all(10).await.is_empty());
    assert_eq!(t.replay("dead").await, Changed::Done { maybe_delivered: true });
    let leased = t.claim_one("dead").await;
    assert_eq!((leased.attempt, &leased.message.body), (1, &message("dead", 0).body));
    t.deliver(&leased).await;
    assert_eq!(t.purge("purged").await, Changed::Done { maybe_delivered: true });
    assert_eq!(t.get("purged").await, None);
    // An id that is free again may come back as a dead letter.
    assert_eq!(t.try_insert_all(vec![past("waits", given_up)]).await.unwrap(), [Inserted::Accepted]);
    t.crash().await;
    let totals = t.store().totals().await.unwrap();
    assert_eq!((totals.accepted, totals.pending, totals.dead, totals.purged), (6, 2, 1, 1));
}
