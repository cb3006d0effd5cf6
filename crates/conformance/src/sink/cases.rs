//! What a sink answers, and what arrives.

use duly_core::{Body, Properties, SinkErrorKind, StoredMessage, Timestamp};

use super::{Arrival, Target, assert_arrived, deliveries, id};

/// The most that the limits let a body have.
const BODY_MAX: usize = 1024 * 1024;

/// The answer has as many entries as the batch, and each is about its own message.
pub async fn one_outcome_per_message_in_order(target: &dyn Target) {
    let sink = target.sink();
    assert_eq!(sink.deliver(&[]).await.len(), 0);
    for size in [1, 2, 100] {
        let messages = (0..size).map(|n| {
            let id = id(&format!("batch{size}-{n}"));
            if n % 3 == 1 { target.bad(id) } else { target.good(id) }
        });
        let outcomes = sink.deliver(&deliveries(messages)).await;
        let refused: Vec<_> = outcomes.iter().map(Result::is_err).collect();
        assert_eq!(refused, (0..size).map(|n| n % 3 == 1).collect::<Vec<_>>());
    }
}

/// `Ok` only after the target's positive acknowledgement: it is there now.
pub async fn ok_means_the_target_has_it(target: &dyn Target) {
    let batch = deliveries(["a", "b", "c"].map(|text| target.good(id(text))));
    let outcomes = target.sink().deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_arrived(target, &batch).await;
}

/// One bad message fails alone, and is named as refused.
pub async fn a_refusal_hurts_no_neighbour(target: &dyn Target) {
    let batch = deliveries([target.good(id("before")), target.bad(id("bad")), target.good(id("after"))]);
    let outcomes = target.sink().deliver(&batch).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Refused);
    assert_arrived(target, &[batch[0].clone(), batch[2].clone()]).await;
    let mut arrived = batch;
    arrived.remove(1);
    if let Some(refused) = target.refused_there(id("refused")) {
        let batch = deliveries([target.good(id("sooner")), refused, target.good(id("later"))]);
        let sink = target.sink();
        sink.check(&batch[1].message).expect("the sink itself takes it");
        let outcomes = sink.deliver(&batch).await;
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Refused, "{outcomes:?}");
        arrived.extend([batch[0].clone(), batch[2].clone()]);
        assert_arrived(target, &arrived).await;
    }
    let is_bad = |arrival: &Arrival| arrival.id == id("bad") || arrival.id == id("refused");
    assert!(!target.arrived().await.iter().any(is_bad));
}

/// Id, due time, attempt, topic, tag, key, properties and a body of any bytes.
pub async fn every_field_arrives(target: &dyn Target) {
    let every_byte: Vec<u8> = (0..=255).collect();
    let mut properties = Properties::default();
    for (name, value) in
        [("tenant", "a"), ("traceparent", "00-0af7-b7ad-01"), ("x-empty", ""), ("x-signs", "=&%;, \"'")]
    {
        if !value.is_empty() || target.keeps_what_is_empty() {
            properties.set(name, value).unwrap();
        }
    }
    let full = StoredMessage {
        tag: Some("paid".parse().unwrap()),
        key: Some("customer-7".parse().unwrap()),
        body: Body::bytes(every_byte),
        properties,
        due: Timestamp::from_millis(1_794_852_900_123),
        ..target.good(id("every.field_of:it-42"))
    };
    let mut batch = deliveries([full, target.good(id("bare"))]);
    batch[0].attempt = 7;
    let outcomes = target.sink().deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_arrived(target, &batch).await;
}

/// Empty, of each kind, and as large as the limits allow.
pub async fn any_body_arrives_unchanged(target: &dyn Target) {
    let large: Vec<u8> = (0..BODY_MAX).map(|n| (n * 31 % 251) as u8).collect();
    let bodies = [
        Body::default(),
        Body::text(""),
        Body::text("two\r\nlines\n\n"),
        Body::json(&["a", "b"]).unwrap(),
        Body::bytes(vec![0; 1]),
        Body::bytes(large),
    ];
    let kept = |body: &Body| !body.is_empty() || target.keeps_what_is_empty();
    let messages = bodies
        .into_iter()
        .filter(kept)
        .enumerate()
        .map(|(n, body)| StoredMessage { body, ..target.good(id(&format!("body-{n}"))) });
    let batch = deliveries(messages);
    let outcomes = target.sink().deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_arrived(target, &batch).await;
}

/// Letters of the world in body, tag, key and properties.
pub async fn unicode_arrives_unchanged(target: &dyn Target) {
    let words = "订单 просрочен – żółw 🐢 e\u{301}";
    let mut properties = Properties::default();
    properties.set("words", words).unwrap();
    let message = StoredMessage {
        body: Body::text(words),
        tag: Some(words.parse().unwrap()),
        key: Some(words.parse().unwrap()),
        properties,
        ..target.good(id("unicode"))
    };
    let batch = deliveries([message]);
    let outcomes = target.sink().deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_arrived(target, &batch).await;
}

/// A thousand in one call: all acknowledged, all there, each once.
pub async fn a_large_batch_arrives_whole(target: &dyn Target) {
    let messages = (0..1000).map(|n| StoredMessage {
        body: Body::text(format!("message {n}")),
        ..target.good(id(&format!("many-{n}")))
    });
    let batch = deliveries(messages);
    let outcomes = target.sink().deliver(&batch).await;
    let failed: Vec<_> = outcomes.iter().filter(|outcome| outcome.is_err()).collect();
    assert!(outcomes.len() == 1000 && failed.is_empty(), "{failed:?}");
    let arrived: std::collections::BTreeMap<_, _> =
        target.arrived().await.into_iter().map(|arrival| (arrival.id, arrival.body)).collect();
    for delivery in &batch {
        assert_eq!(arrived.get(&delivery.message.id), Some(&delivery.message.body.to_bytes()));
    }
    assert_eq!(arrived.len(), target.arrived().await.len(), "nothing arrived twice");
}

/// A second try of a message that did arrive is acknowledged too, whether the target keeps both copies or one.
pub async fn the_same_message_again_is_no_failure(target: &dyn Target) {
    let sink = target.sink();
    let mut batch = deliveries([target.good(id("again"))]);
    for attempt in 1..=3 {
        batch[0].attempt = attempt;
        let outcomes = sink.deliver(&batch).await;
        assert!(outcomes[0].is_ok(), "{outcomes:?}");
    }
    let copies = target.arrived().await.iter().filter(|arrival| arrival.id == id("again")).count();
    assert!((1..=3).contains(&copies), "{copies} copies");
}
