//! A queue of RabbitMQ as a source: what applications publish with `x-delay` comes out at its time.

use std::{
    collections::{BTreeMap, BTreeSet},
    time::{Duration, SystemTime},
};

use duly_server::config::{Config, Secret, SinkSetup, SourceSetup};
use futures_util::StreamExt;
use lapin::{
    BasicProperties, Channel, Connection, ConnectionProperties, ExchangeKind,
    message::Delivery,
    options::{
        BasicConsumeOptions, BasicGetOptions, BasicPublishOptions, ConfirmSelectOptions,
        ExchangeDeclareOptions, QueueDeclareOptions,
    },
    types::{AMQPValue, FieldTable},
};
use testkit::servers::{proxy::Proxy, rabbitmq};

use crate::bed::{Bed, SOON};

/// A server of Duly between two queues of one RabbitMQ: `<name>` in, `<name>-due` out.
struct Bridge {
    name: String,
    channel: Channel,
    way: Proxy,
    bed: Bed,
}

impl Bridge {
    async fn new(name: &str) -> Self {
        Self::with(name, |_| {}).await
    }

    async fn with(name: &str, set: impl FnOnce(&mut Config)) -> Self {
        let broker = rabbitmq::shared();
        let connection = Connection::connect(&broker.url(), ConnectionProperties::default()).await.unwrap();
        let channel = connection.create_channel().await.unwrap();
        channel.confirm_select(ConfirmSelectOptions::default()).await.unwrap();
        let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
        for queue in [name.to_owned(), format!("{name}-due")] {
            channel.queue_declare(queue.as_str().into(), durable, FieldTable::default()).await.unwrap();
        }
        let way = Proxy::to(broker.port());
        let url = format!("amqp://guest:guest@127.0.0.1:{}", way.port());
        let bed = Bed::with(|config| {
            let sink = toml::from_str(&format!("kind = 'rabbitmq'\nurl = '{url}'")).unwrap();
            config.sinks.insert("rabbit".parse().unwrap(), SinkSetup::of(sink));
            let source = SourceSetup {
                url: Secret::new(url),
                queue: name.into(),
                sink: "rabbit".parse().unwrap(),
                topic: "{routing_key}-due".into(),
                prefetch: 100,
                dead_letter_exchange: None,
                ca: None,
                client_cert: None,
                client_key: None,
            };
            config.sources.insert("rabbit".into(), source);
            set(config);
        })
        .await;
        Self { name: name.into(), channel, way, bed }
    }

    async fn publish(&self, body: &[u8], properties: BasicProperties) {
        let options = BasicPublishOptions { mandatory: true, ..BasicPublishOptions::default() };
        let sent =
            self.channel.basic_publish("".into(), self.name.as_str().into(), options, body, properties);
        assert!(sent.await.unwrap().await.unwrap().is_ack());
    }

    /// The next `count` that come out.
    async fn due(&self, count: usize) -> Vec<Delivery> {
        self.read(&format!("{}-due", self.name), count).await
    }

    /// The next `count` of this queue, which may be made later.
    async fn read(&self, queue: &str, count: usize) -> Vec<Delivery> {
        self.read_until(queue, |all| all.len() >= count).await
    }

    /// The next ones of this queue, until there are enough. One reader takes all of them: what the broker has sent to it beyond that is lost.
    async fn read_until(&self, queue: &str, enough: impl Fn(&[Delivery]) -> bool) -> Vec<Delivery> {
        let options = BasicConsumeOptions { no_ack: true, ..BasicConsumeOptions::default() };
        let reading = async {
            let url = rabbitmq::shared().url();
            loop {
                // A new one each time: what asks for a queue that is not there loses its channel, and may lose more.
                let connection = Connection::connect(&url, ConnectionProperties::default()).await.unwrap();
                let channel = connection.create_channel().await.unwrap();
                let none = FieldTable::default();
                let Ok(mut consumer) =
                    channel.basic_consume(queue.into(), "reader".into(), options, none).await
                else {
                    continue;
                };
                let mut all = Vec::new();
                while !enough(&all) {
                    all.push(consumer.next().await.unwrap().unwrap());
                }
                channel.basic_cancel("reader".into(), Default::default()).await.unwrap();
                return all;
            }
        };
        tokio::time::timeout(SOON * 3, reading).await.expect("they come out")
    }
}

