//! What a record is.

use duly_core::{SinkErrorKind, StoredMessage};
use testkit::servers::kafka::{installed, shared};

use crate::{ids, message, one, reader, sink_to, to, topic_of};

#[tokio::test]
async fn the_receipt_is_partition_and_offset() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let (sink, topic) = (sink_to(kafka), topic_of(kafka, 1).await);
    assert_eq!(one(&sink, &topic, "a").await.unwrap(), "0:0");
    assert_eq!(one(&sink, &topic, "b").await.unwrap(), "0:1");
}

#[tokio::test]
async fn the_same_key_goes_to_the_partition_that_kafkas_own_clients_choose() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let (sink, topic) = (sink_to(kafka), topic_of(kafka, 8).await);
    // murmur2("customer-7") & 0x7fffffff, modulo 8, as Kafka's own producer reckons.
    let mut partitions = Vec::new();
    for n in 0..5 {
        let key = Some("customer-7".parse().unwrap());
        let keyed = duly_core::Delivery::new(StoredMessage { key, ..message(&topic, &format!("m{n}")) }, 1);
        let receipt = sink.deliver(&[keyed]).await.remove(0).unwrap();
        partitions.push(receipt.split_once(':').unwrap().0.parse::<i32>().unwrap());
    }
    assert_eq!(partitions, [murmur2(b"customer-7") % 8; 5]);
}

/// Kafka's hash of a key, from its description.
fn murmur2(data: &[u8]) -> i32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ data.len() as u32;
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = u32::from_le_bytes(word.try_into().unwrap()).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        for (n, byte) in rest.iter().enumerate() {
            hash ^= u32::from(*byte) << (8 * n);
        }
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    ((hash ^ (hash >> 15)) & 0x7fff_ffff) as i32
}

#[tokio::test]
async fn what_no_record_can_carry_is_refused_alone() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let (sink, topic) = (sink_to(kafka), topic_of(kafka, 1).await);
    let mut taken = message(&topic, "taken");
    taken.properties.set("content-type", "x").unwrap();
    let mut batch = vec![to("no topic!", "name"), to(&topic, "good"), duly_core::Delivery::new(taken, 1)];
    // Kafka's own; a broker would say that they are no topics to write to.
    let internal = ["__consumer_offsets", "__transaction_state", "__share_group_state"];
    batch.extend(internal.map(|topic| to(topic, topic)));
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes[1].is_ok(), "{outcomes:?}");
    for (refused, delivery) in
        outcomes.iter().zip(&batch).filter(|(_, one)| one.message.id.as_str() != "good")
    {
        assert_eq!(refused.as_ref().unwrap_err().kind, SinkErrorKind::Refused);
        assert!(sink.check(&delivery.message).is_err(), "it is not even accepted");
    }
    assert_eq!(ids(kafka, &topic).await, ["good"]);
}

#[tokio::test]
async fn records_that_only_together_are_too_large_are_sent_one_by_one() {
    if !installed() {
        return;
    }
    let kafka = shared();
    let sink = sink_to(kafka);
    reader::make_topic(&kafka.address(), "narrow", 1, &[("max.message.bytes", "1000")]).await;
    let mut large = message("narrow", "large");
    large.body = duly_core::Body::bytes(vec![1; 2000]);
    let mut batch: Vec<_> = (0..20).map(|n| to("narrow", &format!("m{n:02}"))).collect();
    batch.insert(10, duly_core::Delivery::new(large, 1));
    let outcomes = sink.deliver(&batch).await;
    let refused = outcomes[10].as_ref().unwrap_err();
    assert_eq!(refused.kind, SinkErrorKind::Refused);
    assert!(refused.detail.contains("too large"), "the broker's words: {}", refused.detail);
    assert_eq!(outcomes.iter().filter(|outcome| outcome.is_ok()).count(), 20, "{outcomes:?}");
    assert_eq!(ids(kafka, "narrow").await.len(), 20);
}
