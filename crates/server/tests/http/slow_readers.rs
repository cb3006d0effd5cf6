//! Clients that ask for large answers and do not read them: memory is bounded, and everybody else goes on.

use std::collections::BTreeSet;

use duly::Message;
use http::Method;
use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::{TcpSocket, TcpStream},
};

use crate::bed::{Bed, SOON, call};

/// In JSON six times as long, which is more than the connection holds and more than all of the memory for answers.
const BODY_BYTES: usize = 4 << 20;
const ANSWER_BYTES: usize = 16 << 20;

/// A server with messages `0`, `1` … in the queue `big`.
async fn bed(messages: usize) -> Bed {
    let bed = Bed::with(|config| {
        config.limits.body_bytes_max = BODY_BYTES;
        config.limits.batch_max = UNREAD;
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

/// Until so many messages are pending and leased: what does not fit is released in the background.
async fn until_counts(bed: &Bed, wanted: [u64; 2]) {
    let reached = async { while counts(bed).await != wanted {} };
    tokio::time::timeout(SOON, reached).await.unwrap_or_else(|_| panic!("never {wanted:?}"));
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
    // A receive gets as many messages as there is room for.
    until_counts(&bed, [2, 1]).await;
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
        call(addr, Method::POST, "/v1/queues/big/receive", r#"{"wait":"60s"}"#, &[]).await
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
            call(addr, Method::POST, "/v1/queues/big/receive", r#"{"max":1,"wait":"60s"}"#, &[]).await
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

#[tokio::test(flavor = "multi_thread")]
async fn a_message_that_finds_no_room_keeps_none_from_those_behind_it() {
    let bed = bed(0).await;
    for (id, body) in
        [("a", "small".to_owned()), ("b", "\u{1}".repeat(BODY_BYTES)), ("c", "small".to_owned())]
    {
        bed.duly().send(Message::to("big").id(id).text(body)).await.unwrap();
    }
    let received = bed.post("/v1/queues/big/receive", r#"{"max":3,"wait":"60s"}"#).await.json();
    let ids: Vec<_> = received["messages"].as_array().unwrap().iter().map(|message| &message["id"]).collect();
    assert_eq!(ids, ["a", "c"]);
    until_counts(&bed, [1, 2]).await;
    let metrics = bed.get("/metrics").await;
    let metrics = std::str::from_utf8(&metrics.body).unwrap();
    for name in ["duly_messages_received_total", "duly_lateness_seconds_count"] {
        let line = metrics.lines().find(|line| line.starts_with(name));
        let count = line.and_then(|line| line.rsplit(' ').next());
        assert_eq!(count, Some("2"), "{name}: what was released was not handed out");
    }
    assert_eq!(bed.receive("big", 1).await[0]["attempt"], 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_settles_sends_or_measures_goes_on_while_nobody_reads_large_answers() {
    let bed = bed(1).await;
    let mut receipts = Vec::new();
    for topic in (0..40).map(|n| format!("small-{n}")) {
        bed.send(json!({"topic": topic})).await;
        receipts.push(bed.receive(&topic, 1).await[0]["receipt"].clone());
    }
    let slow = slow_reader(&bed, &json!({"max": 1})).await;
    until_counts(&bed, [0, 1]).await;
    assert_eq!(bed.get("/v1/messages/0").await.code(), "busy", "it has all of the memory");

    let line = |n: usize| format!("{{\"topic\":\"t\",\"id\":\"m{n}\"}}\n");
    let sent = bed.post("/v1/messages/batch", (0..1_000).map(line).collect::<String>()).await.lines();
    assert_eq!(sent.len(), 1_000);
    assert!(sent.iter().all(|result| result["state"] == "pending"), "{:?}", sent[0]);
    // The answer to each of these is far larger than what needs no room.
    let many = |receipt: &Value| vec![receipt.clone(); 1_000];
    let extend = json!({"receipts": many(&receipts[0]), "lease": "1h"});
    let nack = json!({"receipts": many(&receipts[0]), "delay": "1h"});
    let ack = json!({"receipts": many(&receipts[1])});
    for (path, body) in [("/v1/extend", extend), ("/v1/nack", nack), ("/v1/ack", ack)] {
        let answer = bed.post(path, body.to_string()).await;
        assert_eq!(answer.status, 200, "{path}: {answer:?}");
        assert!(answer.body.len() > 20 << 10, "{path}: {}", answer.body.len());
        assert_eq!(answer.json()["results"][0]["outcome"], "done", "{path}");
    }
    for _ in 0..2 {
        let metrics = bed.get("/metrics").await;
        assert_eq!(metrics.status, 200, "{metrics:?}");
        assert!(metrics.body.len() > 20 << 10, "{}", metrics.body.len());
    }
    for path in ["/readyz", "/livez"] {
        assert_eq!(bed.get(path).await.status, 200, "{path}");
    }
    assert_eq!(bed.get("/v1/messages/0").await.code(), "busy", "all the time");
    drop(slow);
}

/// Items of one batch, whose results take far more than all of the memory and what the connection holds.
const UNREAD: usize = 400_000;

/// Sends items of which each is refused, and reads no result.
fn unread_batch(bed: &Bed) -> tokio::task::JoinHandle<TcpStream> {
    let addr = bed.addr();
    let items = refused_items(UNREAD);
    let head = "POST /v1/messages/batch HTTP/1.1\r\nhost: localhost\r\n";
    let request = format!("{head}content-length: {}\r\n\r\n{items}", items.len());
    tokio::spawn(async move {
        let mut stream = TcpSocket::new_v4().unwrap().connect(addr).await.unwrap();
        // It is read until the memory for its results is used up.
        let _ = stream.write_all(request.as_bytes()).await;
        stream
    })
}

fn refused_items(count: usize) -> String {
    "{\"topic\":\"\"}\n".repeat(count)
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_a_batch_that_nobody_reads_hold_memory() {
    let bed = bed(1).await;
    let writes = unread_batch(&bed);
    // First their own, then that of large answers.
    let taken = async { while bed.get("/v1/messages/0").await.status == 200 {} };
    tokio::time::timeout(SOON, taken).await.expect("the results hold memory");
    writes.abort();
    drop(writes.await);
    let freed = async { while bed.get("/v1/messages/0").await.status != 200 {} };
    tokio::time::timeout(SOON, freed).await.expect("the memory is free");
}

#[tokio::test(flavor = "multi_thread")]
async fn results_of_a_batch_need_room_before_anything_is_done() {
    let bed = Bed::with(|config| {
        config.limits.body_bytes_max = BODY_BYTES;
        config.limits.batch_max = UNREAD;
        config.http.answer_bytes = ANSWER_BYTES;
        // A batch waits as long for room.
        config.http.body_timeout = std::time::Duration::from_secs(1);
    })
    .await;
    bed.duly().send(Message::to("big").id("0").text("\u{1}".repeat(BODY_BYTES))).await.unwrap();
    let slow = slow_reader(&bed, &json!({"max": 1})).await;
    let batch = |round: usize| {
        (0..4_096).map(|n| format!("{{\"topic\":\"t\",\"id\":\"{round}-{n}\"}}\n")).collect::<String>()
    };
    let mut unread = Vec::new();
    let refused = async {
        loop {
            unread.push(unread_batch(&bed));
            let results = bed.post("/v1/messages/batch", batch(unread.len())).await.lines();
            if results.len() < 4_096 {
                break results;
            }
        }
    };
    let results = tokio::time::timeout(SOON, refused).await.expect("there is no room");
    let (place, error) = (results.len() - 1, &results.last().unwrap()["error"]);
    let path = format!("[{place}]");
    assert_eq!((error["code"].as_str(), error["path"].as_str()), (Some("busy"), Some(&*path)), "{error}");
    let id = format!("{}-{place}", unread.len());
    assert_eq!(bed.get(&format!("/v1/messages/{id}")).await.code(), "not_found");
    let few = bed.post("/v1/messages/batch", "{\"topic\":\"t\"}\n".repeat(5)).await.lines();
    assert_eq!(few.len(), 5, "few results need no room");
    for unread in unread {
        unread.abort();
        drop(unread.await);
    }
    let answered = async { while bed.post("/v1/messages/batch", batch(0)).await.lines().len() < 4_096 {} };
    tokio::time::timeout(SOON, answered).await.expect("there is room again");
    drop(slow);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_receive_that_waits_for_room_is_answered_without_messages_at_shutdown() {
    let mut bed = bed(2).await;
    let slow = slow_reader(&bed, &json!({"max": 1})).await;
    until_counts(&bed, [1, 1]).await;
    let addr = bed.addr();
    let waits = tokio::spawn(async move {
        call(addr, Method::POST, "/v1/queues/big/receive", r#"{"max":1,"wait":"60s"}"#, &[]).await
    });
    // There is no room for the second message. While the other receive looks at it, this one finds none.
    loop {
        let answer = bed.post("/v1/queues/big/receive", "{}").await;
        if answer.status == http::StatusCode::SERVICE_UNAVAILABLE {
            assert_eq!(answer.code(), "busy");
            break;
        }
        assert_eq!(answer.json()["messages"], json!([]));
    }
    let answered = async {
        let answer = waits.await.unwrap();
        drop(slow);
        answer
    };
    let (answer, ()) = tokio::join!(answered, bed.stop());
    assert_eq!(answer.json()["messages"].as_array().map(Vec::len), Some(0));
}
