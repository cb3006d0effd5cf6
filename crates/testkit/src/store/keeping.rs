//! Cases: how much is kept, and that all of it comes back.

use std::time::Duration;

use duly_core::{
    Attempt, Backoff, Body, Message, Outcome, Priority, Properties, RetryOverride, State, store::Query,
};

use super::{Lab, bench::*};

fn with_every_field() -> Message {
    let mut message = message_for("kafka", "заказ/истёк 注文", "A.b_c:d-9", 1234);
    message.tag = Some("красный".parse().unwrap());
    message.key = Some("ключ 🔑".parse().unwrap());
    message.body = Body::json(&[Some("日本語"), None]).unwrap();
    message.properties = (0..64).fold(Properties::default(), |mut properties, n| {
        properties.set(&format!("name {n} ü"), &"värde ".repeat(n)).unwrap();
        properties
    });
    message.priority = Priority::new(9).unwrap();
    message.max_lateness = Some(Duration::from_millis(123_456_789));
    message.retry = Some(Box::new(RetryOverride {
        attempts: Some(3),
        backoff: Some(Backoff::Linear),
        min: Some(Duration::from_millis(7)),
        max: None,
    }));
    message
}

/// Nothing of a message is lost or changed on its way through the store, its disk included.
pub async fn every_field_comes_back(lab: &Lab) {
    let mut t = lab.bench().await;
    let sent = with_every_field();
    let mut plain = message_for("kafka", "t", &"x".repeat(128), 1235);
    plain.retry = Some(Box::new(RetryOverride { max: Some(Duration::MAX), ..RetryOverride::default() }));
    t.accept([sent.clone(), plain.clone()]).await;
    for _ in 0..2 {
        let record = t.record(sent.id.as_str()).await;
        assert_eq!(record.message, sent);
        assert_eq!(record.message.body.kind(), sent.body.kind());
        t.reopen().await;
    }
    t.pass(2000);
    let leased = t.claimed(&sent.lane(), 10, duly_core::store::Holder::Process).await.messages;
    assert_eq!(leased[0].message, sent);
    assert_eq!(leased[0].message.body.kind(), sent.body.kind());
    assert_eq!(leased[1].message.id, plain.id);
    t.bury(&leased[0]).await;
    t.crash().await;
    assert_eq!(t.record(sent.id.as_str()).await.message, sent);
    let listed = t.list(&Query::all(State::Dead)).await.records.remove(0).message;
    assert_eq!((listed.properties, listed.key), (sent.properties, sent.key));
}

/// Empty, not UTF-8, at the limit of 1 MiB: bytes are bytes.
pub async fn bodies_of_every_size_come_back(lab: &Lab) {
    let mut t = lab.bench().await;
    let bytes = |len: usize| (0..len).map(|n| (n * 31 % 251) as u8).collect::<Vec<u8>>();
    let sizes = [0, 1, 255, 256, 4095, 4096, 65_535, 65_537, 1024 * 1024];
    let messages: Vec<_> = sizes
        .iter()
        .map(|size| {
            let mut message = message(&format!("m{size:08}"), 10);
            message.body = Body::bytes(bytes(*size));
            message
        })
        .collect();
    t.accept(messages.clone()).await;
    t.reopen().await;
    t.pass(10);
    let leased = t.claim_all(4).await;
    assert_eq!(leased.len(), sizes.len());
    for (leased, sent) in leased.iter().zip(&messages) {
        assert!(leased.message == *sent, "{} came back otherwise", sent.id);
        t.bury(leased).await;
    }
    t.crash().await;
    for sent in &messages {
        assert!(t.record(sent.id.as_str()).await.message == *sent, "{} came back otherwise", sent.id);
    }
}

/// A batch of 10,000 is one call like any other.
pub async fn ten_thousand_in_one_batch(lab: &Lab) {
    let mut t = lab.bench().await;
    t.accept((0..10_000).map(|n| message(&format!("m{n:05}"), n / 10))).await;
    assert_eq!(t.store().books().await.unwrap().pending, 10_000);
    t.pass(1000);
    let leased = t.claim_all(777).await;
    let expected: Vec<_> = (0..10_000).map(|n| format!("m{n:05}")).collect();
    assert_eq!(ids(&leased), expected.iter().map(String::as_str).collect::<Vec<_>>());
}

