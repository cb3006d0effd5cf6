//! Many messages: memory, opening, disk, and lanes that nobody drains.

use std::time::Duration;

use duly_core::{Lane, MessageId, Store, Timestamp, Topic};

use crate::{
    bed::{Bed, RAW, at, claim, lane, settle},
    claim::drain,
    process,
    report::Report,
};

const MINUTE_MS: u64 = 60_000;
const YEAR_MS: u64 = 365 * 24 * 60 * MINUTE_MS;

/// A due time between 15 minutes and a year away, most of them near: spread evenly over the orders of magnitude.
fn spread(n: u64) -> u64 {
    let mixed = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 11;
    let part = mixed as f64 / (1u64 << 53) as f64;
    let (low, high) = ((15 * MINUTE_MS) as f64, YEAR_MS as f64);
    (low * (high / low).powf(part)) as u64
}

/// Lets the keeper finish what it has to do: a sweep every 10 ms of real time.
pub(crate) async fn settle_down(bed: &Bed, from: u64, rounds: u64) {
    for round in 0..rounds {
        #[expect(clippy::disallowed_methods, reason = "a benchmark runs in real time")]
        tokio::time::sleep(Duration::from_millis(10)).await;
        bed.store.sweep(at(from + round * 10), &[lane()]).await.unwrap();
    }
}

pub(crate) async fn many_pending(report: &mut Report, pending: usize) {
    let name = |what: &str| format!("{} M pending: {what}", pending as f64 / 1e6);
    let before = process::memory_mb();
    let mut bed = Bed::new().await;
    let start = process::now();
    bed.fill(pending, at(0), spread).await;
    report.alone(name("insert"), pending as f64 / start.elapsed().as_secs_f64(), "msg/s");
    settle_down(&bed, 0, 200).await;
    let budget = 150.0 + 24.0 * pending as f64 / 1e6;
    report.beside(name("memory beside 150 MB + 24 bytes each"), process::memory_mb() - before, "MB", budget);
    let bytes = process::disk_bytes(bed.dir.path(), &["table"]) as f64;
    report.beside(
        name("disk beside the bytes of the messages"),
        bytes / 1e6,
        "MB",
        (pending * RAW) as f64 / 1e6,
    );

    let cpu = process::cpu_seconds();
    let idle = process::now();
    for round in 0..5 {
        #[expect(clippy::disallowed_methods, reason = "a benchmark runs in real time")]
        tokio::time::sleep(Duration::from_secs(2)).await;
        bed.store.sweep(at(2_000 + round * 2_000), &[lane()]).await.unwrap();
    }
    let used = (process::cpu_seconds() - cpu) / idle.elapsed().as_secs_f64() * 100.0;
    report.alone(name("idle"), used, "% core");

    let start = process::now();
    let from = at(0).wall();
    bed.store.forecast(from, from.saturating_add(Duration::from_secs(365 * 86_400)), 100).await.unwrap();
    bed.store.lanes(at(20_000)).await.unwrap();
    report.alone(name("forecast and lanes"), start.elapsed().as_secs_f64() * 1e3, "ms");

    bed.fill(100_000, at(20_000), |n| 60_000 + n % 1000).await;
    let opened = bed.crash(at(58_000)).await;
    let start = process::now();
    let first = loop {
        let claimed = claim(&bed.store, at(61_000), lane(), 100).await;
        if !claimed.messages.is_empty() {
            break settle(&bed.store, at(61_000), claimed).await;
        }
    };
    report.alone(name("open after a crash"), opened.as_secs_f64(), "s");
    report.alone(name("first delivery after opening"), (opened + start.elapsed()).as_secs_f64(), "s");
    let (rate, cpu) = drain(&bed, 100_000 - first, 61_000, 1000).await;
    report.alone(name("fire"), rate, "msg/s");
    report.alone(name("fire: processor time"), cpu, "µs/msg");
}