fn with_delay(delay: impl Into<AMQPValue>) -> BasicProperties {
    let headers = BTreeMap::from([("x-delay".into(), delay.into()), ("tenant".into(), text("a"))]);
    BasicProperties::default().with_headers(headers.into())
}

fn with_copy_to(queue: &str) -> BasicProperties {
    let copies = AMQPValue::FieldArray(vec![text(queue)].into());
    let headers = BTreeMap::from([
        ("x-delay".into(), AMQPValue::LongInt(1)),
        ("tenant".into(), text("a")),
        ("CC".into(), copies),
    ]);
    BasicProperties::default().with_headers(headers.into())
}

fn text(words: &str) -> AMQPValue {
    AMQPValue::LongString(words.into())
}

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.properties.message_id().as_ref().unwrap().as_str()).collect()
}

fn header(delivery: &Delivery, name: &str) -> Option<String> {
    match delivery.properties.headers().as_ref()?.inner().get(name)? {
        AMQPValue::LongString(text) => Some(text.to_string()),
        other => panic!("{name} is {other:?}"),
    }
}

#[expect(clippy::disallowed_methods, reason = "the time at which a real message comes")]
fn now_ms() -> u128 {
    SystemTime::now().duration_since(SystemTime::UNIX_EPOCH).unwrap().as_millis()
}

