//! Opening after a crash is itself work on the disk: it may be cut short, and what it found must be durable before
//! anything is built on it.

use std::{sync::Arc, time::Duration};

use duly_core::{MessageId, SinkName, Store, StoredMessage, Topic, schedule::Random, store::Insert};
use duly_stores::{EmbeddedStore, embedded::disk::Disk};
use testkit::disk::{PowerDisk, Traffic};

use crate::{open, port, tiny};

/// Works until the disk fails, or all is done.
async fn work(disk: &PowerDisk, traffic: &Traffic, seed: u64, steps: usize) {
    if let Ok(store) = EmbeddedStore::open("/data", tiny(disk), traffic.now()).await {
        let store = Arc::new(store);
        let _ = traffic.run(&port(&store), seed, steps).await;
        store.abandon();
    }
}

/// Opens what is left, which must be everything answered, and works a little more on it.
async fn go_on(disk: &PowerDisk, traffic: &Traffic, seed: u64) {
    let store = open(disk, traffic).await;
    let before = traffic.ledger().clone();
    traffic.judge(&port(&store), &before).await;
    traffic.run(&port(&store), seed, 2).await.unwrap();
    store.abandon();
}

/// Opens what is left and judges it; nothing more is done.
async fn judged(disk: &PowerDisk, traffic: &Traffic) {
    let store = open(disk, traffic).await;
    let before = traffic.ledger().clone();
    traffic.judge(&port(&store), &before).await;
    store.abandon();
}

#[test]
fn what_a_dead_process_did_not_sync_is_synced_before_anything_is_built_on_it() {
    testkit::block_on(async {
        for change in 0..160 {
            let (disk, traffic) = (PowerDisk::default(), Traffic::default());
            disk.off_after(change);
            work(&disk, &traffic, change, 12).await;
            // The process is gone, the machine goes on: what was written is read back, synced or not.
            let disk = disk.survive();
            go_on(&disk, &traffic, change).await;
            judged(&disk.cut(change), &traffic).await;
        }
    });
}

#[test]
fn what_a_failed_sync_lost_is_written_again_before_anything_is_built_on_it() {
    testkit::block_on(async {
        for sync in 0..80 {
            let (disk, traffic) = (PowerDisk::default(), Traffic::default());
            disk.fail_sync_after(sync);
            work(&disk, &traffic, sync, 12).await;
            let disk = disk.survive();
            go_on(&disk, &traffic, sync).await;
            judged(&disk.cut(sync), &traffic).await;
        }
    });
}

#[test]
fn a_power_cut_during_recovery_loses_nothing() {
    testkit::block_on(async {
        for seed in 0..4 {
            let (disk, traffic) = (PowerDisk::default(), Traffic::default());
            let mut random = Random::new(seed);
            work(&disk, &traffic, seed, 10).await;
            disk.off_after(random.draw() % 60);
            work(&disk, &traffic, seed + 100, 10).await;
            let left = disk.cut(seed);
            // Every change that opening makes, cut short, one after the other.
            for change in 0.. {
                let disk = left.survive();
                disk.off_after(change);
                let opened = EmbeddedStore::open("/data", tiny(&disk), traffic.now()).await;
                let is_through = opened.is_ok();
                if let Ok(store) = opened {
                    store.abandon();
                }
                let ledger = traffic.ledger().clone();
                judged(&disk.cut(seed ^ change), &traffic).await;
                // A process that dies there is no different.
                judged(&disk.survive(), &traffic).await;
                *traffic.ledger() = ledger;
                if is_through {
                    break;
                }
            }
        }
    });
}

/// How many files of a kind there are.
fn files(disk: &PowerDisk, kind: &str) -> usize {
    disk.list("/data".as_ref()).unwrap().iter().filter(|name| name.starts_with(kind)).count()
}

#[test]
fn lives_too_short_for_a_checkpoint_do_not_make_the_journal_longer() {
    testkit::block_on(async {
        let (disk, traffic) = (PowerDisk::default(), Traffic::default());
        for life in 0..60 {
            // No time passes: the checkpoint that every half minute brings is never due.
            let store = open(&disk, &traffic).await;
            let id = MessageId::parse(&format!("m{life}")).unwrap();
            let topic = Topic::parse("work").unwrap();
            let due = traffic.now().wall().saturating_add(Duration::from_secs(3600));
            let message = StoredMessage::new(id, SinkName::parse("queue").unwrap(), topic, due);
            store.insert(traffic.now(), vec![Insert::new(message)]).await.unwrap();
            assert_eq!(store.totals().await.unwrap().pending, life + 1);
            store.abandon();
            let (segments, claims) = (files(&disk, "journal-"), files(&disk, "claims-"));
            assert!(segments <= 20 && claims <= 20, "life {life}: {segments} segments, {claims} claims logs");
        }
    });
}

#[test]
fn idle_lives_leave_no_claims_logs_behind() {
    testkit::block_on(async {
        let (disk, traffic) = (PowerDisk::default(), Traffic::default());
        go_on(&disk, &traffic, 1).await;
        for life in 0..60 {
            open(&disk, &traffic).await.abandon();
            let claims = files(&disk, "claims-");
            assert!(claims <= 20, "life {life}: {claims} claims logs");
        }
    });
}
