//! What arrives, and where.

use testkit::servers::activemq::{installed, shared};

use crate::{
    one,
    reader::{Reader, read},
    sink_to, sink_with, to,
};

#[tokio::test]
async fn a_topic_is_a_topic_if_the_configuration_says_so() {
    if !installed() {
        return;
    }
    let mut reader = Reader::to(shared().port());
    reader.send("SUBSCRIBE\nid:0\nack:auto\ndestination:/topic/orders.messages\nreceipt:r\n\n\0");
    assert_eq!(reader.next().command, "RECEIPT");
    let sink = sink_with(&shared().url(), "destination = 'topic'");
    one(&sink, "orders.messages", "a").await.unwrap();
    let frame = reader.next();
    assert_eq!((frame.command.as_str(), &*frame.headers["persistent"]), ("MESSAGE", "true"));
    assert_eq!(frame.arrival().id.as_str(), "a");
    assert!(read(shared().port(), "orders.messages").is_empty(), "and no queue");
}

#[tokio::test]
async fn every_sign_of_a_header_arrives() {
    if !installed() {
        return;
    }
    let sink = sink_to(shared());
    let mut delivery = to("orders.signs", "a");
    let nasty = "a:b\\c\nreceipt:7\r\n\n\\n";
    delivery.message.properties.put("x:y\\z", nasty);
    delivery.message.properties.put("long", &"x".repeat(10_000));
    let receipt = sink.deliver(&[delivery]).await.remove(0).unwrap();
    assert!(receipt.contains("receipt"), "{receipt}");
    let arrived = read(shared().port(), "orders.signs");
    assert_eq!(arrived[0].properties["x:y\\z"], nasty);
    assert_eq!(arrived[0].properties["long"].len(), 10_000);
}
