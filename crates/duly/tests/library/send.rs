//! Sending: never early, in time, checked, once.

use duly::{ErrorCode, Levels, Limits, Message, SinkOptions, State, StoreError, millis, minutes, seconds};

use crate::bench::{Bench, Mood, Target};

#[tokio::test]
async fn a_message_goes_out_at_its_time_and_not_before() {
    let (bench, target) = Bench::with_target(Mood::Good, SinkOptions::default()).await;
    let due = bench.in_ms(15 * 60_000);
    let id = bench.send(Message::to("orders/unpaid").text("x").after(minutes(15))).await;
    bench.pass(minutes(15) - millis(1)).await;
    assert_eq!(target.arrivals(), []);
    bench.pass(millis(1)).await;
    assert_eq!(target.arrivals(), [(id.to_string(), 1, due)]);
    let record = bench.record(&id).await;
    assert_eq!(record.state, State::Delivered);
    assert_eq!(record.receipt, Some(format!("proof of {id}")));
}

#[tokio::test]
async fn many_due_in_one_millisecond_go_out_in_few_calls_by_priority() {
    let (bench, target) = Bench::with_target(Mood::Good, SinkOptions::default()).await;
    let messages = (0..200u8).map(|n| Message::to("orders/x").priority(n % 10).after(seconds(1)));
    assert!(bench.duly.send_batch(messages).await.iter().all(Result::is_ok));
    bench.pass(seconds(1)).await;
    assert_eq!(target.arrivals().len(), 200);
    assert!(target.arrivals().iter().all(|(_, _, at)| *at == bench.duly.now()));
    assert_eq!(*target.calls.lock().unwrap(), [200]);
}

#[tokio::test]
async fn the_same_id_again_is_a_duplicate_and_with_other_content_a_conflict() {
    let bench = Bench::start().await;
    let message = || Message::to("order").id("order-42").text("x").after(minutes(1));
    let first = bench.duly.send(message()).await.unwrap();
    bench.pass(seconds(1)).await;
    let again = bench.duly.send(message()).await.unwrap();
    assert!(again.duplicate && !first.duplicate);
    assert_eq!((again.due, again.state), (first.due, State::Pending));
    let other = bench.duly.send(message().text("y")).await;
    assert_eq!(other.unwrap_err().code(), "id_conflict");
}

#[tokio::test]
async fn a_level_is_resolved_when_the_message_is_accepted() {
    let levels = Levels::default().set("P2", minutes(15)).fallback("other");
    let bench = Bench::with(|builder| builder.levels(levels)).await;
    for (level, wait) in [("P0", 5), ("P1", 10), ("P2", 15), ("other", 20), ("unheard of", 20)] {
        let accepted = bench.duly.send(Message::to("check").level(level)).await.unwrap();
        assert_eq!(accepted.due, bench.in_ms(wait * 60_000), "{level}");
    }
    let strict = Bench::start().await;
    let refused = strict.duly.send(Message::to("check").level("P7")).await;
    assert_eq!(refused.unwrap_err().code(), "unknown_level");
}

#[tokio::test]
async fn a_sink_that_is_not_set_up_is_refused() {
    let bench = Bench::start().await;
    assert_eq!(bench.duly.send(Message::to("nowhere/x")).await.unwrap_err().code(), "unknown_sink");
}

#[tokio::test]
async fn a_batch_answers_each_message_in_its_place() {
    let limits = Limits { batch_max: 3, ..Limits::default() };
    let bench = Bench::with(|builder| builder.limits(limits)).await;
    let batch = [
        Message::to("order"),
        Message::to("nowhere/x"),
        Message::to("order").priority(12),
        Message::to("order"),
    ];
    let answers = bench.duly.send_batch(batch).await;
    let codes: Vec<_> =
        answers.iter().map(|answer| answer.as_ref().map_err(duly::Error::code).err()).collect();
    assert_eq!(
        codes,
        [None, Some(ErrorCode::UnknownSink), Some(ErrorCode::BadPriority), Some(ErrorCode::BatchTooLarge)]
    );
    assert_eq!(bench.duly.totals().await.unwrap().accepted, 1);
}

#[tokio::test]
async fn wrong_settings_are_refused_at_the_start() {
    let clock = duly::ManualClock::new();
    let build = |name: &str, timeout| {
        let options = SinkOptions { timeout, ..SinkOptions::default() };
        duly::Duly::builder()
            .store(std::sync::Arc::new(duly_stores::MemoryStore::new()))
            .sink(name, Target::new(&clock, Mood::Good), options)
            .start()
    };
    let sized = |in_flight, batch| {
        let options = SinkOptions { in_flight, batch, ..SinkOptions::default() };
        let builder = duly::Duly::builder().memory().clock(clock.clone());
        builder.sink("orders", Target::new(&clock, Mood::Good), options).start()
    };
    for (in_flight, batch, path) in [(10_001, 1, "sinks.orders.in_flight"), (1, 2_049, "sinks.orders.batch")]
    {
        match sized(in_flight, batch).await.unwrap_err() {
            duly::Error::Invalid(bad) => assert_eq!((bad.code.as_str(), &*bad.path), ("bad_limit", path)),
            other => panic!("{other}"),
        }
    }
    sized(10_000, 2_048).await.unwrap().shutdown().await.unwrap();
    assert_eq!(build("queue", seconds(1)).await.unwrap_err().code(), "reserved_sink");
    assert_eq!(build("a/b", seconds(1)).await.unwrap_err().code(), "bad_sink");
    assert_eq!(build("slow", seconds(10)).await.unwrap_err().code(), "bad_timeout");
    assert_eq!(duly::Duly::builder().start().await.unwrap_err().code(), "no_store");
}

