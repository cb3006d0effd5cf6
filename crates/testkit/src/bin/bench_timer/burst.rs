//! Very many messages due in the same millisecond.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use duly::Clock;
use testkit::bench::{
    process,
    report::{Report, quantile},
};

use crate::bed::{Bed, Lane, StoreKind};

/// Messages in one call while filling.
const BATCH: usize = 1_000;
/// Filling may take this long per message, so that all wait when the moment comes.
const FILLING: Duration = Duration::from_micros(20);
/// The quiet time before the moment, for what is measured beside.
const QUIET: Duration = Duration::from_secs(2);
const LOOK: Duration = Duration::from_millis(20);
const PATIENCE: Duration = Duration::from_secs(120);

pub(crate) async fn run(report: &mut Report, store_kind: StoreKind, count: usize) {
    let bed = Arc::new(Bed::make(store_kind, Lane::Sink, count).await);
    let name = |what| format!("{} {count} due in one ms: {what}", store_kind.name());
    let due = bed.clock.now().wall().saturating_add(FILLING * count as u32 + QUIET);
    for first in (0..count).step_by(BATCH) {
        bed.send((first..count.min(first + BATCH)).map(|_| due)).await;
    }
    let filled = bed.clock.now().wall();
    if filled >= due {
        // The machine was too slow for the plan: then this is no burst, and the figures below say less.
        report.alone(name("still being filled after the moment, for"), filled.since(due).as_secs_f64(), "s");
    }
    let quiet = singles(&bed, until(&bed, due)).await;
    let memory = process::memory_mb();
    let cpu = process::cpu_seconds();
    let (mut peak, over) = (memory, Arc::new(AtomicBool::new(false)));
    let meanwhile = tokio::spawn({
        let (bed, over) = (bed.clone(), over.clone());
        async move { singles(&bed, || !over.load(Ordering::Relaxed)).await }
    });
    let drained = async {
        loop {
            tokio::select! {
                () = bed.arrivals.all.notified() => break,
                () = bed.sleep(LOOK) => peak = process::memory_mb().max(peak),
            }
        }
    };
    let in_time = tokio::time::timeout(PATIENCE, drained).await.is_ok();
    let cpu = (process::cpu_seconds() - cpu) / count as f64 * 1e6;
    over.store(true, Ordering::Relaxed);
    let meanwhile = meanwhile.await.unwrap();
    let late = bed.arrivals.late_ms();
    if !in_time {
        report.beside(name("arrived in time"), late.len() as f64, "messages", count as f64);
    }
    report.alone(name("until all are delivered"), quantile(&late, 1.0) / 1e3, "s");
    report.alone(name("delivered per second"), late.len() as f64 / quantile(&late, 1.0) * 1e3, "/s");
    report.alone(name("processor time per message"), cpu, "us");
    report.alone(name("memory grows by at most"), peak - memory, "MB");
    for (what, part) in [("send meanwhile, p50", 0.5), ("send meanwhile, p99", 0.99)] {
        report.beside(name(what), quantile(&meanwhile, part), "ms", quantile(&quiet, part));
    }
    Arc::into_inner(bed).unwrap().end().await;
}

/// Whether the moment is still to come.
fn until(bed: &Bed, due: duly::Timestamp) -> impl Fn() -> bool {
    let clock = bed.clock.clone();
    move || clock.now().wall() < due
}

/// Sends one message after the other, due in an hour: how long each took, in ms and sorted.
async fn singles(bed: &Bed, goes_on: impl Fn() -> bool) -> Vec<f64> {
    let mut took = Vec::new();
    while goes_on() || took.is_empty() {
        let message = bed.message(bed.clock.now().wall().saturating_add(duly::hours(1)));
        let begun = process::now();
        bed.duly.send(message).await.unwrap();
        took.push(begun.elapsed().as_secs_f64() * 1e3);
        bed.sleep(Duration::from_millis(1)).await;
    }
    took.sort_unstable_by(f64::total_cmp);
    took
}
