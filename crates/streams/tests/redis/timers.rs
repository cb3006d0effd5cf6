//! Keys that expire with a shadow: nothing is missed.

use std::{
    collections::BTreeMap,
    process::{Child, Command, Stdio},
    sync::{Arc, Mutex},
    time::Duration,
};

use duly_streams::{
    Backoff, Cancelled, Error, ExpiredTimer, ExpiryTimers, Retry, RetryPolicy, Settings, Streams,
    TimerReplayed, Verdict,
};
use testkit::servers::redis::{Cluster, Redis, installed};
use tokio::sync::mpsc;

use crate::{Order, SOON, connect, next, quick, wait_until};

/// Works on timers, and hands on each.
async fn work(timers: &ExpiryTimers) -> mpsc::UnboundedReceiver<ExpiredTimer<Order>> {
    let (done, doing) = mpsc::unbounded_channel();
    let hand_on = move |expired: ExpiredTimer<Order>| {
        let reported = done.send(expired).map_err(|_| "nobody listens");
        async move { reported }
    };
    timers.listener(hand_on).start().await.unwrap();
    doing
}

fn time_ms(redis: &Redis) -> u64 {
    let (seconds, micros): (u64, u64) = redis.run(&["TIME"]);
    seconds * 1000 + micros / 1000
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_runs_with_its_value_once_its_time_is_over_and_never_early() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let timers = streams.expiry_timers("order:").unwrap();
    let mut doing = work(&timers).await;
    let before = time_ms(&redis);
    timers.set("order:1", &Order { number: 1 }, Duration::from_millis(700)).await.unwrap();
    assert_eq!(redis.run::<String>(&["GET", "order:1"]), r#"{"number":1}"#, "an ordinary key");
    assert!((1..=700).contains(&redis.run::<i64>(&["PTTL", "order:1"])));
    let waiting = timers.get::<Order>("order:1").await.unwrap().unwrap();
    assert_eq!((waiting.value.number, waiting.attempts), (1, 0));
    assert!(waiting.remaining <= Duration::from_millis(700) && !waiting.remaining.is_zero());
    let expired = next(&mut doing).await;
    assert!(expired.due_ms >= before + 700 && time_ms(&redis) >= expired.due_ms);
    assert_eq!((expired.key.as_str(), expired.value.number, expired.attempt), ("order:1", 1, 1));
    streams.shutdown().await.unwrap();
    assert!(redis.run::<Vec<String>>(&["KEYS", "duly-streams:timers:*"]).is_empty(), "nothing is left of it");
}

#[tokio::test(flavor = "multi_thread")]
async fn what_was_taken_back_never_runs_and_what_was_set_again_runs_once() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let timers = streams.expiry_timers("order:").unwrap();
    let (short, long) = (Duration::from_millis(200), Duration::from_millis(400));
    timers.set("order:1", &Order { number: 1 }, short).await.unwrap();
    assert_eq!(timers.cancel("order:1").await.unwrap(), Cancelled::Done { attempts: 0 });
    assert!(!redis.run::<bool>(&["EXISTS", "order:1"]));
    assert_eq!(timers.cancel("order:1").await.unwrap(), Cancelled::Unknown);
    timers.set("order:2", &Order { number: 2 }, short).await.unwrap();
    timers.set("order:2", &Order { number: 3 }, long).await.unwrap();
    let mut doing = work(&timers).await;
    assert_eq!(next(&mut doing).await.value.number, 3);
    wait_until("it is done", || {
        redis.run::<usize>(&["ZCARD", "duly-streams:timers:{order:}:order::due"]) == 0
    });
    assert_eq!(timers.cancel("order:2").await.unwrap(), Cancelled::Unknown);
    assert_eq!(timers.get::<Order>("order:2").await.unwrap(), None);
    streams.shutdown().await.unwrap();
    assert!(doing.recv().await.is_none(), "nothing else ran");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_fails_panics_or_hangs_is_tried_again_and_others_do_not_wait_for_it() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let timers = streams.expiry_timers("order:").unwrap();
    let (done, mut doing) = mpsc::unbounded_channel();
    let moody = move |expired: ExpiredTimer<Order>| {
        let done = done.clone();
        async move {
            match (expired.value.number, expired.attempt) {
                (0, 1..3) => return Err("not today"),
                (1, 1) => panic!("a bug"),
                (2, 1) => std::future::pending().await,
                (number, tries) => done.send((number, tries)).map_err(|_| "nobody listens")?,
            }
            Ok(())
        }
    };
    let wait = Duration::from_secs(1);
    timers.listener(moody).retry(Retry { min: wait, max: wait, ..Retry::default() }).start().await.unwrap();
    for number in 0..10 {
        timers.set(&format!("order:{number}"), &Order { number }, Duration::from_millis(1)).await.unwrap();
    }
    // Another type is given up at once: no try could change it.
    timers.set("order:text", "no order", Duration::from_millis(1)).await.unwrap();
    let mut all = Vec::new();
    for _ in 0..10 {
        all.push(next(&mut doing).await);
    }
    assert!(all[..7].iter().all(|(number, _)| *number > 2), "the good ones did not wait: {all:?}");
    all.sort_unstable();
    assert_eq!(all[..4], [(0, 3), (1, 2), (2, 2), (3, 1)]);
    let dead = loop {
        let mut dead = timers.dead(None, 10).await.unwrap();
        if let Some(one) = dead.pop() {
            break one;
        }
    };
    assert_eq!((dead.key.as_str(), dead.attempts), ("order:text", 1));
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_is_at_work_is_too_late_to_take_back_and_one_set_meanwhile_runs_too() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let timers = streams.expiry_timers("order:").unwrap();
    let (begun, mut beginning) = mpsc::unbounded_channel();
    let (go, removed) = tokio::sync::watch::channel(false);
    let slow = move |expired: ExpiredTimer<Order>| {
        let (begun, mut removed) = (begun.clone(), removed.clone());
        async move {
            let _ = begun.send(expired.value.number);
            removed.wait_for(|go| *go).await.map(drop)
        }
    };
    timers.listener(slow).start().await.unwrap();
    timers.set("order:1", &Order { number: 1 }, Duration::from_millis(1)).await.unwrap();
    assert_eq!(next(&mut beginning).await, 1);
    assert_eq!(timers.cancel("order:1").await.unwrap(), Cancelled::TooLate);
    timers.set("order:1", &Order { number: 2 }, Duration::from_millis(1)).await.unwrap();
    go.send_replace(true);
    assert_eq!(next(&mut beginning).await, 2);
    streams.shutdown().await.unwrap();
    assert!(beginning.recv().await.is_none());
}

