//! Nobody is told of a change before it is durable: neither who asked for it nor who asks after it.

use std::{
    future::{Future, poll_fn},
    pin::{Pin, pin},
    task::Poll,
    time::Duration,
};

use duly_core::{
    Attempt, DeadReason, Lane, MessageId, Outcome, SinkName, State, Store, StoredMessage, Topic,
    store::{
        Claim, Holder, Insert, Inserted, LeasedMessage, Query, Settle, Settlement, StoreError, StoreErrorKind,
    },
};
use duly_stores::EmbeddedStore;
use testkit::disk::{PowerDisk, Traffic};

use crate::tiny;

/// A store with one message, `m`, and the disk under it.
struct One {
    disk: PowerDisk,
    traffic: Traffic,
    store: EmbeddedStore,
}

fn id() -> MessageId {
    MessageId::parse("m").unwrap()
}

fn insert(traffic: &Traffic) -> Vec<Insert> {
    let topic = Topic::parse("work").unwrap();
    let message = StoredMessage::new(id(), SinkName::parse("queue").unwrap(), topic, traffic.now().wall());
    vec![Insert::new(message)]
}

/// A held sync would keep the store from ending.
impl Drop for One {
    fn drop(&mut self) {
        self.disk.release();
    }
}

/// Whether there is no answer yet.
async fn waits<T>(mut answer: Pin<&mut impl Future<Output = T>>) -> bool {
    poll_fn(|cx| Poll::Ready(answer.as_mut().poll(cx).is_pending())).await
}

impl One {
    async fn new() -> Self {
        let (disk, traffic) = (PowerDisk::default(), Traffic::default());
        let store = EmbeddedStore::open("/data", tiny(&disk), traffic.now()).await.unwrap();
        let answer = store.insert(traffic.now(), insert(&traffic)).await.unwrap();
        assert_eq!(answer, [Inserted::Accepted]);
        Self { disk, traffic, store }
    }

    async fn claimed(&self) -> LeasedMessage {
        let lane = Lane::Queue(Topic::parse("work").unwrap());
        let claim = Claim { lane, limit: 1, lease: Duration::from_secs(60), holder: Holder::Client };
        self.store.claim(self.traffic.now(), claim).await.unwrap().messages.remove(0)
    }

    async fn settle(&self, leased: &LeasedMessage, settlement: Settlement) -> Result<(), StoreError> {
        let batch = vec![Settle { receipt: leased.receipt.clone(), settlement }];
        self.store.settle(self.traffic.now(), batch).await.map(|_| ())
    }

    /// `first` changes the message, and the disk does not come to an end with it: `second`, which sees the change,
    /// must wait as well. Then the disk fails, and neither may have been told anything.
    async fn neither_is_answered<A, B: std::fmt::Debug>(
        &self,
        first: impl Future<Output = Result<A, StoreError>>,
        second: impl Future<Output = Result<B, StoreError>>,
    ) {
        self.disk.hold_syncs();
        let (mut first, mut second) = (pin!(first), pin!(second));
        assert!(waits(first.as_mut()).await, "the change is answered before its sync");
        assert!(waits(second.as_mut()).await, "the change is told before its sync");
        self.disk.fail_held();
        let first = first.await.err();
        assert_eq!(first.as_ref().map(|error| error.kind), Some(StoreErrorKind::Closed));
        assert!(first.is_some_and(|error| error.is_maybe_done()), "it may be on the disk");
        let second = second.await;
        assert_eq!(second.as_ref().err().map(|error| error.kind), Some(StoreErrorKind::Closed), "{second:?}");
    }
}

#[test]
fn a_second_cancel_is_not_answered_before_the_sync_of_the_first() {
    testkit::block_on(async {
        let one = One::new().await;
        let (now, ids) = (one.traffic.now(), [id()]);
        one.neither_is_answered(one.store.cancel(now, &ids), one.store.cancel(now, &ids)).await;
    });
}

#[test]
fn a_reschedule_is_not_too_late_before_the_sync_of_the_cancel() {
    testkit::block_on(async {
        let one = One::new().await;
        let (now, ids, batch) = (one.traffic.now(), [id()], [(id(), one.traffic.now().wall())]);
        one.neither_is_answered(one.store.cancel(now, &ids), one.store.reschedule(now, &batch)).await;
    });
}

#[test]
fn a_second_purge_is_not_answered_before_the_sync_of_the_first() {
    testkit::block_on(async {
        let one = One::new().await;
        let leased = one.claimed().await;
        let attempt = Attempt::new(one.traffic.now().wall(), Outcome::Refused, "no");
        let dead = Settlement::Dead { reason: DeadReason::Refused, attempt: Some(attempt) };
        one.settle(&leased, dead).await.unwrap();
        let (now, ids) = (one.traffic.now(), [id()]);
        one.neither_is_answered(one.store.purge(now, &ids), one.store.purge(now, &ids)).await;
    });
}

#[test]
fn a_duplicate_is_not_answered_before_the_sync_of_the_delivery() {
    testkit::block_on(async {
        let one = One::new().await;
        let leased = one.claimed().await;
        let delivered = one.settle(&leased, Settlement::Delivered { receipt: None });
        one.neither_is_answered(delivered, one.store.insert(one.traffic.now(), insert(&one.traffic))).await;
    });
}

#[test]
fn a_message_is_not_shown_as_cancelled_before_the_sync_of_the_cancel() {
    testkit::block_on(async {
        let one = One::new().await;
        let ids = [id()];
        one.neither_is_answered(one.store.cancel(one.traffic.now(), &ids), one.store.get(&ids)).await;
    });
}

#[test]
fn a_message_is_not_listed_as_cancelled_before_the_sync_of_the_cancel() {
    testkit::block_on(async {
        let one = One::new().await;
        let (ids, query) = ([id()], Query::all(State::Cancelled));
        one.neither_is_answered(one.store.cancel(one.traffic.now(), &ids), one.store.list(&query)).await;
    });
}

#[test]
fn an_insert_whose_sync_failed_may_have_been_done_and_the_next_was_not() {
    testkit::block_on(async {
        let one = One::new().await;
        one.disk.hold_syncs();
        let mut fresh = insert(&one.traffic);
        fresh[0].message.id = MessageId::parse("fresh").unwrap();
        let mut second = pin!(one.store.insert(one.traffic.now(), fresh.clone()));
        assert!(waits(second.as_mut()).await);
        one.disk.fail_held();
        assert!(second.await.unwrap_err().is_maybe_done());
        let refused = one.store.insert(one.traffic.now(), fresh).await.unwrap_err();
        assert!(refused.kind == StoreErrorKind::Closed && !refused.is_maybe_done(), "{refused}");
    });
}
