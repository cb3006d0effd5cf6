//! A clean stop (C9).

use std::{
    future::pending,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use duly::{Clock, Error, Message, SinkOptions, State, minutes, seconds};
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
    let books = bench.duly.books().await.unwrap();
    assert_eq!((books.delivered, books.pending, books.in_flight), (2, 3, 0));
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
    let books = bench.duly.books().await.unwrap();
    assert_eq!((books.pending, books.in_flight), (400, 0));
}

#[tokio::test]
async fn a_duly_that_was_shut_down_takes_nothing_more() {
    let bench = Bench::start().await;
    bench.duly.shutdown().await.unwrap();
    assert_eq!(bench.duly.send(Message::to("order")).await, Err(Error::Closed));
    assert_eq!(bench.duly.cancel("x").await, Err(Error::Closed));
    assert_eq!(bench.duly.handle("order", |_| async {}).start().await, Err(Error::Closed));
    assert_eq!(bench.duly.shutdown().await, Err(Error::Closed));
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
