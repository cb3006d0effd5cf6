//! Events of expired keys: every instance hears each, one acts.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex},
    time::Duration,
};

use duly_streams::{Backoff, Error, ExpiredKey, RetryPolicy, Settings, Streams, Verdict};
use testkit::servers::redis::{Cluster, Redis, Sentinels, installed};
use tokio::sync::mpsc;

use crate::{connect, next, quick, wait_until};

/// How often each key was handled, by whomever.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<BTreeMap<String, usize>>>);

impl Ledger {
    fn count(&self, key: String) {
        *self.0.lock().unwrap().entry(key).or_default() += 1;
    }

    fn total(&self) -> usize {
        self.0.lock().unwrap().values().sum()
    }

    fn of(&self, key: &str) -> usize {
        self.0.lock().unwrap().get(key).copied().unwrap_or_default()
    }

    /// Counts what this instance handles.
    async fn keep(&self, streams: &Streams, prefix: &str) {
        let ledger = self.clone();
        let count = move |expired: ExpiredKey| {
            ledger.count(expired.key);
            async { Ok::<_, String>(()) }
        };
        streams.expiry_listener(prefix, count).start().await.unwrap();
    }
}

/// Handed on by one instance.
async fn listen(streams: &Streams, prefix: &str) -> mpsc::UnboundedReceiver<ExpiredKey> {
    let (received, inbox) = mpsc::unbounded_channel();
    let hand_on = move |expired: ExpiredKey| {
        let reported = received.send(expired).map_err(|_| "nobody listens");
        async move { reported }
    };
    streams.expiry_listener(prefix, hand_on).start().await.unwrap();
    inbox
}

/// A key that every instance hears of, after all that it heard before.
async fn every_instance_has_caught_up(redis: &Redis, all: &[Streams]) {
    for (number, streams) in all.iter().enumerate() {
        let mut inbox = listen(streams, &format!("mark:{number}:")).await;
        redis.run::<()>(&["SET", &format!("mark:{number}:x"), "1", "PX", "1"]);
        next(&mut inbox).await;
    }
}

