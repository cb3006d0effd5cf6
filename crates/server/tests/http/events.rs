//! Following what happens.

use http::Method;
use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::bed::{Bed, SOON};

async fn follow(bed: &Bed, query: &str) -> TcpStream {
    follow_with(bed, query, "").await
}

/// Follows events with more header lines. What happens after this returns is heard.
pub(crate) async fn follow_with(bed: &Bed, query: &str, headers: &str) -> TcpStream {
    let mut stream = TcpStream::connect(bed.addr()).await.unwrap();
    let request = format!("GET /v1/events{query} HTTP/1.1\r\nhost: localhost\r\n{headers}\r\n");
    stream.write_all(request.as_bytes()).await.unwrap();
    until(&mut stream, "\r\n\r\n").await;
    stream
}

/// What is read until these words have come.
pub(crate) async fn until(stream: &mut TcpStream, words: &str) -> String {
    let mut read = String::new();
    let reading = async {
        let mut buffer = [0; 4096];
        while !read.contains(words) {
            let count = stream.read(&mut buffer).await.unwrap();
            assert_ne!(count, 0, "ended after {read}");
            read.push_str(&String::from_utf8_lossy(&buffer[..count]));
        }
    };
    tokio::time::timeout(SOON, reading).await.unwrap_or_else(|_| panic!("no {words}"));
    read
}

#[tokio::test(flavor = "multi_thread")]
async fn a_follower_hears_of_each_step() {
    let bed = Bed::new().await;
    let mut all = follow(&bed, "").await;
    let mut dead = follow(&bed, "?types=dead,cancelled").await;
    bed.send(json!({"topic": "a", "id": "one", "retry": {"attempts": 1}})).await;
    let received = bed.receive("a", 1).await;
    let nack = json!({"receipts": [received[0]["receipt"]]}).to_string();
    bed.post("/v1/queues/a/nack", nack).await;
    let received = until(&mut all, "event: dead").await;
    assert!(received.contains("event: accepted") && received.contains("\"lane\":\"queue/a\""), "{received}");
    let received = until(&mut dead, "\"reason\":\"exhausted\"").await;
    assert!(!received.contains("accepted"), "{received}");
    assert_eq!(bed.get("/v1/events?colour=red").await.code(), "bad_query");
}

/// A follower that reads nothing costs nobody else anything: what it misses is counted, and it is reported.
#[tokio::test(flavor = "multi_thread")]
async fn a_follower_that_does_not_read_slows_nobody() {
    let bed = Bed::new().await;
    let mut lazy = follow(&bed, "").await;
    let lines: String = (0..10_000)
        .map(|n| format!("{{\"topic\":\"{}\",\"delay\":\"1h\",\"id\":\"{n}\"}}\n", "t".repeat(200)))
        .collect();
    for round in 0..4 {
        let answer =
            bed.post("/v1/messages/batch", lines.replace("\"id\":\"", &format!("\"id\":\"{round}-"))).await;
        assert_eq!(answer.lines().len(), 10_000);
    }
    until(&mut lazy, "event: missed").await;
    let metrics = bed.get("/metrics").await;
    let metrics = String::from_utf8(metrics.body.to_vec()).unwrap();
    let dropped = metrics.lines().find_map(|line| line.strip_prefix("duly_events_dropped_total "));
    assert!(dropped.is_some_and(|count| count.parse::<f64>().unwrap() > 0.0), "{metrics}");
}

/// Whoever selects, and a token for some topics, hear of cancelled and purged messages as of all others.
#[tokio::test(flavor = "multi_thread")]
async fn the_end_of_a_message_by_hand_is_told_to_those_who_select_its_topic() {
    let bed = Bed::new().await;
    let mut topic = follow(&bed, "?topic=a").await;
    let mut sink = follow(&bed, "?sink=queue&types=cancelled,purged").await;
    let mut other = follow(&bed, "?topic=b").await;
    bed.send(json!({"topic": "a", "id": "one", "delay": "1h"})).await;
    bed.call(Method::DELETE, "/v1/messages/one", "").await;
    bed.send(json!({"topic": "a", "id": "two"})).await;
    let received = bed.receive("a", 1).await;
    let nack = json!({"receipts": [received[0]["receipt"]], "dead": true}).to_string();
    bed.post("/v1/queues/a/nack", nack).await;
    bed.post("/v1/dead/purge", r#"{"ids":["two"]}"#).await;
    bed.send(json!({"topic": "b", "id": "end"})).await;
    for follower in [&mut topic, &mut sink] {
        let reported = until(follower, r#"{"type":"purged","id":"two","lane":"queue/a"}"#).await;
        assert!(reported.contains(r#"{"type":"cancelled","id":"one","lane":"queue/a"}"#), "{reported}");
    }
    let reported = until(&mut other, "\"end\"").await;
    assert!(!reported.contains("cancelled") && !reported.contains("purged"), "{reported}");
    assert_eq!(bed.get("/v1/events?sink=a/b").await.code(), "bad_sink");
}
