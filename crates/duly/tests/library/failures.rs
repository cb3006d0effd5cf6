//! What stops delivery is refused, and what has stopped it is told.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use duly::{
    Clock, Duly, Error, HandlerOptions, Limits, ManualClock, Message, MessageId, Monotonic, Now, Query, Rate,
    Receive, RetryPolicy, SinkOptions, Sleep, State, SweepSettings, Timestamp, hours, millis, seconds,
};
use duly_stores::MemoryStore;

use crate::bench::{Bench, Mood, Target};

/// A clock that panics once, at the next sleep after it was told to: in the driver, which sleeps again and again.
#[derive(Clone, Default)]
struct Fragile {
    clock: ManualClock,
    breaks: Arc<AtomicBool>,
}

impl Clock for Fragile {
    fn now(&self) -> Now {
        self.clock.now()
    }

    fn sleep_until(&self, until: Monotonic) -> Sleep {
        assert!(!self.breaks.swap(false, SeqCst), "as told");
        self.clock.sleep_until(until)
    }
}

#[tokio::test]
async fn a_driver_that_panics_is_told_by_every_call_and_by_the_shutdown() {
    let clock = Fragile::default();
    let store = Arc::new(MemoryStore::new());
    let duly = Duly::builder().store(store).clock(Arc::new(clock.clone())).start().await.unwrap();
    assert!(duly.health().await.is_ready());
    duly.send(Message::to("order")).await.unwrap();
    clock.breaks.store(true, SeqCst);
    clock.clock.advance(seconds(5));
    let stopped = duly.failed().await;
    assert!(matches!(&stopped, Error::Stopped(why) if why.contains("panicked: as told")), "{stopped:?}");
    assert_eq!(stopped.code(), "delivery_stopped");

    let (id, none) = (MessageId::parse("x").unwrap(), Vec::<String>::new());
    let (ids, t) = (std::slice::from_ref(&id), Timestamp::default());
    let answers = [
        duly.send(Message::to("order")).await.err(),
        duly.send_batch([Message::to("order")]).await.remove(0).err(),
        duly.get(&id).await.err(),
        duly.get_many(ids).await.err(),
        duly.get_many_without_bodies(ids).await.err(),
        duly.list(&Query::all(State::Pending)).await.err(),
        duly.cancel(&id).await.err(),
        duly.reschedule(&id, t).await.err(),
        duly.fire(&id).await.err(),
        duly.fire_many(ids).await.err(),
        duly.cancel_many(ids).await.err(),
        duly.served_elsewhere().await.err(),
        duly.dead().await.err(),
        duly.replay(ids).await.err(),
        duly.purge(ids).await.err(),
        duly.receive("order", Receive::default()).await.err(),
        duly.ack(&none).await.err(),
        duly.nack(&none, None).await.err(),
        duly.extend(&none, seconds(1)).await.err(),
        duly.release(&none).await.err(),
        duly.pause_queue("order").await.err(),
        duly.resume_sink("orders").await.err(),
        duly.probe("orders").err(),
        duly.served().await.err(),
        duly.lanes().await.err(),
        duly.totals().await.err(),
        duly.forecast(t, t, 1).await.err(),
        duly.nodes().await.err(),
        duly.shards().await.err(),
        duly.ready_tasks("order", 1).await.err(),
        duly.handle("order", |_| async {}).start().await.err(),
    ];
    for (call, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Some(stopped.clone()), "call {call}");
    }
    let health = duly.health().await;
    assert!(
        !health.is_ready() && health.driver == Err(stopped.clone()) && health.store().is_ok(),
        "{health:?}"
    );
    assert_eq!(duly.shutdown().await, Err(stopped));
}

type Set = fn(duly::Builder) -> duly::Builder;

fn sweep(min: Duration, max: Duration, idle_max: Duration) -> SweepSettings {
    SweepSettings { initial: min, min, max, idle_max }
}

