//! Keys of an ordered listener that do not get on: whatever is behind them, other keys go on.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use duly_streams::{Entry, Listener, Message, Retry, Settings, Streams};
use testkit::servers::redis::{Redis, installed};
use tokio::sync::{Semaphore, mpsc};

use crate::{
    Order, connect, next, pending, quick,
    server::{Server, both},
    wait_until,
};

/// Far more than a listener of two calls keeps in memory.
const BEHIND: u64 = 300;

/// The key, the number and the attempt of an entry that was handled.
type Handled = (String, u64, u32);

/// Two calls at the same time, and retries without end.
fn settings(retry_wait: Duration) -> Settings {
    Settings {
        concurrency: 2,
        processing_timeout: Duration::from_secs(20),
        retry: Retry { attempts: 0, min: retry_wait, max: retry_wait, ..Retry::default() },
        ..quick()
    }
}

/// Fails on keys that begin with "bad" as long as `is_broken`.
async fn listen(
    streams: &Streams,
    consumer: &str,
    is_broken: &Arc<AtomicBool>,
    handled: &mpsc::UnboundedSender<Handled>,
) -> Listener {
    let (is_broken, handled) = (is_broken.clone(), handled.clone());
    let handler = move |order: Entry<Order>| {
        let key = order.text("key").unwrap_or_default().to_owned();
        let outcome = if key.starts_with("bad") && is_broken.load(Ordering::Acquire) {
            Err("broken")
        } else {
            handled.send((key, order.value.number, order.attempt())).map_err(|_| "nobody listens")
        };
        async move { outcome }
    };
    streams.listener("order", handler).consumer(consumer).ordered_by_field("key").start().await.unwrap()
}

async fn send(streams: &Streams, key: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let message = Message::json(&Order { number }).unwrap().property("key", key).unwrap();
        streams.send_message("order", &message).await.unwrap();
    }
}

async fn expect(inbox: &mut mpsc::UnboundedReceiver<Handled>, key: &str, numbers: std::ops::Range<u64>) {
    for number in numbers {
        let (of, found, _) = next(inbox).await;
        assert_eq!((of.as_str(), found), (key, number));
    }
}

