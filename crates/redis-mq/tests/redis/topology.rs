//! Cluster and sentinels.

use std::{collections::BTreeSet, time::Duration};

use redis_mq::{RedisMq, Settings};
use testkit::servers::redis::{Cluster, Sentinels, installed};

use crate::{Order, listen, next, quick};

#[tokio::test(flavor = "multi_thread")]
async fn events_live_all_over_a_cluster() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let mq = RedisMq::connect_with(&cluster.url(), Settings::default()).await.unwrap();
    let events = ["a", "b", "c", "order.placed"];
    let owners: BTreeSet<_> = events.iter().map(|event| cluster.owner(cluster.slot(event))).collect();
    assert!(owners.len() > 1, "on several servers");
    for (number, event) in (0..).zip(events) {
        let mut inbox = listen::<Order>(&mq, event).await;
        mq.send(event, &Order { number }).await.unwrap();
        assert_eq!(next(&mut inbox).await.value.number, number);
        mq.delay_send(event, &Order { number: number + 100 }, Duration::from_millis(20)).await.unwrap();
        assert_eq!(next(&mut inbox).await.value.number, number + 100);
    }
    mq.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_follow_the_master_that_the_sentinels_name() {
    if !installed() {
        return;
    }
    let sentinels = Sentinels::start();
    let mq = RedisMq::connect_with(&sentinels.url(), quick()).await.unwrap();
    let mut inbox = listen::<Order>(&mq, "order.placed").await;
    mq.send("order.placed", &Order { number: 1 }).await.unwrap();
    assert_eq!(next(&mut inbox).await.value.number, 1);
    tokio::task::block_in_place(|| sentinels.fail_over());
    while mq.send("order.placed", &Order { number: 2 }).await.is_err() {}
    while next(&mut inbox).await.value.number != 2 {}
    mq.shutdown().await.unwrap();
}
