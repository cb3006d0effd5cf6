//! Sending now.

use std::collections::BTreeMap;

use duly_streams::{Entry, Error, Message, Settings, Streams, Trim, Unacknowledged};
use testkit::servers::redis::{Redis, installed};

use crate::{Order, connect, entries, listen, next, server::both};

#[tokio::test(flavor = "multi_thread")]
async fn what_is_sent_stands_in_the_stream_of_its_event() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let id = streams.send("order.placed", &Order { number: 42 }).await.unwrap();
    let there: Vec<(String, Vec<String>)> = redis.run(&["XRANGE", "order.placed", "-", "+"]);
    assert_eq!(there[0].0, id.as_str());
    let fields = entries(&redis, "order.placed").remove(0);
    assert_eq!(
        (fields["body"].as_str(), fields["content-type"].as_str()),
        (r#"{"number":42}"#, "application/json")
    );
    assert_eq!(fields["duly-attempt"], "1");
    let (due, at): (u64, u64) =
        (fields["duly-due"].parse().unwrap(), id.as_str().split_once('-').unwrap().0.parse().unwrap());
    assert!(due.abs_diff(at) < 60_000, "{due} {at}");
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn two_equal_values_are_two_entries() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    for _ in 0..2 {
        streams.send("order.placed", &Order { number: 42 }).await.unwrap();
    }
    let there = entries(&redis, "order.placed");
    assert_eq!(there.len(), 2);
    assert_ne!(there[0]["duly-id"], there[1]["duly-id"]);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_trimmed_as_it_grows_only_if_that_is_asked_for() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["CONFIG", "SET", "stream-node-max-entries", "10"]);
    for (event, max_len) in [("long", None), ("short", Some(20))] {
        let trim = Trim { max_len, unacknowledged: Unacknowledged::Drop, ..Trim::default() };
        let streams = connect(&redis, Settings { trim, ..Settings::default() }).await;
        for number in 0..100 {
            streams.send(event, &Order { number }).await.unwrap();
        }
        streams.shutdown().await.unwrap();
    }
    assert_eq!(redis.run::<usize>(&["XLEN", "long"]), 100);
    assert!((20..40).contains(&redis.run::<usize>(&["XLEN", "short"])));
}

/// The chain of an error keeps its cause, and says each thing once.
fn said_once<E: std::error::Error + 'static>(error: &Error) {
    let chain = std::iter::successors(Some(error as &dyn std::error::Error), |error| error.source());
    let texts: Vec<_> = chain.map(ToString::to_string).collect();
    let cause = error.cause::<E>().expect("the cause").to_string();
    assert_eq!(texts.iter().filter(|text| text.contains(&cause)).count(), 1, "{texts:?}");
    assert_eq!(texts.len(), 2, "{texts:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn failures_say_whether_it_may_have_been_done() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    assert!(matches!(streams.send("a{b}", &1).await, Err(Error::Invalid(_))));
    redis.run::<()>(&["SET", "text", "no stream"]);
    let refused = streams.send("text", &1).await.unwrap_err();
    assert!(matches!(refused, Error::Refused { .. }), "{refused}");
    said_once::<redis::RedisError>(&refused);
    redis.pause();
    let unanswered = streams.send("order", &1).await.unwrap_err();
    redis.cont();
    let Error::Unanswered { id: Some(id), .. } = &unanswered else { panic!("{unanswered}") };
    said_once::<redis::RedisError>(&unanswered);
    let again = Message::json(&1).unwrap().id(id.as_str()).unwrap();
    streams.send_message("order", &again).await.unwrap();
    let ids: Vec<_> = entries(&redis, "order").into_iter().map(|fields| fields["duly-id"].clone()).collect();
    assert!(ids.iter().all(|one| one == id.as_str()), "every copy has the id that the error names: {ids:?}");
    redis.kill();
    assert!(matches!(
        streams.send("order", &1).await,
        Err(Error::Unreachable { .. } | Error::Unanswered { .. })
    ));
    let _ = streams.shutdown().await;
    assert!(matches!(streams.send("order", &1).await, Err(Error::Closed)));
    assert!(matches!(Streams::connect(&redis.url()).await, Err(Error::Unreachable { .. })));
    assert!(matches!(Streams::connect("localhost").await, Err(Error::Invalid(_))));
}

#[tokio::test(flavor = "multi_thread")]
async fn field_maps_values_and_batches_are_sent_and_answered_with_their_ids() {
    for server in both() {
        let streams = server.connect(Settings::default()).await;
        let one = streams.send_fields("fields", [("city", "Bonn"), ("zip", "53111")]).await.unwrap();
        let mut inbox = listen::<BTreeMap<String, String>>(&streams, "fields").await;
        let entry: Entry<BTreeMap<String, String>> = next(&mut inbox).await;
        assert_eq!((entry.id, entry.value["city"].as_str(), entry.value.len()), (one, "Bonn", 2));

        let orders: Vec<_> = (0..1_200).map(|number| Order { number }).collect();
        let ids: Vec<_> =
            streams.send_batch("many", &orders).await.unwrap().into_iter().map(Result::unwrap).collect();
        let there: Vec<(String, Vec<String>)> = server.of("many").run(&["XRANGE", "many", "-", "+"]);
        let reported: Vec<_> = ids.iter().map(|id| id.as_str()).collect();
        assert_eq!(reported, there.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), "in their order");
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_send_that_does_not_wait_resolves_to_the_id() {
    for server in both() {
        let streams = server.connect(Settings::default()).await;
        // More than may wait at once.
        let sendings: Vec<_> =
            (0..12_000).map(|number| streams.send_async("many", &Order { number })).collect();
        let mut ids = Vec::new();
        for sending in sendings {
            ids.push(sending.await.unwrap());
        }
        assert_eq!(server.len("many"), 12_000);
        let there: Vec<(String, Vec<String>)> =
            server.of("many").run(&["XRANGE", "many", "-", "+", "COUNT", "3"]);
        assert_eq!(there[2].0, ids[2].as_str());
        // One that Redis refuses is refused alone.
        server.of("text").run::<()>(&["SET", "text", "no stream"]);
        let (bad, good) = (streams.send_async("text", &1), streams.send_async("many", &1));
        assert!(matches!(bad.await, Err(Error::Refused { .. })));
        good.await.unwrap();
        assert!(matches!(streams.send_async("a{b}", &1).await, Err(Error::Invalid(_))));
        let message = Message::json(&1).unwrap().property("a", "b").unwrap();
        streams.send_message_async("many", &message).await.unwrap();
        streams.shutdown().await.unwrap();
        assert!(matches!(streams.send_async("many", &1).await, Err(Error::Closed)));
    }
}
