//! The server with its messages in a real Redis.

use std::{
    io::{BufRead, BufReader, Write},
    net::TcpStream,
};

use duly_server::config::{Config, Secret, SinkSetup, StoreSetup};
use duly_stores::{RedisConfig, StoreConfig};
use serde_json::json;
use testkit::servers::redis::{self, Redis};

use crate::bed::Bed;

fn in_redis(server: &Redis, config: &mut Config) {
    let setup = RedisConfig { url: Secret::new(server.url()), ..RedisConfig::default() };
    config.store = StoreSetup::of(StoreConfig::Redis(setup));
}

#[tokio::test(flavor = "multi_thread")]
async fn messages_wait_in_redis_and_survive_a_restart_of_both() {
    if !redis::installed() {
        return;
    }
    let server = Redis::single();
    server.run::<()>(&["CONFIG", "SET", "appendfsync", "always"]);
    let mut bed = Bed::with(|config| in_redis(&server, config)).await;
    bed.send(json!({"topic": "order", "id": "soon", "json": {"order": 42}, "delay": "200ms"})).await;
    bed.send(json!({"topic": "order", "id": "later", "delay": "1h"})).await;
    let received = bed.receive("order", 10).await;
    assert_eq!((received.len(), received[0]["id"].as_str()), (1, Some("soon")));
    let ack = json!({"receipts": [received[0]["receipt"]]}).to_string();
    let answer = bed.post("/v1/queues/order/ack", ack).await;
    assert_eq!(answer.json()["results"][0]["outcome"], "done", "{answer:?}");
    let ready = bed.get("/readyz").await;
    assert!(ready.json()["durability"].as_str().unwrap().starts_with("server"), "{ready:?}");

    server.restart();
    bed.restart().await;
    assert_eq!(bed.get("/v1/messages/soon").await.json()["state"], "delivered");
    bed.post("/v1/messages/later/fire", "").await;
    assert_eq!(bed.receive("order", 10).await[0]["id"], "later");
}

