//! What is counted, what is told of it, and what a process that only accepts does.

use std::sync::Arc;

use duly::{
    Event, Lane, Message, Receive, RetryOverride, Settled, SinkErrorKind, SinkOptions, Topic, seconds,
};
use duly_stores::{EmbeddedStore, MemoryStore, embedded::Options};

use crate::bench::{Bench, Mood, Target};

fn queue(topic: &str) -> Lane {
    Lane::Queue(Topic::parse(topic).unwrap())
}

#[tokio::test]
async fn what_is_handed_back_is_ready_at_once_counts_no_try_and_wakes_another_receiver() {
    let bench = Bench::start().await;
    let id = bench.send(Message::to("order")).await;
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    let duly = bench.duly.clone();
    let other = tokio::spawn(async move {
        duly.receive("order", Receive { wait: seconds(20), ..Receive::default() }).await
    });
    bench.calm().await;
    let receipts = [&received[0].receipt];
    assert_eq!(bench.duly.release(&receipts).await.unwrap(), [Settled::Done]);
    bench.calm().await;
    assert!(other.is_finished(), "woken without time passing");
    let again = other.await.unwrap().unwrap();
    assert_eq!((&again[0].message.id, again[0].attempt), (&id, 1));
    assert_eq!(bench.duly.release(&receipts).await.unwrap(), [Settled::Lost]);
    let stats = bench.duly.stats();
    assert_eq!((stats.handed_out, stats.failed, stats.delivered), (2, 0, 0));
}

#[tokio::test]
async fn an_acknowledgement_tells_when_the_try_began_not_when_it_ended() {
    let bench = Bench::start().await;
    bench.send(Message::to("order")).await;
    bench.pass(seconds(3)).await;
    let mut events = bench.duly.events();
    let received = bench.duly.receive("order", Receive::default()).await.unwrap();
    bench.pass(seconds(20)).await;
    bench.duly.ack(&[&received[0].receipt]).await.unwrap();
    match events.next().await {
        Some(Event::Delivered { lane, attempt: 1, lateness, .. }) => {
            assert_eq!((lane, lateness), (queue("order"), seconds(3)));
        }
        other => panic!("{other:?}"),
    }
}

#[tokio::test]
async fn a_message_received_elsewhere_is_counted_where_it_is_acknowledged() {
    let bench = Bench::start().await;
    let other = Bench::on(bench.store.clone(), bench.clock.clone(), |builder| builder).await;
    bench.send(Message::to("order")).await;
    let received = other.duly.receive("order", Receive::default()).await.unwrap();
    let mut events = bench.duly.events();
    bench.duly.ack(&[&received[0].receipt]).await.unwrap();
    assert!(matches!(events.next().await, Some(Event::Delivered { .. })));
    let measures = bench.duly.metrics();
    assert_eq!((measures.stats.delivered, measures.lanes[0].1.delivered), (1, 1));
}

#[tokio::test]
async fn tries_are_counted_per_queue_and_per_watched_topic() {
    let bench = Bench::with(|builder| builder.watch_topics(["order"])).await;
    let once = RetryOverride { attempts: Some(1), ..RetryOverride::default() };
    bench.send(Message::to("order").id("dies").retry(once)).await;
    bench.send(Message::to("order").id("waits")).await;
    bench.send(Message::to("mail").id("goes")).await;
    bench.duly.send(Message::to("mail").id("goes")).await.unwrap();
    for received in bench.duly.receive("order", Receive::default()).await.unwrap() {
        bench.duly.nack(&[received.receipt], None).await.unwrap();
    }
    let mail = bench.duly.receive("mail", Receive::default()).await.unwrap();
    bench.duly.ack(&[&mail[0].receipt]).await.unwrap();
    // Expired without a try: counted as given up, too.
    bench.send(Message::to("mail").max_lateness(seconds(1))).await;
    bench.pass(seconds(2)).await;
    bench.duly.receive("mail", Receive::default()).await.unwrap();

    let measures = bench.duly.metrics();
    let stats = &measures.stats;
    assert_eq!((stats.accepted, stats.duplicates, stats.handed_out), (4, 1, 3));
    assert_eq!((stats.delivered, stats.failed, stats.dead), (1, 1, 2));
    let lane = |topic| &measures.lanes.iter().find(|(lane, _)| *lane == queue(topic)).unwrap().1;
    assert_eq!((lane("order").failed, lane("order").dead, lane("order").lateness.count()), (1, 1, 2));
    assert_eq!((lane("mail").delivered, lane("mail").dead), (1, 1));
    let (topic, watched) = &measures.topics[0];
    assert_eq!((topic.as_str(), watched.failed, watched.dead), ("order", 1, 1));
}

