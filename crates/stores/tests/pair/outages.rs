//! Redis away, emptied, started anew: accepting and delivering go on, and the index comes back whole.

use duly_core::Store;

use crate::bed::*;

#[tokio::test]
async fn flushall_is_found_by_the_next_look_and_nothing_is_lost_or_given_twice() {
    let Some(pair) = Pair::new().await else { return };
    insert(&pair.store, 0, &[("held", 100), ("near", 3_000), ("minutes", 300_000), ("days", 500_000_000)])
        .await
        .unwrap();
    sweep(&pair.store, 1_001).await;
    let held = claim(&pair.store, 1_001).await;
    assert_eq!(ids(&held), ["held"]);
    let _: () = pair.redis.run(&["FLUSHALL"]);
    assert_eq!(pair.entries(), 0);
    sweep(&pair.store, 2_100).await;
    assert_eq!((pair.entries(), pair.index().rebuilt), (2, 2), "built at first, and again");
    assert!(pair.index().is_used);
    deliver(&pair.store, 2_200, &held).await;
    assert_eq!(ids(&claim(&pair.store, 3_000).await), ["near"]);
    sweep(&pair.store, 299_000).await;
    assert_eq!(ids(&claim(&pair.store, 300_000).await), ["minutes"]);
    assert!(pair.store.totals().await.unwrap().balance());
}

#[tokio::test]
async fn without_redis_accepting_and_delivering_go_on_from_mysql() {
    let Some(pair) = Pair::new().await else { return };
    insert(&pair.store, 0, &[("before", 1_000)]).await.unwrap();
    pair.redis.kill();
    insert(&pair.store, 10, &[("during", 1_500), ("later", 60_000)]).await.unwrap();
    assert_eq!(ids(&claim(&pair.store, 1_000).await), ["before"]);
    assert!(!pair.index().is_used);
    let next = sweep(&pair.store, 1_100).await;
    assert_eq!(next, Some(ms(1_500)), "MySQL knows what comes next");
    let during = claim(&pair.store, 1_500).await;
    assert_eq!(ids(&during), ["during"]);
    deliver(&pair.store, 1_501, &during).await;
    insert(&pair.store, 1_600, &[("after", 5_000)]).await.unwrap();
    pair.redis.start();
    sweep_until_used(&pair, 3_000).await;
    assert_eq!(ids(&claim(&pair.store, 5_000).await), ["after"]);
    sweep(&pair.store, 59_000).await;
    assert_eq!(ids(&claim(&pair.store, 60_000).await), ["later"]);
}

#[tokio::test]
async fn a_redis_that_was_started_anew_is_not_believed_until_the_index_was_built_again() {
    let Some(pair) = Pair::new().await else { return };
    insert(&pair.store, 0, &[("a", 2_000), ("b", 600_000)]).await.unwrap();
    sweep(&pair.store, 1_001).await;
    let rebuilt = pair.index().rebuilt;
    pair.redis.restart();
    // The first look may only find out that the way to it is broken.
    sweep(&pair.store, 2_100).await;
    sweep_until_used(&pair, 3_200).await;
    assert_eq!(pair.index().rebuilt, rebuilt + 1);
    assert_eq!(ids(&claim(&pair.store, 4_000).await), ["a"]);
}

#[tokio::test]
async fn a_store_is_opened_without_redis() {
    let Some(pair) = Pair::new().await else { return };
    insert(&pair.store, 0, &[("a", 100)]).await.unwrap();
    pair.store.close().await.unwrap();
    pair.redis.kill();
    let again = pair.another("a", 7, 50).await;
    assert_eq!(ids(&claim(&again, 100).await), ["a"]);
}

#[tokio::test]
async fn only_the_first_node_builds_and_the_others_use_mysql_until_it_has() {
    let Some(pair) = Pair::new().await else { return };
    let other = pair.another("b", 2, 1).await;
    sweep(&pair.store, 2).await;
    sweep(&other, 2).await;
    insert(&pair.store, 10, &[("a", 2_500)]).await.unwrap();
    let _: () = pair.redis.run(&["FLUSHALL"]);
    sweep(&other, 1_100).await;
    let seen = other.metrics().index.unwrap();
    assert!(!seen.is_used && seen.rebuilt == 0, "{seen:?}");
    assert_eq!(ids(&claim(&other, 2_500).await), ["a"], "found in MySQL");
    sweep(&pair.store, 2_600).await;
    sweep(&other, 2_700).await;
    assert!(other.metrics().index.unwrap().is_used);
}
