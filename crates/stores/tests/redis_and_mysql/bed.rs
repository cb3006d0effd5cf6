//! A MariaDB and a Redis of its own with a store in them, and time in the test's hand.

use std::time::Duration;

use duly_core::{
    Body, Lane, MessageId, Monotonic, Now, SinkName, Store, StoredMessage, Timestamp, Topic,
    store::{
        Claim, Holder, IndexMetrics, Insert, Inserted, LeasedMessage, Settle, Settled, Settlement, StoreError,
    },
};
use duly_stores::{RedisAndMysqlStore, redis_and_mysql::Options, sql};
use testkit::servers::{
    mysql,
    redis::{self, Redis},
};

pub(crate) const START: u64 = 1_800_000_000_000;

pub(crate) fn now(after_ms: u64) -> Now {
    Now::new((START + after_ms) * 1000, Monotonic::from_micros(after_ms * 1000))
}

pub(crate) fn ms(after: u64) -> Timestamp {
    Timestamp::from_millis(START + after)
}

pub(crate) fn lane() -> Lane {
    Lane::Queue(Topic::parse("work").unwrap())
}

pub(crate) fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

fn message(text: &str, due: u64) -> StoredMessage {
    let mut message = StoredMessage::new(id(text), SinkName::queue(), Topic::parse("work").unwrap(), ms(due));
    message.body = Body::text("body");
    message
}

/// Both servers, with a Redis that may be killed or emptied.
pub(crate) struct RedisAndMysql {
    pub(crate) redis: Redis,
    pub(crate) mysql: String,
    pub(crate) store: RedisAndMysqlStore,
}

impl RedisAndMysql {
    /// `None` where the servers are not installed, which has been said.
    pub(crate) async fn new() -> Option<Self> {
        Self::with(|_| ()).await
    }

    pub(crate) async fn with(change: impl FnOnce(&mut Options)) -> Option<Self> {
        if !(redis::installed() && mysql::installed()) {
            return None;
        }
        let (redis, mysql) = (Redis::single(), mysql::shared().fresh_database());
        let mut options = options("a", 1);
        change(&mut options);
        let store = RedisAndMysqlStore::open(&redis.url(), &mysql, options, now(0)).await.unwrap();
        Some(Self { redis, mysql, store })
    }

    /// Another node of the same store.
    pub(crate) async fn another(&self, name: &str, instance: u64, at: u64) -> RedisAndMysqlStore {
        RedisAndMysqlStore::open(&self.redis.url(), &self.mysql, options(name, instance), now(at))
            .await
            .unwrap()
    }

    /// How many entries Redis has.
    pub(crate) fn entries(&self) -> u64 {
        let keys: Vec<String> = self.redis.run(&["KEYS", "duly:*:index"]);
        keys.iter().map(|key| self.redis.run::<u64>(&["ZCARD", key])).sum()
    }

    pub(crate) fn index(&self) -> IndexMetrics {
        self.store.metrics().index.unwrap()
    }
}

fn options(name: &str, instance: u64) -> Options {
    let sql = sql::Options { node: name.into(), connections: 4, ..sql::Options::new(instance) };
    Options::new(sql)
}

pub(crate) async fn insert(
    store: &RedisAndMysqlStore,
    at: u64,
    due: &[(&str, u64)],
) -> Result<(), StoreError> {
    let new = |(text, due): &(&str, u64)| Insert::new(message(text, *due));
    let answers = store.insert(now(at), due.iter().map(new).collect()).await?;
    assert!(answers.iter().all(|answer| *answer == Inserted::Accepted), "{answers:?}");
    Ok(())
}

pub(crate) async fn claim(store: &RedisAndMysqlStore, at: u64) -> Vec<LeasedMessage> {
    let claim =
        Claim { lane: lane(), limit: 100, lease: Duration::from_secs(100_000), holder: Holder::Process };
    store.claim(now(at), claim).await.unwrap().messages
}

pub(crate) async fn deliver(store: &RedisAndMysqlStore, at: u64, leased: &[LeasedMessage]) {
    let settlement = Settlement::Delivered { receipt: None };
    let settle =
        |leased: &LeasedMessage| Settle { receipt: leased.receipt.clone(), settlement: settlement.clone() };
    let settled = store.settle(now(at), leased.iter().map(settle).collect()).await.unwrap();
    assert!(settled.iter().all(|settled| *settled == Settled::Done), "{settled:?}");
}

pub(crate) async fn sweep(store: &RedisAndMysqlStore, at: u64) -> Option<Timestamp> {
    let sweep = store.sweep(now(at), &[lane()]).await.unwrap();
    sweep.next.into_iter().map(|(_, next)| next).min()
}

pub(crate) fn ids(leased: &[LeasedMessage]) -> Vec<&str> {
    leased.iter().map(|leased| leased.message.id.as_str()).collect()
}

/// Sweeps until the index is used again: the way to a Redis that was started again takes a moment to come about.
pub(crate) async fn sweep_until_used(servers: &RedisAndMysql, at: u64) {
    for step in 0..500 {
        sweep(&servers.store, at + step).await;
        if servers.index().is_used {
            return;
        }
    }
    panic!("the index is not used: {:?}", servers.store);
}