/// A burst in one millisecond is given out piece by piece, all of it, in order.
pub async fn many_due_in_one_millisecond_all_come_out(lab: &Lab) {
    let mut t = lab.bench().await;
    for part in 0..5 {
        t.accept((0..1000).map(|n| message(&format!("m{:05}", n * 5 + part), 500))).await;
    }
    t.pass(500);
    let leased = t.claim_all(100).await;
    let expected: Vec<_> = (0..5000).map(|n| format!("m{n:05}")).collect();
    assert_eq!(ids(&leased), expected.iter().map(String::as_str).collect::<Vec<_>>());
}

/// What was there when paging began is listed exactly once, whatever comes in meanwhile.
pub async fn pages_hold_while_others_insert(lab: &Lab) {
    let t = lab.bench().await;
    t.accept((0..40).map(|n| message(&format!("m{n:02}"), n * 1000))).await;
    let mut query = Query { limit: 6, ..Query::all(State::Pending) };
    let mut seen = Vec::new();
    for round in 0.. {
        let page = t.list(&query).await;
        seen.extend(page.records.iter().map(|record| record.message.id.to_string()));
        t.accept((0..3).map(|n| message(&format!("new{round}-{n}"), n * 13_700))).await;
        match page.next {
            Some(next) => query.after = Some(next),
            None => break,
        }
        assert!(round < 100, "a list without end");
    }
    let old: Vec<_> = seen.iter().filter(|text| text.starts_with('m')).cloned().collect();
    assert_eq!(old, (0..40).map(|n| format!("m{n:02}")).collect::<Vec<_>>());
    seen.sort();
    assert!(seen.is_sorted_by(|earlier, later| earlier < later), "something was listed twice");
}

/// Only the latest tries are kept; all that count are counted.
pub async fn the_history_is_bounded(lab: &Lab) {
    let mut t = lab.bench().await;
    t.accept([message("a", 0)]).await;
    let tries = Attempt::KEPT_MAX as u32 + 4;
    for n in 0..tries {
        let leased = t.claim_one("a").await;
        let outcome = if n % 2 == 0 { Outcome::Failed } else { Outcome::Again };
        t.retry(&leased, 1, outcome).await;
        t.pass(1);
    }
    t.crash().await;
    let record = t.record("a").await;
    assert_eq!((record.attempts, record.history.len()), (tries, Attempt::KEPT_MAX));
    assert_eq!(record.history.last().unwrap().at, ms(u64::from(tries) - 1));
}

/// Delivered and cancelled ones can be asked for until retention ends; dead letters for ever.
pub async fn retention_ends_by_time(lab: &Lab) {
    let mut t = lab.bench_with(Keep { retention: Duration::from_secs(60), ..Keep::default() }).await;
    for state in [State::Delivered, State::Cancelled, State::Dead] {
        t.bring(message(state.as_str(), 0), state).await;
    }
    t.accept([message("waiting", 0)]).await;
    t.pass(59_000);
    t.sweep(&["work"]).await;
    assert!(t.get("delivered").await.is_some() && t.get("cancelled").await.is_some());
    // Stores may forget in slices: well past the end everything must be gone.
    t.pass(600_000);
    t.sweep(&["work"]).await;
    assert_eq!((t.get("delivered").await, t.get("cancelled").await), (None, None));
    assert_eq!(t.record("dead").await.message.body, message("dead", 0).body);
    assert_eq!(t.record("waiting").await.state, State::Pending);
    t.crash().await;
    assert_eq!(t.get("delivered").await, None);
    t.accept([message("delivered", 0)]).await;
}

/// The oldest go first when there are too many.
pub async fn retention_ends_by_count(lab: &Lab) {
    let mut t = lab.bench_with(Keep { retention_max: 10, ..Keep::default() }).await;
    for n in 0..100 {
        t.bring(message(&format!("m{n:02}"), 0), State::Delivered).await;
        t.pass(1000);
        t.sweep(&["work"]).await;
    }
    assert_eq!(t.get("m00").await, None);
    assert!(t.get("m99").await.is_some());
    let kept = t.list(&Query::all(State::Delivered)).await.records.len();
    assert!(kept < 100, "{kept} kept where 10 are allowed");
    assert_eq!(t.store().books().await.unwrap().delivered, 100);
}