fn wait_until_settled(server: &Server) {
    wait_until("all are acknowledged", || server.pending("order", "duly-streams") == 0);
    assert!(
        server.beside("order").iter().all(|key| key.contains(":duly-streams:leader:")),
        "nothing is left"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_always_fails_with_hundreds_behind_it_stops_no_other_key_and_keeps_its_order() {
    for server in both() {
        let streams = server.connect(settings(Duration::from_millis(20))).await;
        let (handled, mut inbox) = mpsc::unbounded_channel();
        let is_broken = Arc::new(AtomicBool::new(true));
        let leader = listen(&streams, "one", &is_broken, &handled).await;
        send(&streams, "bad", 0..BEHIND).await;
        send(&streams, "good", 0..3).await;
        expect(&mut inbox, "good", 0..3).await;
        // The next leader finds all of them in order, and takes none of them for the cause of a crash.
        leader.stop().await;
        let _next_leader = listen(&streams, "two", &is_broken, &handled).await;
        send(&streams, "good", 3..6).await;
        expect(&mut inbox, "good", 3..6).await;
        is_broken.store(false, Ordering::Release);
        for number in 0..BEHIND {
            let (key, found, attempt) = next(&mut inbox).await;
            assert_eq!((key.as_str(), found), ("bad", number));
            assert!(attempt == 1 || number == 0, "{number} came with attempt {attempt}");
        }
        wait_until_settled(&server);
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn many_keys_that_wait_for_their_retry_stop_no_other_key() {
    const KEYS: u64 = 50;
    for server in both() {
        let streams = server.connect(settings(Duration::from_secs(3_600))).await;
        let (handled, mut inbox) = mpsc::unbounded_channel();
        let is_broken = Arc::new(AtomicBool::new(true));
        let _listener = listen(&streams, "one", &is_broken, &handled).await;
        for key in 0..KEYS {
            send(&streams, &format!("bad {key}"), 0..3).await;
        }
        send(&streams, "good", 0..3).await;
        expect(&mut inbox, "good", 0..3).await;
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_whose_handler_hangs_with_hundreds_behind_it_stops_no_other_key() {
    for server in both() {
        let streams = server.connect(settings(Duration::from_millis(20))).await;
        let gate = Arc::new(Semaphore::new(0));
        let (handled, mut inbox) = mpsc::unbounded_channel();
        let handler = {
            let gate = gate.clone();
            move |order: Entry<Order>| {
                let (gate, handled) = (gate.clone(), handled.clone());
                async move {
                    let key = order.text("key").unwrap_or_default().to_owned();
                    if key == "slow" && order.value.number == 0 {
                        gate.acquire().await.map_err(|_| "closed")?.forget();
                    }
                    let report = (key, order.value.number, order.attempt());
                    handled.send(report).map_err(|_| "nobody listens")
                }
            }
        };
        let _listener = streams.listener("order", handler).ordered_by_field("key").start().await.unwrap();
        send(&streams, "slow", 0..BEHIND).await;
        send(&streams, "good", 0..3).await;
        expect(&mut inbox, "good", 0..3).await;
        gate.add_permits(1);
        expect(&mut inbox, "slow", 0..BEHIND).await;
        wait_until_settled(&server);
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_listener_reads_a_bounded_number_of_entries_ahead_of_a_key_that_hangs() {
    /// Those that are parked, those in memory, and a page.
    const PENDING_MAX: usize = 10_000 + 2 * 16 + 64;
    const SENT: u64 = PENDING_MAX as u64 + 400;
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, settings(Duration::from_millis(20))).await;
    let add =
        "for n = 0, ARGV[1] - 1 do redis.call('XADD', KEYS[1], '*', 'body', '{\"number\":' .. n .. '}') end";
    redis.run::<()>(&["EVAL", add, "1", "order", &SENT.to_string()]);
    let (gate, handled) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU64::new(0)));
    let handler = {
        let (gate, handled) = (gate.clone(), handled.clone());
        move |order: Entry<Order>| {
            let (gate, handled) = (gate.clone(), handled.clone());
            async move {
                if order.value.number == 0 {
                    gate.acquire().await.map_err(|_| "closed")?.forget();
                }
                let expected = handled.fetch_add(1, Ordering::AcqRel);
                if order.value.number == expected { Ok(()) } else { Err("out of order") }
            }
        }
    };
    let _listener = streams.listener("order", handler).ordered_by(|_| Some("all")).start().await.unwrap();
    wait_until("the limit is reached", || pending(&redis, "order") >= 10_000);
    gate.add_permits(1);
    wait_until("all are acknowledged", || {
        let pending = pending(&redis, "order");
        assert!(pending <= PENDING_MAX, "{pending}");
        pending == 0 && handled.load(Ordering::Acquire) >= SENT
    });
    assert_eq!(handled.load(Ordering::Acquire), SENT, "each came once");
    streams.shutdown().await.unwrap();
}

/// Adds an entry for each key with the number 0, and has another consumer read them: the listener finds that the group moved.
fn steal(redis: &Redis, keys: &[&str]) {
    let script = "for i = 1, #ARGV do redis.call('XADD', KEYS[1], '*', 'body', '{\"number\":0}', 'key', ARGV[i]) end \
                  return #redis.call('XREADGROUP', 'GROUP', 'duly-streams', 'stranger', 'STREAMS', KEYS[1], '>')[1][2]";
    let read: usize = redis.run(&[&["EVAL", script, "1", "order"], keys].concat());
    assert_eq!(read, keys.len());
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_is_recovered_before_loaded_entries_of_its_key_takes_no_slots_of_other_keys() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let settings = Settings { concurrency: 1, ..settings(Duration::from_secs(3_600)) };
    let streams = connect(&redis, settings).await;
    let gate = Arc::new(Semaphore::new(0));
    let (handled, mut inbox) = mpsc::unbounded_channel();
    let handler = {
        let gate = gate.clone();
        move |order: Entry<Order>| {
            let (gate, handled) = (gate.clone(), handled.clone());
            async move {
                let key = order.text("key").unwrap_or_default().to_owned();
                if key == "a" && order.value.number == 1 {
                    gate.acquire().await.map_err(|_| "closed")?.forget();
                }
                let report = (key, order.value.number, order.attempt());
                handled.send(report).map_err(|_| "nobody listens")
            }
        }
    };
    let _listener = streams.listener("order", handler).ordered_by_field("key").start().await.unwrap();
    send(&streams, "good", 0..1).await;
    expect(&mut inbox, "good", 0..1).await;
    wait_until("it is acknowledged", || pending(&redis, "order") == 0);
    steal(&redis, &["a", "b"]);
    send(&streams, "a", 1..6).await;
    send(&streams, "b", 1..6).await;
    wait_until("they are read", || pending(&redis, "order") == 12);
    // The first entry of either key waits for a retry, and the next recovery finds it.
    let retry = "for _, one in ipairs(redis.call('XPENDING', KEYS[1], 'duly-streams', '-', '+', 100, 'stranger')) do \
                 redis.call('ZADD', KEYS[2], redis.call('TIME')[1] * 1000 + 3600000, one[1]) end";
    redis.run::<()>(&["EVAL", retry, "2", "order", "{order}:duly-streams:due:normal:duly-streams"]);
    steal(&redis, &["stolen"]);
    send(&streams, "good", 1..2).await;
    wait_until("it is recovered, and what follows is read", || pending(&redis, "order") == 14);
    gate.add_permits(1);
    let mut first = [next(&mut inbox).await, next(&mut inbox).await, next(&mut inbox).await];
    first.sort();
    assert_eq!(
        first.map(|(key, number, _)| (key, number)),
        ["a", "b", "good"].map(|key| (key.to_owned(), 1))
    );
    send(&streams, "a", 6..30).await;
    send(&streams, "good", 2..4).await;
    expect(&mut inbox, "good", 2..4).await;
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_that_is_due_before_loaded_entries_of_its_key_needs_none_of_their_slots() {
    const SLOTS_OF_A_KEY: u64 = 16;
    if !installed() {
        return;
    }
    let redis = Redis::single();
    // The one that hangs is not given up while the test runs.
    let settings =
        Settings { processing_timeout: Duration::from_secs(600), ..settings(Duration::from_secs(1)) };
    let streams = connect(&redis, settings).await;
    let gates = Arc::new([Semaphore::new(0), Semaphore::new(0)]);
    let (handled, mut inbox) = mpsc::unbounded_channel();
    let (begun, mut beginnings) = mpsc::unbounded_channel();
    let handler = {
        let gates = gates.clone();
        move |order: Entry<Order>| {
            let (gates, handled, begun) = (gates.clone(), handled.clone(), begun.clone());
            async move {
                let (key, number) = (order.text("key").unwrap_or_default().to_owned(), order.value.number);
                if let (1, Some(gate)) = (number, ["slow", "hangs"].iter().position(|gated| *gated == key)) {
                    begun.send(key.clone()).map_err(|_| "nobody listens")?;
                    gates[gate].acquire().await.map_err(|_| "closed")?.forget();
                }
                handled.send((key, number, order.attempt())).map_err(|_| "nobody listens")
            }
        }
    };
    let _listener = streams.listener("order", handler).ordered_by_field("key").start().await.unwrap();
    send(&streams, "good", 0..1).await;
    expect(&mut inbox, "good", 0..1).await;
    wait_until("it is acknowledged", || pending(&redis, "order") == 0);
    steal(&redis, &["slow", "hangs", "hangs"]);
    send(&streams, "slow", 1..2).await;
    send(&streams, "hangs", 1..2).await;
    let mut first = [next(&mut beginnings).await, next(&mut beginnings).await];
    first.sort();
    assert_eq!(first, ["hangs", "slow"]);
    // One key has all that it may have in memory, the other all but three, and one slot is free.
    send(&streams, "slow", 2..2 + SLOTS_OF_A_KEY).await;
    send(&streams, "hangs", 2..SLOTS_OF_A_KEY - 1).await;
    let read = 3 + 2 + usize::try_from(2 * SLOTS_OF_A_KEY - 3).unwrap();
    wait_until("they are read", || pending(&redis, "order") == read);
    // The retries of the first entries are due, and the next recovery finds them: the first one is parked, as its key has no slot left, the
    // second one takes the last slot, and the third one waits for another.
    let retry = "for _, one in ipairs(redis.call('XPENDING', KEYS[1], 'duly-streams', '-', '+', 100, 'stranger')) do \
                 redis.call('ZADD', KEYS[2], 1, one[1]) end";
    const DUE: &str = "{order}:duly-streams:due:normal:duly-streams";
    redis.run::<()>(&["EVAL", retry, "2", "order", DUE]);
    steal(&redis, &["stolen"]);
    // Whatever is parked is due from that moment on.
    wait_until("it is parked", || redis.run::<usize>(&["ZCOUNT", DUE, "2", "+inf"]) > 0);
    gates[0].add_permits(1);
    expect(&mut inbox, "slow", 1..2).await;
    expect(&mut inbox, "slow", 0..1).await;
    send(&streams, "good", 1..2).await;
    let mut good = Vec::new();
    while good.is_empty() {
        let (key, number, _) = next(&mut inbox).await;
        assert_ne!(key, "hangs");
        good.extend((key == "good").then_some(number));
    }
    assert_eq!(good, [1]);
    gates[1].add_permits(1);
    streams.shutdown().await.unwrap();
}
