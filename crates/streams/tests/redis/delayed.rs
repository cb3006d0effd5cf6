//! Sending for later.

use std::time::{Duration, UNIX_EPOCH};

use duly_streams::{Changed, DelayedError, Error, ErrorCode, Message, Priority, Settings, State, StoreError};
use testkit::servers::redis::{Options, Redis, installed};

use crate::{Order, connect, entries, listen, next, wait_until};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_for_later_arrives_once_and_never_early() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let mut inbox = listen::<Order>(&streams, "order.unpaid").await;
    let (seconds, micros): (u64, u64) = redis.run(&["TIME"]);
    let sent = seconds * 1000 + micros / 1000;
    let id =
        streams.delay_send("order.unpaid", &Order { number: 42 }, Duration::from_millis(700)).await.unwrap();
    let entry = next(&mut inbox).await;
    assert_eq!((entry.value.number, entry.message_id()), (42, Some(id.as_str())));
    let appended: u64 = entry.id.as_str().split_once('-').unwrap().0.parse().unwrap();
    assert!(appended >= sent + 700, "{appended} {sent}");
    let fields = entries(&redis, "order.unpaid").remove(0);
    assert_eq!(
        (fields["body"].as_str(), fields["content-type"].as_str()),
        (r#"{"number":42}"#, "application/json")
    );
    assert!(fields["duly-due"].parse::<u64>().unwrap() >= sent + 700);
    assert_eq!(fields["duly-attempt"], "1");
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_equal_values_for_later_are_two_entries() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let mut inbox = listen::<Order>(&streams, "order.unpaid").await;
    let order = Order { number: 42 };
    let first = streams.delay_send("order.unpaid", &order, Duration::from_millis(50)).await.unwrap();
    let second = streams.delay_send("order.unpaid", &order, Duration::from_millis(50)).await.unwrap();
    assert_ne!(first, second);
    for _ in 0..2 {
        assert_eq!(next(&mut inbox).await.value, order);
    }
    streams.shutdown().await.unwrap();
    assert_eq!(entries(&redis, "order.unpaid").len(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_back_never_arrives() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let mut inbox = listen::<Order>(&streams, "order.unpaid").await;
    let paid =
        streams.delay_send("order.unpaid", &Order { number: 1 }, Duration::from_millis(300)).await.unwrap();
    assert!(matches!(streams.cancel(&paid).await.unwrap(), Changed::Done { .. }));
    let id =
        streams.delay_send("order.unpaid", &Order { number: 2 }, Duration::from_millis(400)).await.unwrap();
    assert_eq!(next(&mut inbox).await.value.number, 2);
    assert_eq!(entries(&redis, "order.unpaid").len(), 1);
    assert!(!matches!(streams.cancel(&id).await.unwrap(), Changed::Done { .. }), "too late");
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn what_waits_outlives_the_process_that_sent_it() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    streams.delay_send("order.unpaid", &Order { number: 42 }, Duration::from_millis(500)).await.unwrap();
    streams.shutdown().await.unwrap();
    let streams = connect(&redis, Settings::default()).await;
    let mut inbox = listen::<Order>(&streams, "order.unpaid").await;
    assert_eq!(next(&mut inbox).await.value.number, 42);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_may_lose_what_waits_takes_all_but_delays_unless_allowed() {
    if !installed() {
        return;
    }
    let redis = Redis::with(Options { aof: false, ..Options::default() });
    let streams = connect(&redis, Settings::default()).await;
    streams.send("order.placed", &Order { number: 1 }).await.unwrap();
    let refused = streams.delay_send("order.unpaid", &Order { number: 1 }, Duration::ZERO).await.unwrap_err();
    let words = refused.to_string();
    assert!(matches!(refused, Error::Delayed(_)) && words.contains("append-only"), "{words}");
    assert!(words.contains("allow_volatile") && !words.contains("store."), "{words}");
    let Error::Delayed(DelayedError::Store(StoreError { kind, .. })) = &refused else { panic!("{words}") };
    assert_eq!(kind.code(), ErrorCode::StoreUnavailable);
    streams.shutdown().await.unwrap();
    let streams = connect(&redis, Settings { allow_volatile: true, ..Settings::default() }).await;
    streams.delay_send("order.unpaid", &Order { number: 1 }, Duration::ZERO).await.unwrap();
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redis_that_lost_all_is_begun_anew_where_that_is_allowed() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let strict = connect(&redis, Settings { store: "strict".into(), ..Settings::default() }).await;
    let streams = connect(&redis, Settings { allow_volatile: true, ..Settings::default() }).await;
    streams.delay_send("order.unpaid", &Order { number: 1 }, Duration::from_secs(3_600)).await.unwrap();
    redis.run::<()>(&["FLUSHALL"]);
    streams.delay_send("order.unpaid", &Order { number: 2 }, Duration::from_millis(50)).await.unwrap();
    wait_until("what was sent since arrives", || entries(&redis, "order.unpaid").len() == 1);
    let lost = strict.delay_send("order.unpaid", &Order { number: 3 }, Duration::ZERO).await.unwrap_err();
    assert!(lost.to_string().contains("restart this process"), "{lost}");
    streams.shutdown().await.unwrap();
    strict.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_that_was_not_answered_may_be_repeated_and_is_the_same_message() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    // From here on Redis knows the script, and does not only ask for it.
    streams.delay_send("order.other", &Order { number: 0 }, Duration::from_secs(3_600)).await.unwrap();
    let id = streams.new_id();
    let message = Message::json(&Order { number: 1 }).unwrap().id(&id).unwrap();
    redis.pause();
    let unanswered = streams.delay_send_message("order.unpaid", &message, Duration::from_millis(100)).await;
    redis.cont();
    let unanswered = unanswered.unwrap_err();
    assert!(matches!(unanswered, Error::Unanswered { .. }) && unanswered.is_maybe_done(), "{unanswered:?}");
    assert!(unanswered.to_string().contains(&id), "{unanswered}");
    assert!(matches!(&unanswered, Error::Unanswered { id: Some(sent), .. } if sent.as_str() == id));
    assert!(unanswered.cause::<StoreError>().and_then(|store| store.cause::<redis::RedisError>()).is_some());
    wait_until("it was accepted all the same", || entries(&redis, "order.unpaid").len() == 1);
    let again = streams.delay_send_message("order.unpaid", &message, Duration::ZERO).await.unwrap();
    assert_eq!(again.as_str(), id);
    streams.delay_send("order.unpaid", &Order { number: 2 }, Duration::ZERO).await.unwrap();
    wait_until("the next one arrives", || entries(&redis, "order.unpaid").len() > 1);
    let ids: Vec<_> =
        entries(&redis, "order.unpaid").into_iter().map(|fields| fields["body"].clone()).collect();
    assert_eq!(ids, [r#"{"number":1}"#, r#"{"number":2}"#], "each is there once");
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_for_later_keeps_its_id_properties_and_priority_and_its_time_may_be_absolute() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let message = Message::json(&Order { number: 1 }).unwrap().id("order-1").unwrap();
    let message = message.property("customer", "7").unwrap().priority(Priority::High);
    // Long ago: due at once.
    streams.delay_send_message("order.unpaid", &message, UNIX_EPOCH + Duration::from_secs(1)).await.unwrap();
    wait_until("it arrives", || entries(&redis, "{order.unpaid}:high").len() == 1);
    let fields = entries(&redis, "{order.unpaid}:high").remove(0);
    assert_eq!((fields["duly-id"].as_str(), fields["customer"].as_str()), ("order-1", "7"));
    let far = std::time::Duration::from_secs(3_600);
    streams.delay_send_message("order.unpaid", &message.clone().id("order-2").unwrap(), far).await.unwrap();
    assert!(matches!(streams.cancel("order-2").await.unwrap(), Changed::Done { .. }));
    let bytes = Message::json(&1).unwrap().property("x", vec![0xFF]).unwrap();
    let refused = streams.delay_send_message("order.unpaid", &bytes, far).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)), "{refused}");
    let no_body = Message::fields([("a", "1")]).unwrap();
    assert!(streams.delay_send_message("order.unpaid", &no_body, far).await.is_err());
    let typed = |kind: &str| Message::fields([("body", "<a/>"), ("content-type", kind)]).unwrap();
    let refused =
        streams.delay_send_message("order.unpaid", &typed("application/xml"), far).await.unwrap_err();
    assert!(matches!(refused, Error::Invalid(_)) && refused.to_string().contains("application/xml"));
    let plain = "text/plain; charset=utf-8";
    streams.delay_send_message("order.text", &typed(plain), Duration::ZERO).await.unwrap();
    wait_until("it arrives as it is", || entries(&redis, "order.text").len() == 1);
    assert_eq!(entries(&redis, "order.text").remove(0)["content-type"], plain);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_in_a_handler_does_not_wait_for_itself_and_every_call_after_it_says_closed() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    // Longer than a test may take.
    let streams =
        connect(&redis, Settings { processing_timeout: Duration::from_secs(600), ..Settings::default() })
            .await;
    let (reported, mut telling) = tokio::sync::mpsc::unbounded_channel();
    let stopped = streams.clone();
    let stop = move |_: duly_streams::Entry<Order>| {
        let (streams, reported) = (stopped.clone(), reported.clone());
        async move { reported.send(streams.shutdown().await.is_ok()).map_err(|_| "nobody listens") }
    };
    streams.listener("order.placed", stop).start().await.unwrap();
    let (group, dead) = (
        streams.group("order.placed", "duly-streams").unwrap(),
        streams.dead_letters("order.placed").unwrap(),
    );
    let (timers, lock) = (streams.expiry_timers("order:").unwrap(), streams.lock("nightly"));
    streams.send("order.placed", &Order { number: 1 }).await.unwrap();
    assert!(next(&mut telling).await);
    // Dropped midway, it goes on.
    drop(tokio::time::timeout(Duration::ZERO, streams.shutdown()).await);
    streams.shutdown().await.unwrap();
    streams.shutdown().await.unwrap();
    let later = Duration::from_secs(1);
    let message = Message::json(&1).unwrap();
    let answers = [
        streams.send("order.placed", &1).await.map(drop),
        streams.send_fields("order.placed", [("a", "b")]).await.map(drop),
        streams.send_message("order.placed", &message).await.map(drop),
        streams.send_message_async("order.placed", &message).await.map(drop),
        streams.send_messages("order.placed", std::slice::from_ref(&message)).await.map(drop),
        streams.delay_send_message("order.placed", &message, later).await.map(drop),
        group.ack("1-0").await.map(drop),
        group.retry("1-0", later).await.map(drop),
        group.move_to_dlq("1-0", "no").await.map(drop),
        dead.is_empty().await.map(drop),
        dead.list(None, 1).await.map(drop),
        dead.get("1-0").await.map(drop),
        dead.remove("1-0").await.map(drop),
        dead.send(&message, "no").await.map(drop),
        dead.replay("1-0").await.map(drop),
        dead.replay_all().run().await.map(drop),
        timers.set("order:1", &1, later).await,
        timers.cancel("order:1").await.map(drop),
        timers.get::<u64>("order:1").await.map(drop),
        timers.dead(None, 1).await.map(drop),
        timers.dead_count().await.map(drop),
        timers.replay("1-0").await.map(drop),
        timers.remove_dead("1-0").await.map(drop),
        timers
            .listener(|_: duly_streams::ExpiredTimer<u64>| async { Ok::<_, String>(()) })
            .start()
            .await
            .map(drop),
        streams.expiry_timers("order:").map(drop),
        streams.expiry_listener("order:", |_| async { Ok::<_, String>(()) }).start().await.map(drop),
        lock.try_lock().await.map(drop),
        lock.lock(later).await.map(drop),
        streams.send_async("order.placed", &1).await.map(drop),
        streams.send_batch("order.placed", &[1]).await.map(drop),
        streams.delay_send("order.placed", &1, later).await.map(drop),
        streams.cancel("x").await.map(drop),
        streams.group("order.placed", "duly-streams").map(drop),
        streams.dead_letters("order.placed").map(drop),
        group.stats().await.map(drop),
        dead.len().await.map(drop),
        streams
            .listener("order.placed", |_: duly_streams::Entry<Order>| async { Ok::<_, String>(()) })
            .start()
            .await
            .map(drop),
    ];
    for (place, answer) in answers.into_iter().enumerate() {
        assert!(matches!(answer, Err(Error::Closed)), "answer {place}: {answer:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_shutdown_of_another_in_a_handler_is_done_when_it_returns() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (streams, other) =
        (connect(&redis, Settings::default()).await, connect(&redis, Settings::default()).await);
    let dead = other.dead_letters("order.placed").unwrap();
    let (reported, mut telling) = tokio::sync::mpsc::unbounded_channel();
    let stop = move |_: duly_streams::Entry<Order>| {
        let (other, dead, reported) = (other.clone(), dead.clone(), reported.clone());
        async move {
            other.shutdown().await.map_err(|error| error.to_string())?;
            reported.send(dead.len().await).map_err(|_| "nobody listens".to_owned())
        }
    };
    streams.listener("order.placed", stop).start().await.unwrap();
    streams.send("order.placed", &Order { number: 1 }).await.unwrap();
    let answer = next(&mut telling).await;
    assert!(matches!(answer, Err(Error::Closed)), "{answer:?}");
    streams.shutdown().await.unwrap();
}

#[test]
fn a_shutdown_is_done_though_the_runtime_it_was_connected_in_has_ended() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let runtime = || tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
    let first = runtime();
    let streams = first.block_on(connect(&redis, Settings::default()));
    drop(first);
    runtime().block_on(async {
        streams.shutdown().await.unwrap();
        assert!(matches!(streams.dead_letters("order.placed"), Err(Error::Closed)));
    });
}

#[test]
fn outside_of_a_runtime_an_error_says_so() {
    let mut connecting = std::pin::pin!(duly_streams::Streams::connect("redis://127.0.0.1"));
    let mut context = std::task::Context::from_waker(std::task::Waker::noop());
    let answer = connecting.as_mut().poll(&mut context);
    assert!(matches!(answer, std::task::Poll::Ready(Err(Error::NoRuntime))));
}

#[test]
fn outside_of_a_runtime_calls_of_one_that_is_connected_say_so() {
    fn once<T>(call: impl IntoFuture<Output = T>) -> T {
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        match std::pin::pin!(call.into_future()).poll(&mut context) {
            std::task::Poll::Ready(answer) => answer,
            std::task::Poll::Pending => panic!("it waits"),
        }
    }
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let streams = runtime.block_on(connect(&redis, Settings::default()));
    let later = Duration::from_secs(1);
    let (group, dead, timers) = runtime.block_on(async {
        let timers = streams.expiry_timers("order:").unwrap();
        (streams.group("order", "duly-streams").unwrap(), streams.dead_letters("order").unwrap(), timers)
    });
    let answers = [
        once(streams.send("order", &1)).map(drop),
        once(streams.send_async("order", &1)).map(drop),
        once(streams.send_batch("order", &[1])).map(drop),
        once(streams.delay_send("order", &1, later)).map(drop),
        once(streams.cancel("x")).map(drop),
        once(
            streams.listener("order", |_: duly_streams::Entry<Order>| async { Ok::<_, String>(()) }).start(),
        )
        .map(drop),
        once(group.stats()).map(drop),
        once(dead.len()).map(drop),
        once(dead.replay_all().run()).map(drop),
        once(timers.set("order:1", &1, later)),
        once(timers.dead_count()).map(drop),
        once(timers.listener(|_: duly_streams::ExpiredTimer<u64>| async { Ok::<_, String>(()) }).start())
            .map(drop),
        once(streams.expiry_listener("order:", |_| async { Ok::<_, String>(()) }).start()).map(drop),
        once(streams.lock("nightly").try_lock()).map(drop),
    ];
    for (place, answer) in answers.into_iter().enumerate() {
        assert!(matches!(answer, Err(Error::NoRuntime)), "answer {place}: {answer:?}");
    }
    runtime.block_on(streams.shutdown()).unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cancel_that_comes_too_late_names_the_state_by_a_type_of_this_library() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let id =
        streams.delay_send("order.unpaid", &Order { number: 1 }, Duration::from_secs(3_600)).await.unwrap();
    assert!(matches!(streams.cancel(&id).await.unwrap(), Changed::Done { .. }));
    assert!(matches!(streams.cancel(id.as_str()).await.unwrap(), Changed::TooLate(State::Cancelled)));
    streams.shutdown().await.unwrap();
}
