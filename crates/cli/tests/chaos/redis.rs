//! A Redis that dies, forgets its scripts, or has no room.

use serde_json::Value;
use testkit::servers::redis;

use crate::{
    bed::{Bed, careful},
    node::IN_FLIGHT,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn redis_killed_and_started_again_loses_nothing_and_repeats_nothing_in_a_stream() {
    if !redis::installed() {
        return;
    }
    const KILLS: usize = 5;
    let store = careful();
    let mut bed = Bed::on("kill -9 of Redis", &store.url()).await;
    for kill in 0..KILLS {
        bed.accept_more(60).await;
        let redis = if kill % 2 == 0 { &store } else { &*bed.there.clone() };
        redis.kill();
        let away = [0, 500, 2500][bed.draw(3) as usize];
        bed.time.pass_ms(away).await;
        redis.start();
    }
    bed.quiet(&mut store.connection()).await.check(KILLS * 3 * IN_FLIGHT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_notices_that_scripts_are_flushed_over_and_over() {
    if !redis::installed() {
        return;
    }
    let store = careful();
    let bed = Bed::on("SCRIPT FLUSH", &store.url()).await;
    for flush in 0..200 {
        let redis = if flush % 2 == 0 { &store } else { &*bed.there };
        redis.run::<()>(&["SCRIPT", "FLUSH", "SYNC"]);
        bed.time.pass_ms(20).await;
    }
    bed.accept_more(60).await;
    bed.quiet(&mut store.connection()).await.check(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_redis_out_of_memory_takes_nothing_new_and_what_it_has_goes_out() {
    if !redis::installed() {
        return;
    }
    let store = careful();
    let bed = Bed::on("Redis out of memory", &store.url()).await;
    for _ in 0..2 {
        bed.accept_more(100).await;
        store.run::<()>(&["CONFIG", "SET", "maxmemory", "1mb"]);
        bed.until("nothing new is accepted", async || {
            let body = r#"{"topic": "full", "delay": "1s"}"#.to_owned();
            let said = bed.nodes[1].call(http::Method::POST, "/v1/messages", body).await;
            matches!(said, Ok((503, problem)) if problem["detail"].to_string().contains("out of memory"))
        })
        .await;
        bed.until("what is there goes out by the webhook and into the other Redis", async || {
            let waits = |sinks: &Value| {
                let of = |name: &str| {
                    sinks["sinks"].as_array().unwrap().iter().find(|sink| sink["name"] == name).cloned()
                };
                ["there", "hook"]
                    .iter()
                    .any(|name| of(name).is_none_or(|sink| sink["pending"] != 0 || sink["in_flight"] != 0))
            };
            bed.nodes[2].get("/v1/sinks").await.is_ok_and(|(status, sinks)| status == 200 && !waits(&sinks))
        })
        .await;
        store.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    }
    bed.accept_more(60).await;
    bed.quiet(&mut store.connection()).await.check(0).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn flushall_is_noticed_and_shouted_by_every_node() {
    if !redis::installed() {
        return;
    }
    let store = careful();
    let bed = Bed::on("FLUSHALL", &store.url()).await;
    bed.accept_more(60).await;
    store.run::<()>(&["FLUSHALL"]);
    for node in bed.nodes.iter() {
        bed.until(&format!("{} says that it cannot work, and why", node.name), async || {
            let is_reported = |ready: &Value| {
                ready["parts"]["store"].as_str().is_some_and(|store| store.contains("FLUSHALL"))
            };
            node.get("/readyz").await.is_ok_and(|(status, ready)| status == 503 && is_reported(&ready))
        })
        .await;
        let body = r#"{"topic": "order", "delay": "1s"}"#.to_owned();
        let (status, problem) = node.call(http::Method::POST, "/v1/messages", body).await.unwrap();
        assert_eq!((status, problem["code"].as_str()), (500, Some("store_damaged")), "{problem}");
        let log = node.log();
        let events: Vec<_> = log.lines().filter(|line| line.contains("ERROR store data damaged")).collect();
        assert_eq!(events.len(), 1, "once, in the log of {}:\n{log}", node.name);
        assert!(events[0].contains("error=Duly's data is gone from Redis"), "{log}");
    }
}
