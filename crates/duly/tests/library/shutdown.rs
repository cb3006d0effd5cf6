//! A clean stop (C9).

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use duly::{
    Clock, Duly, Error, Event, Message, Query, SinkOptions, State, Timestamp, minutes, ports::Store, seconds,
};
use tokio::sync::Semaphore;

use crate::bench::{Bench, Mood};

#[tokio::test]
async fn running_handlers_finish_and_what_waits_is_handed_back() {
    let bench = Bench::start().await;
    let gate = Arc::new(Semaphore::new(0));
    let waits = gate.clone();
    let handler = move |_| {
        let waits = waits.clone();
        async move { waits.acquire().await.unwrap().forget() }
    };
    bench.duly.handle("order", handler).concurrency(2).batch(10).start().await.unwrap();
    bench.duly.send_batch((0..5).map(|_| Message::to("order"))).await;
    bench.pass(seconds(1)).await;
    let duly = bench.duly.clone();
    let stopping = tokio::spawn(async move { duly.shutdown().await });
    bench.pass(seconds(1)).await;
    assert!(!stopping.is_finished(), "it waits for the two that run");
    gate.add_permits(5);
    bench.calm().await;
    stopping.await.unwrap().unwrap();
    let totals = bench.store.totals().await.unwrap();
    assert_eq!((totals.delivered, totals.pending, totals.in_flight), (2, 3, 0));
}

#[tokio::test]
async fn a_handler_that_does_not_finish_is_ended_and_its_task_goes_back_uncounted() {
    let bench = Bench::start().await;
    bench.duly.handle("order", |_| pending::<()>()).start().await.unwrap();
    let id = bench.send(Message::to("order")).await;
    bench.pass(seconds(1)).await;
    let duly = bench.duly.clone();
    let stopping = tokio::spawn(async move { duly.stop_handling("order").await });
    bench.pass(seconds(19)).await;
    assert!(!stopping.is_finished());
    bench.pass(seconds(1)).await;
    stopping.await.unwrap().unwrap();
    let record = bench.record(&id).await;
    assert_eq!((record.state, record.attempts, record.maybe_delivered), (State::Pending, 0, false));
}

#[tokio::test]
async fn shutdown_ends_within_its_bound_although_everything_hangs() {
    let (bench, _target) = Bench::with_target(Mood::Hangs, SinkOptions::default()).await;
    bench.duly.handle("order", |_| pending::<()>()).start().await.unwrap();
    for _ in 0..200 {
        bench.send(Message::to("order")).await;
        bench.send(Message::to("orders/x")).await;
    }
    bench.pass(seconds(1)).await;
    let (duly, start) = (bench.duly.clone(), bench.clock.now().mono());
    let stopping = tokio::spawn(async move { duly.shutdown().await });
    bench.pass(seconds(25)).await;
    stopping.await.unwrap().unwrap();
    assert!(bench.clock.now().mono().since(start) <= seconds(25));
    let totals = bench.store.totals().await.unwrap();
    assert_eq!((totals.pending, totals.in_flight), (400, 0));
}

