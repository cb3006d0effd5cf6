//! Cases: how much is kept, and that all of it comes back.

use std::time::Duration;

use duly_core::{
    Attempt, Backoff, Body, Outcome, Priority, Properties, RetryOverride, State, StoredMessage,
    store::{Changed, Query, Settled, Settlement},
};

use super::{Lab, harness::*};

fn with_every_field() -> StoredMessage {
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
    let mut t = lab.harness().await;
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
    let mut t = lab.harness().await;
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
    let mut t = lab.harness().await;
    t.accept((0..10_000).map(|n| message(&format!("m{n:05}"), n / 10))).await;
    assert_eq!(t.store().totals().await.unwrap().pending, 10_000);
    t.pass(1000);
    let leased = t.claim_all(777).await;
    let expected: Vec<_> = (0..10_000).map(|n| format!("m{n:05}")).collect();
    assert_eq!(ids(&leased), expected.iter().map(String::as_str).collect::<Vec<_>>());
}

/// A burst in one millisecond is given out piece by piece, all of it, in order.
pub async fn many_due_in_one_millisecond_all_come_out(lab: &Lab) {
    let mut t = lab.harness().await;
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
    let t = lab.harness().await;
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
    let mut t = lab.harness().await;
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
    let leased = t.claim_one("a").await;
    t.deliver(&leased).await;
    let record = t.record("a").await;
    assert_eq!((record.attempts, record.history.len()), (tries + 1, Attempt::KEPT_MAX));
    assert_eq!(record.history.last().unwrap().outcome, Outcome::Delivered);
}

/// Once the history is full, a deferral takes the place of the latest one before it: what was tried stays known.
pub async fn a_deferral_replaces_the_one_before_once_the_history_is_full(lab: &Lab) {
    let mut t = lab.harness().await;
    t.accept([message("a", 0)]).await;
    let full = Attempt::KEPT_MAX as u64;
    let retry = async |t: &mut StoreHarness, outcome: Outcome, detail: &str| {
        let leased = t.claim_one("a").await;
        let attempt = Attempt::new(t.now().wall(), outcome, detail);
        t.pass(1);
        let settlement = Settlement::Retry { at: t.now().wall(), attempt };
        assert_eq!(t.settle(&leased.receipt, settlement).await, Settled::Done);
    };
    let words = format!("{}its destination is away", Attempt::DEFERRED_DETAIL_PREFIX);
    for _ in 0..full - 1 {
        retry(&mut t, Outcome::Failed, "no").await;
    }
    for outcome in [Outcome::Unreachable, Outcome::Throttled, Outcome::Misconfigured, Outcome::Unreachable] {
        retry(&mut t, outcome, &words).await;
    }
    let times = async |t: &StoreHarness| -> Vec<_> {
        t.record("a").await.history.into_iter().map(|attempt| attempt.at).collect()
    };
    assert_eq!(times(&t).await, (0..full - 1).chain([full + 2]).map(ms).collect::<Vec<_>>());
    // An outage that was met is a try, although it does not count. The deferral before it is still the one to be replaced.
    retry(&mut t, Outcome::Unreachable, "connection refused").await;
    retry(&mut t, Outcome::Unreachable, &words).await;
    t.crash().await;
    let record = t.record("a").await;
    let expected = (1..full - 1).chain([full + 3, full + 4]).map(ms).collect::<Vec<_>>();
    assert_eq!((times(&t).await, u64::from(record.attempts)), (expected, full - 1));
    assert_eq!(record.history.last().unwrap().detail, words);
}

/// Delivered and cancelled ones can be asked for until retention ends; dead letters for ever.
pub async fn retention_ends_by_time(lab: &Lab) {
    let mut t = lab.harness_with(Keep { retention: Duration::from_secs(60), ..Keep::default() }).await;
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
    let mut t = lab.harness_with(Keep { retention_max: 10, ..Keep::default() }).await;
    for n in 0..100 {
        t.bring(message(&format!("m{n:02}"), 0), State::Delivered).await;
        t.pass(1000);
        t.sweep(&["work"]).await;
    }
    assert_eq!(t.get("m00").await, None);
    assert!(t.get("m99").await.is_some());
    let kept = t.list(&Query::all(State::Delivered)).await.records.len();
    assert!(kept < 100, "{kept} kept where 10 are allowed");
    assert_eq!(t.store().totals().await.unwrap().delivered, 100);
}

/// Topics are free text: each that held something once must not cost anything for ever. Which of them are in use stays known.
pub async fn a_lane_without_messages_is_forgotten(lab: &Lab) {
    /// So many lanes at the end: those in use, and a few that were used of late.
    const FEW: u64 = 8;
    let mut t = lab.harness_with(Keep { retention: Duration::from_secs(60), ..Keep::default() }).await;
    let topics: Vec<_> = (0..45).map(|n| format!("once-{n}")).collect();
    for (n, topic) in topics.iter().enumerate() {
        let state = [State::Delivered, State::Cancelled, State::Dead][n % 3];
        t.bring(message_for("queue", topic, topic, 0), state).await;
        if state == State::Dead {
            assert_eq!(t.purge(topic).await, Changed::Done { maybe_delivered: false });
        }
    }
    t.bring(message_for("queue", "buried", "buried", 0), State::Dead).await;
    t.accept([message_for("queue", "waits", "waits", 1)]).await;
    t.store().set_paused(&lane("asleep"), true).await.unwrap();
    // A store may forget when it tidies up, for which it takes traffic and time.
    for round in 0.. {
        t.pass(61_000);
        let mut noise = message_for("queue", "noise", &format!("noise-{round}"), 0);
        noise.body = Body::bytes(vec![7; 50_000]);
        t.bring(noise, State::Delivered).await;
        t.sweep(&["noise"]).await;
        let known = t.store().metrics().lanes;
        if known <= FEW {
            break;
        }
        assert!(round < 2_000, "{known} lanes are remembered");
    }
    for _ in 0..2 {
        let lanes = t.store().lanes(t.now()).await.unwrap();
        let mut found: Vec<_> = lanes.iter().map(|l| (l.lane.to_string(), l.paused)).collect();
        found.sort();
        let expected = [("queue/asleep", true), ("queue/buried", false), ("queue/waits", false)];
        assert_eq!(found, expected.map(|(lane, paused)| (lane.to_string(), paused)));
        t.crash().await;
    }
    // Used again, before and after another crash.
    t.accept([message_for("queue", "once-0", "again-0", 0), message_for("queue", "once-1", "again-1", 0)])
        .await;
    assert_eq!(ids(&t.claim_from("once-0", 9).await), ["again-0"]);
    t.crash().await;
    assert_eq!(ids(&t.claim_from("once-1", 9).await), ["again-1"]);
    assert_eq!(ids(&t.claim_from("waits", 9).await), ["waits"]);
    assert_eq!(t.record("buried").await.state, State::Dead);
    assert!(t.claim_from("asleep", 9).await.is_empty());
    assert_eq!(t.get("once-0").await, None);
}
