//! What trims and measures reads ids and counters, and no bodies.

use duly_streams::{Entry, Settings, Trim};
use testkit::servers::redis::{Redis, installed};

use crate::{connect, quick, wait_until};

const ENTRIES: usize = 400;
const BODY: usize = 100_000;
/// Of the 40 MB that the bodies are.
const MUCH: u64 = 8_000_000;

fn figure(redis: &Redis, section: &str, name: &str) -> u64 {
    let all: String = redis.run(&["INFO", section]);
    let line = all.lines().find_map(|line| line.strip_prefix(name));
    line.map_or(0, |rest| {
        rest.trim_start_matches(":calls=")
            .trim_start_matches(':')
            .split([',', '\r'])
            .next()
            .unwrap()
            .parse()
            .unwrap()
    })
}

/// Bytes that scripts keep.
fn scripts(redis: &Redis) -> u64 {
    figure(redis, "memory", "used_memory_lua")
}

fn fill(redis: &Redis) {
    let body = format!("\"{}\"", "x".repeat(BODY));
    let mut connection = redis.connection();
    for _ in 0..ENTRIES {
        redis::cmd("XADD").arg("order").arg("*").arg("body").arg(&body).exec(&mut connection).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn trimming_and_measuring_move_no_bodies_into_scripts() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["XGROUP", "CREATE", "order", "behind", "0", "MKSTREAM"]);
    fill(&redis);
    for most in [100_000, 10] {
        let trim = Trim { max_len: Some(most), ..Trim::default() };
        let streams = connect(&redis, Settings { trim, ..quick() }).await;
        let done = |_: Entry<String>| async { Ok::<_, String>(()) };
        streams.listener("order", done).concurrency(4).start().await.unwrap();
        wait_until("all are handled", || {
            let (count, lag) = {
                let stats: Vec<std::collections::HashMap<String, redis::Value>> =
                    redis.run(&["XINFO", "GROUPS", "order"]);
                let of = |name: &str| {
                    let group = stats
                        .iter()
                        .find(|g| g["name"] == redis::Value::BulkString(b"duly-streams".to_vec()));
                    group.and_then(|g| redis::from_redis_value::<Option<u64>>(g[name].clone()).unwrap())
                };
                (of("pending"), of("lag"))
            };
            assert!(scripts(&redis) < MUCH, "{} bytes while it is read", scripts(&redis));
            (count, lag) == (Some(0), Some(0))
        });
        let before = figure(&redis, "commandstats", "cmdstat_xinfo|groups");
        wait_until("it is trimmed a few times", || {
            assert!(scripts(&redis) < MUCH, "{} bytes while it is trimmed", scripts(&redis));
            figure(&redis, "commandstats", "cmdstat_xinfo|groups") > before + 12
        });
        if most == 10 {
            // The other group lets go of all but one; that one lies where only looking tells.
            let last: Vec<(String, Vec<String>)> =
                redis.run(&["XREVRANGE", "order", "+", "-", "COUNT", "50"]);
            let middle = &last[49].0;
            redis.run::<()>(&["XGROUP", "SETID", "order", "behind", middle]);
            wait_until("all before it went", || {
                assert!(scripts(&redis) < MUCH, "{} bytes while it is trimmed", scripts(&redis));
                redis.run::<usize>(&["XLEN", "order"]) == 49
            });
        }
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_lag_that_redis_does_not_know_is_told_without_reading_what_is_behind() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["XGROUP", "CREATE", "order", "behind", "0", "MKSTREAM"]);
    fill(&redis);
    let second: Vec<(String, Vec<String>)> = redis.run(&["XRANGE", "order", "-", "+", "COUNT", "2"]);
    redis.run::<usize>(&["XDEL", "order", &second[1].0]);
    let streams = connect(&redis, quick()).await;
    let group = streams.group("order", "behind").unwrap();
    let stats = group.stats().await.unwrap();
    assert_eq!(stats.lag as usize, ENTRIES - 1);
    assert!(scripts(&redis) < MUCH, "{} bytes", scripts(&redis));
    // All that is behind was deleted: nothing is to be read.
    redis.run::<()>(&["XGROUP", "SETID", "order", "behind", &second[0].0]);
    let all: Vec<(String, Vec<String>)> = redis.run(&["XRANGE", "order", "-", "+"]);
    for (id, _) in &all[1..] {
        redis.run::<usize>(&["XDEL", "order", id]);
    }
    assert_eq!(group.stats().await.unwrap().lag, 0);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn entries_are_acknowledged_tried_again_and_trimmed_when_redis_has_no_memory_left() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let trim = Trim { max_len: Some(1), ..Trim::default() };
    let streams = connect(&redis, Settings { trim, ..quick() }).await;
    for number in 0..5 {
        streams.send("order", &number).await.unwrap();
    }
    redis.run::<()>(&["XGROUP", "CREATE", "order", "duly-streams", "0"]);
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "100kb"]);
    assert!(streams.send("order", &5).await.is_err(), "it takes nothing more");
    let handler = |entry: Entry<u8>| async move {
        if entry.value == 2 && entry.attempt() == 1 { Err("not today") } else { Ok(()) }
    };
    streams.listener("order", handler).start().await.unwrap();
    wait_until("what is done goes", || {
        redis.run::<usize>(&["XLEN", "order"]) == 1 && crate::pending(&redis, "order") == 0
    });
    redis.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    streams.shutdown().await.unwrap();
}