#[tokio::test]
async fn after_shutdown_every_call_says_that_it_is_closed() {
    let (bench, _target) = Bench::with_target(Mood::Good, SinkOptions::default()).await;
    let duly = &bench.duly;
    duly.handle("order", |_| async {}).start().await.unwrap();
    bench.send(Message::to("taken")).await;
    let taken = duly.receive("taken", duly::Receive::default()).await.unwrap().remove(0).receipt;
    duly.shutdown().await.unwrap();
    let none: [&str; 0] = [];
    // The queue of this one is remembered.
    let taken = [taken];
    let now = duly.now();
    let answers = [
        duly.send(Message::to("order")).await.map(drop),
        duly.send_batch([Message::to("order")]).await.remove(0).map(drop),
        duly.prepare(Message::to("order")).map(drop),
        duly.cancel("x").await.map(drop),
        duly.cancel_many(none).await.map(drop),
        duly.reschedule_many([("x", now)]).await.map(drop),
        duly.fire_many(none).await.map(drop),
        duly.get_many_without_bodies(none).await.map(drop),
        duly.served_elsewhere().await.map(drop),
        duly.pause_sink("orders").await,
        duly.resume_queue("order").await,
        duly.receive_any(&["order", "other"], duly::Receive::default()).await.map(drop),
        duly.nack(&none, duly::Nack::again()).await.map(drop),
        duly.nack(&taken, duly::Nack::failed("no")).await.map(drop),
        duly.ack(&taken).await.map(drop),
        duly.release(&taken).await.map(drop),
        duly.extend(&taken, seconds(1)).await.map(drop),
        duly.queues_of(&none).await.map(drop),
        duly.queues_of(&taken).await.map(drop),
        duly.start_handling("order").await,
        duly.add_task("order", "1", now).await.map(drop),
        duly.add_task_with_delay("order", "1", seconds(1)).await.map(drop),
        duly.cancel_task("order", "1").await.map(drop),
        duly.ready_tasks("order", 1).await.map(drop),
        duly.poll_ready_tasks("order", 1).await.map(drop),
        duly.reschedule("x", now).await.map(drop),
        duly.fire("x").await.map(drop),
        duly.replay(["x"]).await.map(drop),
        duly.purge(["x"]).await.map(drop),
        duly.get("x").await.map(drop),
        duly.get_many(["x"]).await.map(drop),
        duly.list(&Query::all(State::Pending)).await.map(drop),
        duly.dead().await.map(drop),
        duly.lanes().await.map(drop),
        duly.totals().await.map(drop),
        duly.forecast(now, Timestamp::MAX, 1).await.map(drop),
        duly.nodes().await.map(drop),
        duly.shards().await.map(drop),
        duly.served().await.map(drop),
        duly.probe("orders"),
        duly.pause_queue("order").await,
        duly.resume_sink("orders").await,
        duly.receive("order", duly::Receive::default()).await.map(drop),
        duly.ack(&none).await.map(drop),
        duly.release(&none).await.map(drop),
        duly.extend(&none, seconds(1)).await.map(drop),
        duly.handle("order", |_| async {}).start().await,
        duly.stop_handling("order").await,
        duly.idle().await,
        duly.health().await.driver,
    ];
    for (place, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Err(Error::Closed), "answer {place}");
    }
    let said = duly.store_health().await.unwrap_err();
    assert_eq!((said.kind, said.what), (duly::StoreErrorKind::Closed, Error::Closed.to_string()));
    assert_eq!(duly.shutdown().await, Ok(()), "it is shut down, as asked");
}

#[tokio::test]
async fn a_shutdown_that_was_given_up_goes_on_and_the_next_call_joins_it() {
    let folder = tempfile::tempdir().unwrap();
    let duly = Duly::open(folder.path()).await.unwrap();
    {
        let mut stopping = std::pin::pin!(duly.shutdown());
        let first =
            std::future::poll_fn(|context| std::task::Poll::Ready(stopping.as_mut().poll(context))).await;
        assert!(first.is_pending(), "it is dropped midway");
    }
    let (one, two) = tokio::join!(duly.shutdown(), duly.shutdown());
    assert_eq!((one, two), (Ok(()), Ok(())));
    Duly::open(folder.path()).await.unwrap().shutdown().await.unwrap();
}

#[tokio::test]
async fn a_shutdown_in_a_handler_does_not_wait_for_itself() {
    let bench = Bench::start().await;
    let (reported, mut telling) = tokio::sync::mpsc::unbounded_channel();
    let duly = bench.duly.clone();
    let handler = move |_| {
        let (duly, reported) = (duly.clone(), reported.clone());
        async move {
            let _ = reported.send((duly.stop_handling("other").await, duly.shutdown().await));
        }
    };
    bench.duly.handle("other", |_| async {}).start().await.unwrap();
    bench.duly.handle("order", handler).start().await.unwrap();
    bench.send(Message::to("order")).await;
    assert_eq!(telling.recv().await, Some((Ok(()), Ok(()))), "no time passed");
    bench.duly.shutdown().await.unwrap();
    assert_eq!(bench.store.totals().await.unwrap().delivered, 1, "the handler finished");
}

#[tokio::test]
async fn a_stuck_handler_does_not_hold_up_a_shutdown_on_a_clock_that_nobody_moves() {
    let bench = Bench::start().await;
    let (reported, mut telling) = tokio::sync::mpsc::unbounded_channel();
    let handler = move |_| {
        let _ = reported.send(());
        pending::<()>()
    };
    bench.duly.handle("order", handler).start().await.unwrap();
    bench.send(Message::to("order")).await;
    telling.recv().await.unwrap();
    bench.duly.shutdown().await.unwrap();
    let totals = bench.store.totals().await.unwrap();
    assert_eq!((totals.pending, totals.in_flight), (1, 0), "it was handed back");
}

