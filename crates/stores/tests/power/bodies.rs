//! Large bodies are in memory a few at a time, however many messages a call or a sweep concerns.

use std::{sync::Arc, time::Duration};

use duly_core::{
    Attempt, Body, Lane, MessageId, Outcome, SinkName, Store, StoredMessage, Topic,
    store::{Changed, Claim, Holder, Insert, Inserted, LeasedMessage, Settle, Settled, Settlement},
};
use duly_stores::{EmbeddedStore, embedded::Options};
use testkit::disk::{PowerDisk, Traffic};

const BODY_BYTES: usize = 1 << 20;
const COUNT: usize = 40;
/// What is read ahead of the journal at the most: a piece, what waits for the journal's writer, and what that has in hand.
const MEMORY_MAX: usize = 31 << 20;

/// A store with large bodies that are all due, and the disk under it.
struct Large {
    disk: PowerDisk,
    traffic: Traffic,
    store: EmbeddedStore,
}

fn ids() -> Vec<MessageId> {
    (0..COUNT).map(|number| MessageId::parse(&format!("m{number}")).unwrap()).collect()
}

impl Large {
    async fn new() -> Self {
        let (disk, traffic) = (PowerDisk::default(), Traffic::default());
        // Nothing is moved, so that only the calls read.
        let options = Options {
            segment_bytes: 8 << 20,
            checkpoint_bytes: u64::MAX,
            window_bytes: 1 << 30,
            buffer_bytes: 1 << 30,
            disk: Arc::new(disk.clone()),
            ..Options::default()
        };
        let store = EmbeddedStore::open("/data", options, traffic.now()).await.unwrap();
        let (sink, topic) = (SinkName::parse("queue").unwrap(), Topic::parse("work").unwrap());
        let message = |id| {
            let mut message = StoredMessage::new(id, sink.clone(), topic.clone(), traffic.now().wall());
            message.body = Body::text("x".repeat(BODY_BYTES));
            Insert::new(message)
        };
        let answers = store.insert(traffic.now(), ids().into_iter().map(message).collect()).await.unwrap();
        assert_eq!(answers, vec![Inserted::Accepted; COUNT]);
        Self { disk, traffic, store }
    }

    /// Claims all of them, and counts what is read from then on.
    async fn claim_all(&self) -> Vec<LeasedMessage> {
        let lane = Lane::Queue(Topic::parse("work").unwrap());
        let lease = Duration::from_secs(60);
        let claim = Claim { lane, limit: COUNT, lease, holder: Holder::Client };
        let mut all = Vec::new();
        while all.len() < COUNT {
            let claimed = self.store.claim(self.traffic.now(), claim.clone()).await.unwrap().messages;
            assert!(!claimed.is_empty());
            all.extend(claimed);
        }
        self.disk.count_unwritten();
        all
    }

    fn assert_few_in_memory(&self) {
        let most = self.disk.unwritten_max();
        assert!(most >= BODY_BYTES, "{most} bytes were read: this measures nothing");
        assert!(most <= MEMORY_MAX, "{most} bytes were read before they were written");
    }
}

#[test]
fn leases_that_end_together_are_in_memory_a_few_at_a_time() {
    testkit::block_on(async {
        let large = Large::new().await;
        large.claim_all().await;
        large.traffic.pass(61_000);
        let sweep = large.store.sweep(large.traffic.now(), &[]).await.unwrap();
        assert_eq!(sweep.leases_ended, COUNT);
        large.assert_few_in_memory();
        assert_eq!(large.store.totals().await.unwrap().pending, COUNT as u64);
    });
}

#[test]
fn a_batch_that_is_retried_is_in_memory_a_few_at_a_time() {
    testkit::block_on(async {
        let large = Large::new().await;
        let now = large.traffic.now();
        let attempt = Attempt::new(now.wall(), Outcome::Failed, "no");
        let batch = large.claim_all().await.into_iter().map(|leased| Settle {
            receipt: leased.receipt,
            settlement: Settlement::Retry { at: now.wall(), attempt: attempt.clone() },
        });
        let settled = large.store.settle(now, batch.collect()).await.unwrap();
        assert_eq!(settled, [Settled::Done; COUNT]);
        large.assert_few_in_memory();
        assert_eq!(large.store.totals().await.unwrap().pending, COUNT as u64);
    });
}

#[test]
fn a_batch_that_is_rescheduled_is_in_memory_a_few_at_a_time() {
    testkit::block_on(async {
        let large = Large::new().await;
        let now = large.traffic.now();
        let due = now.wall().saturating_add(Duration::from_secs(1));
        let batch: Vec<_> = ids().into_iter().map(|id| (id, due)).collect();
        large.disk.count_unwritten();
        let changed = large.store.reschedule(now, &batch).await.unwrap();
        assert_eq!(changed, [Changed::Done { maybe_delivered: false }; COUNT]);
        large.assert_few_in_memory();
    });
}