async fn one_of_four_handles_each(connect: impl AsyncFn() -> Streams, set: impl Fn(&str)) {
    let ledger = Ledger::default();
    let mut all = Vec::new();
    for _ in 0..4 {
        let streams = connect().await;
        ledger.keep(&streams, "session:").await;
        all.push(streams);
    }
    for number in 0..200 {
        set(&format!("session:{number}"));
        set(&format!("other:{number}"));
    }
    wait_until("all are handled", || ledger.total() >= 200);
    for streams in all {
        streams.shutdown().await.unwrap();
    }
    let ledger = ledger.0.lock().unwrap();
    assert_eq!((ledger.len(), ledger.values().sum::<usize>()), (200, 200), "each once: {ledger:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_expires_is_handled_by_one_of_four_instances() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let set = |key: &str| redis.run::<()>(&["SET", key, "1", "PX", "100"]);
    one_of_four_handles_each(async || connect(&redis, Settings::default()).await, set).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn keys_that_expire_all_over_a_cluster_are_handled_by_one_of_four_instances() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let set = |key: &str| {
        let owner = &cluster.nodes()[cluster.owner(cluster.slot(key))];
        owner.run::<()>(&["SET", key, "1", "PX", "100"]);
    };
    one_of_four_handles_each(async || Streams::connect(&cluster.url()).await.unwrap(), set).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn every_occurrence_of_a_key_is_handled_once_and_with_a_greater_token() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (received, mut inbox) = mpsc::unbounded_channel();
    let mut all = Vec::new();
    for _ in 0..3 {
        let streams = connect(&redis, Settings::default()).await;
        let received = received.clone();
        let hand_on = move |expired: ExpiredKey| {
            let reported = received.send(expired.token).map_err(|_| "nobody listens");
            async move { reported }
        };
        streams.expiry_listener("session:", hand_on).start().await.unwrap();
        all.push(streams);
    }
    // The same key again and again, each as soon as the one before is gone.
    for _ in 0..30 {
        redis.run::<()>(&["SET", "session:1", "1", "PX", "1"]);
        wait_until("it expired", || !redis.run::<bool>(&["EXISTS", "session:1"]));
    }
    let mut tokens = Vec::new();
    for _ in 0..30 {
        tokens.push(next(&mut inbox).await);
    }
    every_instance_has_caught_up(&redis, &all).await;
    assert!(inbox.try_recv().is_err(), "one too many");
    tokens.sort_unstable();
    tokens.dedup();
    assert_eq!(tokens.len(), 30);
    for streams in all {
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn who_hears_late_does_not_repeat_what_another_has_done() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let (slow, quick) = (
        connect(&redis, Settings { concurrency: 1, ..Settings::default() }).await,
        connect(&redis, Settings::default()).await,
    );
    let ledger = Ledger::default();
    let (begun, mut beginning) = mpsc::unbounded_channel();
    let (go, removed) = tokio::sync::watch::channel(false);
    // The first that it gets keeps it busy.
    let block = {
        let ledger = ledger.clone();
        move |expired: ExpiredKey| {
            let (ledger, begun, mut removed) = (ledger.clone(), begun.clone(), removed.clone());
            async move {
                let _ = begun.send(());
                let _ = removed.wait_for(|go| *go).await;
                ledger.count(expired.key);
                Ok::<_, String>(())
            }
        }
    };
    slow.expiry_listener("session:", block).start().await.unwrap();
    redis.run::<()>(&["SET", "session:0", "1", "PX", "1"]);
    next(&mut beginning).await;
    ledger.keep(&quick, "session:").await;
    redis.run::<()>(&["SET", "session:1", "1", "PX", "1"]);
    wait_until("another has done it", || ledger.of("session:1") == 1);
    // Now the slow one gets to hear of it.
    go.send_replace(true);
    wait_until("it goes on", || ledger.of("session:0") == 1);
    every_instance_has_caught_up(&redis, &[slow.clone(), quick.clone()]).await;
    for _ in 0..2 {
        redis.run::<()>(&["SET", "session:1", "1", "PX", "1"]);
        wait_until("it expired", || !redis.run::<bool>(&["EXISTS", "session:1"]));
    }
    wait_until("again, and again", || ledger.of("session:1") == 3);
    slow.shutdown().await.unwrap();
    quick.shutdown().await.unwrap();
    assert_eq!((ledger.of("session:0"), ledger.of("session:1")), (1, 3));
}

#[tokio::test(flavor = "multi_thread")]
async fn a_handler_of_an_expired_key_that_fails_is_tried_again_as_its_policy_says() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let (tried, mut trying) = mpsc::unbounded_channel();
    let fail = move |expired: ExpiredKey| {
        let _ = tried.send(expired);
        async { Err::<(), _>("not today") }
    };
    let short = Duration::from_millis(10);
    let policy = RetryPolicy { attempts: 3, backoff: Backoff::Fixed, min: short, max: short };
    let listener = || streams.expiry_listener("session:", fail.clone());
    let contradicting = RetryPolicy { min: short * 2, ..policy.clone() };
    assert!(matches!(listener().retry(contradicting).start().await, Err(Error::Invalid(_))));
    listener().retry(policy).start().await.unwrap();
    drop(fail);
    for key in ["session:1", "session:2"] {
        redis.run::<()>(&["SET", key, "1", "PX", "1"]);
        // A fourth try of the first key would come before the third of the second.
        for attempt in 1..=3 {
            assert_eq!(next(&mut trying).await.key, key, "attempt {attempt}");
        }
    }
    streams.shutdown().await.unwrap();
    assert!(trying.recv().await.is_none(), "given up");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_key_that_waits_for_its_next_try_holds_up_neither_others_nor_the_shutdown() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings { concurrency: 1, ..quick() }).await;
    let (received, mut inbox) = mpsc::unbounded_channel();
    let later = move |expired: ExpiredKey| {
        let reported = received.send(expired.key).map_err(|_| "nobody listens");
        // Longer than a test may take.
        async move { reported.map(|()| Verdict::retry_after(Duration::from_secs(3_000))) }
    };
    streams.expiry_listener("session:", later).start().await.unwrap();
    for key in ["session:1", "session:2"] {
        redis.run::<()>(&["SET", key, "1", "PX", "1"]);
        assert_eq!(next(&mut inbox).await, key);
    }
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn flags_are_added_to_the_setting_and_none_is_taken_away() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    for node in cluster.nodes() {
        node.run::<()>(&["CONFIG", "SET", "notify-keyspace-events", "K$"]);
    }
    let streams = Streams::connect(&cluster.url()).await.unwrap();
    let _hearing = listen(&streams, "session:").await;
    for node in cluster.nodes() {
        let (_, flags): (String, String) = node.run(&["CONFIG", "GET", "notify-keyspace-events"]);
        assert!(["K", "$", "E", "x"].iter().all(|flag| flags.contains(flag)), "{flags}");
    }
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn where_the_setting_may_not_be_changed_it_is_asked_for() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    redis.run::<()>(&["ACL", "SETUSER", "me", "on", ">pass", "~*", "&*", "+@all", "-config|set"]);
    let url = format!("redis://me:pass@127.0.0.1:{}", redis.port());
    let streams = Streams::connect(&url).await.unwrap();
    let start = || streams.expiry_listener("a:", |_| async { Ok::<_, String>(()) }).start();
    let Err(Error::Refused { what: why, .. }) = start().await else { panic!("it is off") };
    assert!(why.contains("set notify-keyspace-events there to \"Ex\""), "{why}");
    redis.run::<()>(&["CONFIG", "SET", "notify-keyspace-events", "AE"]);
    start().await.unwrap().stop().await;
    redis.run::<()>(&["ACL", "SETUSER", "me", "-config"]);
    let Err(Error::Refused { what: why, .. }) = start().await else {
        panic!("nobody knows whether it is on")
    };
    assert!(why.contains("notify-keyspace-events") && why.contains("assume_enabled"), "{why}");
    let (received, mut inbox) = mpsc::unbounded_channel();
    let hand_on = move |expired: ExpiredKey| {
        let reported = received.send(expired.key).map_err(|_| "nobody listens");
        async move { reported }
    };
    streams.expiry_listener("a:", hand_on).assume_enabled().start().await.unwrap();
    redis.run::<()>(&["SET", "a:1", "1", "PX", "1"]);
    assert_eq!(next(&mut inbox).await, "a:1");
    streams.shutdown().await.unwrap();
}

