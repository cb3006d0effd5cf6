//! A Cluster of which a part is missing.

use std::{collections::BTreeSet, time::Duration};

use duly_core::{
    Store,
    store::{LeasedMessage, Settle, Settled, Settlement},
};
use duly_stores::redis::Options;
use testkit::{
    block_on,
    servers::redis::{self, Cluster},
};

use crate::bed::{claim, deliver, id, insert, lane, message, now, open};

const COUNT: u64 = 100;
const LEASE: Duration = Duration::from_secs(30);

/// Three servers that go on when one of them is killed, which loses nothing by it.
fn cluster() -> Cluster {
    let cluster = Cluster::of_three();
    for node in cluster.nodes() {
        node.run::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
        node.run::<()>(&["CONFIG", "SET", "appendfsync", "always"]);
    }
    cluster
}

/// The shards that the server at `place` has.
fn shards_of(cluster: &Cluster, place: usize) -> BTreeSet<u16> {
    let key = |shard: &u16| format!("duly:{{main:{shard}}}:meta");
    (0..16).filter(|shard| cluster.owner(cluster.slot(&key(shard))) == place).collect()
}

#[test]
fn shards_of_other_masters_go_on_while_one_is_missing() {
    if !redis::installed() {
        return;
    }
    // With the server that also has what is no shard's, and with one that has only shards.
    for with_main in [false, true] {
        let cluster = cluster();
        let main = cluster.owner(cluster.slot("duly:{main}:store"));
        let missing = if with_main { main } else { (main + 1) % 3 };
        let lost = shards_of(&cluster, missing);
        block_on(async {
            let store = open(&cluster.url(), Options::new(1)).await.unwrap();
            insert(&store, (0..COUNT).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
            store.sweep(now(0), &[lane("work")]).await.unwrap();
            let is_lost = |text: &str| lost.contains(&((id(text).hash64() % 16) as u16));
            let there = (0..COUNT).filter(|n| !is_lost(&format!("m{n}"))).count();
            assert!(there > 0 && there < COUNT as usize);
            cluster.nodes()[missing].kill();

            let mut got = Vec::new();
            for round in 0..20 {
                let claimed = claim(&store, 1, 1000).await.unwrap().messages;
                got.extend(claimed);
                if round > 0 && got.len() == there {
                    break;
                }
            }
            assert_eq!(got.len(), there);
            deliver(&store, 2, &got).await.unwrap();
            let swept = store.sweep(now(2), &[lane("work")]).await.unwrap();
            assert_eq!(swept.leases_ended, 0);
            let alone = (0..).map(|n| format!("new{n}")).find(|text| !is_lost(text)).unwrap();
            insert(&store, vec![message(&alone, 0)]).await.unwrap();
            assert_eq!(claim(&store, 3, 10).await.unwrap().messages.len(), 1);
            let health = store.health().await;
            assert_eq!(health.whole(), Ok(()), "the other masters work");
            let degraded = health.degraded.unwrap();
            let numbers: Vec<_> = lost.iter().map(u16::to_string).collect();
            let said = format!("{} of 16 shards fail ({})", lost.len(), numbers.join(", "));
            assert!(degraded.what.starts_with(&said), "{said}: {degraded}");
            let lost_id = (0..).map(|n| format!("new{n}")).find(|text| is_lost(text)).unwrap();
            let error = insert(&store, vec![message(&lost_id, 0)]).await.unwrap_err();
            assert!(error.kind.is_transient(), "{error}");

            cluster.nodes()[missing].start();
            cluster.wait_until_ok();
            let mut back = 0;
            for _ in 0..50 {
                // The sweep finds that it is back.
                let _ = store.sweep(now(4), &[lane("work")]).await;
                back += claim(&store, 4, 1000).await.map_or(0, |claimed| claimed.messages.len());
                if back >= COUNT as usize - there {
                    break;
                }
            }
            assert!(back >= COUNT as usize - there, "{back}");
        });
    }
}

#[test]
fn a_frozen_server_degrades_the_store_before_its_health_check_is_given_up() {
    if !redis::installed() {
        return;
    }
    let cluster = cluster();
    let frozen = (cluster.owner(cluster.slot("duly:{main}:store")) + 1) % 3;
    let lost = shards_of(&cluster, frozen);
    block_on(async {
        let store = open(&cluster.url(), Options::new(1)).await.unwrap();
        insert(&store, (0..COUNT).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        assert_eq!(store.health().await.degraded, None);
        cluster.nodes()[frozen].pause();
        // A node gives a health check up when the client gives the frozen server up. So the store must do so before, by a bound of its own,
        // which its words tell from that of the client. On a machine that stands still both may be over at once.
        let mut tries = 0..5;
        let health = loop {
            let health = store.health().await;
            let degraded = health.degraded.clone().unwrap();
            if degraded.what.contains("gave no answer within") {
                break health;
            }
            assert!(tries.next().is_some(), "{degraded}");
        };
        cluster.nodes()[frozen].cont();
        assert_eq!(health.whole(), Ok(()), "the other masters work");
        let degraded = health.degraded.unwrap();
        assert!(degraded.what.starts_with(&format!("{} of 16 shards fail", lost.len())), "{degraded}");
    });
}

#[test]
fn outcomes_of_other_shards_are_recorded_while_one_is_missing_and_its_own_when_it_is_back() {
    if !redis::installed() {
        return;
    }
    let cluster = cluster();
    let missing = (cluster.owner(cluster.slot("duly:{main}:store")) + 1) % 3;
    let lost = shards_of(&cluster, missing);
    block_on(async {
        let store = open(&cluster.url(), Options::new(1)).await.unwrap();
        insert(&store, (0..COUNT).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        let held = claim(&store, 1, 1000).await.unwrap().messages;
        assert_eq!(held.len(), COUNT as usize);
        cluster.nodes()[missing].kill();
        let settle = |leased: &LeasedMessage| Settle {
            receipt: leased.receipt.clone(),
            settlement: Settlement::Delivered { receipt: None },
        };
        let batch: Vec<_> = held.iter().map(settle).collect();
        let error = store.settle(now(2), batch.clone()).await.unwrap_err();
        assert!(error.kind.is_transient(), "the first time, it may be over in a moment");
        let settled = store.settle(now(2), batch.clone()).await.unwrap();
        for (leased, settled) in held.iter().zip(&settled) {
            let is_lost = lost.contains(&leased.receipt.shard);
            assert_eq!(
                *settled,
                if is_lost { Settled::Unknown } else { Settled::Done },
                "{:?}",
                leased.receipt
            );
        }
        let of_lost = held.iter().find(|leased| lost.contains(&leased.receipt.shard)).unwrap();
        let renewed = store.extend(now(2), std::slice::from_ref(&of_lost.receipt), LEASE).await.unwrap();
        assert_eq!(renewed, [Settled::Unknown]);

        cluster.nodes()[missing].start();
        cluster.wait_until_ok();
        let mut totals = None;
        for _ in 0..50 {
            let _ = store.sweep(now(3), &[lane("work")]).await;
            totals = store.totals().await.ok().filter(|totals| totals.in_flight == 0);
            if totals.is_some() {
                break;
            }
        }
        let totals = totals.unwrap();
        assert!(totals.balance() && totals.delivered == COUNT, "{totals:?}");
    });
}

#[test]
fn a_store_that_is_to_wait_for_replicas_is_refused_in_a_cluster() {
    if !redis::installed() {
        return;
    }
    let cluster = cluster();
    block_on(async {
        let options = Options { wait_replicas: 1, ..Options::new(1) };
        let error = open(&cluster.url(), options).await.unwrap_err();
        assert!(error.what.contains("wait_replicas does not go with a Redis Cluster"), "{error}");
    });
}
