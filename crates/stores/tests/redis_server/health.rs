//! What a store says of itself when Redis takes no changes.

use duly_core::Store;
use duly_stores::redis::Options;
use testkit::{
    block_on,
    servers::redis::{self, Redis},
};

use crate::bed::{claim, insert, lane, message, now, open};

/// Each setting of a server, the word of its refusal, and how it is taken back.
const REFUSING: [(&[&str], &str, &[&str]); 3] = [
    (&["CONFIG", "SET", "maxmemory", "1"], "out of memory", &["CONFIG", "SET", "maxmemory", "0"]),
    (
        &["CONFIG", "SET", "min-replicas-to-write", "1"],
        "replicas",
        &["CONFIG", "SET", "min-replicas-to-write", "0"],
    ),
    (&["REPLICAOF", "127.0.0.1", "1"], "replica", &["REPLICAOF", "NO", "ONE"]),
];

#[test]
fn a_redis_that_takes_no_changes_is_not_healthy_until_it_does_again() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        for (refuse, word, allow) in REFUSING {
            let server = Redis::single();
            let store = open(&server.url(), Options::new(1)).await.unwrap();
            insert(&store, vec![message("a", 0)]).await.unwrap();
            store.sweep(now(0), &[lane("work")]).await.unwrap();
            store.health().await.whole().unwrap();
            server.run::<()>(refuse);
            for _ in 0..2 {
                let _ = store.sweep(now(1), &[lane("work")]).await;
            }
            let error = store.health().await.whole().unwrap_err();
            assert!(error.what.contains(word), "{refuse:?}: {error}");
            server.run::<()>(allow);
            let mut swept = store.sweep(now(2), &[lane("work")]).await;
            for _ in 0..100 {
                if swept.is_ok() {
                    break;
                }
                swept = store.sweep(now(2), &[lane("work")]).await;
            }
            swept.unwrap();
            store.health().await.whole().unwrap();
            assert_eq!(claim(&store, 3, 10).await.unwrap().messages.len(), 1);
        }
    });
}
