//! Several nodes on one Redis: what depends on Redis. The rest is in `testkit::store::cluster`.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use duly_core::{
    Clock, Lane, Monotonic, Now, ShardOwner, ShardStatus, SinkName, Sleep, Store, StoredMessage, Topic,
    store::{Claim, Claimed, Holder, Insert, StoreErrorKind},
};
use duly_stores::{RedisStore, redis::Options};
use testkit::servers::redis::{self, Redis};

use crate::bed::{id, ms, now, open};

const LEASE: Duration = Duration::from_secs(10);
const SHARDS: usize = 16;

fn options(name: &str, instance: u64) -> Options {
    Options { node: name.into(), lease: LEASE, ..Options::new(instance) }
}

fn sink() -> Lane {
    Lane::Sink(SinkName::parse("orders").unwrap())
}

async fn node(redis: &Redis, name: &str, instance: u64) -> RedisStore {
    open(&redis.url(), options(name, instance)).await.unwrap()
}

async fn sweep(store: &RedisStore, at: u64) {
    store.sweep(now(at), &[sink()]).await.unwrap();
}

/// Both nodes know of each other and have what is theirs.
async fn settle_down(nodes: &[&RedisStore], at: u64) {
    for _ in 0..3 {
        for node in nodes {
            sweep(node, at).await;
        }
    }
}

/// So many messages that every shard has some.
async fn fill(store: &RedisStore, from: usize, count: usize) {
    let message = |n: usize| {
        StoredMessage::new(
            id(&format!("m{n}")),
            SinkName::parse("orders").unwrap(),
            Topic::parse("t").unwrap(),
            ms(0),
        )
    };
    let batch = (from..from + count).map(|n| Insert::new(message(n))).collect();
    store.insert(now(0), batch).await.unwrap();
}

async fn claim(store: &RedisStore, at: u64) -> Claimed {
    let claim = Claim { lane: sink(), limit: 1000, lease: LEASE, holder: Holder::Process };
    store.claim(now(at), claim).await.unwrap()
}

fn shards(claimed: &Claimed) -> BTreeSet<u16> {
    claimed.messages.iter().map(|leased| leased.receipt.shard).collect()
}

/// Whether Redis is there; it is said out loud if not.
macro_rules! on_redis {
    ($redis:ident, $body:block) => {
        if redis::installed() {
            let $redis = Redis::single();
            tokio::runtime::Runtime::new().unwrap().block_on(async move { $body });
        }
    };
}

/// The shards of the lane that `name` owns, as the store reports them.
fn owned(statuses: &[ShardStatus], name: &str) -> BTreeSet<u16> {
    let is_its = |owner: &ShardOwner| owner.lane == sink() && owner.node == name;
    let its = statuses.iter().filter(|status| status.owners.iter().any(is_its));
    its.map(|status| status.shard as u16).collect()
}

#[test]
fn a_shard_whose_hand_over_redis_forgot_is_handed_over_again() {
    on_redis!(redis, {
        let one = node(&redis, "one", 1).await;
        sweep(&one, 0).await;
        let owner = |shard: usize| format!("duly:{{main:{shard}}}:owner");
        let before: Vec<Vec<u8>> =
            (0..SHARDS).map(|shard| redis.run(&["HGET", &owner(shard), "sorders"])).collect();
        let two = node(&redis, "two", 2).await;
        settle_down(&[&one, &two], 1).await;
        assert_eq!(owned(&two.shards(now(1)).await.unwrap(), "two").len(), SHARDS / 2);
        // Redis was killed and lost the second in which shards changed hands: the first node has all of them, and takes
        // itself to have given half of them back.
        let mut connection = redis.connection();
        for (shard, right) in before.iter().enumerate() {
            let mut cmd = ::redis::cmd("HSET");
            cmd.arg(owner(shard)).arg("sorders").arg(right).exec(&mut connection).unwrap();
        }
        fill(&one, 0, 400).await;
        claim(&two, 1).await;
        settle_down(&[&two, &one], 2).await;
        settle_down(&[&two, &one], 3).await;
        let (of_one, of_two) = (claim(&one, 3).await, claim(&two, 3).await);
        assert_eq!((shards(&of_one).len(), shards(&of_two).len()), (SHARDS / 2, SHARDS / 2));
        assert_eq!(of_one.messages.len() + of_two.messages.len(), 400);
    });
}

