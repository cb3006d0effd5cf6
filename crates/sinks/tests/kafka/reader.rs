//! Makes topics, and reads what they have.

use std::{collections::BTreeMap, time::Duration};

use bytes::Bytes;
use duly_core::Timestamp;
use rdkafka::{
    ClientConfig, Message, Offset, TopicPartitionList,
    admin::{AdminClient, AdminOptions, NewTopic, TopicReplication},
    client::DefaultClientContext,
    consumer::{BaseConsumer, Consumer},
    message::{BorrowedMessage, Headers},
};
use testkit::{servers::wait_until, sink::Arrival};

/// Longer than anything takes that works.
const PATIENCE: Duration = Duration::from_secs(60);

/// As many replicas as the brokers make by default.
const BROKERS_DEFAULT: i32 = -1;

/// Makes a topic with so many partitions, and waits until it is there.
pub(crate) async fn make_topic(brokers: &str, name: &str, partitions: i32, settings: &[(&str, &str)]) {
    let config = config(brokers);
    let admin: AdminClient<DefaultClientContext> = config.create().unwrap();
    let mut topic = NewTopic::new(name, partitions, TopicReplication::Fixed(BROKERS_DEFAULT));
    topic.config = settings.to_vec();
    let options = AdminOptions::new().operation_timeout(Some(PATIENCE)).request_timeout(Some(PATIENCE));
    let made = admin.create_topics([&topic], &options).await.unwrap();
    made.into_iter().for_each(|one| drop(one.unwrap()));
}

/// All that a topic has, from every partition.
pub(crate) fn read(brokers: &str, topic: &str) -> Vec<Arrival> {
    let reader: BaseConsumer =
        config(brokers).set("group.id", "reader").set("enable.auto.commit", "false").create().unwrap();
    let metadata = reader.fetch_metadata(Some(topic), PATIENCE).unwrap();
    let (mut from, mut wanted) = (TopicPartitionList::new(), 0);
    for partition in metadata.topics()[0].partitions() {
        let mut ends = None;
        // A broker that has just come back does not lead at once.
        wait_until("a partition has a leader", PATIENCE, || {
            ends = reader.fetch_watermarks(topic, partition.id(), PATIENCE).ok();
            ends.is_some()
        });
        let (low, high) = ends.unwrap();
        from.add_partition_offset(topic, partition.id(), Offset::Offset(low)).unwrap();
        wanted += usize::try_from(high - low).unwrap();
    }
    reader.assign(&from).unwrap();
    let next = || arrival(&reader.poll(PATIENCE).unwrap().unwrap());
    (0..wanted).map(|_| next()).collect()
}

fn config(brokers: &str) -> ClientConfig {
    let mut config = ClientConfig::new();
    config.set("bootstrap.servers", brokers).set("reconnect.backoff.max.ms", "500");
    config
}

fn arrival(record: &BorrowedMessage<'_>) -> Arrival {
    let text = |bytes: &[u8]| String::from_utf8(bytes.to_vec()).unwrap();
    let headers = record.headers().unwrap();
    let properties: BTreeMap<String, String> =
        headers.iter().map(|header| (header.key.to_owned(), text(header.value.unwrap()))).collect();
    Arrival {
        id: properties["duly-id"].parse().unwrap(),
        due: Timestamp::from_millis(properties["duly-due"].parse().unwrap()),
        attempt: properties["duly-attempt"].parse().unwrap(),
        topic: record.topic().into(),
        tag: properties.get("duly-tag").cloned(),
        key: record.key().map(text),
        content_type: properties["content-type"].clone(),
        body: Bytes::copy_from_slice(record.payload().unwrap_or_default()),
        properties,
    }
}