#[tokio::test]
async fn calls_of_a_sink_are_measured_also_those_that_never_end() {
    let options = SinkOptions { batch: 1, ..SinkOptions::default() };
    let (bench, target) = Bench::with_target(Mood::Good, options).await;
    bench.send(Message::to("orders/paid")).await;
    bench.calm().await;
    target.set(Mood::Hangs);
    bench.send(Message::to("orders/paid")).await;
    bench.pass(seconds(9)).await;
    let measures = bench.duly.metrics();
    let calls = &measures.lanes[0].1.calls;
    assert_eq!((calls.count(), calls.max()), (2, seconds(8)), "the timeout ends the second");
}

#[tokio::test]
async fn a_duly_that_only_accepts_delivers_nothing_and_refuses_handlers() {
    let clock = duly::ManualClock::new();
    let target = Target::new(&clock, Mood::Good);
    let sink = target.clone();
    let store = Arc::new(MemoryStore::new());
    let bench = Bench::on(store.clone(), clock.clone(), |builder| {
        builder.sink("orders", sink, SinkOptions::default()).deliver(false)
    })
    .await;
    bench.send(Message::to("orders/paid")).await;
    let refused = bench.duly.handle("order", |_| async {}).start().await.unwrap_err();
    assert_eq!(refused.code(), "delivery_disabled");
    bench.pass(seconds(60)).await;
    assert_eq!(target.ids().len(), 0);

    let sink = target.clone();
    let other = Bench::on(store, clock, |builder| builder.sink("orders", sink, SinkOptions::default())).await;
    other.pass(seconds(3)).await;
    assert_eq!(target.ids().len(), 1);
}

#[tokio::test]
async fn what_operators_do_is_told() {
    let options = SinkOptions::default();
    let (bench, target) = Bench::with_target(Mood::Bad(SinkErrorKind::Refused), options).await;
    let id = bench.send(Message::to("orders/paid").after(seconds(60))).await;
    let mut events = bench.duly.events();
    let lane = bench.record(&id).await.message.lane();
    bench.duly.pause_sink("orders").await.unwrap();
    assert!(matches!(events.next().await, Some(Event::Paused { lane: own, .. }) if own == lane));
    bench.duly.resume_sink("orders").await.unwrap();
    assert!(matches!(events.next().await, Some(Event::Resumed { lane: own, .. }) if own == lane));
    let due = bench.duly.now();
    bench.duly.fire(&id).await.unwrap();
    match events.next().await {
        Some(Event::Rescheduled { id: own, lane: of, due: at, .. }) => {
            assert_eq!((own, of, at), (id.clone(), lane.clone(), due))
        }
        other => panic!("{other:?}"),
    }
    bench.pass(seconds(1)).await;
    assert!(matches!(events.next().await, Some(Event::Dead { .. })));
    target.set(Mood::Hangs);
    bench.duly.replay(std::slice::from_ref(&id)).await.unwrap();
    assert!(
        matches!(events.next().await, Some(Event::Replayed { id: own, lane: of, .. }) if own == id && of == lane)
    );
    target.set(Mood::Bad(SinkErrorKind::Refused));
    bench.pass(seconds(60)).await;
    while !matches!(events.next().await, Some(Event::Dead { .. })) {}
    bench.duly.purge(std::slice::from_ref(&id)).await.unwrap();
    assert!(
        matches!(events.next().await, Some(Event::Purged { id: own, lane: of, .. }) if own == id && of == lane)
    );
}

#[tokio::test]
async fn jumps_of_the_clock_and_leases_that_run_out_are_counted() {
    let bench = Bench::start().await;
    bench.send(Message::to("order")).await;
    bench.duly.receive("order", Receive::default()).await.unwrap();
    bench.pass(seconds(40)).await;
    assert_eq!(bench.duly.stats().leases_ended, 1);
    bench.clock.set_wall(bench.duly.now().saturating_add(seconds(3_600)));
    bench.pass(seconds(3)).await;
    assert_eq!(bench.duly.stats().clock_jumps, 1);
}

#[tokio::test]
async fn the_health_of_the_store_and_its_syncs_are_known() {
    let folder = tempfile::tempdir().unwrap();
    let clock = duly::ManualClock::new();
    let now = duly::Clock::now(&clock);
    let store = Arc::new(EmbeddedStore::open(folder.path(), Options::small(), now).await.unwrap());
    let builder = duly::Duly::builder().store(store.clone()).clock(Arc::new(clock));
    let duly = builder.start().await.unwrap();
    duly.send(Message::to("order")).await.unwrap();
    let measured = duly.metrics().store;
    assert!(measured.sync.count() > 0 && measured.commit.count() >= measured.sync.count());
    assert!(measured.disk_bytes > 0 && !measured.full);
    assert_eq!(duly.store_health().await, Ok(()));
    store.abandon();
    assert_eq!(duly.store_health().await.unwrap_err().kind, duly::StoreErrorKind::Closed);
    assert!(duly.send(Message::to("order")).await.is_err());
    assert!(duly.stats().store_failures > 0);
}
