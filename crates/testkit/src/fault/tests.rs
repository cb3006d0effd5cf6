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

use duly::{
    Accepted, Duly, Error, Event, Events, ManualClock, Message, Nack, Receive, State, hours, millis, minutes,
    seconds,
};
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
    store.fail([FailPoint::Settle], StoreErrorKind::Unavailable);
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

/// The id that a send without an answer is to be repeated with.
fn unanswered(answer: &Result<Accepted, Error>) -> String {
    let Err(error @ Error::Unanswered { id, error: cause }) = answer else {
        panic!("not unanswered: {answer:?}")
    };
    assert!(error.is_maybe_done() && cause.kind == StoreErrorKind::Unanswered, "{error:?}");
    assert!(error.to_string().contains(id.as_str()), "{error}");
    id.to_string()
}

#[tokio::test]
async fn a_send_without_an_answer_names_the_id_that_makes_a_repeat_the_same_message() {
    let (duly, _clock, store) = start().await;
    for given in [None, Some("order-42")] {
        let message = |id: Option<&str>| {
            let message = Message::to("order").text(format!("{given:?}"));
            id.map_or(message.clone(), |id| message.id(id))
        };
        store.fail([FailPoint::InsertAnswer], StoreErrorKind::Unanswered);
        let id = unanswered(&duly.send(message(given)).await);
        assert!(given.is_none_or(|given| given == id), "{id} is not the id given");
        store.fail([], StoreErrorKind::Unanswered);
        let repeat = duly.send(message(Some(&id))).await.unwrap();
        assert!(repeat.duplicate && repeat.id.as_str() == id, "{repeat:?}");
    }
    assert_eq!(duly.totals().await.unwrap().accepted, 2);
}