#[tokio::test]
async fn events_end_when_all_that_happened_before_the_end_is_told() {
    let bench = Bench::start().await;
    let mut events = bench.duly.events();
    bench.send(Message::to("order")).await;
    bench.duly.shutdown().await.unwrap();
    assert!(matches!(events.next().await, Some(Event::Accepted { .. })));
    assert_eq!(events.next().await, None);
    assert_eq!(bench.duly.events().next().await, None);
}

#[test]
fn outside_of_a_runtime_an_error_says_so() {
    fn once<T>(call: impl Future<Output = T>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(call).poll(&mut context) {
            std::task::Poll::Ready(answer) => answer,
            std::task::Poll::Pending => panic!("it waits"),
        }
    }
    assert_eq!(once(Duly::builder().memory().start()).unwrap_err(), Error::NoRuntime);
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let duly = runtime.block_on(Duly::builder().memory().start()).unwrap();
    assert_eq!(once(duly.send(Message::to("order"))), Err(Error::NoRuntime));
    let none: [&str; 0] = [];
    let answers = [
        once(duly.send_batch([Message::to("order")])).remove(0).map(drop),
        once(duly.get("x")).map(drop),
        once(duly.cancel("x")).map(drop),
        once(duly.list(&Query::all(State::Pending))).map(drop),
        once(duly.receive("order", duly::Receive::default())).map(drop),
        once(duly.ack(&none)).map(drop),
        once(duly.handle("order", |_| async {}).start()),
        once(duly.add_task_with_delay("order", "1", seconds(1))).map(drop),
        once(duly.served()).map(drop),
        once(duly.idle()),
        once(duly.health()).driver,
    ];
    for (place, answer) in answers.into_iter().enumerate() {
        assert_eq!(answer, Err(Error::NoRuntime), "answer {place}");
    }
    let said = once(duly.store_health()).unwrap_err().to_string();
    assert!(said.contains("no_runtime") && !once(duly.health()).is_ready(), "{said}");
    assert_eq!(runtime.block_on(duly.health()).driver, Ok(()), "it did no harm");
    duly.prepare(Message::to("order")).unwrap();
    assert_eq!(duly.probe("orders").unwrap_err().code(), "unknown_sink", "neither needs one");
    runtime.block_on(duly.shutdown()).unwrap();
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap()
}

#[test]
fn a_shutdown_closes_the_store_though_the_runtime_it_was_started_in_has_ended() {
    let folder = tempfile::tempdir().unwrap();
    let first = runtime();
    let duly = first.block_on(Duly::open(folder.path())).unwrap();
    let mut events = duly.events();
    drop(first);
    runtime().block_on(async {
        assert_eq!((duly.shutdown().await, duly.shutdown().await), (Ok(()), Ok(())));
        assert_eq!(duly.get("x").await.unwrap_err(), Error::Closed);
        assert_eq!(events.next().await, None);
        Duly::open(folder.path()).await.unwrap().shutdown().await.unwrap();
    });
}

#[test]
fn a_shutdown_closes_the_store_though_nobody_drives_the_runtime_it_was_started_in() {
    let first = runtime();
    let bench = first.block_on(Bench::start());
    runtime().block_on(async {
        let duly = bench.duly.clone();
        let stopping = tokio::spawn(async move { duly.shutdown().await });
        while !stopping.is_finished() {
            bench.clock.advance(seconds(1));
            tokio::task::yield_now().await;
        }
        stopping.await.unwrap().unwrap();
        assert_eq!(bench.duly.get("x").await.unwrap_err(), Error::Closed);
    });
    drop(first);
}

#[tokio::test]
async fn a_dropped_duly_delivers_nothing_more() {
    let bench = Bench::start().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handler = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    bench.duly.handle("order", handler).start().await.unwrap();
    bench.send(Message::to("order").after(seconds(1))).await;
    let Bench { duly, clock, store } = bench;
    drop(duly);
    for _ in 0..100 {
        clock.advance(seconds(1));
        tokio::task::yield_now().await;
    }
    assert_eq!(calls.load(Ordering::SeqCst), 0);
    let bench = Bench::on(store, clock, |builder| builder).await;
    assert_eq!(bench.duly.ready_tasks("order", 10).await.unwrap().len(), 1);
    bench.pass(minutes(1)).await;
}
