//! A store in the same Redis moves messages into their streams by itself: what comes of it is the same.

use std::{sync::Arc, time::Duration};

use duly::{Duly, Event, Message, SinkOptions, SystemClock};
use duly_core::{
    Body, Clock, Delivery, InStoreDelivery, Lane, MessageId, Now, RetryOverride, SinkName, State, Store,
    Timestamp,
    store::{Changed, Claim, Holder, Insert, Query, Settle, Settlement},
};
use duly_stores::{
    RedisStore,
    redis::{Options, StreamLimits},
};
use testkit::servers::{
    redis::{self as servers, Redis, installed},
    wait_until,
};

use crate::{ids, markers, sink_to};

const LIMIT: Duration = Duration::from_secs(60);

fn lane() -> SinkName {
    "events".parse().unwrap()
}

async fn store(redis: &Redis, prefix: &str, now: Now) -> Arc<RedisStore> {
    let options = Options { prefix: prefix.into(), ..Options::new(1) };
    Arc::new(RedisStore::open(&redis.url(), options, now).await.unwrap())
}

fn in_store(store: &Arc<RedisStore>) -> Arc<dyn InStoreDelivery> {
    store.in_store_delivery(lane(), StreamLimits::default()).unwrap()
}

/// Duly with its store, its sink and its delivery in the store in one Redis.
async fn engine(redis: &Redis) -> (Duly, Arc<RedisStore>) {
    let clock = Arc::new(SystemClock::new().unwrap());
    let store = store(redis, "main", clock.now()).await;
    let duly = Duly::builder()
        .store(store.clone())
        .clock(clock)
        .sink("events", sink_to(redis), SinkOptions::default())
        .in_store_delivery("events", in_store(&store))
        .start()
        .await
        .unwrap();
    (duly, store)
}

fn wait(what: &str, is_so: impl FnMut() -> bool) {
    tokio::task::block_in_place(|| wait_until(what, LIMIT, is_so));
}

fn len(redis: &Redis, stream: &str) -> usize {
    redis.run(&["XLEN", stream])
}

/// Every kind of message there is, all due.
fn variety() -> Vec<duly_core::StoredMessage> {
    let plain = |id: &str, due: u64| {
        let (id, topic) = (id.parse().unwrap(), "orders".parse().unwrap());
        duly_core::StoredMessage::new(id, lane(), topic, Timestamp::from_millis(1_800_000_000_000 + due))
    };
    let mut all = vec![plain("empty", 0)];
    all.push(duly_core::StoredMessage { body: Body::text("naïve 文"), ..plain("text", 1) });
    all.push(duly_core::StoredMessage { body: Body::json(&[1, 2]).unwrap(), ..plain("json", 2) });
    all.push(duly_core::StoredMessage {
        body: Body::bytes((0..=255u8).collect::<Vec<_>>()),
        ..plain("bytes", 3)
    });
    all.push(duly_core::StoredMessage {
        priority: duly_core::Priority::new(9).unwrap(),
        ..plain("first", 4)
    });
    all.push(duly_core::StoredMessage { tag: Some("paid".parse().unwrap()), ..plain("tag", 5) });
    all.push(duly_core::StoredMessage { key: Some("客户".parse().unwrap()), ..plain("key", 6) });
    let mut many = plain("properties", 7);
    for n in 0..300 {
        many.properties.put(&format!("p{n}"), &"v".repeat(n));
    }
    all.push(many);
    let retry =
        RetryOverride { attempts: Some(3), min: Some(Duration::from_secs(1)), ..RetryOverride::default() };
    let mut full = plain("full", 8);
    full.tag = Some("t".parse().unwrap());
    full.key = Some("k".parse().unwrap());
    full.retry = Some(Box::new(retry.clone()));
    full.properties.put("tenant", "a");
    full.properties.put("Body", "not ours");
    full.body = Body::text("everything");
    all.push(full);
    all.push(duly_core::StoredMessage { retry: Some(Box::new(retry)), ..plain("retry", 9) });
    all
}

