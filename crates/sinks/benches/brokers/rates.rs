//! The same messages twice, by turns: by the sink as a lane calls it, and by a bare loop.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use duly::{Sink, SinkOptions};
use duly_core::{Body, Delivery, StoredMessage, Timestamp};
use testkit::bench::{process, report::Report};

use crate::{
    Arguments,
    broker::{Broker, sink},
};

/// Each side has this many turns, so that what else the machine does falls on both.
const TURNS: usize = 10;
/// A sink must come to this part of the bare loop.
pub(crate) const WANTED: f64 = 0.5;

/// Messages per second by both, the sink's beside the other.
pub(crate) async fn compare(report: &mut Report, broker: &dyn Broker, arguments: &Arguments) {
    let (sink, batch) = sink(broker);
    let options = SinkOptions::default();
    let (calls, batch) = (options.concurrency, batch.min(options.batch));
    let mut client = broker.bare().await;
    let per_turn = arguments.messages.div_ceil(TURNS);
    let (mut bare, mut ours) = (Duration::ZERO, Duration::ZERO);
    // The first turn of each makes connections, and is not counted.
    for turn in 0..=TURNS {
        let counts = u32::from(turn > 0);
        let all = messages(&format!("bare-{turn}"), broker.topic(), per_turn, arguments.body);
        let began = process::now();
        client.publish(&all, arguments.window).await;
        bare += began.elapsed() * counts;
        let all = messages(&format!("duly-{turn}"), broker.topic(), per_turn, arguments.body);
        let began = process::now();
        deliver(&sink, all, calls, batch).await;
        ours += began.elapsed() * counts;
    }
    let rate = |time: Duration| (per_turn * TURNS) as f64 / time.as_secs_f64();
    let name = format!("{}, {calls} calls of {batch}; {WANTED} wanted", broker.name());
    report.beside(name, rate(ours), "1/s", rate(bare));
    report.alone("    load of the machine", process::load(), "");
}

/// As many calls at the same time as a lane makes, each with as many messages.
async fn deliver(sink: &Arc<dyn Sink>, all: Vec<Delivery>, calls: usize, batch: usize) {
    let (all, next) = (Arc::new(all), Arc::new(AtomicUsize::new(0)));
    let mut callers = tokio::task::JoinSet::new();
    for _ in 0..calls {
        let (sink, all, next) = (sink.clone(), all.clone(), next.clone());
        callers.spawn(async move {
            loop {
                let first = next.fetch_add(batch, Ordering::Relaxed);
                if first >= all.len() {
                    return;
                }
                for outcome in sink.deliver(&all[first..all.len().min(first + batch)]).await {
                    outcome.unwrap();
                }
            }
        });
    }
    callers.join_all().await;
}

fn messages(name: &str, topic: &str, count: usize, body: usize) -> Vec<Delivery> {
    (0..count).map(|n| delivery(&format!("{name}-{n}"), topic, body)).collect()
}

/// A message as a sink gets it.
pub(crate) fn delivery(id: &str, topic: &str, body: usize) -> Delivery {
    let message = StoredMessage::new(
        id.parse().unwrap(),
        "events".parse().unwrap(),
        topic.parse().unwrap(),
        Timestamp::from_millis(1),
    );
    Delivery::new(StoredMessage { body: Body::bytes(vec![b'x'; body]), ..message }, 1)
}
