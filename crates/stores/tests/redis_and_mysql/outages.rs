//! Redis away, emptied, started again: accepting and delivering go on, and the index comes back whole.

use duly_core::Store;

use crate::bed::*;

#[tokio::test]
async fn flushall_is_found_by_the_next_look_and_nothing_is_lost_or_given_twice() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    insert(&servers.store, 0, &[("held", 100), ("near", 3_000), ("minutes", 300_000), ("days", 500_000_000)])
        .await
        .unwrap();
    sweep(&servers.store, 1_001).await;
    let held = claim(&servers.store, 1_001).await;
    assert_eq!(ids(&held), ["held"]);
    let _: () = servers.redis.run(&["FLUSHALL"]);
    assert_eq!(servers.entries(), 0);
    sweep(&servers.store, 2_100).await;
    assert_eq!((servers.entries(), servers.index().rebuilt), (2, 2), "built at first, and again");
    assert!(servers.index().is_used);
    deliver(&servers.store, 2_200, &held).await;
    assert_eq!(ids(&claim(&servers.store, 3_000).await), ["near"]);
    sweep(&servers.store, 299_000).await;
    assert_eq!(ids(&claim(&servers.store, 300_000).await), ["minutes"]);
    assert!(servers.store.totals().await.unwrap().balance());
}

#[tokio::test]
async fn without_redis_accepting_and_delivering_go_on_from_mysql() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    insert(&servers.store, 0, &[("before", 1_000)]).await.unwrap();
    servers.redis.kill();
    insert(&servers.store, 10, &[("during", 1_500), ("later", 60_000)]).await.unwrap();
    assert_eq!(ids(&claim(&servers.store, 1_000).await), ["before"]);
    assert!(!servers.index().is_used);
    let next = sweep(&servers.store, 1_100).await;
    assert_eq!(next, Some(ms(1_500)), "MySQL knows what comes next");
    let during = claim(&servers.store, 1_500).await;
    assert_eq!(ids(&during), ["during"]);
    deliver(&servers.store, 1_501, &during).await;
    insert(&servers.store, 1_600, &[("after", 5_000)]).await.unwrap();
    servers.redis.start();
    sweep_until_used(&servers, 3_000).await;
    assert_eq!(ids(&claim(&servers.store, 5_000).await), ["after"]);
    sweep(&servers.store, 59_000).await;
    assert_eq!(ids(&claim(&servers.store, 60_000).await), ["later"]);
}

#[tokio::test]
async fn a_redis_that_was_started_anew_is_not_believed_until_the_index_was_built_again() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    insert(&servers.store, 0, &[("a", 2_000), ("b", 600_000)]).await.unwrap();
    sweep(&servers.store, 1_001).await;
    let rebuilt = servers.index().rebuilt;
    servers.redis.restart();
    // The first look may only find out that the way to it is broken.
    sweep(&servers.store, 2_100).await;
    sweep_until_used(&servers, 3_200).await;
    assert_eq!(servers.index().rebuilt, rebuilt + 1);
    assert_eq!(ids(&claim(&servers.store, 4_000).await), ["a"]);
}

#[tokio::test]
async fn a_store_is_opened_without_redis() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    insert(&servers.store, 0, &[("a", 100)]).await.unwrap();
    servers.store.close().await.unwrap();
    servers.redis.kill();
    let again = servers.another("a", 7, 50).await;
    assert_eq!(ids(&claim(&again, 100).await), ["a"]);
}

#[tokio::test]
async fn only_the_first_node_builds_and_the_others_use_mysql_until_it_has() {
    let Some(servers) = RedisAndMysql::new().await else { return };
    let other = servers.another("b", 2, 1).await;
    sweep(&servers.store, 2).await;
    sweep(&other, 2).await;
    insert(&servers.store, 10, &[("a", 2_500)]).await.unwrap();
    let _: () = servers.redis.run(&["FLUSHALL"]);
    sweep(&other, 1_100).await;
    let seen = other.metrics().index.unwrap();
    assert!(!seen.is_used && seen.rebuilt == 0, "{seen:?}");
    assert_eq!(ids(&claim(&other, 2_500).await), ["a"], "found in MySQL");
    sweep(&servers.store, 2_600).await;
    sweep(&other, 2_700).await;
    assert!(other.metrics().index.unwrap().is_used);
}