/// Fields and values in their order, as bytes.
fn raw_entries(redis: &Redis) -> Vec<Vec<Vec<u8>>> {
    let all: Vec<(String, Vec<Vec<u8>>)> = redis.run(&["XRANGE", "orders", "-", "+"]);
    let mut all: Vec<_> = all.into_iter().map(|(_, fields)| fields).collect();
    all.sort();
    all
}

#[tokio::test]
async fn what_is_moved_is_byte_for_byte_what_the_sink_appends_and_looks_as_if_it_had_been_settled() {
    if !installed() {
        return;
    }
    let (moving, settling) = (Redis::single(), Redis::single());
    let at =
        |ms: u64| Now::new((1_800_000_000_000 + ms) * 1000, duly_core::Monotonic::from_micros(ms * 1000));
    let moved = store(&moving, "main", at(0)).await;
    let settled = store(&settling, "main", at(0)).await;
    let inserts = || variety().into_iter().map(Insert::new).collect::<Vec<_>>();
    moved.insert(at(0), inserts()).await.unwrap();
    settled.insert(at(0), inserts()).await.unwrap();

    let done = in_store(&moved).deliver_due(at(20), 1000).await.unwrap();
    assert_eq!((done.messages.len(), done.next), (variety().len(), None));
    let claim = Claim {
        lane: Lane::Sink(lane()),
        limit: 100,
        lease: Duration::from_secs(30),
        holder: Holder::Process,
    };
    let leased = settled.claim(at(20), claim).await.unwrap().messages;
    let batch: Vec<_> = leased
        .iter()
        .map(|leased| Delivery { message: leased.message.clone(), attempt: leased.attempt, fence: None })
        .collect();
    let receipts = sink_to(&settling).deliver(&batch).await;
    let ends = leased.iter().zip(receipts).map(|(leased, receipt)| Settle {
        receipt: leased.receipt.clone(),
        settlement: Settlement::Delivered { receipt: Some(receipt.unwrap()) },
    });
    settled.settle(at(20), ends.collect()).await.unwrap();

    assert_eq!(raw_entries(&moving), raw_entries(&settling));
    let all: Vec<MessageId> = variety().into_iter().map(|message| message.id).collect();
    let (one, other) = (moved.get(&all).await.unwrap(), settled.get(&all).await.unwrap());
    for (one, other) in one.into_iter().zip(other) {
        let (mut one, other) = (one.unwrap(), other.unwrap());
        let receipt = one.receipt.clone().unwrap();
        let there: Vec<(String, Vec<Vec<u8>>)> = moving.run(&["XRANGE", "orders", &receipt, &receipt]);
        assert_eq!(
            there[0].1[there[0].1.iter().position(|field| field == b"duly-id").unwrap() + 1],
            one.message.id.as_str().as_bytes()
        );
        one.receipt = other.receipt.clone();
        assert_eq!(one, other);
    }
    let page = |store: Arc<RedisStore>| async move {
        store.list(&Query::all(State::Delivered)).await.unwrap().records
    };
    let strip = |records: Vec<duly_core::Record>| -> Vec<_> {
        records
            .into_iter()
            .map(|mut record| {
                record.receipt = None;
                record
            })
            .collect()
    };
    assert_eq!(strip(page(moved.clone()).await), strip(page(settled.clone()).await));
    assert_eq!(moved.totals().await.unwrap(), settled.totals().await.unwrap());
    assert_eq!(moved.lanes(at(20)).await.unwrap(), settled.lanes(at(20)).await.unwrap());
    let (from, to) = (at(0).wall(), at(3_600_000).wall());
    assert_eq!(moved.forecast(from, to, 60).await.unwrap(), settled.forecast(from, to, 60).await.unwrap());
    let again = moved.insert(at(30), inserts()).await.unwrap();
    assert_eq!(again, settled.insert(at(30), inserts()).await.unwrap(), "known, and delivered");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_duly_moves_is_there_once_counted_and_told_and_there_is_never_a_marker() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (duly, store) = engine(&redis).await;
    let mut events = duly.events();
    for n in 0..300 {
        let message = Message::to("events/orders").id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(n % 100))).await.unwrap();
    }
    wait("all is in the stream", || len(&redis, "orders") >= 300);
    assert_eq!(redis.run::<usize>(&["EXISTS", "duly:{main:0}:claim"]), 0);
    let mut reported = std::collections::BTreeSet::new();
    while reported.len() < 300 {
        match events.next().await.unwrap() {
            Event::Delivered { id, lane, attempt, .. } => {
                assert_eq!((lane.to_string().as_str(), attempt), ("events", 1));
                assert!(reported.insert(id), "told once");
            }
            Event::Accepted { .. } => {}
            other => panic!("{other:?}"),
        }
    }
    let mut there = ids(&redis, "orders");
    there.sort_unstable();
    there.dedup();
    assert_eq!((there.len(), len(&redis, "orders")), (300, 300));
    assert_eq!(duly.stats().delivered, 300);
    assert_eq!(duly.metrics().lateness.count(), 300);
    let commands: String = redis.run(&["INFO", "commandstats"]);
    assert!(!commands.contains("cmdstat_getex"), "the sink was not asked: {commands}");
    let totals = store.totals().await.unwrap();
    assert!(totals.balance() && totals.delivered == 300, "{totals:?}");
    duly.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_cannot_be_moved_goes_by_the_sink_and_holds_nobody_up() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["SET", "no-stream", "x"]);
    let (duly, store) = engine(&redis).await;
    for n in 0..50 {
        duly.send(Message::to("events/no-stream").id(format!("bad{n}"))).await.unwrap();
        duly.send(Message::to("events/orders").id(format!("good{n}"))).await.unwrap();
        duly.send(Message::to("events/orders").id(format!("late{n}")).max_lateness(Duration::from_secs(600)))
            .await
            .unwrap();
    }
    wait("the good ones are there", || len(&redis, "orders") >= 100);
    // What no entry can hold is not even accepted.
    let clash = duly.send(Message::to("events/orders").property("body", "x")).await;
    assert!(matches!(clash, Err(duly::Error::Invalid(_))), "{clash:?}");
    wait("markers go", || markers(&redis).is_empty());
    assert_eq!(len(&redis, "orders"), 100);
    let totals = store.totals().await.unwrap();
    assert!(totals.balance() && (totals.delivered, totals.dead) == (100, 0), "{totals:?}");
    // Once the key is free, what was denied goes out.
    redis.run::<()>(&["DEL", "no-stream"]);
    wait("all is there", || len(&redis, "no-stream") >= 50);
    duly.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn a_cancel_that_races_with_the_move_is_either_done_or_too_late() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (duly, store) = engine(&redis).await;
    let all: Vec<String> = (0..2_000).map(|n| format!("m{n}")).collect();
    for part in all.chunks(100) {
        // Some are due before they are cancelled, some after, and some at the same time.
        for (n, id) in (0..).zip(part) {
            let message = Message::to("events/orders").id(id.clone());
            duly.send(message.after(Duration::from_millis(n * 7 % 80))).await.unwrap();
        }
        let cancels = part.iter().map(|id| {
            let duly = duly.clone();
            let id: MessageId = id.parse().unwrap();
            tokio::spawn(async move { (duly.cancel(&id).await.unwrap(), id) })
        });
        let cancels: Vec<_> = cancels.collect();
        for cancel in cancels {
            let (changed, id) = cancel.await.unwrap();
            match changed {
                Changed::Done { maybe_delivered } => assert!(!maybe_delivered, "{id}"),
                Changed::TooLate(state) => {
                    assert!(matches!(state, State::Delivered | State::InFlight), "{id}")
                }
                other => panic!("{id} was accepted: {other:?}"),
            }
        }
    }
    let totals = store.totals().await.unwrap();
    wait("the rest is moved", || len(&redis, "orders") as u64 + totals.cancelled >= 2_000);
    let ids: Vec<MessageId> = all.iter().map(|id| id.parse().unwrap()).collect();
    let there: std::collections::BTreeSet<_> = crate::ids(&redis, "orders").into_iter().collect();
    assert_eq!(there.len(), len(&redis, "orders"), "none twice");
    for record in store.get(&ids).await.unwrap().into_iter().flatten() {
        let has_entry = there.contains(record.message.id.as_str());
        assert_eq!(has_entry, record.state == State::Delivered, "{record:?}");
    }
    assert!(store.totals().await.unwrap().balance());
    duly.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_that_is_killed_again_and_again_loses_nothing_and_repeats_nothing() {
    if !installed() {
        return;
    }
    let options = servers::Options {
        more: vec!["--appendfsync".into(), "always".into()],
        ..servers::Options::default()
    };
    let redis = Redis::with(options);
    let (duly, store) = engine(&redis).await;
    let count = 6_000;
    let inserts = |part: usize| {
        let due = SystemClock::new().unwrap().now().wall().saturating_add(Duration::from_secs(2));
        (part * 500..part * 500 + 500)
            .map(|n| {
                let (id, topic) = (format!("m{n}").parse().unwrap(), "orders".parse().unwrap());
                let due = due.saturating_add(Duration::from_millis(n as u64 / 2));
                Insert::new(duly_core::StoredMessage::new(id, lane(), topic, due))
            })
            .collect::<Vec<_>>()
    };
    let clock = SystemClock::new().unwrap();
    for part in 0..count / 500 {
        store.insert(clock.now(), inserts(part)).await.unwrap();
    }
    // The moves are under way by then, a few at a time.
    for kill in 1..=4 {
        wait("a part of them is there", || len(&redis, "orders") >= kill * 1_000);
        tokio::task::block_in_place(|| redis.restart());
    }
    wait("all are there", || len(&redis, "orders") >= count);
    let mut there = ids(&redis, "orders");
    there.sort_unstable();
    there.dedup();
    assert_eq!((there.len(), len(&redis, "orders")), (count, count));
    let mut totals = store.totals().await;
    for _ in 0..1_000 {
        if totals.as_ref().is_ok_and(|totals| totals.delivered == count as u64) {
            break;
        }
        totals = store.totals().await;
    }
    let totals = totals.unwrap();
    assert!(totals.balance() && totals.delivered == count as u64, "{totals:?}");
    duly.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn out_of_memory_messages_wait_and_go_on_by_themselves() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (duly, store) = engine(&redis).await;
    for n in 0..200 {
        let message = Message::to("events/orders").id(format!("m{n}")).text("body");
        duly.send(message.after(Duration::from_millis(700))).await.unwrap();
    }
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "1000000"]);
    let lane = Lane::Sink(lane());
    let mut looks = duly.events();
    loop {
        match looks.next().await.unwrap() {
            Event::SinkUnreachable { lane: away, detail, .. } => {
                assert_eq!(away, lane);
                assert!(detail.contains("OOM"), "{detail}");
                break;
            }
            Event::Delivered { .. } => panic!("out of memory"),
            _ => {}
        }
    }
    assert_eq!(redis.run::<usize>(&["EXISTS", "orders"]), 0);
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    wait("all is there", || len(&redis, "orders") >= 200);
    wait("and no marker", || markers(&redis).is_empty());
    let mut there = ids(&redis, "orders");
    there.sort_unstable();
    there.dedup();
    assert_eq!((there.len(), len(&redis, "orders")), (200, 200));
    assert!(store.totals().await.unwrap().balance());
    duly.shutdown().await.unwrap();
}