/// Sets keys until one is heard of.
async fn hears_again(inbox: &mut mpsc::UnboundedReceiver<ExpiredKey>, set: impl Fn()) {
    for _ in 0..300 {
        set();
        let soon = tokio::time::timeout(Duration::from_millis(200), inbox.recv()).await;
        if soon.is_ok_and(|received| received.is_some()) {
            return;
        }
    }
    panic!("nothing is heard any more");
}

#[tokio::test(flavor = "multi_thread")]
async fn after_a_restart_of_redis_it_is_told_that_some_may_have_been_missed_and_listening_goes_on() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, Settings::default()).await;
    let (received, mut inbox) = mpsc::unbounded_channel();
    let (reported, mut telling) = mpsc::unbounded_channel();
    let hand_on = move |expired: ExpiredKey| {
        let reported = received.send(expired).map_err(|_| "nobody listens");
        async move { reported }
    };
    let notify = move |gap: &duly_streams::EventGap| drop(reported.send(gap.server.clone()));
    streams.expiry_listener("session:", hand_on).on_gap(notify).start().await.unwrap();
    // The setting is forgotten with it, too.
    redis.restart();
    assert!(next(&mut telling).await.contains(&redis.port().to_string()));
    redis.run::<()>(&["SET", "session:1", "1", "PX", "1"]);
    assert_eq!(next(&mut inbox).await.key, "session:1");
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn the_master_that_the_sentinels_name_is_followed() {
    if !installed() {
        return;
    }
    let sentinels = Sentinels::start();
    let streams = Streams::connect(&sentinels.url()).await.unwrap();
    let mut inbox = listen(&streams, "session:").await;
    sentinels.pair()[0].run::<()>(&["SET", "session:1", "1", "PX", "1"]);
    assert_eq!(next(&mut inbox).await.key, "session:1");
    let new = tokio::task::block_in_place(|| sentinels.fail_over());
    hears_again(&mut inbox, || sentinels.pair()[new].run::<()>(&["SET", "session:2", "1", "PX", "1"])).await;
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn whoever_panics_when_told_of_a_gap_is_still_called_with_what_expires() {
    if !installed() {
        return;
    }
    let redis = Redis::single();
    let streams = connect(&redis, quick()).await;
    let (received, mut inbox) = mpsc::unbounded_channel();
    let (reported, mut telling) = mpsc::unbounded_channel();
    let handler = move |expired: ExpiredKey| {
        let reported = received.send(expired.key).map_err(|_| "nobody listens");
        async move { reported }
    };
    streams
        .expiry_listener("a:", handler)
        .on_gap(move |gap| {
            let _ = reported.send(gap.server.clone());
            panic!("a bug");
        })
        .start()
        .await
        .unwrap();
    redis.run::<usize>(&["CLIENT", "KILL", "TYPE", "PUBSUB"]);
    next(&mut telling).await;
    redis.run::<()>(&["SET", "a:1", "x", "PX", "1"]);
    assert_eq!(next(&mut inbox).await, "a:1");
    streams.shutdown().await.unwrap();
}