/// A repeat under the id of another message of the batch would be a conflict.
#[tokio::test]
async fn a_batch_without_an_answer_names_the_id_of_each_message_in_its_place() {
    let (duly, _clock, store) = start().await;
    let message = |place: usize| Message::to("order").text(format!("message {place}"));
    store.fail([FailPoint::InsertAnswer], StoreErrorKind::Unanswered);
    let batch = [message(0), message(1).id("order-1"), message(2).priority(12), message(3)];
    let answers = duly.send_batch(batch).await;
    assert_eq!(answers[2].as_ref().unwrap_err().code(), "bad_priority", "it never reached the store");
    store.fail([], StoreErrorKind::Unanswered);
    let sent = [0, 1, 3];
    let repeats = duly.send_batch(sent.map(|place| message(place).id(unanswered(&answers[place])))).await;
    assert_eq!(repeats[1].as_ref().unwrap().id.as_str(), "order-1");
    assert!(repeats.into_iter().all(|repeat| repeat.unwrap().duplicate));
    assert_eq!(duly.totals().await.unwrap().accepted, 3);
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
    store.fail([FailPoint::LanesWait], StoreErrorKind::Unavailable);
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

#[tokio::test]
async fn a_settlement_that_the_store_refuses_leaves_those_of_all_others_alone() {
    let (duly, clock, store) = start().await;
    for queue in ["order", "other"] {
        duly.handle(queue, |_| async {}).start().await.unwrap();
    }
    let refused = duly.send(Message::to("order").id("bad").after(seconds(1))).await.unwrap().id;
    store.refuse_settles_of(Some(refused.clone()));
    for n in 0..40 {
        duly.send(Message::to("order").after(seconds(1))).await.unwrap();
        duly.send(Message::to("other").after(seconds(1 + n / 4))).await.unwrap();
    }
    let pass = async |seconds: u64| {
        for _ in 0..seconds * 20 {
            clock.advance(millis(50));
            calm().await;
        }
    };
    pass(15).await;
    assert_eq!(duly.totals().await.unwrap().delivered, 80);
    assert_eq!(duly.get(&refused).await.unwrap().unwrap().state, State::InFlight);
    store.refuse_settles_of(None);
    pass(6).await;
    let record = duly.get(&refused).await.unwrap().unwrap();
    assert_eq!((record.state, record.attempts), (State::Delivered, 1), "it was handled once");
}

/// Begins a call, and drops it when the store has done it and not answered.
async fn abandon(store: &FailingStore, call: impl Future) {
    store.fail([FailPoint::AnswersWait], StoreErrorKind::Unavailable);
    let mut call = Box::pin(call);
    assert!(poll(&mut call).await.is_pending(), "it waits for the store");
    drop(call);
    store.fail([], StoreErrorKind::Unavailable);
}

async fn until(events: &mut Events, what: &str, is_it: impl Fn(&Event) -> bool) {
    let found = async { while !is_it(&events.next().await.unwrap()) {} };
    tokio::time::timeout(Duration::from_secs(30), found).await.unwrap_or_else(|_| panic!("no event: {what}"));
}

#[tokio::test]
async fn what_a_caller_that_is_gone_has_changed_is_counted_and_published() {
    let (duly, _clock, store) = start().await;
    let mut events = duly.events();
    let events = &mut events;
    abandon(&store, duly.send(Message::to("order").id("a").after(hours(1)))).await;
    until(events, "accepted", |event| matches!(event, Event::Accepted { .. })).await;
    abandon(&store, duly.send_batch([Message::to("order").id("b").after(hours(1))])).await;
    until(events, "accepted", |event| matches!(event, Event::Accepted { .. })).await;
    abandon(&store, duly.fire("a")).await;
    until(events, "rescheduled", |event| matches!(event, Event::Rescheduled { .. })).await;
    abandon(&store, duly.pause_queue("order")).await;
    until(events, "paused", |event| matches!(event, Event::Paused { .. })).await;
    duly.resume_queue("order").await.unwrap();
    let receipt = async || [duly.receive("order", Receive::default()).await.unwrap().remove(0).receipt];
    abandon(&store, duly.nack(&receipt().await, Nack::again().after(seconds(0)))).await;
    until(events, "failed", |event| matches!(event, Event::Failed { .. })).await;
    duly.nack(&receipt().await, Nack::dead("given up")).await.unwrap();
    abandon(&store, duly.replay(["a"])).await;
    until(events, "replayed", |event| matches!(event, Event::Replayed { .. })).await;
    abandon(&store, duly.ack(&receipt().await)).await;
    until(events, "delivered", |event| matches!(event, Event::Delivered { .. })).await;
    duly.fire("b").await.unwrap();
    duly.nack(&receipt().await, Nack::dead("given up")).await.unwrap();
    abandon(&store, duly.purge(["b"])).await;
    until(events, "purged", |event| matches!(event, Event::Purged { .. })).await;
    duly.send(Message::to("order").id("c").after(hours(1))).await.unwrap();
    abandon(&store, duly.cancel("c")).await;
    until(events, "cancelled", |event| matches!(event, Event::Cancelled { .. })).await;
    let stats = duly.stats();
    assert_eq!((stats.accepted, stats.failed, stats.dead), (3, 1, 2));
    assert_eq!((stats.delivered, stats.cancelled), (1, 1));
}

#[tokio::test]
async fn a_message_whose_sender_is_gone_is_received_without_a_sweep() {
    let (duly, _clock, store) = start().await;
    let receiver = duly.clone();
    let received = tokio::spawn(async move {
        receiver.receive("order", Receive { wait: seconds(20), ..Receive::default() }).await
    });
    calm().await;
    abandon(&store, duly.send(Message::to("order"))).await;
    calm().await;
    assert!(received.is_finished(), "no time has passed");
    assert_eq!(received.await.unwrap().unwrap().len(), 1);
}

#[tokio::test]
async fn calls_whose_callers_are_gone_hold_a_bounded_memory_while_the_store_hangs() {
    const SENT: u64 = 100;
    let (duly, _clock, store) = start().await;
    store.fail([FailPoint::AnswersWait], StoreErrorKind::Unavailable);
    for _ in 0..SENT {
        let message = Message::to("order").text("x".repeat(1_000_000));
        assert!(poll(&mut Box::pin(duly.send(message))).await.is_pending());
    }
    store.fail([], StoreErrorKind::Unavailable);
    calm().await;
    let (accepted, stored) = (duly.stats().accepted, duly.totals().await.unwrap().accepted);
    assert!((60..70).contains(&accepted) && stored == SENT, "{accepted} of {stored}");
    store.fail([FailPoint::AnswersWait], StoreErrorKind::Unavailable);
    assert!(poll(&mut Box::pin(duly.send(Message::to("order")))).await.is_pending());
    store.fail([], StoreErrorKind::Unavailable);
    calm().await;
    assert_eq!(duly.stats().accepted, accepted + 1, "there is room again");
}
