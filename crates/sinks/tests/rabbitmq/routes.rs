//! Which exchange and routing key a topic means.

use testkit::servers::rabbitmq::{installed, shared};

use crate::{Reader, one, sink_with, to};

#[tokio::test]
async fn a_topic_is_a_queue_or_an_exchange_and_a_routing_key() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.exchange("shop", "orders.#").await;
    let sink = sink_with(&shared().url(), "");
    one(&sink, &queue, "by-name").await.unwrap();
    one(&sink, &format!("/{queue}"), "by-slash").await.unwrap();
    one(&sink, "shop/orders.new", "by-exchange").await.unwrap();
    assert_eq!(reader.ids(&queue).await, ["by-name", "by-slash", "by-exchange"]);
}

#[tokio::test]
async fn with_an_exchange_the_topic_is_the_routing_key_and_the_tag_may_end_it() {
    if !installed() {
        return;
    }
    let reader = Reader::shared().await;
    let queue = reader.exchange("tagged", "orders.paid").await;
    let mut tagged = to("orders", "a");
    tagged.message.tag = Some("paid".parse().unwrap());
    let plain = sink_with(&shared().url(), "exchange = 'tagged'");
    assert!(plain.deliver(std::slice::from_ref(&tagged)).await[0].is_err(), "nobody wants orders alone");
    let sink = sink_with(&shared().url(), "exchange = 'tagged'\ntag_in_key = true");
    sink.deliver(&[tagged]).await.remove(0).unwrap();
    one(&sink, "orders.paid", "untagged").await.unwrap();
    let message = reader.next(&queue).await.unwrap();
    assert_eq!(message.delivery.routing_key.as_str(), "orders.paid");
    assert_eq!(*message.delivery.properties.timestamp(), Some(1_767_225_599), "the due time");
    assert_eq!(reader.ids(&queue).await, ["untagged"]);
}