#[tokio::test(flavor = "multi_thread")]
async fn an_event_wakes_whoever_does_not_know_of_a_timer_that_another_has_set() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["CONFIG", "SET", "notify-keyspace-events", "Ex"]);
    // It would look again after a minute, which is longer than this test waits.
    let lazy = Settings { poll_interval: SOON * 2, ..Settings::default() };
    let (one, other) = (connect(&redis, lazy).await, connect(&redis, Settings::default()).await);
    let mut doing = work(&one.expiry_timers("order:").unwrap()).await;
    let clients = || redis.run::<String>(&["CLIENT", "LIST", "TYPE", "PUBSUB"]).contains("cmd=subscribe");
    wait_until("it listens", clients);
    let timers = other.expiry_timers("order:").unwrap();
    for number in 0..3 {
        timers.set(&format!("order:{number}"), &Order { number }, Duration::from_millis(50)).await.unwrap();
        assert_eq!(next(&mut doing).await.value.number, number);
    }
    one.shutdown().await.unwrap();
    other.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_cannot_be_meant_is_refused() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let streams = Streams::connect(&cluster.url()).await.unwrap();
    let Err(Error::Invalid(why)) = streams.expiry_timers("alarm:") else {
        panic!("its keys are all over the cluster")
    };
    assert!(why.contains("\"{alarm}:\""), "{why}");
    let timers = streams.expiry_timers("{alarm}:").unwrap();
    assert!(matches!(timers.set("alarm:1", &1, SOON).await, Err(Error::Invalid(_))));
    assert!(matches!(timers.set("{alarm}:1", &1, Duration::ZERO).await, Err(Error::Invalid(_))));
    streams.shutdown().await.unwrap();
}

type Ledger = Arc<Mutex<BTreeMap<String, usize>>>;

/// An instance with a connection of its own, which counts what it handles.
async fn instance(url: &str, prefix: &str, ledger: &Ledger) -> Streams {
    let settings = Settings { poll_interval: Duration::from_millis(100), ..Settings::default() };
    let streams = Streams::connect_with(url, settings).await.unwrap();
    let ledger = ledger.clone();
    let count = move |expired: ExpiredTimer<Order>| {
        *ledger.lock().unwrap().entry(expired.key).or_default() += 1;
        async { Ok::<_, String>(()) }
    };
    streams.expiry_timers(prefix).unwrap().listener(count).start().await.unwrap();
    streams
}

