//! Firing, and looking up by id.

use duly_core::{MessageId, Store};

use crate::{
    bed::{Bed, at, claim, lane, settle},
    process,
    report::Report,
};

/// Virtual milliseconds over which the fired messages are due.
const SPAN_MS: u64 = 20_000;
const FIRST_MS: u64 = 600_000;

pub(crate) async fn fire(report: &mut Report) {
    const COUNT: usize = 1_000_000;
    let raw = {
        let took: f64 = process::raw_appends(crate::bed::RAW * 1024, 300)
            .iter()
            .map(std::time::Duration::as_secs_f64)
            .sum();
        300.0 * 1024.0 / took
    };
    let mut bed = Bed::new().await;
    bed.fill(COUNT, at(0), |n| FIRST_MS + n % SPAN_MS).await;
    // Half a minute before they are due, the wide buckets are opened; that is not part of firing.
    crate::large::settle_down(&bed, FIRST_MS - 25_000, 300).await;
    let (rate, cpu) = drain(&bed, COUNT, FIRST_MS, SPAN_MS).await;
    report.beside("fire: claim and durable settle, batches of 1024", rate, "msg/s", raw);
    report.alone("fire: processor time", cpu, "µs/msg");
}

/// Takes everything that comes due between `from` and `from + span`: messages per second and processor µs per message.
pub(crate) async fn drain(bed: &Bed, count: usize, from: u64, span: u64) -> (f64, f64) {
    bed.store.sweep(at(from - 1_000), &[lane()]).await.unwrap();
    let (start, cpu) = (process::now(), process::cpu_seconds());
    let mut done = 0;
    let mut settling = tokio::task::JoinSet::new();
    let mut time = from;
    while done < count {
        time = (time + 50).min(from + span);
        let now = at(time);
        loop {
            let claimed = claim(&bed.store, now, lane(), 1024).await;
            let got = claimed.messages.len();
            done += got;
            if got > 0 {
                let store = bed.store.clone();
                settling.spawn(async move { settle(&store, now, claimed).await });
            }
            if settling.len() >= 4 {
                settling.join_next().await;
            }
            if got < 1024 {
                break;
            }
        }
    }
    while settling.join_next().await.is_some() {}
    let rate = count as f64 / start.elapsed().as_secs_f64();
    (rate, (process::cpu_seconds() - cpu) / count as f64 * 1e6)
}

pub(crate) async fn by_id(report: &mut Report) {
    const COUNT: usize = 300_000;
    let mut bed = Bed::new().await;
    let mut ids: Vec<MessageId> = Vec::with_capacity(COUNT);
    while ids.len() < COUNT {
        let batch = bed.batch(1000, |n| FIRST_MS + n * 37 % 86_400_000);
        ids.extend(batch.iter().map(|insert| insert.message.id.clone()));
        bed.insert(at(0), batch).await;
    }
    let start = process::now();
    for some in ids.chunks(64) {
        assert!(bed.store.get(some).await.unwrap().iter().all(Option::is_some));
    }
    report.alone("get by id, batches of 64", COUNT as f64 / start.elapsed().as_secs_f64(), "msg/s");
    let start = process::now();
    for some in ids.chunks(64) {
        bed.store.cancel(at(1), some).await.unwrap();
    }
    report.alone(
        "cancel by id, durable, batches of 64",
        COUNT as f64 / start.elapsed().as_secs_f64(),
        "msg/s",
    );
}
