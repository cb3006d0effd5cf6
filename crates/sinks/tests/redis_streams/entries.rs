//! What stands in an entry, and how long it stays.

use duly_core::{Body, Delivery, Properties, SinkErrorKind, StoredMessage};
use redis::streams::StreamRangeReply;
use testkit::servers::redis::{Redis, installed};

use crate::{ids, message, one, sink_to, sink_with, to};

fn with_property(id: &str, name: &str) -> Delivery {
    let mut properties = Properties::default();
    properties.put(name, "mine");
    Delivery::new(StoredMessage { properties, ..message("orders", id) }, 1)
}

#[tokio::test]
async fn an_entry_has_the_fields_of_the_contract_and_no_others() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let full = StoredMessage {
        body: Body::json(&42).unwrap(),
        tag: Some("paid".parse().unwrap()),
        key: Some("customer-7".parse().unwrap()),
        ..with_property("a", "tenant").message
    };
    let batch = [Delivery::new(full, 3), to("orders", "bare")];
    assert!(sink_to(&redis).deliver(&batch).await.iter().all(Result::is_ok));
    let entries: StreamRangeReply = redis.run(&["XRANGE", "orders", "-", "+"]);
    let fields = |entry: usize| {
        let mut fields: Vec<(String, String)> = entries.ids[entry]
            .map
            .iter()
            .map(|(name, value)| (name.clone(), redis::from_redis_value(value.clone()).unwrap()))
            .collect();
        fields.sort();
        fields
    };
    let want = |pairs: &[(&str, &str)]| -> Vec<(String, String)> {
        pairs.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    };
    let full = [
        ("body", "42"),
        ("content-type", "application/json"),
        ("duly-attempt", "3"),
        ("duly-due", "1767225599000"),
        ("duly-id", "a"),
        ("duly-key", "customer-7"),
        ("duly-tag", "paid"),
        ("tenant", "mine"),
    ];
    assert_eq!(fields(0), want(&full));
    let bare = [
        ("body", "body"),
        ("content-type", "text/plain; charset=utf-8"),
        ("duly-attempt", "1"),
        ("duly-due", "1767225599000"),
        ("duly-id", "bare"),
    ];
    assert_eq!(fields(1), want(&bare));
}

#[tokio::test]
async fn a_property_that_takes_the_name_of_a_field_refuses_its_message_alone() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let sink = sink_to(&redis);
    let names = ["body", "content-type", "duly-id", "duly-anything"];
    let mut batch: Vec<_> = names.iter().map(|name| with_property("bad", name)).collect();
    assert!(sink.deliver(&batch).await.iter().all(Result::is_err), "also where nothing is left to send");
    batch.insert(2, with_property("good", "Body"));
    for (place, outcome) in sink.deliver(&batch).await.into_iter().enumerate() {
        match outcome {
            Ok(_) => assert_eq!(place, 2),
            Err(error) => assert_eq!(error.kind, SinkErrorKind::Refused, "{}", error.detail),
        }
    }
    assert_eq!(ids(&redis, "orders"), ["good"]);
}

#[tokio::test]
async fn a_thousand_properties_fit_and_far_too_many_are_refused() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let with = |count: usize, id: &str| {
        let mut properties = Properties::default();
        (0..count).for_each(|n| properties.put(&format!("p{n:05}"), "x"));
        Delivery::new(StoredMessage { properties, ..message("orders", id) }, 1)
    };
    let outcomes = sink_to(&redis).deliver(&[with(3_500, "many"), with(3_501, "too-many")]).await;
    assert!(outcomes[0].is_ok(), "{outcomes:?}");
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Refused);
}

#[tokio::test]
async fn a_stream_keeps_to_its_length_if_it_has_one() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let batch: Vec<_> = (0..2_000).map(|n| to("orders", &format!("m{n}"))).collect();
    assert!(sink_with(&redis.url(), "max_len = 500").deliver(&batch).await.iter().all(Result::is_ok));
    let there = ids(&redis, "orders");
    assert!((500..700).contains(&there.len()), "about 500: {}", there.len());
    assert_eq!(there.last().unwrap(), "m1999", "the oldest go");

    let batch: Vec<_> = (0..2_000).map(|n| to("unlimited", &format!("u{n}"))).collect();
    assert!(sink_to(&redis).deliver(&batch).await.iter().all(Result::is_ok));
    assert_eq!(ids(&redis, "unlimited").len(), 2_000);
}

#[tokio::test]
async fn a_stream_forgets_what_is_too_old() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    // Entries of long ago, as many as fill several nodes of the stream, and one of an hour ago.
    let mut connection = redis.connection();
    for n in 1..=500 {
        let old = redis::cmd("XADD").arg("orders").arg(format!("{n}-0")).arg("duly-id").arg("old").clone();
        old.exec(&mut connection).unwrap();
    }
    let (seconds, _): (u64, u64) = redis.run(&["TIME"]);
    let hour_ago = format!("{}-0", (seconds - 3600) * 1000);
    redis.run::<()>(&["XADD", "orders", &hour_ago, "duly-id", "hour-ago"]);
    let sink = sink_with(&redis.url(), "max_age = '1d'");
    one(&sink, "orders", "new").await.unwrap();
    let there = ids(&redis, "orders");
    assert!(there.len() < 110, "whole nodes of the stream go: {}", there.len());
    assert_eq!(there[there.len() - 2..], ["hour-ago", "new"]);
}