#[tokio::test(flavor = "multi_thread")]
async fn what_asks_for_a_delay_comes_out_at_its_time_with_all_that_it_had() {
    if !rabbitmq::installed() {
        return;
    }
    let mut bridge = Bridge::new("delays").await;
    let begin = now_ms();
    let full = with_delay(AMQPValue::LongInt(1500))
        .with_message_id("order-7".into())
        .with_content_type("application/json".into())
        .with_correlation_id("c-1".into())
        .with_priority(9);
    bridge.publish(br#"{"order":7}"#, full).await;
    bridge.publish(b"\x00\xff", with_delay(text("500"))).await;
    bridge.publish(b"at once", BasicProperties::default()).await;
    bridge.publish(b"at once", with_delay(AMQPValue::LongInt(-5))).await;

    let out = bridge.due(4).await;
    // On a busy machine, what is published last may come out after what was due half a second before it.
    let mut bodies: Vec<_> = out.iter().map(|delivery| delivery.data.as_slice()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, [b"\x00\xff" as &[u8], b"at once", b"at once", br#"{"order":7}"#]);
    assert!(now_ms() >= begin + 1500, "never early");
    let last = out.iter().find(|delivery| delivery.data.starts_with(b"{")).unwrap();
    assert_eq!(last.properties.message_id().as_ref().unwrap().as_str(), "order-7");
    assert_eq!(last.properties.content_type().as_ref().unwrap().as_str(), "application/json");
    assert_eq!(last.properties.correlation_id().as_ref().unwrap().as_str(), "c-1");
    assert_eq!(header(last, "tenant").as_deref(), Some("a"));
    assert_eq!(header(last, "x-delay"), None, "or it would wait again");
    bridge.bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_message_is_acknowledged_only_when_it_is_safe_and_comes_out_once_however_often_the_wire_breaks() {
    if !rabbitmq::installed() {
        return;
    }
    let bridge = Bridge::new("breaks").await;
    let sending = async {
        for n in 0..300 {
            let properties =
                with_delay(AMQPValue::LongInt(20)).with_message_id(format!("m-{n}").as_str().into());
            bridge.publish(format!("{n}").as_bytes(), properties).await;
            if n % 60 == 30 {
                bridge.way.cut();
            }
        }
    };
    // The sink may deliver a copy of what was under way when the wire broke; the source doubles none and loses none.
    let has_all = |out: &[Delivery]| {
        let ids: BTreeSet<_> = out.iter().filter_map(|delivery| header(delivery, "duly-id")).collect();
        ids.len() == 300
    };
    let (out, ()) = tokio::join!(bridge.read_until("breaks-due", has_all), sending);
    let ids: BTreeSet<_> = out.iter().map(|delivery| header(delivery, "duly-id").unwrap()).collect();
    assert_eq!(ids, (0..300).map(|n| format!("m-{n}")).collect());
    let totals = bridge.bed.duly().totals().await.unwrap();
    assert_eq!(totals.accepted, 300, "each was accepted once");
}

/// More than the limits allow.
fn too_large() -> Vec<u8> {
    vec![0; 2 << 20]
}

#[tokio::test(flavor = "multi_thread")]
async fn what_duly_refuses_goes_to_the_dead_letter_exchange_with_the_reason_and_others_go_on() {
    if !rabbitmq::installed() {
        return;
    }
    // As many refused ones as may be unacknowledged, and more: each would stop the source for ever.
    let mut bridge = Bridge::with("refused", |config| {
        for source in config.sources.values_mut() {
            source.prefetch = 3;
            source.dead_letter_exchange = Some("graveyard".into());
        }
    })
    .await;
    let durable = ExchangeDeclareOptions { durable: true, ..ExchangeDeclareOptions::default() };
    let (channel, none) = (&bridge.channel, FieldTable::default);
    channel.exchange_declare("graveyard".into(), ExchangeKind::Fanout, durable, none()).await.unwrap();
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare("graves".into(), options, none()).await.unwrap();
    let bound =
        channel.queue_bind("graves".into(), "graveyard".into(), "".into(), Default::default(), none());
    bound.await.unwrap();
    for n in 0..5 {
        let properties =
            with_delay(AMQPValue::LongInt(1)).with_message_id(format!("large-{n}").as_str().into());
        bridge.publish(&too_large(), properties).await;
    }
    bridge.publish(b"fits", with_delay(AMQPValue::LongInt(1))).await;
    assert_eq!(bridge.due(1).await[0].data, b"fits");
    for n in 0..5 {
        let options = BasicGetOptions { no_ack: true };
        let grave = bridge.channel.basic_get("graves".into(), options).await.unwrap().expect("it is there");
        assert_eq!(grave.delivery.properties.message_id().as_ref().unwrap().as_str(), format!("large-{n}"));
        assert_eq!(header(&grave.delivery, "tenant").as_deref(), Some("a"), "with all that it had");
        let why = header(&grave.delivery, "duly-refused").unwrap();
        assert!(why.contains("bytes") || why.contains("body"), "{why}");
        assert_eq!(grave.delivery.data.len(), 2 << 20);
    }
    bridge.bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn what_duly_refuses_is_kept_in_a_queue_of_its_own_where_no_exchange_has_one() {
    if !rabbitmq::installed() {
        return;
    }
    // Of the second, the exchange has no queue.
    for (name, exchange) in [("kept", None), ("unbound", Some("amq.topic".to_owned()))] {
        let mut bridge = Bridge::with(name, |config| {
            for source in config.sources.values_mut() {
                source.prefetch = 2;
                source.dead_letter_exchange.clone_from(&exchange);
            }
        })
        .await;
        for _ in 0..3 {
            bridge.publish(&too_large(), with_delay(AMQPValue::LongInt(1))).await;
        }
        // By this header RabbitMQ would bring it back to the source.
        bridge.publish(&too_large(), with_copy_to(name)).await;
        bridge.publish(b"fits", with_delay(AMQPValue::LongInt(1))).await;
        assert_eq!(bridge.due(1).await[0].data, b"fits");
        let kept = bridge.read(&format!("{name}.refused"), 4).await;
        for delivery in &kept {
            assert_eq!(delivery.data.len(), 2 << 20);
            assert_eq!(header(delivery, "tenant").as_deref(), Some("a"), "with all that it had");
            assert!(header(delivery, "duly-refused").is_some());
        }
        bridge.bed.stop().await;
        let options = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
        let queue = bridge.channel.queue_declare(name.into(), options, FieldTable::default()).await.unwrap();
        assert_eq!(queue.message_count(), 0, "none comes back");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_refused_message_that_can_be_kept_nowhere_is_held_until_it_can() {
    if !rabbitmq::installed() {
        return;
    }
    let mut bridge = Bridge::new("held").await;
    let mut full = FieldTable::default();
    full.insert("x-max-length".into(), AMQPValue::LongInt(0));
    full.insert("x-overflow".into(), text("reject-publish"));
    let options = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    bridge.channel.queue_declare("held.refused".into(), options, full).await.unwrap();
    bridge.publish(&too_large(), with_delay(AMQPValue::LongInt(1))).await;
    bridge.publish(b"after it", with_delay(AMQPValue::LongInt(1))).await;
    // Taken, and not acknowledged.
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let waiting = async || {
        let queue = bridge.channel.queue_declare("held".into(), passive, FieldTable::default()).await;
        queue.unwrap().message_count()
    };
    while waiting().await > 0 {}
    bridge.channel.queue_delete("held.refused".into(), Default::default()).await.unwrap();
    assert_eq!(bridge.read("held.refused", 1).await[0].data.len(), 2 << 20);
    assert_eq!(bridge.due(1).await[0].data, b"after it");
    bridge.bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_redelivery_is_known_again_whatever_the_broker_counts_in_it() {
    if !rabbitmq::installed() {
        return;
    }
    let mut bridge = Bridge::new("again").await;
    let delivery = |id: &str, body: &str, acquired: i64| {
        let headers = BTreeMap::from([("x-acquired-count".into(), AMQPValue::LongLongInt(acquired))]);
        let properties = BasicProperties::default().with_headers(headers.into()).with_message_id(id.into());
        (body.to_owned(), properties)
    };
    // The second holds something else under the same id: it is another message, and its redelivery is that one again.
    for (body, acquired) in [("one", 0), ("one", 1), ("two", 0), ("two", 1), ("one", 2), ("two", 2)] {
        let (body, properties) = delivery("order-1", body, acquired);
        bridge.publish(body.as_bytes(), properties).await;
    }
    let (last, properties) = delivery("last", "last", 0);
    bridge.publish(last.as_bytes(), properties).await;
    let out = bridge.due(3).await;
    let mut bodies: Vec<_> = out.iter().map(|delivery| delivery.data.clone()).collect();
    bodies.sort_unstable();
    assert_eq!(bodies, [b"last".to_vec(), b"one".to_vec(), b"two".to_vec()]);
    assert_eq!(bridge.bed.duly().totals().await.unwrap().accepted, 3);
    bridge.bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_queue_that_is_not_there_yet_is_waited_for() {
    if !rabbitmq::installed() {
        return;
    }
    let mut bridge = Bridge::new("later").await;
    bridge.channel.queue_delete("later".into(), Default::default()).await.unwrap();
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    bridge.channel.queue_declare("later".into(), durable, FieldTable::default()).await.unwrap();
    bridge.publish(b"there", with_delay(AMQPValue::LongInt(1))).await;
    assert_eq!(bridge.due(1).await[0].data, b"there");
    tokio::time::timeout(Duration::from_secs(30), bridge.bed.stop()).await.expect("it stops");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_limit_of_one_message_a_batch_refuses_nothing_that_a_source_takes() {
    if !rabbitmq::installed() {
        return;
    }
    let mut bridge = Bridge::with("small-batches", |config| config.limits.batch_max = 1).await;
    // They wait for the source, which finds them all at once.
    bridge.bed.stop().await;
    for _ in 0..20 {
        bridge.publish(b"x", BasicProperties::default()).await;
    }
    bridge.bed.restart().await;
    assert_eq!(bridge.due(20).await.len(), 20);
    bridge.bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_past_the_limit_is_refused_with_the_reason_and_those_that_there_are_go_on() {
    if !rabbitmq::installed() {
        return;
    }
    let mut bridge = Bridge::with("topics", |config| {
        config.http.topics = 2;
        for source in config.sources.values_mut() {
            (source.sink, source.topic) = ("queue".parse().unwrap(), "{routing_key}".into());
        }
    })
    .await;
    let exchange = "topics-in";
    let (none, declare) = (FieldTable::default(), ExchangeDeclareOptions::default());
    let declared =
        bridge.channel.exchange_declare(exchange.into(), ExchangeKind::Fanout, declare, none.clone());
    declared.await.unwrap();
    let bind = Default::default();
    bridge.channel.queue_bind("topics".into(), exchange.into(), "".into(), bind, none).await.unwrap();
    for (key, body) in [("one", "1"), ("two", "2"), ("three", "3"), ("one", "4")] {
        let delayed = with_delay(AMQPValue::LongInt(3_600_000));
        let options = BasicPublishOptions::default();
        let sent =
            bridge.channel.basic_publish(exchange.into(), key.into(), options, body.as_bytes(), delayed);
        assert!(sent.await.unwrap().await.unwrap().is_ack());
    }
    let kept = bridge.read("topics.refused", 1).await;
    assert_eq!(kept[0].data, b"3");
    let why = header(&kept[0], "duly-refused").unwrap();
    assert!(why.contains("\"three\"") && why.contains("limits.topics"), "{why}");
    let waiting = async {
        loop {
            let totals = bridge.bed.duly().totals().await.unwrap();
            if totals.pending == 3 {
                return;
            }
            tokio::task::yield_now().await;
        }
    };
    tokio::time::timeout(SOON * 3, waiting).await.expect("the others are accepted");
    bridge.bed.stop().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn an_exchange_that_goes_away_while_messages_are_refused_loses_none_of_them() {
    if !rabbitmq::installed() {
        return;
    }
    let mut bridge = Bridge::with("vanishing", |config| {
        for source in config.sources.values_mut() {
            source.dead_letter_exchange = Some("vanishing-dead".into());
        }
    })
    .await;
    let (channel, none) = (&bridge.channel, FieldTable::default);
    let durable = QueueDeclareOptions { durable: true, ..QueueDeclareOptions::default() };
    channel.queue_declare("vanishing-graves".into(), durable, none()).await.unwrap();
    let appear = async || {
        let options = ExchangeDeclareOptions::default();
        let (exchange, kind) = ("vanishing-dead", ExchangeKind::Fanout);
        channel.exchange_declare(exchange.into(), kind, options, none()).await.unwrap();
        let options = Default::default();
        channel
            .queue_bind("vanishing-graves".into(), exchange.into(), "".into(), options, none())
            .await
            .unwrap();
    };
    let refused = async |id: &str| {
        let properties = with_delay(AMQPValue::LongInt(1)).with_message_id(id.into());
        bridge.publish(&too_large(), properties).await;
    };
    appear().await;
    refused("before").await;
    assert_eq!(ids(&bridge.read("vanishing-graves", 1).await), ["before"]);
    channel.exchange_delete("vanishing-dead".into(), Default::default()).await.unwrap();
    for id in ["a", "b", "c"] {
        refused(id).await;
    }
    bridge.publish(b"fits", with_delay(AMQPValue::LongInt(1))).await;
    // All are taken, and not acknowledged.
    let passive = QueueDeclareOptions { passive: true, ..QueueDeclareOptions::default() };
    let waiting =
        async || channel.queue_declare("vanishing".into(), passive, none()).await.unwrap().message_count();
    while waiting().await > 0 {}
    appear().await;
    assert_eq!(ids(&bridge.read("vanishing-graves", 3).await), ["a", "b", "c"]);
    assert_eq!(bridge.due(1).await[0].data, b"fits");
    bridge.bed.stop().await;
    assert_eq!(waiting().await, 0, "none comes back");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_source_reads_from_the_first_of_several_nodes_that_answers() {
    if !rabbitmq::installed() {
        return;
    }
    let nobody = std::net::TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let mut bridge = Bridge::with("several", |config| {
        for source in config.sources.values_mut() {
            let port = rabbitmq::shared().port();
            source.url = Secret::new(format!("amqp://guest:guest@127.0.0.1:{nobody},127.0.0.1:{port}"));
        }
    })
    .await;
    bridge.publish(b"there", with_delay(AMQPValue::LongInt(1))).await;
    assert_eq!(bridge.due(1).await[0].data, b"there");
    bridge.bed.stop().await;
}
