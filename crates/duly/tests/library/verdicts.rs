//! What handlers return, and how they are set up.

use std::{
    fmt,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
};

use duly::{
    Backoff, DeadReason, Error, HandlerOptions, Message, Outcome, Record, RetryOverride, RetryPolicy, State,
    Task, Verdict, minutes, seconds,
};

use crate::bench::Bench;

/// What became of one message of `order`, half a minute after its handler was first called.
async fn after_one_call(bench: &Bench, message: Message) -> Record {
    let id = bench.send(message).await;
    bench.pass(seconds(1)).await;
    bench.record(&id).await
}

#[tokio::test]
async fn a_handler_names_its_wait_or_leaves_it_to_the_policy() {
    let bench = Bench::start().await;
    let busy = |_| async { Verdict::retry_after(minutes(7)).because("busy") };
    bench.duly.handle("order", busy).start().await.unwrap();
    let sent = bench.duly.now();
    let record = after_one_call(&bench, Message::to("order")).await;
    assert_eq!(record.ready, sent.saturating_add(minutes(7)));
    assert_eq!((record.history[0].outcome, record.history[0].detail.as_str()), (Outcome::Again, "busy"));

    let policy = RetryPolicy { attempts: 9, backoff: Backoff::Fixed, min: minutes(3), max: minutes(3) };
    let failing = |_| async { Err::<(), _>("no") };
    bench.duly.handle("fails", failing).retry(policy).start().await.unwrap();
    let sent = bench.duly.now();
    let record = after_one_call(&bench, Message::to("fails")).await;
    assert_eq!(record.ready, sent.saturating_add(minutes(3)));
    // A message that names its own waits has the last word.
    let own = RetryOverride { min: Some(minutes(1)), max: Some(minutes(1)), ..RetryOverride::default() };
    let sent = bench.duly.now();
    let record = after_one_call(&bench, Message::to("fails").retry(own)).await;
    assert_eq!(record.ready, sent.saturating_add(minutes(1)));
}

#[tokio::test]
async fn what_a_handler_gives_up_is_a_dead_letter_at_once() {
    let bench = Bench::start().await;
    let handler = |_| async { Verdict::give_up("there is no such order") };
    bench.duly.handle("order", handler).start().await.unwrap();
    let record = after_one_call(&bench, Message::to("order").text("kept")).await;
    assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Refused)));
    assert_eq!(record.history[0].detail, "there is no such order");
    assert_eq!(record.message.body.as_bytes(), b"kept");
}

/// An error of somebody's own, that says more than what it was made from.
struct Failed(String);

impl fmt::Display for Failed {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "order not handled: {}", self.0)
    }
}

#[tokio::test]
async fn a_body_that_is_not_the_json_expected_is_a_dead_letter_at_once() {
    let bench = Bench::start().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let typed = move |_: u64, _: Task| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    bench.duly.handle_json("typed", typed).start().await.unwrap();
    let by_hand = |task: Task| async move {
        let _: u64 = task.json().map_err(|error| Failed(error.to_string()))?;
        Ok::<_, Failed>(())
    };
    bench.duly.handle("by hand", by_hand).start().await.unwrap();
    for queue in ["typed", "by hand"] {
        let record = after_one_call(&bench, Message::to(queue).text("{")).await;
        assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Refused)), "{queue}");
        assert!(record.history[0].detail.contains("not the JSON expected"), "{:?}", record.history);
        let good = after_one_call(&bench, Message::to(queue).json(&7).unwrap()).await;
        assert_eq!(good.state, State::Delivered, "{queue}");
    }
    assert_eq!(calls.load(Ordering::SeqCst), 1);

    // A handler that can do without the JSON and fails for another reason is tried again.
    let forgiving = |task: Task| async move {
        let _: Result<u64, _> = task.json();
        Err::<(), _>("the database is away")
    };
    bench.duly.handle("forgiving", forgiving).start().await.unwrap();
    assert_eq!(after_one_call(&bench, Message::to("forgiving").text("{")).await.state, State::Pending);
}

#[tokio::test]
async fn handlers_share_a_state_and_are_given_what_was_sent() {
    let bench = Bench::start().await;
    let seen = Arc::new(Mutex::new(Vec::new()));
    let with = bench.duly.with_state(seen.clone());
    type Recorded = Arc<Mutex<Vec<(String, u64)>>>;
    let typed = |seen: Recorded, order: u64, task: Task| async move {
        seen.lock().unwrap().push((task.queue().to_string(), order));
    };
    let plain = |seen: Recorded, task: Task| async move {
        seen.lock().unwrap().push((task.queue().to_string(), 0));
        Verdict::Done
    };
    with.handle_json("order", typed).start().await.unwrap();
    with.handle("mail", plain).start().await.unwrap();
    bench.send(Message::to("order").json(&42).unwrap()).await;
    bench.pass(seconds(1)).await;
    bench.send(Message::to("mail")).await;
    bench.pass(seconds(1)).await;
    assert_eq!(*seen.lock().unwrap(), [("order".to_owned(), 42), ("mail".to_owned(), 0)]);
}

#[tokio::test]
async fn settings_of_zero_are_refused() {
    let bench = Bench::start().await;
    let handling = || bench.duly.handle("order", |_| async {});
    for (handling, path) in [
        (handling().concurrency(0), "handlers.concurrency"),
        (handling().batch(0), "handlers.batch"),
        (handling().timeout(seconds(0)), "handlers.timeout"),
        (handling().attempts(0), "handlers.attempts"),
        (
            handling().retry(RetryPolicy { min: seconds(9), max: seconds(1), ..RetryPolicy::default() }),
            "handlers.again",
        ),
    ] {
        let Err(Error::Invalid(invalid)) = handling.start().await else { panic!("{path} is not refused") };
        assert_eq!(invalid.path, path);
    }
    // A long first wait alone is no contradiction.
    handling().again(minutes(60)).start().await.unwrap();
    let options = HandlerOptions { concurrency: 0, ..HandlerOptions::default() };
    let store = Arc::new(duly_stores::MemoryStore::new());
    assert!(duly::Duly::builder().store(store).handlers(options).start().await.is_err());
}

#[tokio::test]
async fn a_stopped_handler_is_started_again_by_the_name_of_its_queue() {
    let bench = Bench::start().await;
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = calls.clone();
    let handler = move |_| {
        counted.fetch_add(1, Ordering::SeqCst);
        async {}
    };
    assert!(matches!(bench.duly.start_handling("order").await, Err(Error::NoHandler(_))));
    bench.duly.handle("order", handler).start().await.unwrap();
    assert!(matches!(bench.duly.start_handling("order").await, Err(Error::HandlerExists(_))));
    for round in 1..=2 {
        bench.duly.stop_handling("order").await.unwrap();
        bench.send(Message::to("order")).await;
        bench.pass(seconds(5)).await;
        assert_eq!(calls.load(Ordering::SeqCst), round - 1, "nobody handles it");
        bench.duly.start_handling("order").await.unwrap();
        bench.calm().await;
        assert_eq!(calls.load(Ordering::SeqCst), round);
    }
}
