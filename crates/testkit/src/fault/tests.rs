//! The library on a store that fails.

use std::{
    future::{Future, poll_fn},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    task::Poll,
};

use duly::{Duly, Error, ManualClock, Message, Receive, State, minutes, seconds};
use duly_stores::MemoryStore;

use super::*;

async fn start() -> (Duly, ManualClock, Arc<FailingStore>) {
    let (clock, store) = (ManualClock::new(), FailingStore::new(Arc::new(MemoryStore::new())));
    let duly = Duly::builder().store(store.clone()).clock(Arc::new(clock.clone())).start().await.unwrap();
    (duly, clock, store)
}

/// Polls `work` once.
async fn poll<F: Future + Unpin>(work: &mut F) -> Poll<F::Output> {
    poll_fn(|context| Poll::Ready(Pin::new(&mut *work).poll(context))).await
}

async fn calm() {
    for _ in 0..300 {
        tokio::task::yield_now().await;
    }
}

#[tokio::test]
async fn what_was_claimed_is_received_although_an_expired_neighbour_cannot_be_settled() {
    let (duly, clock, store) = start().await;
    duly.send(Message::to("order").text("late").max_lateness(seconds(1))).await.unwrap();
    clock.advance(seconds(5));
    duly.send(Message::to("order").text("good")).await.unwrap();
    store.fail([Call::Settle], StoreErrorKind::Unavailable);
    let received = duly.receive("order", Receive::default()).await.unwrap();
    assert_eq!(received.len(), 1);
    assert_eq!(received[0].message.body.as_bytes(), b"good");
    store.fail([], StoreErrorKind::Unavailable);
    assert_eq!(duly.ack(&[&received[0].receipt]).await.unwrap(), [Settled::Done]);
    clock.advance(minutes(1));
    calm().await;
    assert_eq!(
        duly.receive("order", Receive { wait: seconds(0), ..Receive::default() }).await.unwrap().len(),
        0
    );
    assert_eq!(duly.totals().await.unwrap().dead, 1, "the other one, when its lease had ended");
}

#[tokio::test]
async fn a_handler_that_starts_while_duly_stops_claims_nothing() {
    let (duly, clock, store) = start().await;
    let id = duly.send(Message::to("order")).await.unwrap().id;
    // Something runs, so that the stop takes a while.
    let (gate, ran) = (Arc::new(Notify::new()), Arc::new(AtomicBool::new(false)));
    let waits = gate.clone();
    let busy = move |_| {
        let waits = waits.clone();
        async move { waits.notified().await }
    };
    duly.handle("busy", busy).start().await.unwrap();
    duly.send(Message::to("busy")).await.unwrap();
    calm().await;
    // The start asks whether the queue is paused, and the stop overtakes it.
    store.fail([Call::LanesWait], StoreErrorKind::Unavailable);
    let runs = ran.clone();
    let handler = move |_| {
        runs.store(true, SeqCst);
        std::future::pending::<()>()
    };
    let mut starting = Box::pin(duly.handle("order", handler).start());
    assert!(poll(&mut starting).await.is_pending());
    let mut stopping = Box::pin(duly.shutdown());
    assert!(poll(&mut stopping).await.is_pending());
    calm().await;
    store.fail([], StoreErrorKind::Unavailable);
    let started = starting.await;
    assert!(matches!(started, Err(Error::Closed)), "{started:?}");
    calm().await;
    gate.notify_one();
    calm().await;
    assert!(poll(&mut stopping).await.is_ready(), "nothing holds it up");
    assert!(!ran.load(SeqCst));
    let record = store.get(std::slice::from_ref(&id)).await.unwrap().remove(0).unwrap();
    assert_eq!(record.state, State::Pending, "no lease is left behind");
    drop(clock);
}
