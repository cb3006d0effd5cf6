//! Cluster and sentinels.

use std::{collections::BTreeSet, time::Duration};

use duly_streams::{Settings, Streams};
use testkit::servers::redis::{Cluster, Sentinels, installed};

use crate::{Order, listen, next, quick};

#[tokio::test(flavor = "multi_thread")]
async fn events_live_all_over_a_cluster() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let streams = Streams::connect_with(&cluster.url(), Settings::default()).await.unwrap();
    let events = ["a", "b", "c", "order.placed"];
    let owners: BTreeSet<_> = events.iter().map(|event| cluster.owner(cluster.slot(event))).collect();
    assert!(owners.len() > 1, "on several servers");
    for (number, event) in (0..).zip(events) {
        let mut inbox = listen::<Order>(&streams, event).await;
        streams.send(event, &Order { number }).await.unwrap();
        assert_eq!(next(&mut inbox).await.value.number, number);
        streams.delay_send(event, &Order { number: number + 100 }, Duration::from_millis(20)).await.unwrap();
        assert_eq!(next(&mut inbox).await.value.number, number + 100);
    }
    streams.shutdown().await.unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn listeners_follow_the_master_that_the_sentinels_name() {
    if !installed() {
        return;
    }
    let sentinels = Sentinels::start();
    let streams = Streams::connect_with(&sentinels.url(), quick()).await.unwrap();
    let mut inbox = listen::<Order>(&streams, "order.placed").await;
    streams.send("order.placed", &Order { number: 1 }).await.unwrap();
    assert_eq!(next(&mut inbox).await.value.number, 1);
    tokio::task::block_in_place(|| sentinels.fail_over());
    while streams.send("order.placed", &Order { number: 2 }).await.is_err() {}
    while next(&mut inbox).await.value.number != 2 {}
    streams.shutdown().await.unwrap();
}