/// 1,000 timers, 500 of which become due while nobody is there; instances come and go while the others do.
async fn each_of_a_thousand_is_handled_once(url: &str, prefix: &str) {
    let ledger = Ledger::default();
    let streams = Streams::connect(url).await.unwrap();
    let timers = streams.expiry_timers(prefix).unwrap();
    let set = async |number: u64, ttl| {
        timers
            .set(&format!("{prefix}{number}"), &Order { number }, Duration::from_millis(ttl))
            .await
            .unwrap();
    };
    for number in 0..500 {
        set(number, 1 + number % 7).await;
    }
    while !timers.get::<Order>(&format!("{prefix}499")).await.unwrap().unwrap().remaining.is_zero() {}
    let mut instances = Vec::new();
    for _ in 0..4 {
        instances.push(instance(url, prefix, &ledger).await);
    }
    for number in 500..1000 {
        set(number, 1 + number * 7 % 3000).await;
        if number % 100 == 0 {
            // One goes, and another comes.
            instances.remove(0).shutdown().await.unwrap();
            instances.push(instance(url, prefix, &ledger).await);
        }
    }
    wait_until("all are handled", || ledger.lock().unwrap().len() == 1000);
    for streams in instances {
        streams.shutdown().await.unwrap();
    }
    assert!(ledger.lock().unwrap().values().all(|times| *times == 1), "one was handled twice");
    assert_eq!(timers.get::<Order>(&format!("{prefix}999")).await.unwrap(), None);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_timers_each_is_handled_once_although_nobody_listened_when_half_were_due() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    each_of_a_thousand_is_handled_once(&redis.url(), "order:").await;
    assert!(redis.run::<Vec<String>>(&["KEYS", "duly-streams:timers:*"]).is_empty(), "nothing is left");
}

#[tokio::test(flavor = "multi_thread")]
async fn of_a_thousand_timers_on_a_cluster_each_is_handled_once_although_nobody_listened_when_half_were_due()
{
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    each_of_a_thousand_is_handled_once(&cluster.url(), "{order}:").await;
}

const URL: &str = "DULY_STREAMS_TEST_TIMERS_URL";

