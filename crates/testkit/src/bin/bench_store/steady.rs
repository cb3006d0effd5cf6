//! In and out at the same time, for as long as asked.

use std::time::Duration;

use duly_core::Store;

use crate::{
    bed::{Bed, at, claim, lane, settle},
    process,
    report::{Report, quantile},
};

const RATE: u64 = 50_000;
/// Batches of this size are inserted every few milliseconds.
const BATCH: usize = 250;
/// What waits all the while.
const PENDING: usize = 1_000_000;
/// Messages are due this long after they come in.
const DELAY_MS: u64 = 20_000;

pub(crate) async fn in_and_out(report: &mut Report, seconds: u64) {
    let mut bed = Bed::new().await;
    // What is there at the start comes due at the same rate as what comes in.
    bed.fill(PENDING, at(0), |n| 100 + n * 1000 / RATE).await;
    let memory = process::memory_mb();
    let started = process::now();
    let elapsed = move || started.elapsed().as_millis() as u64;
    let taker = tokio::spawn(take(bed.store.clone(), seconds, elapsed));
    let cpu = process::cpu_seconds();
    let mut took = Vec::new();
    let mut sent = 0;
    while elapsed() < seconds * 1000 {
        let want = RATE * elapsed() / 1000;
        if sent >= want {
            pause().await;
            continue;
        }
        let now = elapsed();
        let batch = bed.batch(BATCH, |_| now + DELAY_MS);
        let begun = process::now();
        bed.store.insert(at(now), batch).await.unwrap();
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        sent += BATCH as u64;
    }
    let cpu = (process::cpu_seconds() - cpu) / elapsed() as f64 * 1000.0;
    let (taken, late) = taker.await.unwrap();
    took.sort_by(f64::total_cmp);
    let memory_after = process::memory_mb();
    let raw = process::raw_appends(crate::bed::RAW * BATCH, 3000);
    let worst_raw = raw.iter().max().map_or(0.0, Duration::as_secs_f64) * 1e3;
    report.beside(
        "steady 50 k/s: messages in per second",
        sent as f64 / seconds as f64,
        "msg/s",
        RATE as f64,
    );
    report.beside(
        "steady 50 k/s: messages out per second",
        taken as f64 / seconds as f64,
        "msg/s",
        RATE as f64,
    );
    report.beside("steady: commit p99 beside its median", quantile(&took, 0.99), "ms", quantile(&took, 0.5));
    report.beside("steady: worst commit beside the worst raw sync", quantile(&took, 1.0), "ms", worst_raw);
    report.alone("steady: claim after due, p99", quantile(&late, 0.99), "ms");
    report.alone("steady: cores used", cpu, "cores");
    report.beside("steady: memory at the end beside the start", memory_after, "MB", memory);
    let tables = process::disk_bytes(bed.dir.path(), &["table"]);
    report.alone("steady: bytes of tables per message waiting", tables as f64 / PENDING as f64, "bytes");
}

/// A millisecond of nothing to do.
async fn pause() {
    #[expect(clippy::disallowed_methods, reason = "a benchmark runs in real time")]
    tokio::time::sleep(Duration::from_millis(1)).await;
}

async fn take(
    store: std::sync::Arc<duly_stores::EmbeddedStore>,
    seconds: u64,
    elapsed: impl Fn() -> u64,
) -> (usize, Vec<f64>) {
    let (mut taken, mut late) = (0, Vec::new());
    let mut swept = 0;
    let mut settling = tokio::task::JoinSet::new();
    while elapsed() < seconds * 1000 {
        let now = at(elapsed());
        if elapsed() > swept + 100 {
            store.sweep(now, &[lane()]).await.unwrap();
            swept = elapsed();
        }
        let claimed = claim(&store, now, lane(), 1024).await;
        if let Some(first) = claimed.messages.first() {
            late.push(at(elapsed()).wall().since(first.ready).as_secs_f64() * 1e3);
        }
        taken += claimed.messages.len();
        if claimed.messages.is_empty() {
            pause().await;
        } else {
            let store = store.clone();
            settling.spawn(async move { settle(&store, now, claimed).await });
            if settling.len() > 4 {
                settling.join_next().await;
            }
        }
    }
    while settling.join_next().await.is_some() {}
    late.sort_by(f64::total_cmp);
    (taken, late)
}
