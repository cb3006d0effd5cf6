//! A store on a server of its own, and time in the test's hand.

use std::time::Duration;

use duly_core::{
    Body, Lane, MessageId, Monotonic, Now, SinkName, Store, StoredMessage, Timestamp, Topic,
    store::{Claim, Claimed, Holder, Insert, Inserted, LeasedMessage, Settle, Settlement, StoreError},
};
use duly_stores::{RedisStore, redis::Options};
use testkit::servers::redis::Redis;

pub(crate) const START: u64 = 1_800_000_000_000;

pub(crate) fn now(after_ms: u64) -> Now {
    Now::new((START + after_ms) * 1000, Monotonic::from_micros(after_ms * 1000))
}

pub(crate) fn ms(after: u64) -> Timestamp {
    Timestamp::from_millis(START + after)
}

pub(crate) fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

pub(crate) fn lane(topic: &str) -> Lane {
    Lane::Queue(Topic::parse(topic).unwrap())
}

pub(crate) fn message_in(topic: &str, text: &str, due: u64) -> StoredMessage {
    let mut message = StoredMessage::new(id(text), SinkName::queue(), Topic::parse(topic).unwrap(), ms(due));
    message.body = Body::text("body");
    message
}

pub(crate) fn message(text: &str, due: u64) -> StoredMessage {
    message_in("work", text, due)
}

pub(crate) async fn open(url: &str, options: Options) -> Result<RedisStore, StoreError> {
    RedisStore::open(url, options, now(0)).await
}

/// A server of its own with a store in it.
pub(crate) async fn single() -> (Redis, RedisStore) {
    let redis = Redis::single();
    let store = open(&redis.url(), Options::new(1)).await.unwrap();
    (redis, store)
}

pub(crate) async fn insert(
    store: &RedisStore,
    messages: Vec<StoredMessage>,
) -> Result<Vec<Inserted>, StoreError> {
    let batch = messages.into_iter().map(Insert::new).collect();
    store.insert(now(0), batch).await
}

pub(crate) async fn claim(store: &RedisStore, at: u64, limit: usize) -> Result<Claimed, StoreError> {
    let claim = Claim { lane: lane("work"), limit, lease: Duration::from_secs(30), holder: Holder::Process };
    store.claim(now(at), claim).await
}

pub(crate) async fn deliver(store: &RedisStore, at: u64, leased: &[LeasedMessage]) -> Result<(), StoreError> {
    let settle = |leased: &LeasedMessage| Settle {
        receipt: leased.receipt.clone(),
        settlement: Settlement::Delivered { receipt: None },
    };
    store.settle(now(at), leased.iter().map(settle).collect()).await.map(|_| ())
}
