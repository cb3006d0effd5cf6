//! What the index has, and what becomes of what it should not have or should have had.

use duly_core::{Store, store::Changed};

use crate::bed::*;

const HOUR: u64 = 3_600_000;

#[tokio::test]
async fn redis_holds_the_near_future_only() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    insert(
        &servers.store,
        0,
        &[("soon", 5_000), ("within", 1_800_000), ("far", 2 * HOUR), ("farther", 48 * HOUR)],
    )
    .await
    .unwrap();
    sweep(&servers.store, 1_001).await;
    assert_eq!(servers.entries(), 2);
    assert_eq!(ids(&claim(&servers.store, 5_000).await), ["soon"]);
    assert_eq!(servers.entries(), 1, "what was claimed is in the index no more");
    sweep(&servers.store, HOUR + 60_000).await;
    assert_eq!(servers.entries(), 2, "the next stretch was brought in before it is due");
    let next = sweep(&servers.store, HOUR + 62_000).await;
    assert_eq!(next, Some(ms(1_800_000)));
}

#[tokio::test]
async fn with_more_than_the_index_may_hold_it_looks_less_far_ahead_and_nothing_is_missed() {
    let Some(servers) = RedisAndMysql::with(|options| options.entries_max = 500).await else { return };
    let names: Vec<_> = (0..1500).map(|n| format!("m{n:04}")).collect();
    let due: Vec<_> = names.iter().zip(0..).map(|(name, n)| (name.as_str(), 60_000 + n)).collect();
    insert(&servers.store, 0, &due).await.unwrap();
    for at in 0..3 {
        sweep(&servers.store, 1_500 * at).await;
    }
    assert!(servers.entries() <= 1000, "{} entries", servers.entries());
    let mut seen = 0;
    while seen < due.len() {
        let leased = claim(&servers.store, 70_000).await;
        assert!(!leased.is_empty(), "only {seen} came");
        seen += leased.len();
        deliver(&servers.store, 70_000, &leased).await;
        sweep(&servers.store, 70_000).await;
    }
}

#[tokio::test]
async fn the_shards_are_those_of_the_database() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    insert(&servers.store, 0, &[("soon", 1_000)]).await.unwrap();
    let oldest = async |at: u64| {
        let statuses = servers.store.shards(now(at)).await.unwrap();
        assert_eq!(statuses.len(), 16);
        statuses.into_iter().filter_map(|status| status.oldest).collect::<Vec<_>>()
    };
    assert_eq!(oldest(999).await, []);
    assert_eq!(oldest(1_000).await, [ms(1_000)]);
    assert_eq!(ids(&claim(&servers.store, 1_000).await), ["soon"]);
    assert_eq!(oldest(1_000).await, []);
}

#[tokio::test]
async fn an_entry_that_does_not_match_its_row_is_dropped() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    insert(&servers.store, 0, &[("a", 1_000), ("b", 1_000), ("c", 1_000)]).await.unwrap();
    let done = Changed::Done { maybe_delivered: false };
    assert_eq!(servers.store.cancel(now(1), &[id("a")]).await.unwrap(), [done]);
    assert_eq!(servers.store.reschedule(now(1), &[(id("b"), ms(4_000))]).await.unwrap(), [done]);
    assert_eq!(servers.entries(), 4);
    assert_eq!(ids(&claim(&servers.store, 1_000).await), ["c"]);
    assert_eq!((servers.entries(), servers.index().dropped), (1, 2));
    assert_eq!(ids(&claim(&servers.store, 4_000).await), ["b"]);
}

#[tokio::test]
async fn the_reconciler_removes_what_has_no_row_and_restores_what_has_no_entry() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    insert(&servers.store, 0, &[("kept", 5_000), ("gone", 6_000), ("later", 600_000)]).await.unwrap();
    sweep(&servers.store, 1_001).await;
    let key = |id: &str| {
        let keys: Vec<String> = servers.redis.run(&["KEYS", "duly:*:index"]);
        let holds = |key: &&String| {
            let members: Vec<Vec<u8>> = servers.redis.run(&["ZRANGE", key, "0", "-1"]);
            members.iter().any(|member| String::from_utf8_lossy(member).contains(id))
        };
        keys.iter().find(holds).unwrap().clone()
    };
    // Somebody takes one entry away, and cancels another behind the index's back.
    let _: u64 = servers.redis.run(&["DEL", &key("later")]);
    servers.store.cancel(now(2), &[id("gone")]).await.unwrap();
    for step in 2..60 {
        sweep(&servers.store, step * 1_000).await;
    }
    let index = servers.index();
    assert!(index.restored >= 1 && index.dropped >= 1, "{index:?}");
    assert_eq!(servers.entries(), 2, "kept and later");
    assert_eq!(servers.redis.run::<u64>(&["ZCARD", &key("later")]), 1);
}

#[tokio::test]
async fn a_row_that_the_index_never_heard_of_is_found_when_it_is_overdue() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    insert(&servers.store, 0, &[("a", 2_000), ("b", 2_000)]).await.unwrap();
    let keys: Vec<String> = servers.redis.run(&["KEYS", "duly:*:index"]);
    for key in keys {
        let _: u64 = servers.redis.run(&["DEL", &key]);
    }
    assert!(claim(&servers.store, 2_000).await.is_empty(), "the index was believed");
    sweep(&servers.store, 3_001).await;
    let leased = claim(&servers.store, 3_001).await;
    assert_eq!(ids(&leased), ["a", "b"]);
    assert_eq!(servers.index().restored, 2);
}

#[tokio::test]
async fn what_another_node_accepts_is_claimed_by_the_index_of_both() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    let other = servers.another("b", 2, 1).await;
    for at in [2, 1_100] {
        sweep(&servers.store, at).await;
        sweep(&other, at).await;
    }
    assert!(other.metrics().index.unwrap().is_used);
    insert(&servers.store, 1_200, &[("near", 3_000), ("far", 30_000)]).await.unwrap();
    assert_eq!(ids(&claim(&other, 3_000).await), ["near"]);
    for at in [4_000, 15_000, 29_500] {
        sweep(&servers.store, at).await;
        sweep(&other, at).await;
    }
    assert_eq!(ids(&claim(&other, 30_000).await), ["far"]);
    assert!(claim(&servers.store, 30_000).await.is_empty());
}
