//! Cases: accepting.

use duly_core::{Body, Message, Outcome, Priority, RetryOverride, State, store::Inserted};

use super::{Lab, bench::*};

/// A known id with the same content changes nothing and is a duplicate.
pub async fn insert_twice_keeps_the_first(lab: &Lab) {
    let t = lab.bench().await;
    t.accept([message("a", 1000)]).await;
    let mut again = message("a", 5000);
    again.priority = Priority::new(9).unwrap();
    again.retry = Some(Box::new(RetryOverride { attempts: Some(2), ..RetryOverride::default() }));
    assert_eq!(t.insert(again).await, Inserted::Duplicate { due: ms(1000), state: State::Pending });
    assert_eq!(t.record("a").await.message, message("a", 1000));
    assert_eq!(t.store().books().await.unwrap().accepted, 1);
}

/// A known id with other content changes nothing, whatever part of the content differs.
pub async fn insert_with_other_content_conflicts(lab: &Lab) {
    let t = lab.bench().await;
    let changes: [fn(&mut Message); 6] = [
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
    assert_eq!(t.store().books().await.unwrap().accepted, 1);
}

/// Cancelled, purged or past retention: the id is free again.
pub async fn a_cancelled_id_is_accepted_afresh(lab: &Lab) {
    let mut t = lab.bench().await;
    t.bring(message("cancelled", 0), State::Cancelled).await;
    t.bring(message("purged", 0), State::Dead).await;
    t.purge("purged").await;
    t.bring(message("delivered", 0), State::Delivered).await;
    t.accept([message_for("queue", "work", "cancelled", 500), message("purged", 500)]).await;
    // Past retention of the bench's day, with room for stores that forget in slices.
    t.pass(10 * 24 * 3600 * 1000);
    t.sweep(&["work"]).await;
    t.accept([message("delivered", 500)]).await;
    for text in ["cancelled", "purged", "delivered"] {
        let record = t.record(text).await;
        assert_eq!((record.state, record.attempts), (State::Pending, 0), "{text}");
        assert_eq!(record.message, message(text, 500));
    }
    assert_eq!(t.store().books().await.unwrap().accepted, 6);
}

/// What was delivered or is dead is a duplicate, and with other content a conflict, though the body is gone.
pub async fn delivered_and_dead_ids_are_duplicates(lab: &Lab) {
    let t = lab.bench().await;
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
    let t = lab.bench().await;
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
    let mut t = lab.bench().await;
    t.pass(60_000);
    t.accept([message("now", 60_000), message("past", 1), message("soon", 60_001)]).await;
    let leased = t.claim_all(10).await;
    assert_eq!(ids(&leased), ["past", "now"]);
    assert_eq!(leased[0].message.due, ms(1));
    t.retry(&leased[0], 0, Outcome::Failed).await;
    assert_eq!(ids(&t.claim_all(10).await), ["past"]);
}
