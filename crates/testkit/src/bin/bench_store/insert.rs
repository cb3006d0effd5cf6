//! Durable inserts.

use crate::{
    bed::{Bed, RAW, at},
    process,
    report::{Report, quantile},
};

/// Messages inserted per case.
const COUNT: usize = 600_000;
const DELAY_MS: u64 = 15 * 60 * 1000;

/// Raw appends of one batch: messages per second.
fn raw_rate(batch: usize) -> f64 {
    let count = (200_000 / batch).clamp(200, 2_000);
    let took: f64 =
        process::raw_appends(RAW * batch, count).iter().map(std::time::Duration::as_secs_f64).sum();
    (count * batch) as f64 / took
}

pub(crate) async fn batches(report: &mut Report) {
    for batch in [1, 64, 1024] {
        let mut bed = Bed::new().await;
        let raw = raw_rate(batch);
        let rounds = (COUNT / batch).min(4_000);
        // Two batches on the way, as a busy server has: one is encoded while the other is synced.
        let prepared: Vec<_> = (0..rounds).map(|_| bed.batch(batch, |n| DELAY_MS + n % 3_600_000)).collect();
        let cpu = process::cpu_seconds();
        let start = process::now();
        let (mut one, mut two) = (Vec::new(), Vec::new());
        for (n, batch) in prepared.into_iter().enumerate() {
            if n % 2 == 0 { one.push(batch) } else { two.push(batch) }
        }
        let run = |batches: Vec<Vec<_>>| {
            let store = bed.store.clone();
            tokio::spawn(async move {
                for batch in batches {
                    duly_core::Store::insert(&*store, at(0), batch).await.unwrap();
                }
            })
        };
        let (one, two) = (run(one), run(two));
        one.await.unwrap();
        two.await.unwrap();
        let count = (rounds * batch) as f64;
        report.beside(
            format!("insert, batches of {batch}"),
            count / start.elapsed().as_secs_f64(),
            "msg/s",
            raw,
        );
        let cpu = (process::cpu_seconds() - cpu) / count * 1e6;
        report.alone(format!("insert, batches of {batch}: processor time"), cpu, "µs/msg");
    }
}

pub(crate) async fn callers(report: &mut Report) {
    const CALLERS: usize = 64;
    let mut bed = Bed::new().await;
    let raw = raw_rate(CALLERS);
    let each = 3_000;
    let cpu = process::cpu_seconds();
    let start = process::now();
    let tasks: Vec<_> = (0..CALLERS)
        .map(|_| {
            let messages = bed.batch(each, |n| DELAY_MS + n % 3_600_000);
            let store = bed.store.clone();
            tokio::spawn(async move {
                let mut took = Vec::with_capacity(messages.len());
                for message in messages {
                    let begun = process::now();
                    duly_core::Store::insert(&*store, at(0), vec![message]).await.unwrap();
                    took.push(begun.elapsed().as_secs_f64() * 1e3);
                }
                took
            })
        })
        .collect();
    let mut took = Vec::new();
    for task in tasks {
        took.extend(task.await.unwrap());
    }
    let rate = took.len() as f64 / start.elapsed().as_secs_f64();
    report.beside("insert, 64 callers of one each", rate, "msg/s", raw);
    let cpu = (process::cpu_seconds() - cpu) / took.len() as f64 * 1e6;
    report.alone("insert, 64 callers: processor time", cpu, "µs/msg");
    took.sort_by(f64::total_cmp);
    report.beside("insert, 64 callers: p99 beside median", quantile(&took, 0.99), "ms", quantile(&took, 0.5));
}
