//! A power cut at any moment: what was answered is there, what was not is there whole or not at all.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

#[path = "power/answers.rs"]
mod answers;
#[path = "power/bodies.rs"]
mod bodies;
#[path = "power/recovery.rs"]
mod recovery;

use std::{sync::Arc, time::Duration};

use duly_core::{Now, Store, schedule::Random};
use duly_stores::{EmbeddedStore, embedded::Options};
use testkit::disk::{Ledger, PowerDisk, Traffic};

/// Returns which run failed.
struct Seed(u64);

impl Drop for Seed {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("the run with seed {} failed", self.0);
        }
    }
}

/// Files so small that a few messages fill them.
fn tiny(disk: &PowerDisk) -> Options {
    Options {
        // Longer than any run: what is over can still be asked for.
        retention: Duration::from_secs(365 * 24 * 3600),
        segment_bytes: 16 << 10,
        checkpoint_bytes: 12 << 10,
        window_bytes: 8 << 10,
        buffer_bytes: 4 << 10,
        chunk_bytes: 4 << 10,
        disk: Arc::new(disk.clone()),
        ..Options::default()
    }
}

async fn open(disk: &PowerDisk, traffic: &Traffic) -> Arc<EmbeddedStore> {
    Arc::new(EmbeddedStore::open("/data", tiny(disk), traffic.now()).await.unwrap())
}

fn port(store: &Arc<EmbeddedStore>) -> Arc<dyn Store> {
    store.clone()
}

/// One life of the store and the cut at its end: the disk that is left, and the ledger when it was answered last.
async fn live(disk: &PowerDisk, traffic: &Traffic, random: &mut Random) -> (PowerDisk, Ledger) {
    let seed = random.draw();
    let steps = 10 + (random.draw() % 60) as usize;
    if random.draw().is_multiple_of(2) {
        // The power goes during some change of the disk, also while the store is being opened.
        disk.off_after(random.draw() % 250);
        if let Ok(store) = EmbeddedStore::open("/data", tiny(disk), traffic.now()).await {
            let store = Arc::new(store);
            // However it ends: nothing is answered after the power is gone.
            let _ = traffic.run(&port(&store), seed, steps).await;
            store.abandon();
        }
        return (disk.cut(seed), traffic.ledger().clone());
    }
    // The power goes at some moment of the work, and the rest of it is a dream.
    let store = open(disk, traffic).await;
    let work = { (traffic.clone(), port(&store)) };
    let work = tokio::spawn(async move { work.0.run(&work.1, seed, steps).await });
    let until = disk.changes() + random.draw() % 200;
    while disk.changes() < until && !work.is_finished() {
        tokio::task::yield_now().await;
    }
    let before = traffic.ledger().clone();
    let left = disk.cut(seed);
    let after = traffic.ledger().clone();
    work.await.unwrap().unwrap();
    store.abandon();
    *traffic.ledger() = after;
    (left, before)
}

async fn run(seed: u64) {
    let _seed = Seed(seed);
    let mut random = Random::new(seed);
    let traffic = Traffic::default();
    let mut disk = PowerDisk::default();
    for _ in 0..3 {
        let (left, before) = live(&disk, &traffic, &mut random).await;
        disk = left;
        let store = open(&disk, &traffic).await;
        traffic.judge(&port(&store), &before).await;
        if random.draw().is_multiple_of(3) {
            store.close().await.unwrap();
        } else {
            store.abandon();
        }
    }
    let store = open(&disk, &traffic).await;
    let before = traffic.ledger().clone();
    traffic.judge(&port(&store), &before).await;
    traffic.drain(&port(&store)).await;
    store.abandon();
    let store = open(&disk, &traffic).await;
    let before = traffic.ledger().clone();
    traffic.judge(&port(&store), &before).await;
}

fn runs(seeds: std::ops::Range<u64>) {
    testkit::block_on(async {
        for seed in seeds {
            run(seed).await;
        }
    });
}

#[test]
fn what_was_answered_outlives_a_power_cut() {
    runs(0..60);
}

#[test]
fn what_was_answered_outlives_a_power_cut_again() {
    runs(1_000..1_060);
}

/// How far ahead a clock is that is wrong.
const AHEAD_MS: u64 = 100 * 24 * 3_600_000;

/// One life of the store, in which now and then somebody reads a clock that is far ahead.
async fn live_with_wrong_clocks(store: &Arc<EmbeddedStore>, traffic: &Traffic, random: &mut Random) {
    let seed = random.draw();
    let work = { (traffic.clone(), port(store)) };
    let work = tokio::spawn(async move { work.0.run(&work.1, seed, 60).await });
    while !work.is_finished() {
        let now = traffic.now();
        let now = match random.draw() % 8 {
            0 => Now::new((now.wall().as_millis() + AHEAD_MS) * 1000, now.mono()),
            _ => now,
        };
        store.sweep(now, &[]).await.unwrap();
        tokio::task::yield_now().await;
    }
    work.await.unwrap().unwrap();
}

#[test]
fn what_was_answered_outlives_a_clock_that_is_far_ahead_at_times() {
    testkit::block_on(async {
        for seed in 0..8 {
            let _seed = Seed(seed);
            let mut random = Random::new(seed);
            let traffic = Traffic::default();
            let disk = PowerDisk::default();
            for _ in 0..3 {
                let store = open(&disk, &traffic).await;
                let before = traffic.ledger().clone();
                traffic.judge(&port(&store), &before).await;
                live_with_wrong_clocks(&store, &traffic, &mut random).await;
                let before = traffic.ledger().clone();
                traffic.judge(&port(&store), &before).await;
                if random.draw().is_multiple_of(2) {
                    store.close().await.unwrap();
                } else {
                    store.abandon();
                }
            }
            let store = open(&disk, &traffic).await;
            traffic.drain(&port(&store)).await;
        }
    });
}
