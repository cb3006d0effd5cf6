//! A store to be measured, with a clock that the benchmark moves.

use std::{sync::Arc, time::Duration};

use duly_core::{
    Body, Lane, MessageId, Monotonic, Now, SinkName, Store, StoredMessage, Timestamp, Topic,
    store::{Claim, Claimed, Holder, Insert, Inserted, Settle, Settlement},
};
use duly_stores::{EmbeddedStore, embedded::Options};

/// Bytes of the bodies.
pub(crate) const BODY: usize = 256;
/// Bytes that a raw append writes per message: id, topic, due time and body.
pub(crate) const RAW: usize = BODY + 24 + 8 + 8;
/// When virtual time begins.
const START_MS: u64 = 1_800_000_000_000;

pub(crate) struct Bed {
    pub(crate) store: Arc<EmbeddedStore>,
    pub(crate) dir: tempfile::TempDir,
    next: u64,
    body: Body,
}

/// `ms` after the start of virtual time.
pub(crate) fn at(ms: u64) -> Now {
    Now::new((START_MS + ms) * 1000, Monotonic::from_micros(1_000_000 + ms * 1000))
}

pub(crate) fn lane() -> Lane {
    Lane::Queue(Topic::parse("order").unwrap())
}

impl Bed {
    pub(crate) async fn new() -> Self {
        let dir = tempfile::tempdir().unwrap();
        let store = Arc::new(EmbeddedStore::open(dir.path(), Options::default(), at(0)).await.unwrap());
        Self { store, dir, next: 0, body: Body::bytes(vec![0x5a; BODY]) }
    }

    /// Ends the store without a word and opens it again; says how long opening took.
    pub(crate) async fn crash(&mut self, now: Now) -> Duration {
        self.store.abandon();
        let start = crate::process::now();
        self.store = Arc::new(EmbeddedStore::open(self.dir.path(), Options::default(), now).await.unwrap());
        start.elapsed()
    }

    pub(crate) fn message(&mut self, due_ms: u64) -> Insert {
        self.message_for("order", due_ms)
    }

    pub(crate) fn message_for(&mut self, topic: &str, due_ms: u64) -> Insert {
        self.next += 1;
        // The bits of a counter, mixed: as random as a made id.
        let random = u128::from(self.next.wrapping_mul(0x9e37_79b9_7f4a_7c15)) << 8;
        let id = MessageId::generate(Timestamp::from_millis(START_MS), random | u128::from(self.next as u8));
        let due = Timestamp::from_millis(START_MS + due_ms);
        let mut message = StoredMessage::new(id, SinkName::queue(), Topic::parse(topic).unwrap(), due);
        message.body = self.body.clone();
        Insert { id_is_generated: true, ..Insert::new(message) }
    }

    pub(crate) fn batch(&mut self, size: usize, due_ms: impl Fn(u64) -> u64) -> Vec<Insert> {
        (0..size)
            .map(|_| {
                let due = due_ms(self.next);
                self.message(due)
            })
            .collect()
    }

    pub(crate) async fn insert(&self, now: Now, batch: Vec<Insert>) {
        let answers = self.store.insert(now, batch).await.unwrap();
        assert!(answers.iter().all(|answer| *answer == Inserted::Accepted));
    }

    /// Fills the store with `count` messages, due as `due_ms` says of each number.
    pub(crate) async fn fill(&mut self, count: usize, now: Now, due_ms: impl Fn(u64) -> u64) {
        let mut left = count;
        let mut waiting = tokio::task::JoinSet::new();
        while left > 0 {
            let size = left.min(1024);
            left -= size;
            let batch = self.batch(size, &due_ms);
            let store = self.store.clone();
            waiting.spawn(async move { store.insert(now, batch).await.unwrap() });
            if waiting.len() >= 3 {
                waiting.join_next().await;
            }
        }
        while waiting.join_next().await.is_some() {}
    }
}

pub(crate) async fn claim(store: &EmbeddedStore, now: Now, lane: Lane, limit: usize) -> Claimed {
    let claim = Claim { lane, limit, lease: Duration::from_secs(30), holder: Holder::Process };
    store.claim(now, claim).await.unwrap()
}

pub(crate) async fn settle(store: &EmbeddedStore, now: Now, claimed: Claimed) -> usize {
    let batch: Vec<Settle> = claimed
        .messages
        .into_iter()
        .map(|leased| Settle { receipt: leased.receipt, settlement: Settlement::Delivered { receipt: None } })
        .collect();
    let count = batch.len();
    store.settle(now, batch).await.unwrap();
    count
}
