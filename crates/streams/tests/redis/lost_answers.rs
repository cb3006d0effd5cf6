//! Answers that are lost, and calls that are made twice: nothing is counted twice.

use std::time::Duration;

use duly_streams::{Entry, ExpiredTimer, Retry, Settings, Streams};
use testkit::servers::{
    proxy::Proxy,
    redis::{Redis, installed},
};
use tokio::sync::mpsc;

use crate::{Order, connect, entries, next, quick, script, wait_until};

async fn through(proxy: &Proxy, settings: Settings) -> Streams {
    Streams::connect_with(&format!("redis://127.0.0.1:{}", proxy.port()), settings).await.unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_failure_whose_answer_was_lost_is_counted_once() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let proxy = Proxy::to(redis.port());
    let fail = script::group_script(include_str!("../../src/scripts/fail.lua"));
    // Redis hears of it, and the connection is gone before it answers.
    proxy.cut_on(&script::needle(&fail, &redis), 1);
    // It is told again before the next try.
    let wait = Duration::from_millis(500);
    let retry = Retry { attempts: 3, min: wait, max: wait, ..Retry::default() };
    let streams = through(&proxy, Settings { retry, ..quick() }).await;
    let (reported, mut telling) = mpsc::unbounded_channel();
    let always_fail = move |order: Entry<Order>| {
        let _ = reported.send(order.attempt());
        async { Err::<(), _>("not today") }
    };
    streams.listener("order", always_fail).start().await.unwrap();
    let direct = connect(&redis, quick()).await;
    direct.send("order", &Order { number: 1 }).await.unwrap();
    wait_until("it is given up", || redis.run::<usize>(&["XLEN", "order_dlq"]) == 1);
    assert_eq!(proxy.needles_met(), 1);
    let tries = [next(&mut telling).await, next(&mut telling).await, next(&mut telling).await];
    assert_eq!(tries, [1, 2, 3]);
    assert_eq!(entries(&redis, "order_dlq")[0]["duly-dead-attempts"], "3");
    streams.shutdown().await.unwrap();
    direct.shutdown().await.unwrap();
}

/// A stream with one entry that `one` has read, and its id.
fn read_by_one(redis: &Redis) -> String {
    redis.run::<()>(&["XGROUP", "CREATE", "order", "duly-streams", "0", "MKSTREAM"]);
    let id: String = redis.run(&["XADD", "order", "*", "body", "{}"]);
    redis.run::<redis::Value>(&["XREADGROUP", "GROUP", "duly-streams", "one", "STREAMS", "order", ">"]);
    id
}

#[tokio::test(flavor = "multi_thread")]
async fn a_heartbeat_that_comes_after_a_failure_hides_no_entry_that_was_trimmed_away() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let id = read_by_one(&redis);
    redis.run::<usize>(&["ZADD", "due", "0", &id]);
    redis.run::<usize>(&["XTRIM", "order", "MAXLEN", "0"]);
    let (beat, due) = (
        script::group_script(include_str!("../../src/scripts/heartbeat.lua")),
        script::group_script(include_str!("../../src/scripts/due.lua")),
    );
    let keyed = |script: &redis::Script, words: &[&str]| -> redis::Value {
        let mut call = script.prepare_invoke();
        call.key("order").key("tries").key("due").key("order_dlq").arg(words);
        call.invoke(&mut redis.connection()).unwrap()
    };
    keyed(&beat, &["duly-streams", "one", &id]);
    let answer = keyed(&due, &["duly-streams", "one", "10"]);
    let (entries, trimmed, _): (Vec<String>, Vec<String>, i64) = redis::from_redis_value(answer).unwrap();
    assert_eq!((entries, trimmed), (vec![], vec![id]), "it is told that it is lost");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_suspect_that_is_begun_twice_by_one_call_is_blamed_once() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let id = read_by_one(&redis);
    let begin = script::group_script(include_str!("../../src/scripts/begin_attempt.lua"));
    let fail = script::group_script(include_str!("../../src/scripts/fail.lua"));
    let keys = ["order", "tries", "due", "order_dlq"];
    let mut connection = redis.connection();
    let mut ask = |script: &redis::Script, words: &[&str]| {
        let mut call = script.prepare_invoke();
        for key in keys {
            call.key(key);
        }
        for word in words {
            call.arg(*word);
        }
        call.invoke::<redis::Value>(&mut connection).unwrap()
    };
    let crashes = || redis.run::<Option<u32>>(&["HGET", "tries", &format!("{id}!")]).unwrap_or(0);
    for _ in 0..2 {
        assert_eq!(ask(&begin, &["duly-streams", "one", &id, "1", "x-1"]), redis::Value::Int(1));
        assert_eq!(crashes(), 1);
    }
    for _ in 0..2 {
        ask(&fail, &["duly-streams", "one", &id, "why", "0", "9", "keep", "", "1", "x-1"]);
        assert_eq!((crashes(), redis.run::<u32>(&["HGET", "tries", &id])), (0, 1));
    }
    // The next attempt counts, and what a process begins twice because it does not know whether it had begun counts once.
    ask(&begin, &["duly-streams", "one", &id, "1", "x-7"]);
    ask(&begin, &["duly-streams", "one", &id, "1", "x-2"]);
    ask(&fail, &["duly-streams", "one", &id, "why", "0", "9", "keep", "", "1", "x-2"]);
    assert_eq!((crashes(), redis.run::<u32>(&["HGET", "tries", &id])), (0, 2));
    // Of a process that died with it nothing more is heard.
    ask(&begin, &["duly-streams", "one", &id, "1", "x-3"]);
    ask(&begin, &["duly-streams", "one", &id, "1", "y-1"]);
    assert_eq!(crashes(), 2);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_whose_claim_was_not_answered_is_handled_at_its_first_try() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let proxy = Proxy::to(redis.port());
    let direct = connect(&redis, quick()).await;
    let timers = direct.expiry_timers("order:").unwrap();
    for number in 0..5 {
        timers.set(&format!("order:{number}"), &Order { number }, Duration::from_millis(1)).await.unwrap();
    }
    while !timers.get::<Order>("order:4").await.unwrap().unwrap().remaining.is_zero() {}
    let claim = script::of_timers(include_str!("../../src/expiry/claim.lua"));
    proxy.cut_on(&script::needle(&claim, &redis), 1);
    let streams = through(&proxy, quick()).await;
    let (reported, mut telling) = mpsc::unbounded_channel();
    let handler = move |expired: ExpiredTimer<Order>| {
        let reported = reported.send((expired.value.number, expired.attempt)).map_err(|_| "nobody listens");
        async move { reported }
    };
    streams.expiry_timers("order:").unwrap().listener(handler).start().await.unwrap();
    let mut all = Vec::new();
    for _ in 0..5 {
        all.push(next(&mut telling).await);
    }
    all.sort_unstable();
    assert_eq!(all, [(0, 1), (1, 1), (2, 1), (3, 1), (4, 1)]);
    assert_eq!(proxy.needles_met(), 1);
    streams.shutdown().await.unwrap();
    direct.shutdown().await.unwrap();
}
