//! Many messages in one call.

use serde_json::{Value, json};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};

use crate::bed::{Bed, SOON};

fn code(result: &Value) -> &str {
    result["error"]["code"].as_str().unwrap_or_default()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_bad_line_is_answered_in_its_place_and_its_neighbours_stand() {
    let bed = Bed::new().await;
    let lines = "{\"topic\":\"a\",\"id\":\"1\"}\n{\"topic\":\"a\",\"colour\":1}\n\nnot json\n{\"topic\":\"\"}\n{\"topic\":\"a\",\"sink\":\"nowhere\"}\n{\"topic\":\"a\",\"id\":\"2\"}";
    let answer = bed.post("/v1/messages/batch", lines).await;
    assert_eq!(
        (answer.status.as_u16(), answer.headers["content-type"].to_str().unwrap()),
        (200, "application/x-ndjson")
    );
    let results = answer.lines();
    assert_eq!(results.len(), 6);
    assert_eq!((results[0]["id"].clone(), results[5]["id"].clone()), (json!("1"), json!("2")));
    let codes: Vec<_> = results[1..5].iter().map(code).collect();
    assert_eq!(codes, ["bad_field", "bad_json", "bad_topic", "unknown_sink"]);
    assert_eq!(results[4]["error"]["path"], "sink");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_array_is_answered_by_an_array() {
    let bed = Bed::new().await;
    let answer =
        bed.post("/v1/messages/batch", r#" [ {"topic":"a","id":"1"}, 7 , {"topic":"a","id":"1"} ] "#).await;
    assert_eq!(answer.headers["content-type"], "application/json");
    let results = answer.json();
    assert_eq!(results.as_array().unwrap().len(), 3);
    assert_eq!((code(&results[1]), results[2]["duplicate"].clone()), ("bad_field", json!(true)));
    assert_eq!(bed.post("/v1/messages/batch", "[]").await.json(), json!([]));
    assert_eq!(bed.post("/v1/messages/batch", "").await.body.len(), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn item_10_001_is_refused_in_its_place_and_the_earlier_ones_stand() {
    let bed = Bed::new().await;
    for form in ["lines", "array"] {
        let items: Vec<_> = (0..10_005)
            .map(|n| json!({"topic": form, "id": format!("{form}-{n}"), "delay": "1h"}).to_string())
            .collect();
        let results = if form == "lines" {
            bed.post("/v1/messages/batch", items.join("\n")).await.lines()
        } else {
            let answer = bed.post("/v1/messages/batch", format!("[{}]", items.join(","))).await;
            answer.json().as_array().unwrap().clone()
        };
        assert_eq!(results.len(), 10_001);
        for (n, result) in results[..10_000].iter().enumerate() {
            assert_eq!(result["id"], format!("{form}-{n}"));
        }
        assert_eq!(code(&results[10_000]), "batch_too_large");
    }
    assert_eq!(bed.get("/v1/stats").await.json()["totals"]["pending"], 20_000);
}

/// Streamed both ways: the first answer comes while the second line is not yet written.
#[tokio::test(flavor = "multi_thread")]
async fn each_line_is_answered_before_the_next_is_sent() {
    let bed = Bed::new().await;
    let mut stream = TcpStream::connect(bed.addr()).await.unwrap();
    stream
        .write_all(
            b"POST /v1/messages/batch HTTP/1.1\r\nhost: localhost\r\ntransfer-encoding: chunked\r\n\r\n",
        )
        .await
        .unwrap();
    let mut read = String::new();
    for n in 0..3 {
        let line = format!("{{\"topic\":\"a\",\"id\":\"line-{n}\"}}\n");
        stream.write_all(format!("{:x}\r\n{line}\r\n", line.len()).as_bytes()).await.unwrap();
        let answered = async {
            let mut buffer = [0; 4096];
            while !read.contains(&format!("\"id\":\"line-{n}\"")) {
                let count = stream.read(&mut buffer).await.unwrap();
                assert_ne!(count, 0, "closed after {read}");
                read.push_str(std::str::from_utf8(&buffer[..count]).unwrap());
            }
        };
        tokio::time::timeout(SOON, answered).await.expect("answered in time");
    }
    // The client goes away in the middle: what was answered stands.
    drop(stream);
    assert_eq!(bed.get("/v1/messages/line-2").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_reads_only_at_the_end_is_not_stuck() {
    let bed = Bed::new().await;
    // Answers are longer than these lines by far: more than the sockets hold between them.
    let topic = "t".repeat(255);
    let lines: String =
        (0..10_000).map(|n| format!("{{\"topic\":\"{topic}\",\"id\":\"{n}\",\"delay\":\"1h\"}}\n")).collect();
    let mut stream = TcpStream::connect(bed.addr()).await.unwrap();
    let head = format!(
        "POST /v1/messages/batch HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\ncontent-length: {}\r\n\r\n",
        lines.len()
    );
    let exchange = async {
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(lines.as_bytes()).await.unwrap();
        let mut answer = Vec::new();
        stream.read_to_end(&mut answer).await.unwrap();
        String::from_utf8(answer).unwrap().matches("\"duplicate\":false").count()
    };
    assert_eq!(tokio::time::timeout(SOON, exchange).await.expect("not stuck"), 10_000);
}

#[tokio::test(flavor = "multi_thread")]
async fn half_an_array_keeps_its_first_half() {
    let bed = Bed::new().await;
    let answer = bed.post("/v1/messages/batch", r#"[{"topic":"a","id":"first"},{"topic":"a""#).await.json();
    assert_eq!((answer[0]["id"].clone(), code(&answer[1])), (json!("first"), "incomplete_body"));
    assert_eq!(bed.get("/v1/messages/first").await.status, 200);
}

/// Errors repeat what was sent. If they repeated all of it, a batch of bad items would be answered by gigabytes.
#[tokio::test(flavor = "multi_thread")]
async fn an_error_repeats_only_the_beginning_of_what_was_sent() {
    let bed = Bed::new().await;
    let long = "é".repeat(100_000);
    let lines = [
        json!({"topic": "a", "priority": long}),
        json!({"topic": "a", "properties": {&long: 1}}),
        json!({"topic": "a", &long: 1}),
        json!({"topic": "a", "sink": long}),
        json!({"topic": long}),
    ];
    let text: String = lines.iter().map(|line| format!("{line}\n")).collect();
    let answer = bed.post("/v1/messages/batch", text).await;
    assert_eq!(answer.lines().iter().filter(|line| !line["error"].is_null()).count(), lines.len());
    assert!(answer.body.len() < lines.len() * 3_000, "{} bytes", answer.body.len());
}

/// The memory for bodies counts what batches hold, too.
#[tokio::test(flavor = "multi_thread")]
async fn half_items_of_many_batches_do_not_fill_the_memory() {
    let bed = Bed::new().await;
    let (busy, mut received) = tokio::sync::mpsc::channel(1);
    for _ in 0..24 {
        let (addr, busy) = (bed.addr(), busy.clone());
        tokio::spawn(async move {
            let mut stream = TcpStream::connect(addr).await.unwrap();
            let head =
                b"POST /v1/messages/batch HTTP/1.1\r\nhost: localhost\r\ncontent-length: 9000000\r\n\r\n";
            stream.write_all(head).await.unwrap();
            // The server may close before it has taken all of it.
            let _ = stream.write_all(&vec![b'x'; 6 << 20]).await;
            let (mut read, mut buffer) = (String::new(), [0; 4096]);
            while let Ok(1..) = stream.read(&mut buffer).await.inspect(|count| {
                read.push_str(&String::from_utf8_lossy(&buffer[..*count]));
            }) {
                if read.contains("\"busy\"") {
                    let _ = busy.send(()).await;
                }
            }
        });
    }
    tokio::time::timeout(SOON, received.recv()).await.expect("one batch too many is told so");
    assert_eq!(bed.get("/livez").await.status, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_follows_the_last_item_does_not_swallow_the_answers() {
    let bed = Bed::with(|config| config.limits.batch_max = 2).await;
    let lines = "{\"topic\":\"a\"}\n".repeat(500_000);
    let answer = bed.post("/v1/messages/batch", lines).await.lines();
    assert_eq!((answer.len(), code(&answer[2])), (3, "batch_too_large"));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_of_blank_lines_has_an_end() {
    let bed = Bed::new().await;
    let blanks = "\n".repeat(70_000);
    let refused = bed.post("/v1/messages/batch", blanks.clone()).await;
    assert_eq!(refused.code(), "bad_json");
    let line = |id: &str| format!("{{\"topic\":\"a\",\"id\":\"{id}\"}}\n");
    let results = bed.post("/v1/messages/batch", format!("{}{blanks}{}", line("1"), line("2"))).await.lines();
    assert_eq!((results.len(), &results[0]["id"], code(&results[1])), (2, &json!("1"), "bad_json"));
    assert_eq!(results[1]["error"]["path"], "[1]");
    let few = format!("{}{}{}", line("3"), "\n".repeat(60_000), line("4"));
    assert_eq!(bed.post("/v1/messages/batch", few).await.lines()[1]["id"], "4");
}