#[tokio::test(flavor = "multi_thread")]
async fn without_redis_calls_are_answered_503_and_all_goes_on_when_it_is_back() {
    if !redis::installed() {
        return;
    }
    let server = Redis::single();
    let bed = Bed::with(|config| in_redis(&server, config)).await;
    bed.send(json!({"topic": "order", "delay": "1h"})).await;
    server.kill();
    let answer = bed.post("/v1/messages", json!({"topic": "order"}).to_string()).await;
    // The connection may break with the call on its way.
    let code = answer.code();
    assert!(["store_unavailable", "store_unanswered"].contains(&code.as_str()), "{answer:?}");
    assert_eq!(bed.get("/readyz").await.status, 503);
    assert_eq!(bed.get("/livez").await.status, 200);
    server.start();
    bed.until_ready().await;
    bed.send(json!({"topic": "order"})).await;
    assert_eq!(bed.receive("order", 10).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn two_nodes_share_a_redis_and_any_of_them_takes_an_ack() {
    if !redis::installed() {
        return;
    }
    let server = Redis::single();
    let named = |name: &'static str| {
        Bed::with(|config| {
            in_redis(&server, config);
            config.node = name.into();
        })
    };
    let (mut first, second) = (named("first").await, named("second").await);
    first.send(json!({"topic": "order", "id": "soon", "delay": "100ms"})).await;
    let received = second.receive("order", 10).await;
    assert_eq!((received.len(), received[0]["id"].as_str()), (1, Some("soon")));
    let ack = json!({"receipts": [received[0]["receipt"]]}).to_string();
    assert_eq!(first.post("/v1/queues/order/ack", ack).await.json()["results"][0]["outcome"], "done");
    let nodes = first.get("/v1/nodes").await.json();
    let names: Vec<_> = nodes["nodes"].as_array().unwrap().iter().map(|node| &node["name"]).collect();
    assert_eq!(names, ["first", "second"]);
    let shards = nodes["shards"].as_array().unwrap();
    assert_eq!(shards.len(), 16);
    assert_eq!(shards[3], json!({"shard": 3, "owners": []}), "there are no sinks, and nothing is late");
    first.send(json!({"topic": "nobody-receives", "id": "late"})).await;
    let nodes = second.get("/v1/nodes").await.json();
    let late = nodes["shards"].as_array().unwrap().iter().filter(|shard| shard["lag_ms"].is_u64());
    assert_eq!(late.count(), 1, "{nodes}");
    first.stop().await;
    let nodes = second.get("/v1/nodes").await.json();
    assert_eq!(nodes["nodes"].as_array().unwrap().len(), 1, "it said that it goes");
    let page = second.get("/metrics").await;
    assert!(String::from_utf8_lossy(&page.body).contains("duly_clock_skew_seconds"));
}

#[tokio::test(flavor = "multi_thread")]
async fn streams_of_the_same_redis_are_filled_by_the_store_and_those_of_another_by_their_sink() {
    if !redis::installed() {
        return;
    }
    let (server, other) = (Redis::single(), Redis::single());
    let bed = Bed::with(|config| {
        in_redis(&server, config);
        for (name, redis) in [("here", &server), ("there", &other)] {
            let url = Some(redis.url().as_str().into());
            let streams = duly_sinks::RedisStreamsConfig { url, max_len: Some(10_000), ..Default::default() };
            let setup = SinkSetup::of(duly_sinks::SinkConfig::RedisStreams(streams));
            config.sinks.insert(name.parse().unwrap(), setup);
        }
    })
    .await;
    for sink in ["here", "there"] {
        bed.send(json!({"sink": sink, "topic": "order", "id": sink, "delay": "20ms"})).await;
        let mut state = json!(null);
        for _ in 0..10_000 {
            state = bed.get(&format!("/v1/messages/{sink}")).await.json()["state"].clone();
            if state == "delivered" {
                break;
            }
        }
        assert_eq!(state, "delivered", "{sink}");
    }
    // Only the sink's script looks for markers; only its own Redis knows of that.
    let by_sink = |redis: &Redis| redis.run::<String>(&["INFO", "commandstats"]).contains("cmdstat_getex");
    assert_eq!((by_sink(&server), by_sink(&other)), (false, true));
    assert_eq!([&server, &other].map(|redis| redis.run::<usize>(&["XLEN", "order"])), [1, 1]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_topic_that_names_a_key_of_the_store_is_refused_and_delivery_goes_on() {
    if !redis::installed() {
        return;
    }
    let server = Redis::single();
    let bed = Bed::with(|config| {
        in_redis(&server, config);
        let url = Some(server.url().as_str().into());
        let topics = duly::TopicPatterns::new(["order*", "duly:*"]).unwrap();
        let setup = SinkSetup {
            options: duly::SinkOptions { topics, ..Default::default() },
            ..SinkSetup::of(duly_sinks::SinkConfig::RedisStreams(duly_sinks::RedisStreamsConfig {
                url,
                ..Default::default()
            }))
        };
        config.sinks.insert("events".parse().unwrap(), setup);
    })
    .await;
    for (topic, code) in [("duly:{main}:paused", "reserved_topic"), ("mail", "topic_not_allowed")] {
        let message = json!({"sink": "events", "topic": topic, "id": "bad"});
        let answer = bed.post("/v1/messages", message.to_string()).await;
        assert_eq!((answer.status.as_u16(), answer.code().as_str()), (422, code), "{answer:?}");
        assert_eq!(answer.json()["path"], "topic");
        let batch = bed.post("/v1/messages/batch", json!([message]).to_string()).await;
        assert_eq!(batch.json()[0]["error"]["code"], code, "{batch:?}");
        assert_eq!(bed.get("/v1/messages/bad").await.status, 404, "nothing was stored");
    }
    assert_eq!(server.run::<usize>(&["EXISTS", "duly:{main}:paused"]), 0);
    bed.send(json!({"sink": "events", "topic": "order", "id": "good"})).await;
    bed.send(json!({"topic": "order"})).await;
    assert_eq!(bed.receive("order", 1).await.len(), 1);
    let mut state = json!(null);
    for _ in 0..10_000 {
        state = bed.get("/v1/messages/good").await.json()["state"].clone();
        if state == "delivered" {
            break;
        }
    }
    assert_eq!(state, "delivered");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_idle_node_asks_less_than_once_a_second_and_shard() {
    if !redis::installed() {
        return;
    }
    const SHARDS: u64 = 16;
    const SECONDS: u64 = 12;
    let server = Redis::single();
    let bed = Bed::with(|config| in_redis(&server, config)).await;
    bed.send(json!({"topic": "order", "delay": "1h"})).await;
    let mut monitor = BufReader::new(TcpStream::connect(("127.0.0.1", server.port())).unwrap());
    monitor.get_mut().write_all(b"MONITOR\r\n").unwrap();
    let (asked, seconds) = tokio::task::block_in_place(|| {
        let (mut asked, mut first, mut line) = (0, None, String::new());
        // Each line begins with the time; what the start took is let pass.
        loop {
            line.clear();
            monitor.read_line(&mut line).unwrap();
            let Ok(at) = line.split(['+', ' ', '.']).find(|word| !word.is_empty()).unwrap().parse::<u64>()
            else {
                continue;
            };
            let begin = *first.get_or_insert(at) + 3;
            if at >= begin + SECONDS {
                return (asked, at - begin);
            }
            if at >= begin && !line.contains(" lua]") {
                asked += 1;
            }
        }
    });
    println!("idle: {:.2} commands a second and shard", asked as f64 / (seconds * SHARDS) as f64);
    assert!(asked < seconds * SHARDS, "{asked} commands in {seconds} s");
}
