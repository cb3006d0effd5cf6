//! Which Redis is taken, and which store in it.

use std::sync::Arc;

use duly_core::{Limits, Secret, Store, store::StoreErrorKind};
use duly_stores::{
    InStoreTarget, NodeOptions, RedisConfig, StoreConfig,
    redis::{Inspection, Options, StreamLimits, inspect},
};
use testkit::{
    block_on,
    servers::redis::{self, Redis},
};

use crate::bed::{insert, message, open};

#[test]
fn a_redis_that_may_lose_messages_is_refused_unless_allowed() {
    if !redis::installed() {
        return;
    }
    let no_aof = redis::Options { aof: false, ..redis::Options::default() };
    let evicting = redis::Options { policy: "allkeys-lru", ..redis::Options::default() };
    for (server, remedy) in [(no_aof, "appendonly yes"), (evicting, "noeviction")] {
        let server = Redis::with(server);
        block_on(async {
            let error = open(&server.url(), Options::new(1)).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Unavailable);
            assert!(error.what.contains(remedy) && error.what.contains("allow_volatile"), "{error}");
            let Inspection { version, findings, has_store, nodes, time_ms, .. } =
                inspect(&server.url()).await.unwrap();
            assert!(!version.is_empty() && !has_store && nodes.is_empty() && time_ms > 1_700_000_000_000);
            assert!(findings.len() == 1 && findings[0].remedy.contains(remedy), "{findings:?}");
            let store =
                open(&server.url(), Options { allow_volatile: true, ..Options::new(1) }).await.unwrap();
            insert(&store, vec![message("a", 0)]).await.unwrap();
            assert!(inspect(&server.url()).await.unwrap().has_store);
        });
    }
}

#[test]
fn another_number_of_shards_or_another_format_is_refused() {
    if !redis::installed() {
        return;
    }
    let server = Redis::single();
    block_on(async {
        let with = |shards| Options { shards, ..Options::new(1) };
        open(&server.url(), with(4)).await.unwrap();
        let error = open(&server.url(), with(5)).await.unwrap_err();
        assert!(error.what.contains("4 shards") && error.what.contains("set shards to 4"), "{error}");
        open(&server.url(), with(4)).await.unwrap();
        server.run::<()>(&["HSET", "duly:{main}:store", "format", "2"]);
        let error = open(&server.url(), with(4)).await.unwrap_err();
        assert!(error.what.contains("format 2"), "{error}");
        for (options, word) in [
            (with(0), "shards"),
            (with(Options::SHARDS_MAX + 1), "shards"),
            (Options { prefix: "a}b".into(), ..Options::new(1) }, "prefix"),
        ] {
            assert!(open(&server.url(), options).await.unwrap_err().what.contains(word));
        }
    });
}

#[test]
fn stores_of_different_names_share_a_redis_and_nothing_else() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let url = redis::shared().url();
        let named = |prefix: &str| Options { prefix: prefix.into(), ..Options::new(1) };
        let one = open(&url, named("one-of-two")).await.unwrap();
        let two = open(&url, named("two-of-two")).await.unwrap();
        insert(&one, vec![message("a", 0)]).await.unwrap();
        assert_eq!((one.totals().await.unwrap().pending, two.totals().await.unwrap().pending), (1, 0));
        assert_eq!(two.get(&[crate::bed::id("a")]).await.unwrap(), [None]);
    });
}

#[test]
fn nobody_there_is_told_without_the_password() {
    block_on(async {
        let error = open("redis://user:planted@127.0.0.1:1", Options::new(1)).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(!error.what.contains("planted"), "{error}");
    });
}

#[test]
fn only_streams_in_the_redis_of_the_store_are_delivered_to_within_it() {
    if !redis::installed() {
        return;
    }
    let (server, other) = (Redis::single(), Redis::single());
    let config = StoreConfig::Redis(RedisConfig::new(server.url()));
    let node = NodeOptions {
        name: "a".into(),
        instance: 1,
        lease: std::time::Duration::from_secs(10),
        retention: config.retention(),
        limits: Limits::default(),
    };
    let streams =
        |url: String| InStoreTarget::RedisStreams { url: Secret::new(url), limits: StreamLimits::default() };
    block_on(async {
        let clock = Arc::new(duly::SystemClock::new().unwrap());
        let opened = config.open(node, clock).await.unwrap();
        let targets = opened.in_store_delivery.unwrap();
        let sink = || "events".parse().unwrap();
        assert!(targets.delivery(sink(), &streams(server.url())).is_some());
        assert!(targets.delivery(sink(), &streams(other.url())).is_none());
    });
}
