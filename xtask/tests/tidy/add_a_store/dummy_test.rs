//! The store that was added, opened as every other is.

use std::{
    future::Future,
    pin::pin,
    sync::Arc,
    task::{Context, Poll, Waker},
    time::Duration,
};

use duly_core::{
    Clock, Limits, Monotonic, Now, Sleep, StoredMessage, Timestamp,
    store::{Claim, Holder, Insert, Inserted},
};
use duly_stores::{DummyConfig, NodeOptions, StoreConfig};

struct Still;

impl Clock for Still {
    fn now(&self) -> Now {
        Now::new(1_000_000, Monotonic::from_micros(0))
    }

    fn sleep_until(&self, _: Monotonic) -> Sleep {
        Box::pin(std::future::ready(()))
    }
}

/// Nothing here waits for anything.
fn done<T>(work: impl Future<Output = T>) -> T {
    match pin!(work).poll(&mut Context::from_waker(Waker::noop())) {
        Poll::Ready(done) => done,
        Poll::Pending => panic!("it waits"),
    }
}

#[test]
fn the_store_that_was_added_opens_and_gives_what_is_due() {
    let config = StoreConfig::Dummy(DummyConfig { folder: "nowhere".into() });
    assert_eq!((config.kind(), config.to_string().as_str()), ("dummy", "nowhere"));
    config.check().unwrap();
    assert!(!done(config.exists()).unwrap());
    let node = NodeOptions {
        name: "a".into(),
        instance: 1,
        lease: Duration::from_secs(10),
        retention: config.retention(),
        limits: Limits::default(),
    };
    let opened = done(config.open(node, Arc::new(Still))).unwrap();
    let (store, now) = (opened.store, opened.clock.now());
    let (id, sink) = ("order-42".parse().unwrap(), "hook".parse().unwrap());
    let message = StoredMessage::new(id, sink, "orders".parse().unwrap(), Timestamp::from_millis(1_000));
    let lane = message.lane();
    let inserted = done(store.insert(now, vec![Insert::new(message)])).unwrap();
    assert!(matches!(inserted[..], [Inserted::Accepted]), "{inserted:?}");
    let claim = Claim { lane, limit: 1, lease: Duration::from_secs(1), holder: Holder::Process };
    let claimed = done(store.claim(now, claim)).unwrap();
    assert_eq!(claimed.messages[0].message.id.as_str(), "order-42");
}
