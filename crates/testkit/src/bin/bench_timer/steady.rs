//! A steady rate: while some messages come due, others are accepted.

use std::{sync::Arc, time::Duration};

use duly::Clock;
use testkit::bench::{
    process,
    report::{Report, quantile},
};

use crate::{
    bed::{Bed, Lane, StoreKind},
    jitter,
};

/// Messages are accepted this long before they are due.
const AHEAD: Duration = Duration::from_secs(2);
/// Messages are accepted in batches of this long.
const TICK_MS: u64 = 10;
/// How long the machine's own sleep is measured before each case.
const JITTER_MS: u32 = 2_000;

pub(crate) async fn run(report: &mut Report, store_kind: StoreKind, lane: Lane, rate: u64, seconds: u64) {
    let jitter = jitter::measure(JITTER_MS);
    let total = rate * seconds;
    let bed = Arc::new(Bed::make(store_kind, lane, total as usize).await);
    let cpu = process::cpu_seconds();
    let asleep = Duration::from_secs(seconds) + AHEAD;
    let meanwhile = tokio::task::spawn_blocking(move || jitter::measure(asleep.as_millis() as u32));
    let start = bed.clock.now();
    let first = start.wall().saturating_add(AHEAD);
    let mut senders = tokio::task::JoinSet::new();
    for tick in 0..seconds * 1000 / TICK_MS {
        bed.clock.sleep_until(start.mono().saturating_add(Duration::from_millis(tick * TICK_MS))).await;
        // Each batch by a task of its own: a slow sync must not thin out the rate.
        let bed = bed.clone();
        senders.spawn(async move {
            let count = rate * TICK_MS / 1000;
            let due = |n| first.saturating_add(Duration::from_millis(tick * TICK_MS + n * TICK_MS / count));
            bed.send((0..count).map(due)).await;
        });
    }
    while let Some(sent) = senders.join_next().await {
        sent.unwrap();
    }
    let late_at_all = tokio::time::timeout(Duration::from_secs(60), bed.arrivals.all.notified()).await;
    let cpu = (process::cpu_seconds() - cpu) / total as f64 * 1e6;
    let late = bed.arrivals.late_ms();
    let name = |what| format!("{} {} {rate}/s: {what}", store_kind.name(), lane.name());
    if late_at_all.is_err() {
        report.beside(name("arrived within a minute"), late.len() as f64, "messages", total as f64);
    }
    for (what, part) in [("late, p50", 0.5), ("late, p99", 0.99), ("late, max", 1.0)] {
        report.beside(name(what), quantile(&late, part), "ms", quantile(&jitter, part));
    }
    let allowed = 3.0 * quantile(&jitter, 0.99) + 1.0;
    report.beside(name("late, p99, beside 3 x sleep's p99 + 1 ms"), quantile(&late, 0.99), "ms", allowed);
    // Tells a slow Duly from a machine that was busy with something else.
    let meanwhile = meanwhile.await.unwrap();
    for (what, part) in
        [("the machine's sleep meanwhile, p99", 0.99), ("the machine's sleep meanwhile, max", 1.0)]
    {
        report.beside(name(what), quantile(&meanwhile, part), "ms", quantile(&jitter, part));
    }
    report.alone(name("processor time per message, in and out"), cpu, "us");
    Arc::into_inner(bed).unwrap().end().await;
}
