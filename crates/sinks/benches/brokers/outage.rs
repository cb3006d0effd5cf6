//! All brokers are away while messages come due, and the memory of this process is looked at.

use std::{sync::Arc, time::Duration};

use testkit::bench::{process, report::Report};

use crate::{
    Arguments,
    broker::Broker,
    whole::{Watch, Whole, aside, pause},
};

const SECOND: Duration = Duration::from_secs(1);
/// When nothing was delivered for this long, nothing more will be.
const PATIENCE: Duration = Duration::from_secs(180);

/// Answers what is broken.
pub(crate) async fn outage(
    report: &mut Report,
    brokers: &[Arc<dyn Broker>],
    arguments: &Arguments,
) -> Vec<String> {
    let whole = Whole::start(brokers, Watch::Nothing, arguments.body).await;
    let mut sent = 0;
    for _ in 0..60 {
        come_due(&whole, brokers, arguments.due, &mut sent).await;
    }
    let before = process::memory_mb();
    report.alone("outage: memory, all brokers there for a minute", before, "MB");
    for broker in brokers {
        aside(broker, |broker| broker.kill()).await;
    }
    for minute in 1..=arguments.minutes {
        for _ in 0..60 {
            come_due(&whole, brokers, arguments.due, &mut sent).await;
        }
        let waiting = whole.duly.stats();
        let waiting = waiting.accepted - waiting.delivered - waiting.dead;
        let name = format!("    after {minute} min, {waiting} waiting, beside before");
        report.beside(name, process::memory_mb(), "MB", before);
    }
    for broker in brokers {
        aside(broker, |broker| broker.start()).await;
    }
    let began = process::now();
    whole.drained(PATIENCE).await;
    report.beside("    all delivered, beside before", process::memory_mb(), "MB", before);
    report.alone("    delivered after the last broker was back by", began.elapsed().as_secs_f64(), "s");
    let stats = whole.duly.stats();
    report.alone("    messages", stats.accepted as f64, "");
    report.alone("    delivered", stats.delivered as f64, "");
    whole.duly.shutdown().await.unwrap();
    let left = stats.accepted - stats.delivered;
    if left == 0 { Vec::new() } else { vec![format!("outage: {left} were not delivered: {stats:?}")] }
}

/// One second, and what comes due in the next.
async fn come_due(whole: &Whole, brokers: &[Arc<dyn Broker>], count: u64, sent: &mut u64) {
    let first = whole.duly.now().saturating_add(SECOND);
    let messages = (0..count).map(|n| {
        let broker = &brokers[n as usize % brokers.len()];
        *sent += 1;
        whole.message(&**broker, format!("m-{sent}"), first.saturating_add(SECOND * n as u32 / count as u32))
    });
    whole.send(messages.collect()).await;
    pause(SECOND).await;
}