#[test]
fn a_node_with_other_scripts_is_refused_while_one_is_there() {
    on_redis!(redis, {
        let one = node(&redis, "one", 1).await;
        // A node of a later version: its number is first in its status.
        let mut status = vec![0, 99, 5];
        status.extend_from_slice(b"later9.9.9\nwho knows what");
        let (later, far) = (7u64.to_be_bytes(), (crate::bed::START + 3_600_000) * 1000);
        let mut connection = redis.connection();
        ::redis::cmd("HSET").arg("duly:{main}:nodes").arg(&later).arg(status).exec(&mut connection).unwrap();
        ::redis::cmd("ZADD").arg("duly:{main}:alive").arg(far).arg(&later).exec(&mut connection).unwrap();
        let error = open(&redis.url(), options("two", 2)).await.unwrap_err();
        assert!(error.what.contains("\"later\"") && error.what.contains("version"), "{error}");
        // Those that are there go on.
        sweep(&one, 1).await;
        // Once it is gone, there is nothing to refuse.
        open(&redis.url(), options("two", 2)).await.unwrap_err();
        RedisStore::open(&redis.url(), options("two", 2), now(3_600_001)).await.unwrap();
    });
}

#[test]
fn data_of_another_format_is_refused() {
    on_redis!(redis, {
        node(&redis, "one", 1).await.close().await.unwrap();
        redis.run::<()>(&["HSET", "duly:{main}:store", "format", "9"]);
        let error = open(&redis.url(), options("one", 2)).await.unwrap_err();
        assert!(error.what.contains("format 9"), "{error}");
    });
}

#[test]
fn a_message_accepted_by_one_node_wakes_the_one_that_delivers_it() {
    on_redis!(redis, {
        let (one, two) = (node(&redis, "one", 1).await, Arc::new(node(&redis, "two", 2).await));
        settle_down(&[&one, &two], 0).await;
        fill(&one, 0, 200).await;
        let of_two = claim(&two, 0).await;
        let theirs = of_two.messages[0].message.clone();
        let listening = two.clone();
        let received = tokio::spawn(async move { listening.hint().await });
        while redis.run::<Vec<String>>(&["PUBSUB", "CHANNELS", "duly:*"]).is_empty() {
            tokio::task::yield_now().await;
        }
        // Ids that hash into shards of the first are not told to the second: only the last one is.
        let new = |text: &str| StoredMessage {
            due: ms(5),
            ..StoredMessage::new(id(text), theirs.sink.clone(), theirs.topic.clone(), ms(5))
        };
        for text in (0..).map(|n| format!("new{n}")) {
            let message = new(&text);
            let is_theirs = shards(&of_two).contains(&shard_of(&message));
            one.insert(now(1), vec![Insert::new(message)]).await.unwrap();
            if is_theirs {
                break;
            }
        }
        let hint = received.await.unwrap();
        assert_eq!((hint.lane, hint.due), (sink(), ms(5)));
    });
}

fn shard_of(message: &StoredMessage) -> u16 {
    (message.id.hash64() % SHARDS as u64) as u16
}

#[test]
fn an_accepted_message_waits_for_replicas_if_that_is_asked_for() {
    on_redis!(redis, {
        let options = Options { wait_replicas: 1, ..options("one", 1) };
        let store = open(&redis.url(), options).await.unwrap();
        let error = crate::bed::insert(&store, vec![crate::bed::message("a", 0)]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unanswered);
        assert!(error.what.contains("0 of 1 replicas"), "{error}");
    });
}

/// A machine whose wall clock is an hour ahead.
struct Ahead(Instant);

impl Clock for Ahead {
    #[expect(clippy::disallowed_methods, reason = "a clock of this test's own")]
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        Now::new(wall + 3_600_000_000, Monotonic::from_micros(self.0.elapsed().as_micros() as u64))
    }

    fn sleep_until(&self, _: Monotonic) -> Sleep {
        Box::pin(std::future::pending())
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a clock of this test's own")]
fn time_is_that_of_redis_whatever_the_machine_says() {
    on_redis!(redis, {
        let (store, clock) =
            RedisStore::join(&redis.url(), options("one", 1), Arc::new(Ahead(Instant::now()))).await.unwrap();
        let [seconds, _] = redis.run::<[u64; 2]>(&["TIME"]);
        let now = clock.now();
        assert!(now.wall().as_millis().abs_diff(seconds * 1000) < 60_000, "an hour off is more than that");
        assert!(now.latest_micros() >= now.wall_micros());
        store.sweep(now, &[]).await.unwrap();
        store.sweep(clock.now(), &[]).await.unwrap();
        let skew = store.nodes().await.unwrap()[0].clock_skew_us;
        assert!(skew.abs_diff(3_600_000_000) < 60_000_000, "{skew}");
        assert!(store.metrics().clock_skew_us.is_some());
    });
}
