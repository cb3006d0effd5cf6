//! What a store says of itself when Redis takes no changes.

use duly_core::{
    Store,
    store::{Health, StoreErrorKind},
};
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

/// Makes a snapshot, and waits for how it ends.
fn snapshot(server: &Redis, status: &str) {
    let ended = format!("rdb_last_bgsave_status:{status}");
    loop {
        // One may be under way; what it says then does not matter.
        let _: Result<String, _> = ::redis::cmd("BGSAVE").query(&mut server.connection());
        let persistence: String = server.run(&["INFO", "persistence"]);
        if persistence.contains("rdb_bgsave_in_progress:0") && persistence.contains(&ended) {
            return;
        }
    }
}

#[test]
fn a_redis_that_cannot_write_its_snapshot_is_not_healthy_until_it_can() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let server = Redis::single();
        server.run::<()>(&["CONFIG", "SET", "save", "3600 1000000"]);
        server.run::<()>(&["CONFIG", "SET", "stop-writes-on-bgsave-error", "yes"]);
        let store = open(&server.url(), Options::new(1)).await.unwrap();
        insert(&store, vec![message("a", 0)]).await.unwrap();
        store.sweep(now(0), &[lane("work")]).await.unwrap();
        store.health().await.whole().unwrap();
        // A folder in the place of the file: whoever runs Redis, root too, cannot write there.
        let folder: Vec<String> = server.run(&["CONFIG", "GET", "dir"]);
        let in_the_way = std::path::Path::new(&folder[1]).join("dump.rdb");
        let _ = std::fs::remove_file(&in_the_way);
        std::fs::create_dir(&in_the_way).unwrap();
        snapshot(&server, "err");
        let error = insert(&store, vec![message("b", 0)]).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Unavailable && error.what.contains("its disk"), "{error}");
        for _ in 0..2 {
            let _ = store.sweep(now(1), &[lane("work")]).await;
        }
        let error = store.health().await.whole().unwrap_err();
        assert!(error.what.contains("cannot write to its disk"), "{error}");
        std::fs::remove_dir(&in_the_way).unwrap();
        snapshot(&server, "ok");
        store.sweep(now(2), &[lane("work")]).await.unwrap();
        store.health().await.whole().unwrap();
        assert_eq!(claim(&store, 3, 10).await.unwrap().messages.len(), 1);
    });
}

#[test]
fn a_shard_that_is_damaged_between_two_sweeps_degrades_the_store_at_once_until_it_is_repaired() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let server = Redis::single();
        let store = open(&server.url(), Options::new(1)).await.unwrap();
        insert(&store, vec![message("a", 0)]).await.unwrap();
        store.sweep(now(0), &[lane("work")]).await.unwrap();
        for (shard, name) in [(3, "count"), (15, "wait"), (0, "meta")] {
            let key = format!("duly:{{main:{shard}}}:{name}");
            server.run::<bool>(&["COPY", &key, "kept", "REPLACE"]);
            server.run::<()>(&["SET", &key, "x"]);
            let health = store.health().await;
            assert_eq!(health.whole(), Ok(()), "the other shards work");
            assert!(health.refuses_some);
            let error = health.degraded.unwrap();
            assert!(error.what.starts_with(&format!("1 of 16 shards fail ({shard})")), "{error}");
            assert!(error.what.contains(&key), "{error}");
            server.run::<()>(&["DEL", &key]);
            server.run::<bool>(&["COPY", "kept", &key]);
            server.run::<()>(&["DEL", "kept"]);
            assert_eq!(store.health().await, Health::healthy());
        }
    });
}

#[test]
fn a_store_of_which_every_shard_fails_is_not_ready() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let server = Redis::single();
        let store = open(&server.url(), Options::new(1)).await.unwrap();
        store.sweep(now(0), &[lane("work")]).await.unwrap();
        let key = |shard: u16| format!("duly:{{main:{shard}}}:wait");
        for shard in 0..16 {
            assert_eq!(store.health().await.whole(), Ok(()), "{shard} of 16 shards fail");
            server.run::<()>(&["SET", &key(shard), "x"]);
        }
        let health = store.health().await;
        assert_eq!(health.degraded, None);
        assert_eq!(health.accepting.clone().unwrap_err().kind, StoreErrorKind::Damaged);
        assert_eq!(health.accepting, health.claiming);
        server.run::<()>(&["DEL", &key(7)]);
        assert!(store.health().await.degraded.is_some());
    });
}

#[test]
fn a_question_of_health_is_one_command() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let server = Redis::single();
        let store = open(&server.url(), Options::new(1)).await.unwrap();
        store.sweep(now(0), &[lane("work")]).await.unwrap();
        store.health().await.whole().unwrap();
        let calls = || {
            let stats: String = server.run(&["INFO", "commandstats"]);
            let calls = |name: &str| {
                let line = stats.lines().find(|line| line.starts_with(&format!("cmdstat_{name}:calls=")));
                let digits = |line: &str| line.split(['=', ',']).nth(1).unwrap().parse::<u64>().unwrap();
                line.map_or(0, digits)
            };
            calls("evalsha") + calls("eval")
        };
        let before = calls();
        for _ in 0..10 {
            store.health().await.whole().unwrap();
        }
        assert_eq!(calls() - before, 10);
    });
}