/// Settings of the builder at their edges: refused with their path, or one message is delivered to the sink `orders`.
const EDGES: &[(&str, Set, Option<&str>)] = &[
    ("sweep.min above max", |b| b.sweep(sweep(seconds(3), seconds(2), seconds(2))), Some("sweep.min")),
    ("sweep.max above idle_max", |b| b.sweep(sweep(millis(1), seconds(3), seconds(2))), Some("sweep.max")),
    ("sweep.min of nothing", |b| b.sweep(sweep(Duration::ZERO, seconds(2), seconds(2))), Some("sweep.min")),
    ("sweep of a millisecond", |b| b.sweep(sweep(millis(1), millis(1), millis(1))), None),
    ("sweep of ages", |b| b.sweep(sweep(Duration::MAX, Duration::MAX, Duration::MAX)), None),
    ("lease of nothing", |b| b.lease(Duration::ZERO), Some("lease")),
    ("lease of a millisecond", |b| b.lease(millis(1)), Some("lease")),
    ("lease of ages", |b| b.lease(Duration::MAX), Some("lease")),
    ("the longest lease", |b| b.lease(hours(12)), None),
    ("grace of nothing", |b| b.grace(Duration::ZERO), None),
    ("grace of ages", |b| b.grace(Duration::MAX), None),
    ("retry.min above max", |b| b.retry(retry(1, seconds(2), seconds(1))), Some("retry.min")),
    ("retry without attempts", |b| b.retry(retry(0, Duration::ZERO, Duration::ZERO)), None),
    ("retry of ages", |b| b.retry(retry(u32::MAX, Duration::MAX, Duration::MAX)), None),
    (
        "limits.batch of nothing",
        |b| b.limits(Limits { batch_max: 0, ..Limits::default() }),
        Some("limits.batch"),
    ),
    (
        "limits.pending of nothing",
        |b| b.limits(Limits { pending_max: 0, ..Limits::default() }),
        Some("limits.pending"),
    ),
    (
        "limits at their least",
        |b| {
            b.limits(Limits {
                body_bytes_max: 0,
                properties_max: 0,
                batch_max: 1,
                delay_max: Duration::ZERO,
                pending_max: 1,
            })
        },
        None,
    ),
    (
        "limits at their most",
        |b| {
            let (max, delay_max) = (usize::MAX, Duration::MAX);
            b.limits(Limits {
                body_bytes_max: max,
                properties_max: max,
                batch_max: max,
                delay_max,
                pending_max: u64::MAX,
            })
        },
        None,
    ),
    (
        "handlers.timeout of nothing",
        |b| b.handlers(HandlerOptions { timeout: Duration::ZERO, ..HandlerOptions::default() }),
        Some("handlers.timeout"),
    ),
    (
        "handlers.batch of more than a lane holds",
        |b| b.handlers(HandlerOptions { batch: 2_049, ..HandlerOptions::default() }),
        Some("handlers.batch"),
    ),
];

fn retry(attempts: u32, min: Duration, max: Duration) -> RetryPolicy {
    RetryPolicy { attempts, min, max, ..RetryPolicy::default() }
}

/// The same for the settings of a sink.
fn sink_edges() -> Vec<(SinkOptions, Option<&'static str>)> {
    let usual = SinkOptions::default;
    let rate = |per_second, burst| Some(Rate { per_second, burst });
    vec![
        (SinkOptions { in_flight: 0, concurrency: 0, batch: 0, ..usual() }, None),
        (SinkOptions { in_flight: 10_000, concurrency: usize::MAX, batch: 2_048, ..usual() }, None),
        (SinkOptions { in_flight: 1, concurrency: usize::MAX, batch: 2_048, ..usual() }, None),
        (SinkOptions { in_flight: usize::MAX, ..usual() }, Some("sinks.orders.in_flight")),
        (SinkOptions { batch: usize::MAX, ..usual() }, Some("sinks.orders.batch")),
        (SinkOptions { rate: rate(0, 0), ..usual() }, None),
        (SinkOptions { rate: rate(u32::MAX, u32::MAX), ..usual() }, None),
        (SinkOptions { timeout: Duration::ZERO, ..usual() }, Some("sinks.orders.timeout")),
        (SinkOptions { timeout: millis(1), ..usual() }, None),
        (SinkOptions { timeout: seconds(10), ..usual() }, Some("sinks.orders.timeout")),
        (SinkOptions { timeout: Duration::MAX, ..usual() }, Some("sinks.orders.timeout")),
        (
            SinkOptions { retry: Some(retry(1, hours(1), seconds(1))), ..usual() },
            Some("sinks.orders.retry.min"),
        ),
        (SinkOptions { retry: Some(retry(0, Duration::ZERO, Duration::ZERO)), ..usual() }, None),
        (SinkOptions { retry: Some(retry(u32::MAX, Duration::ZERO, Duration::MAX)), ..usual() }, None),
    ]
}

#[tokio::test]
async fn every_setting_at_its_edge_is_refused_with_its_path_or_delivers() {
    let sinks = sink_edges();
    let builder =
        EDGES.iter().map(|(name, set, path)| (name.to_string(), *set, SinkOptions::default(), *path));
    let same: Set = |builder| builder;
    let options = sinks.into_iter().map(|(options, path)| (format!("{options:?}"), same, options, path));
    for (name, set, options, path) in builder.chain(options) {
        let clock = ManualClock::new();
        let target = Target::new(&clock, Mood::Good);
        let builder =
            Duly::builder().store(Arc::new(MemoryStore::new())).clock(Arc::new(clock.clone())).seed(1);
        let started = set(builder.sink("orders", target.clone(), options)).start().await;
        let duly = match (started, path) {
            (Ok(duly), None) => duly,
            (Err(Error::Invalid(invalid)), Some(path)) => {
                assert_eq!(invalid.path, path, "{name}: {invalid}");
                continue;
            }
            (started, path) => panic!("{name}: {started:?}, expected {path:?}"),
        };
        let bench = Bench { duly, clock, store: Arc::new(MemoryStore::new()) };
        // Twice: before sweeps have come and gone, and after.
        for _ in 0..2 {
            let sent = bench.duly.send(Message::to("orders/x")).await;
            let id = sent.unwrap_or_else(|error| panic!("{name}: {error}")).id;
            bench.pass(seconds(3)).await;
            assert!(target.ids().contains(&id.to_string()), "{name}: not delivered");
            assert!(bench.duly.health().await.is_ready(), "{name}");
        }
    }
}
