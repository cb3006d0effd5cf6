//! The server with its messages in a real Redis.

use duly_server::{
    config::{Config, RedisSetup, Secret, StoreKind, StoreSetup},
    serve,
};
use serde_json::json;
use testkit::servers::redis::{self, Redis};

use crate::bed::Bed;

fn in_redis(server: &Redis, config: &mut Config) {
    let setup = RedisSetup { url: Secret::new(server.url()), ..RedisSetup::default() };
    config.store = StoreSetup::of(StoreKind::Redis(setup));
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
    assert_eq!(answer.code(), "store_unavailable", "{answer:?}");
    assert_eq!(bed.get("/readyz").await.status, 503);
    assert_eq!(bed.get("/livez").await.status, 200);
    server.start();
    let mut ready = bed.get("/readyz").await;
    for _ in 0..1000 {
        if ready.status == 200 {
            break;
        }
        ready = bed.get("/readyz").await;
    }
    assert_eq!(ready.status, 200, "{ready:?}");
    bed.send(json!({"topic": "order"})).await;
    assert_eq!(bed.receive("order", 10).await.len(), 1);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_second_node_on_one_redis_is_told_who_has_it() {
    if !redis::installed() {
        return;
    }
    let server = Redis::single();
    let mut bed = Bed::with(|config| {
        in_redis(&server, config);
        config.node = "first".into();
    })
    .await;
    let mut second = Config { listen: "127.0.0.1:0".parse().unwrap(), ..Config::default() };
    in_redis(&server, &mut second);
    let Err(error) = serve::start(second.clone()).await else { panic!("two nodes on one store") };
    let words = error.to_string();
    assert!(words.contains("\"first\"") && words.contains("one node at a time"), "{words}");
    bed.stop().await;
    serve::start(second).await.expect("the first has let go").stop().await.unwrap();
}
