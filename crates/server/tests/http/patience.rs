//! Slow clients, idle clients, too many clients, clients that go away, and the clean end.

use std::time::Duration;

use serde_json::json;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::bed::{Bed, SOON};

#[tokio::test(flavor = "multi_thread")]
async fn a_body_that_comes_byte_by_byte_is_given_up_and_others_do_not_wait() {
    let bed = Bed::with(|config| config.http.body_timeout = Duration::from_millis(300)).await;
    let mut slow = TcpStream::connect(bed.addr()).await.unwrap();
    slow.write_all(
        b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 500\r\n\r\n{\"topic\":\"a\",",
    )
    .await
    .unwrap();
    bed.send(json!({"topic": "a"})).await;
    let mut answer = String::new();
    tokio::time::timeout(SOON, slow.read_to_string(&mut answer)).await.expect("it is given up").unwrap();
    assert!(answer.starts_with("HTTP/1.1 408") && answer.contains("body_timeout"), "{answer}");
    let batch = b"POST /v1/messages/batch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: 500\r\n\r\n{\"topic\":\"a\",\"id\":\"first\"}\n{\"topic\":";
    let answer = bed.raw(batch, "body_timeout").await;
    assert!(answer.contains("\"id\":\"first\"") && answer.contains("body_timeout"), "{answer}");
    assert_eq!(bed.get("/v1/messages/first").await.status, 200, "what was answered stands");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_head_that_never_ends_is_given_up() {
    let bed = Bed::with(|config| config.http.header_timeout = Duration::from_millis(200)).await;
    let answer = bed.raw(b"GET /livez HTTP/1.1\r\nx-slow: ", "never").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 408"), "{answer}");
    let huge = format!("GET /livez HTTP/1.1\r\nhost: localhost\r\nx: {}\r\n\r\n", "y".repeat(2_000_000));
    let answer = bed.raw(huge.as_bytes(), "never").await;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 431"), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_incomplete_body_is_not_taken() {
    let bed = Bed::new().await;
    let mut stream = TcpStream::connect(bed.addr()).await.unwrap();
    stream
        .write_all(
            b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\ncontent-length: 50\r\n\r\n{\"topic\":\"a\"}",
        )
        .await
        .unwrap();
    stream.shutdown().await.unwrap();
    let mut answer = String::new();
    let _ = tokio::time::timeout(SOON, stream.read_to_string(&mut answer)).await.expect("it ends");
    assert!(answer.is_empty() || answer.contains("incomplete_body"), "{answer}");
    assert_eq!(bed.get("/v1/stats").await.json()["totals"]["accepted"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn one_connection_too_many_is_told_so() {
    let bed = Bed::with(|config| config.http.connections = 2).await;
    let mut kept = Vec::new();
    // Two of everybody's, and the eight that only this machine has.
    for _ in 0..10 {
        let mut stream = TcpStream::connect(bed.addr()).await.unwrap();
        stream.write_all(b"GET /livez HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
        let mut byte = [0; 1];
        stream.read_exact(&mut byte).await.unwrap();
        kept.push(stream);
    }
    let answer = bed.raw(b"", "too_many_connections").await;
    assert!(answer.starts_with("HTTP/1.1 503") && answer.contains("retry-after: 1"), "{answer}");
    drop(kept);
    // Their places come free again.
    let freed = async {
        while !bed
            .raw(b"GET /livez HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n", "never")
            .await
            .starts_with("HTTP/1.1 200")
        {}
    };
    tokio::time::timeout(SOON, freed).await.expect("the places come free");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receiver_that_goes_away_takes_nothing_along() {
    let bed = Bed::new().await;
    for _ in 0..20 {
        let mut abandoned = TcpStream::connect(bed.addr()).await.unwrap();
        abandoned.write_all(b"POST /v1/queues/a/receive HTTP/1.1\r\nhost: localhost\r\ncontent-length: 27\r\n\r\n{\"wait\":\"20s\",\"lease\":\"1s\"}").await.unwrap();
        drop(abandoned);
        let id = bed.send(json!({"topic": "a"})).await;
        let received = bed.receive("a", 1).await;
        // An answer that was written before the server saw that the client is gone is lost: that counts a try, and only then.
        assert_eq!(received[0]["id"], json!(id));
        assert!(received[0]["attempt"] == 1 || received[0]["attempt"] == 2, "{received:?}");
        let ack = json!({"receipts": [received[0]["receipt"]]}).to_string();
        assert_eq!(bed.post("/v1/queues/a/ack", ack).await.status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stop_ends_long_polls_and_streams_and_hands_nothing_out() {
    let mut bed = Bed::new().await;
    bed.send(json!({"topic": "b", "id": "kept", "delay": "1h"})).await;
    let addr = bed.addr();
    let poll = tokio::spawn(async move {
        let mut stream = TcpStream::connect(addr).await.unwrap();
        stream.write_all(b"POST /v1/queues/a/receive HTTP/1.1\r\nhost: localhost\r\ncontent-length: 14\r\n\r\n{\"wait\":\"60s\"}").await.unwrap();
        let mut answer = String::new();
        stream.read_to_string(&mut answer).await.unwrap();
        answer
    });
    let mut follow = TcpStream::connect(addr).await.unwrap();
    follow.write_all(b"GET /v1/events HTTP/1.1\r\nhost: localhost\r\n\r\n").await.unwrap();
    let mut head = [0; 16];
    follow.read_exact(&mut head).await.unwrap();
    bed.get("/livez").await;
    tokio::time::timeout(SOON, bed.stop()).await.expect("it stops");
    let answer = poll.await.unwrap();
    assert!(answer.is_empty() || answer.contains("\"messages\":[]"), "{answer}");
    bed.restart().await;
    assert_eq!(bed.get("/v1/messages/kept").await.json()["state"], "pending");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_connection_that_outlives_the_grace_is_closed() {
    let mut bed = Bed::new().await;
    let mut stuck = TcpStream::connect(bed.addr()).await.unwrap();
    let half = b"POST /v1/messages HTTP/1.1\r\nhost: localhost\r\nexpect: 100-continue\r\ncontent-length: 99\r\n\r\n";
    stuck.write_all(half).await.unwrap();
    let mut asked = [0; 12];
    stuck.read_exact(&mut asked).await.unwrap();
    assert_eq!(&asked, b"HTTP/1.1 100");
    tokio::time::timeout(SOON, bed.stop()).await.expect("it stops");
    // Much sooner than its body would be given up.
    let closed = tokio::time::timeout(SOON, stuck.read_to_end(&mut Vec::new())).await;
    closed.expect("it is closed").unwrap();
}
