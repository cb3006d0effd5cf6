//! The server with its messages in MySQL and the index of what is due soon in Redis.

use duly_server::config::{Secret, StoreSetup};
use duly_stores::{RedisAndMysqlConfig, SqlConfig, SqlServer, StoreConfig};
use serde_json::json;
use testkit::servers::{
    mysql::{self, Mysql},
    redis::{self, Redis},
};

use crate::bed::Bed;

#[tokio::test(flavor = "multi_thread")]
async fn messages_are_accepted_and_delivered_with_redis_without_it_and_when_it_is_back() {
    if !redis::installed() || !mysql::installed() {
        return;
    }
    let (index, truth) = (Redis::single(), Mysql::single());
    let setup = RedisAndMysqlConfig {
        redis: Secret::new(index.url()),
        mysql: SqlConfig { url: Secret::new(truth.fresh_database()), ..SqlConfig::of(SqlServer::Mysql) },
        ..RedisAndMysqlConfig::default()
    };
    let mut bed = Bed::with(|config| config.store = StoreSetup::of(StoreConfig::RedisAndMysql(setup))).await;
    let ready = bed.get("/readyz").await.json();
    assert!(ready["durability"].as_str().unwrap().starts_with("database: committed"), "{ready}");
    bed.send(json!({"topic": "order", "id": "later", "delay": "1h"})).await;
    for id in ["with", "without", "again"] {
        match id {
            "without" => index.kill(),
            "again" => index.start(),
            _ => {}
        }
        bed.send(json!({"topic": "order", "id": id, "delay": "200ms"})).await;
        let received = bed.receive("order", 10).await;
        assert_eq!((received.len(), received[0]["id"].as_str()), (1, Some(id)));
        let ack = json!({"receipts": [received[0]["receipt"]]}).to_string();
        assert_eq!(bed.post("/v1/queues/order/ack", ack).await.json()["results"][0]["outcome"], "done");
        assert_eq!(bed.get("/readyz").await.status, 200);
    }
    index.run::<()>(&["FLUSHALL"]);
    bed.restart().await;
    assert_eq!(bed.get("/v1/messages/without").await.json()["state"], "delivered");
    bed.post("/v1/messages/later/fire", "").await;
    assert_eq!(bed.receive("order", 10).await[0]["id"], "later");
}
