//! Order within a key through lost answers and lost processes: whatever is pending is found again, before what follows it.

use std::{
    process::{Child, Command, Stdio},
    time::Duration,
};

use duly_streams::{Entry, Listener, Message, Priority, Retry, Settings, Streams};
use testkit::servers::{
    proxy::Proxy,
    redis::{Redis, installed},
};
use tokio::sync::mpsc;

use crate::{Order, connect, next, pending, quick, script, wait_until};

type Attempts = mpsc::UnboundedReceiver<(u64, u32)>;

/// Tells the number and the try of each; the first try of number 1 fails if `moody`.
async fn listen(streams: &Streams, moody: bool) -> (Listener, Attempts) {
    let (reported, attempts) = mpsc::unbounded_channel();
    let handler = move |order: Entry<Order>| {
        let (number, attempt) = (order.value.number, order.attempt());
        let _ = reported.send((number, attempt));
        async move { if moody && number == 1 && attempt == 1 { Err("not today") } else { Ok(()) } }
    };
    let subscription = streams.listener("order", handler).consumer("one").ordered_by_field("customer");
    (subscription.start().await.unwrap(), attempts)
}

fn order(number: u64) -> Message {
    Message::json(&Order { number }).unwrap().property("customer", "a").unwrap()
}

async fn send(streams: &Streams, numbers: impl IntoIterator<Item = u64>) {
    for number in numbers {
        streams.send_message("order", &order(number)).await.unwrap();
    }
}

async fn numbers(attempts: &mut Attempts, count: usize) -> Vec<u64> {
    let mut all = Vec::new();
    for _ in 0..count {
        all.push(next(attempts).await.0);
    }
    all
}

async fn through(proxy: &Proxy, settings: Settings) -> Streams {
    Streams::connect_with(&format!("redis://127.0.0.1:{}", proxy.port()), settings).await.unwrap()
}

