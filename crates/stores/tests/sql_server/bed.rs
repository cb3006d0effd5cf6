//! Messages and what is done with them, and time in the test's hand.

use std::time::Duration;

use duly_core::{
    Body, Lane, MessageId, Monotonic, Now, SinkName, State, Store, StoredMessage, Timestamp, Topic,
    store::{
        Claim, Claimed, Holder, Insert, Inserted, LeasedMessage, Settle, Settled, Settlement, StoreError,
        Totals,
    },
};
use duly_stores::SqlStore;

pub(crate) const START: u64 = 1_800_000_000_000;
pub(crate) const LEASE: Duration = Duration::from_secs(30);

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

pub(crate) fn message(text: &str, due: u64) -> StoredMessage {
    let mut message = StoredMessage::new(id(text), SinkName::queue(), Topic::parse("work").unwrap(), ms(due));
    message.body = Body::text("body");
    message
}

/// `m000`, `m001`, …
pub(crate) fn messages(count: usize) -> Vec<StoredMessage> {
    (0..count).map(|n| message(&format!("m{n:03}"), 0)).collect()
}

pub(crate) fn ids(count: usize) -> Vec<MessageId> {
    messages(count).into_iter().map(|message| message.id).collect()
}

pub(crate) async fn insert(
    store: &SqlStore,
    messages: Vec<StoredMessage>,
) -> Result<Vec<Inserted>, StoreError> {
    let batch = messages.into_iter().map(Insert::new).collect();
    store.insert(now(0), batch).await
}

pub(crate) async fn claim(store: &SqlStore, at: u64, limit: usize) -> Result<Claimed, StoreError> {
    let claim = Claim { lane: lane("work"), limit, lease: LEASE, holder: Holder::Process };
    store.claim(now(at), claim).await
}

pub(crate) async fn settle(
    store: &SqlStore,
    at: u64,
    leased: &[LeasedMessage],
    settlement: Settlement,
) -> Result<Vec<Settled>, StoreError> {
    let settle =
        |leased: &LeasedMessage| Settle { receipt: leased.receipt.clone(), settlement: settlement.clone() };
    store.settle(now(at), leased.iter().map(settle).collect()).await
}

pub(crate) async fn deliver(
    store: &SqlStore,
    at: u64,
    leased: &[LeasedMessage],
) -> Result<Vec<Settled>, StoreError> {
    settle(store, at, leased, Settlement::Delivered { receipt: None }).await
}

pub(crate) async fn bury(store: &SqlStore, at: u64, leased: &[LeasedMessage]) {
    let reason = duly_core::DeadReason::Refused;
    settle(store, at, leased, Settlement::Dead { reason, attempt: None }).await.unwrap();
}

/// The books, which balance.
pub(crate) async fn totals(store: &SqlStore) -> Totals {
    let totals = store.totals().await.unwrap();
    assert!(totals.balance(), "{totals:?}");
    totals
}

pub(crate) async fn state(store: &SqlStore, text: &str) -> Option<State> {
    store.get(&[id(text)]).await.unwrap()[0].as_ref().map(|record| record.state)
}