#[tokio::test]
async fn a_store_that_says_no_is_quoted() {
    let error = duly::Error::from(StoreError::new(duly::StoreErrorKind::Full, "the disk is full"));
    assert_eq!(error.to_string(), "the disk is full");
    assert!(std::error::Error::source(&error).is_none(), "a chain prints it once");
}

/// Every error of the chain, from the outermost.
fn chain(error: &duly::Error) -> Vec<&(dyn std::error::Error + 'static)> {
    std::iter::successors(Some(error as &(dyn std::error::Error + 'static)), |error| error.source()).collect()
}

#[tokio::test]
async fn a_chain_of_errors_keeps_the_cause_and_prints_each_text_once() {
    let file = tempfile::NamedTempFile::new().unwrap();
    let opened = duly::Duly::builder().folder(file.path().join("below-a-file")).start().await.unwrap_err();
    let io = std::io::Error::from(std::io::ErrorKind::TimedOut);
    let store = StoreError::new(duly::StoreErrorKind::Unanswered, format!("no answer: {io}")).with_source(io);
    let id = duly::MessageId::parse("order-1").unwrap();
    let unanswered = duly::Error::Unanswered { id, error: store };
    for (error, length) in [(&opened, 2), (&unanswered, 3)] {
        let chain = chain(error);
        assert_eq!(chain.len(), length, "{chain:?}");
        let cause = chain.last().unwrap().downcast_ref::<duly::Cause>().unwrap();
        let io = cause.downcast_ref::<std::io::Error>().unwrap();
        let words: String = chain.iter().map(|error| format!("{error}\n")).collect();
        assert_eq!(words.matches(&io.to_string()).count(), 1, "{words}");
        let texts: std::collections::BTreeSet<_> = words.lines().collect();
        assert_eq!(texts.len(), length, "each of them says something of its own: {words}");
    }
    assert!(unanswered.to_string().contains("order-1"), "{unanswered}");
}

#[tokio::test]
async fn ids_are_taken_as_text_and_times_as_system_times() {
    let clock = duly::ManualClock::new();
    let duly = duly::Duly::builder().memory().clock(clock).start().await.unwrap();
    let at = std::time::UNIX_EPOCH + std::time::Duration::from_micros(1_800_000_000_000_001);
    let id = duly.new_id();
    let accepted = duly.send(Message::to("order").id(&id).at(at)).await.unwrap();
    assert_eq!((&accepted.id, accepted.due.as_millis()), (&id, 1_800_000_000_001));
    assert!(duly.send(Message::to("order").id(id.as_str()).at(at)).await.unwrap().duplicate);
    assert!(matches!(duly.reschedule(&accepted, at).await.unwrap(), duly::Changed::Done { .. }));
    let changed = duly.cancel_many([id.as_str(), "stranger"]).await.unwrap();
    assert_eq!(changed, [duly::Changed::Done { maybe_delivered: false }, duly::Changed::Unknown]);
    assert_eq!(duly.replay(["stranger"]).await.unwrap(), [duly::Changed::Unknown]);
    let task = duly.add_task("order", "1", at).await.unwrap();
    assert_eq!(task.due.as_millis(), 1_800_000_000_001, "a task takes a system time, too");
    let bad = duly.purge(["fine", "no spaces"]).await.unwrap_err();
    assert!(
        matches!(&bad, duly::Error::Invalid(bad) if bad.path == "ids[1]" && bad.code == "bad_id"),
        "{bad}"
    );
    assert_eq!(duly.probe("typo").unwrap_err().code(), "unknown_sink");
    duly.shutdown().await.unwrap();
}

#[tokio::test]
async fn a_list_says_that_bodies_are_left_out() {
    let bench = crate::bench::Bench::start().await;
    let id = bench.send(Message::to("order").text("hello")).await;
    let listed = bench.duly.list(&duly::Query::all(duly::State::Pending)).await.unwrap().records.remove(0);
    assert!(listed.body_left_out && listed.message.body.is_empty());
    let whole = bench.record(&id).await;
    assert!(!whole.body_left_out);
    assert_eq!(whole.message.body.as_bytes(), b"hello");
    let dead = bench.send(Message::to("order").text("hello")).await;
    let taken = bench.duly.receive("order", duly::Receive { max: 10, ..Default::default() }).await.unwrap();
    let taken = taken.iter().find(|received| received.message.id == dead).unwrap();
    bench.duly.nack(&[&taken.receipt], duly::Nack::dead("no such order")).await.unwrap();
    for page in [
        bench.duly.dead().await.unwrap(),
        bench.duly.list(&duly::Query::all(duly::State::Dead)).await.unwrap(),
    ] {
        let listed = &page.records[0];
        assert!(listed.message.id == dead && listed.body_left_out && listed.message.body.is_empty());
    }
    let whole = bench.record(&dead).await;
    assert!(whole.state == duly::State::Dead && !whole.body_left_out);
    assert_eq!(whole.message.body.as_bytes(), b"hello", "it is kept until it is purged");
}