/// Takes timers and never finishes one.
#[tokio::test(flavor = "multi_thread")]
async fn as_a_process_that_never_finishes_a_timer() {
    let Some(url) = std::env::var_os(URL).and_then(|url| url.into_string().ok()) else { return };
    let streams =
        Streams::connect_with(&url, Settings { processing_timeout: SOON / 20, ..quick() }).await.unwrap();
    let never = |_: ExpiredTimer<Order>| std::future::pending::<Result<(), String>>();
    streams.expiry_timers("order:").unwrap().listener(never).start().await.unwrap();
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
async fn a_timer_that_a_killed_process_was_at_is_tried_by_another() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let timers = streams.expiry_timers("order:").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "timers::as_a_process_that_never_finishes_a_timer"]).env(URL, redis.url());
    let child = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    for number in 0..5 {
        timers.set(&format!("order:{number}"), &Order { number }, Duration::from_millis(1)).await.unwrap();
    }
    for number in 0..5 {
        while timers.get::<Order>(&format!("order:{number}")).await.unwrap().unwrap().attempts == 0 {}
    }
    drop(child);
    let mut doing = work(&timers).await;
    let mut all = Vec::new();
    for _ in 0..5 {
        let expired = next(&mut doing).await;
        assert!(expired.attempt > 1);
        all.push(expired.value.number);
    }
    all.sort_unstable();
    assert_eq!(all, [0, 1, 2, 3, 4]);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn timers_outlive_redis_and_go_on_when_it_is_back() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["CONFIG", "SET", "appendfsync", "always"]);
    let streams = connect(&redis, quick()).await;
    let timers = streams.expiry_timers("order:").unwrap();
    let mut doing = work(&timers).await;
    timers.set("order:1", &Order { number: 1 }, Duration::from_millis(500)).await.unwrap();
    redis.restart();
    assert_eq!(next(&mut doing).await.value.number, 1);
    let _ = streams.shutdown().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_always_fails_is_given_up_with_the_reason_and_can_be_replayed() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let timers = streams.expiry_timers("order:").unwrap();
    let (begun, mut beginning) = mpsc::unbounded_channel();
    let (mend, mended) = tokio::sync::watch::channel(false);
    let handler = move |expired: ExpiredTimer<Order>| {
        let _ = begun.send(expired.attempt);
        let is_mended = *mended.borrow();
        async move { if is_mended { Ok(()) } else { Err("not today") } }
    };
    let wait = Duration::from_millis(20);
    let policy = RetryPolicy { attempts: 3, backoff: Backoff::Fixed, min: wait, max: wait };
    timers.listener(handler).retry(policy).start().await.unwrap();
    timers.set("order:1", &Order { number: 1 }, Duration::from_millis(1)).await.unwrap();
    assert_eq!(
        [next(&mut beginning).await, next(&mut beginning).await, next(&mut beginning).await],
        [1, 2, 3]
    );
    let dead = || redis.run::<usize>(&["XLEN", "duly-streams:timers:{order:}:order::dead"]);
    wait_until("it is given up", || dead() == 1);
    assert_eq!(timers.get::<Order>("order:1").await.unwrap(), None);
    let letter = timers.dead(None, 10).await.unwrap().remove(0);
    assert_eq!((letter.key.as_str(), letter.attempts, letter.reason.as_str()), ("order:1", 3, "not today"));
    assert_eq!(letter.json::<Order>().unwrap(), Order { number: 1 });
    assert!(timers.dead(Some(&letter.id), 10).await.unwrap().is_empty());

    // One that was set since comes first.
    timers.set("order:1", &Order { number: 2 }, SOON).await.unwrap();
    assert_eq!(timers.replay(&letter.id).await.unwrap(), TimerReplayed::SetAnew);
    timers.cancel("order:1").await.unwrap();
    mend.send_replace(true);
    assert_eq!(timers.replay(&letter.id).await.unwrap(), TimerReplayed::Done);
    assert_eq!(timers.replay(&letter.id).await.unwrap(), TimerReplayed::Unknown);
    assert_eq!(next(&mut beginning).await, 1, "its tries begin anew");
    assert_eq!(timers.dead_count().await.unwrap(), 0);
    streams.shutdown().await.unwrap();
    let left: Vec<String> = redis.run(&["KEYS", "duly-streams:timers:*"]);
    assert_eq!(left, ["duly-streams:timers:{order:}:order::dead"]);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_with_which_every_process_dies_is_given_up_as_well() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let timers = streams.expiry_timers("order:").unwrap();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args(["--exact", "timers::as_a_process_that_never_finishes_a_timer"]).env(URL, redis.url());
    let child = Killed(command.stdout(Stdio::null()).stderr(Stdio::null()).spawn().unwrap());
    timers.set("order:1", &Order { number: 1 }, Duration::from_millis(1)).await.unwrap();
    while timers.get::<Order>("order:1").await.unwrap().unwrap().attempts == 0 {}
    drop(child);
    let never = |_: ExpiredTimer<Order>| async { Err::<(), _>("it must not be called") };
    timers.listener(never).attempts(1).start().await.unwrap();
    let dead = || redis.run::<usize>(&["XLEN", "duly-streams:timers:{order:}:order::dead"]);
    wait_until("it is given up", || dead() == 1);
    let letter = timers.dead(None, 10).await.unwrap().remove(0);
    assert!(letter.reason.contains("was lost in the last of its"), "{letter:?}");
    assert_eq!(letter.attempts, 1);
    assert!(timers.remove_dead(&letter.id).await.unwrap());
    assert_eq!(timers.dead_count().await.unwrap(), 0);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_overwrites_no_key_that_is_something_else() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    streams.send("order:placed", &1).await.unwrap();
    let timers = streams.expiry_timers("order:").unwrap();
    let refused = timers.set("order:placed", &1, SOON).await;
    assert!(matches!(refused, Err(Error::Refused { .. })), "{refused:?}");
    assert_eq!(redis.run::<usize>(&["XLEN", "order:placed"]), 1);
    assert_eq!(timers.get::<u8>("order:placed").await.unwrap(), None);
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn a_timer_that_failed_comes_again_after_its_own_short_wait_and_one_that_is_given_up_does_not() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    // The loop sleeps for longer than this test may take.
    let streams = connect(&redis, Settings { poll_interval: Duration::from_secs(60), ..quick() }).await;
    let timers = streams.expiry_timers("order:").unwrap();
    let (reported, mut telling) = mpsc::unbounded_channel();
    let handler = move |expired: ExpiredTimer<Order>| {
        let _ = reported.send((expired.value.number, expired.attempt));
        async move {
            match (expired.value.number, expired.attempt) {
                (1, 1) => Err("not yet"),
                (1, 2) => Ok(Verdict::retry_after(Duration::from_millis(10))),
                (2, _) => Ok(Verdict::give_up("no such customer")),
                _ => Ok(Verdict::Done),
            }
        }
    };
    let wait = Duration::from_millis(20);
    timers.listener(handler).retry(Retry { min: wait, max: wait, ..Retry::default() }).start().await.unwrap();
    timers.set("order:1", &Order { number: 1 }, Duration::from_millis(1)).await.unwrap();
    for tries in [1, 2, 3] {
        assert_eq!(next(&mut telling).await, (1, tries));
    }
    timers.set("order:2", &Order { number: 2 }, Duration::from_millis(1)).await.unwrap();
    assert_eq!(next(&mut telling).await, (2, 1));
    streams.shutdown().await.unwrap();
    let streams = connect(&redis, quick()).await;
    let dead = streams.expiry_timers("order:").unwrap().dead(None, 10).await.unwrap();
    assert_eq!(
        dead.iter().map(|timer| (timer.key.as_str(), timer.reason.as_str())).collect::<Vec<_>>(),
        [("order:2", "no such customer")]
    );
    streams.shutdown().await.unwrap();
}
