//! Clients that ask for large answers and do not read them: memory is bounded, and everybody else goes on.

use std::collections::BTreeSet;

use duly::Message;
use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use crate::bed::{Bed, call};

/// In JSON six times as long, which is more than the connection holds and more than all of the memory for answers.
const BODY_BYTES: usize = 4 << 20;
const ANSWER_BYTES: usize = 16 << 20;

/// A server with messages `0`, `1` … in the queue `big`.
async fn bed(messages: usize) -> Bed {
    let bed = Bed::with(|config| {
        config.limits.body_bytes_max = BODY_BYTES;
        config.http.answer_bytes = ANSWER_BYTES;
    })
    .await;
    for id in 0..messages {
        let message = Message::to("big").id(id.to_string()).text("\u{1}".repeat(BODY_BYTES));
        bed.duly().send(message).await.unwrap();
    }
    bed
}

/// Asks for messages, reads where the answer begins and then no more.
async fn slow_reader(bed: &Bed, wish: &Value) -> TcpStream {
    let socket = TcpSocket::new_v4().unwrap();
    socket.set_recv_buffer_size(4 << 10).unwrap();
    let mut stream = socket.connect(bed.addr()).await.unwrap();
    let wish = wish.to_string();
    let head = "POST /v1/queues/big/receive HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{wish}", wish.len());
    stream.write_all(request.as_bytes()).await.unwrap();
    let mut begin = [0; 12];
    stream.read_exact(&mut begin).await.unwrap();
    assert_eq!(&begin, b"HTTP/1.1 200");
    stream
}

async fn counts(bed: &Bed) -> [u64; 2] {
    let queues = bed.get("/v1/queues").await.json();
    let big = queues["queues"].as_array().unwrap().iter().find(|queue| queue["topic"] == "big").unwrap();
    ["pending", "leased"].map(|name| big[name].as_u64().unwrap())
}

#[tokio::test(flavor = "multi_thread")]
async fn answers_that_nobody_reads_take_no_more_memory_than_is_set_aside() {
    let bed = bed(3).await;
    let slow = slow_reader(&bed, &json!({"max": 10})).await;
    assert_eq!(counts(&bed).await, [2, 1], "a receive gets as many messages as there is room for");
    // There is no room for even one more: nothing is received, and no attempt counts.
    assert_eq!(bed.post("/v1/queues/big/receive", "{}").await.code(), "busy");
    assert_eq!(counts(&bed).await, [2, 1]);
    assert_eq!(bed.get("/v1/messages/2").await.code(), "busy");
    // Small answers need no room.
    bed.send(json!({"topic": "small", "id": "small"})).await;
    assert_eq!(bed.receive("small", 10).await[0]["id"], "small");
    assert_eq!(bed.get("/v1/messages?topic=big").await.json()["messages"].as_array().unwrap().len(), 2);
    let addr = bed.addr();
    let waits = tokio::spawn(async move {
        call(addr, Method::POST, "/v1/queues/big/receive", r#"{"wait":"15s"}"#, &[]).await
    });
    drop(slow);
    let received = waits.await.unwrap().json()["messages"].clone();
    assert_eq!(received.as_array().unwrap().len(), 1);
    assert_eq!(received[0]["attempt"], 1);
    assert_eq!(received[0]["body"].as_str().unwrap().len(), BODY_BYTES);
    assert_eq!(bed.get("/v1/messages/2").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn receives_that_wait_for_room_get_it_one_after_the_other() {
    let bed = bed(4).await;
    let slow = slow_reader(&bed, &json!({"max": 1})).await;
    let addr = bed.addr();
    let receive = |_| {
        tokio::spawn(async move {
            call(addr, Method::POST, "/v1/queues/big/receive", r#"{"max":1,"wait":"15s"}"#, &[]).await
        })
    };
    let others: Vec<_> = (0..3).map(receive).collect();
    drop(slow);
    let mut ids = BTreeSet::new();
    for other in others {
        let message = other.await.unwrap().json()["messages"][0].clone();
        assert_eq!(message["attempt"], 1, "what was released for want of room costs no attempt");
        ids.insert(message["id"].as_str().unwrap().to_owned());
    }
    assert_eq!(ids.len(), 3);
    assert_eq!(counts(&bed).await, [0, 4]);
}