/// Entries that a consumer has read which is gone since.
fn left_by_another(redis: &Redis, count: usize) {
    redis.run::<()>(&["XGROUP", "CREATE", "order", "duly-streams", "0", "MKSTREAM"]);
    for number in 1..=count {
        let body = format!("{{\"number\":{number}}}");
        redis.run::<String>(&["XADD", "order", "*", "body", &body, "customer", "a"]);
    }
    redis.run::<redis::Value>(&["XREADGROUP", "GROUP", "duly-streams", "gone", "STREAMS", "order", ">"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_what_a_read_took_whose_answer_was_lost_comes_before_what_follows() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let proxy = Proxy::to(redis.port());
    let streams = connect(&redis, quick()).await;
    send(&streams, 1..=3).await;
    // So that the first call is not answered with `NOSCRIPT`.
    script::needle(&script::standalone_script(include_str!("../../src/scripts/read_ordered.lua")), &redis);
    proxy.cut_after(b"$4\r\nnext\r\n", 1);
    let cut_off = through(&proxy, quick()).await;
    let (_, mut attempts) = listen(&cut_off, false).await;
    wait_until("the answer was lost", || proxy.needles_met() == 1);
    send(&streams, 4..=5).await;
    assert_eq!(numbers(&mut attempts, 5).await, [1, 2, 3, 4, 5]);
    wait_until("all are acknowledged", || pending(&redis, "order") == 0);
    cut_off.shutdown().await.unwrap();
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_a_read_that_redis_executes_late_is_noticed_before_anything_else_is_read() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let (_, mut attempts) = listen(&streams, false).await;
    send(&streams, [0]).await;
    assert_eq!(numbers(&mut attempts, 1).await, [0]);
    for round in 0..5 {
        // As if a connection that the listener has given up had been served: two are handed out under its name, and nobody has them.
        let late = "for i = 1, 2 do redis.call('XADD', 'order', '*', 'body', '{\"number\":' .. (ARGV[1] + i) .. '}', 'customer', 'a') end
            return redis.call('XREADGROUP', 'GROUP', 'duly-streams', 'one', 'STREAMS', 'order', '>')";
        let first = 10 * (round + 1);
        redis.run::<redis::Value>(&["EVAL", late, "0", &first.to_string()]);
        send(&streams, [first + 3]).await;
        assert_eq!(numbers(&mut attempts, 3).await, [first + 1, first + 2, first + 3]);
    }
    wait_until("all are acknowledged", || pending(&redis, "order") == 0);
    streams.shutdown().await.unwrap();
}

const URL: &str = "DULY_STREAMS_RECOVERY_URL";

fn short() -> Settings {
    let retry = Retry { attempts: 0, ..quick().retry };
    Settings { processing_timeout: Duration::from_secs(2), retry, ..quick() }
}

/// Leads, and never finishes anything.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_leader_that_never_finishes() {
    let Some(url) = std::env::var_os(URL).and_then(|url| url.into_string().ok()) else { return };
    let streams = Streams::connect_with(&url, short()).await.unwrap();
    let never = |_: Entry<Order>| std::future::pending::<Result<(), String>>();
    streams.listener("order", never).consumer("killed").ordered_by_field("customer").start().await.unwrap();
    std::future::pending().await
}

struct Killed(Child);

impl Drop for Killed {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_all_priorities_of_a_killed_leader_are_handled_before_what_follows() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, short()).await;
    let keys = ["{order}:high", "order", "{order}:low"];
    for (tens, priority) in [(10, Priority::High), (20, Priority::Normal), (30, Priority::Low)] {
        for number in 1..=3 {
            streams.send_message("order", &order(tens + number).priority(priority)).await.unwrap();
        }
    }
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "recovery::as_a_leader_that_never_finishes"]).env(URL, redis.url());
    let child = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    let held = |stream: &str| {
        let there: bool = redis.run(&["EXISTS", stream]);
        let groups: usize = redis.run::<Vec<redis::Value>>(&["XINFO", "GROUPS", stream]).len();
        there && groups == 1 && pending(&redis, stream) == 3
    };
    wait_until("it has them", || keys.iter().all(|stream| held(stream)));
    drop(child);
    let (_, mut attempts) = listen(&streams, false).await;
    for (tens, priority) in [(10, Priority::High), (20, Priority::Normal), (30, Priority::Low)] {
        streams.send_message("order", &order(tens + 4).priority(priority)).await.unwrap();
    }
    let all = numbers(&mut attempts, 12).await;
    for tens in [10, 20, 30] {
        let of: Vec<_> = all.iter().filter(|number| **number / 10 * 10 == tens).map(|n| n - tens).collect();
        assert_eq!(of, [1, 2, 3, 4], "in the order of the stream: {all:?}");
    }
    wait_until("all are acknowledged", || keys.iter().all(|stream| pending(&redis, stream) == 0));
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_a_take_over_that_failed_is_done_again_before_anything_is_read() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    left_by_another(&redis, 3);
    let proxy = Proxy::to(redis.port());
    let streams = connect(&redis, quick()).await;
    let take = script::group_script(include_str!("../../src/scripts/reclaim.lua"));
    proxy.cut_before(&script::needle(&take, &redis), 1);
    send(&streams, [4]).await;
    let cut_off = through(&proxy, quick()).await;
    let (_, mut attempts) = listen(&cut_off, false).await;
    assert_eq!(numbers(&mut attempts, 4).await, [1, 2, 3, 4]);
    assert_eq!(proxy.needles_met(), 1);
    wait_until("all are acknowledged", || pending(&redis, "order") == 0);
    cut_off.shutdown().await.unwrap();
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_a_retry_that_could_not_be_loaded_is_loaded_again_before_what_follows() {
    if !installed() {
        return;
    }
    for is_executed in [false, true] {
        let redis = Redis::single();
        let proxy = Proxy::to(redis.port());
        let load = script::group_script(include_str!("../../src/scripts/load.lua"));
        let call = script::needle(&load, &redis);
        if is_executed {
            proxy.cut_after(&call, 1)
        } else {
            proxy.cut_before(&call, 1)
        }
        let streams = through(&proxy, quick()).await;
        let (_, mut attempts) = listen(&streams, true).await;
        let direct = connect(&redis, quick()).await;
        send(&direct, 1..=2).await;
        assert_eq!([next(&mut attempts).await, next(&mut attempts).await], [(1, 1), (1, 2)]);
        assert_eq!(next(&mut attempts).await, (2, 1));
        assert_eq!(proxy.needles_met(), 1);
        wait_until("all are acknowledged", || pending(&redis, "order") == 0);
        streams.shutdown().await.unwrap();
        direct.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_a_suspect_that_could_not_be_begun_is_begun_again_before_what_follows() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    left_by_another(&redis, 1);
    let proxy = Proxy::to(redis.port());
    let begin = script::group_script(include_str!("../../src/scripts/begin_attempt.lua"));
    proxy.cut_before(&script::needle(&begin, &redis), 1);
    let direct = connect(&redis, quick()).await;
    send(&direct, [2]).await;
    let streams = through(&proxy, quick()).await;
    let (_, mut attempts) = listen(&streams, false).await;
    assert_eq!(numbers(&mut attempts, 2).await, [1, 2]);
    wait_until("all are acknowledged", || pending(&redis, "order") == 0);
    streams.shutdown().await.unwrap();
    direct.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_a_failure_that_could_not_be_written_down_holds_back_what_follows() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let proxy = Proxy::to(redis.port());
    let fail = script::group_script(include_str!("../../src/scripts/fail.lua"));
    // As often as it is told again.
    proxy.cut_before(&script::needle(&fail, &redis), 3);
    let streams = through(&proxy, quick()).await;
    let (_, mut attempts) = listen(&streams, true).await;
    let direct = connect(&redis, quick()).await;
    send(&direct, 1..=2).await;
    let all = [next(&mut attempts).await.0, next(&mut attempts).await.0, next(&mut attempts).await.0];
    assert_eq!(all[..2], [1, 1], "{all:?}");
    wait_until("all are acknowledged", || pending(&redis, "order") == 0);
    streams.shutdown().await.unwrap();
    direct.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn one_group_keeps_the_order_of_a_topic_and_of_its_dead_letters_at_the_same_time() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let (_, mut attempts) = listen(&streams, false).await;
    send(&streams, [1]).await;
    assert_eq!(numbers(&mut attempts, 1).await, [1]);
    let (reported, mut dying) = mpsc::unbounded_channel();
    let dead = streams.dead_letters("order").unwrap();
    let handler = move |order: Entry<Order>| {
        let reported = reported.send(order.value.number).map_err(|_| "nobody listens");
        async move { reported }
    };
    let subscription = dead.listener("duly-streams", handler).consumer("other");
    subscription.ordered_by_field("customer").start().await.unwrap();
    dead.send(&order(7), "by hand").await.unwrap();
    assert_eq!(next(&mut dying).await, 7);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn in_order_a_listener_goes_on_when_the_stream_was_deleted_and_when_redis_is_back() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let (_, mut attempts) = listen(&streams, false).await;
    send(&streams, [1]).await;
    assert_eq!(numbers(&mut attempts, 1).await, [1]);
    redis.run::<()>(&["DEL", "order"]);
    send(&streams, 2..=3).await;
    assert_eq!(numbers(&mut attempts, 2).await, [2, 3]);
    redis.restart();
    while streams.send_message("order", &order(4)).await.is_err() {}
    while next(&mut attempts).await.0 != 4 {}
    streams.shutdown().await.unwrap();
}