pub(crate) async fn mostly_cancelled(report: &mut Report, pending: usize) {
    let name = |what: &str| format!("{} M, 95 % cancelled: {what}", pending as f64 / 1e6);
    let mut bed = Bed::new().await;
    let mut doomed: Vec<MessageId> = Vec::new();
    let start = process::now();
    let mut left = pending;
    while left > 0 {
        let batch = bed.batch(left.min(1000), spread);
        left -= batch.len();
        doomed.extend(
            batch
                .iter()
                .enumerate()
                .filter(|(n, _)| n % 20 != 0)
                .map(|(_, insert)| insert.message.id.clone()),
        );
        bed.insert(at(0), batch).await;
        if doomed.len() > 500_000 {
            let drained = std::mem::take(&mut doomed);
            cancel(&bed, &drained).await;
        }
    }
    cancel(&bed, &doomed).await;
    report.alone(name("insert and cancel"), pending as f64 / start.elapsed().as_secs_f64(), "msg/s");
    let live = bed.store.totals().await.unwrap().pending as f64;
    // A minute of virtual time, some seconds of real time.
    for round in 0..60 {
        settle_down(&bed, 1000 + round * 1000, 10).await;
    }
    let bytes = process::disk_bytes(bed.dir.path(), &["table"]) as f64 / 1e6;
    report.beside(
        name("disk a minute later beside 1.3 × live + 64 MB"),
        bytes,
        "MB",
        1.3 * live * RAW as f64 / 1e6 + 64.0,
    );
}

async fn cancel(bed: &Bed, ids: &[MessageId]) {
    let mut waiting = tokio::task::JoinSet::new();
    for some in ids.chunks(500) {
        let (store, some) = (bed.store.clone(), some.to_vec());
        waiting.spawn(async move { store.cancel(at(1), &some).await.unwrap() });
        if waiting.len() >= 2 {
            waiting.join_next().await;
        }
    }
    while waiting.join_next().await.is_some() {}
}

pub(crate) async fn undrained(report: &mut Report, pending: usize) {
    let name = |what: &str| {
        format!("{} M overdue in another lane, 10,000 idle topics: {what}", pending as f64 / 1e6)
    };
    let before = process::memory_mb();
    let mut bed = Bed::new().await;
    for topic in 0..10_000 {
        let insert = bed.message_for(&format!("idle-{topic}"), 10);
        bed.insert(at(0), vec![insert]).await;
    }
    let mut left = pending;
    while left > 0 {
        let size = left.min(1000);
        left -= size;
        let batch: Vec<_> = (0..size).map(|n| bed.message_for("stuck", (left + n) as u64 % 60_000)).collect();
        bed.insert(at(0), batch).await;
    }
    bed.fill(200_000, at(0), |n| 61_000 + n % 20_000).await;
    // A minute passes in some seconds: everything in the other lane becomes overdue.
    for second in 1..60 {
        settle_down(&bed, second * 1000, 5).await;
    }
    // Many times faster than in life, so the keeper is given the time to catch up.
    while bed.store.lanes(at(60_000)).await.unwrap().iter().map(|lane| lane.ready).sum::<u64>()
        < pending as u64
    {
        settle_down(&bed, 60_000, 20).await;
    }
    settle_down(&bed, 60_000, 300).await;
    let mut late = Vec::new();
    let mut taken = 0;
    let started = process::now();
    while taken < 200_000 && started.elapsed() < Duration::from_secs(60) {
        let now = at(60_000 + started.elapsed().as_millis() as u64);
        let claimed = claim(&bed.store, now, lane(), 1024).await;
        let seen =
            Timestamp::from_millis(at(60_000).wall().as_millis() + started.elapsed().as_millis() as u64);
        late.extend(claimed.messages.iter().map(|leased| seen.since(leased.ready).as_secs_f64() * 1e3));
        taken += settle(&bed.store, now, claimed).await;
        tokio::task::yield_now().await;
    }
    late.sort_by(f64::total_cmp);
    report.alone(name("claim after due, p99"), crate::report::quantile(&late, 0.99), "ms");
    let budget = 150.0 + 24.0 * pending as f64 / 1e6;
    report.beside(name("memory beside 150 MB + 24 bytes each"), process::memory_mb() - before, "MB", budget);
    let start = process::now();
    let lanes = bed.store.lanes(at(90_000)).await.unwrap().len();
    report.alone(name("counts of all topics"), start.elapsed().as_secs_f64() * 1e3, "ms");
    assert!(lanes > 10_000);
    let stuck = Lane::Queue(Topic::parse("stuck").unwrap());
    let (start, mut got) = (process::now(), 0);
    while got < pending.min(500_000) {
        let claimed = claim(&bed.store, at(200_000), stuck.clone(), 1024).await;
        got += settle(&bed.store, at(200_000), claimed).await;
    }
    report.alone(name("drained when somebody comes"), got as f64 / start.elapsed().as_secs_f64(), "msg/s");
}
