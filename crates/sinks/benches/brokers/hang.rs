//! One broker hangs, and the others' messages come as they came before.

use std::{sync::Arc, time::Duration};

use duly_core::Timestamp;
use testkit::bench::{
    process,
    report::{Report, quantile},
};

use crate::{
    Arguments,
    broker::Broker,
    whole::{Watch, Whole, aside, pause},
};

/// For the messages to be accepted, before the first is due.
const AHEAD: Duration = Duration::from_secs(3);
/// When nothing was delivered for this long, nothing more will be.
const PATIENCE: Duration = Duration::from_secs(120);
/// Nobody hangs: what this round shows is noise.
const NOBODY: &str = "nobody";

/// Answers what is broken.
pub(crate) async fn hang(
    report: &mut Report,
    brokers: &[Arc<dyn Broker>],
    arguments: &Arguments,
) -> Vec<String> {
    let whole = Whole::start(brokers, Watch::Everything, arguments.body).await;
    let mut faults = Vec::new();
    // The first makes connections, and is not counted.
    let wanted = |name: &str| arguments.hanging.is_empty() || arguments.hanging.iter().any(|one| one == name);
    let names = brokers.iter().map(|broker| broker.name()).filter(|name| wanted(name));
    for (round, hanging) in [NOBODY, NOBODY].into_iter().chain(names).enumerate() {
        let late = one_round(&whole, brokers, round, hanging, arguments).await;
        if round == 0 {
            continue;
        }
        for (broker, (mut before, mut during)) in brokers.iter().zip(late) {
            if broker.name() == hanging {
                continue;
            }
            before.sort_by(f64::total_cmp);
            during.sort_by(f64::total_cmp);
            let expected = (arguments.rate * arguments.seconds) as usize;
            if during.len() != expected || before.len() != expected {
                faults.push(format!("{} of {expected} to {} beside {hanging}", during.len(), broker.name()));
                continue;
            }
            for (name, part) in [("p50", 0.5), ("p99", 0.99)] {
                let what = format!("{hanging} hangs: {} {name}, beside before", broker.name());
                report.beside(what, quantile(&during, part), "ms", quantile(&before, part));
            }
        }
        report.alone("    load of the machine", process::load(), "");
    }
    whole.duly.shutdown().await.unwrap();
    faults
}

/// Per broker how late messages were before, and while one hung; in ms.
async fn one_round(
    whole: &Whole,
    brokers: &[Arc<dyn Broker>],
    round: usize,
    hanging: &str,
    arguments: &Arguments,
) -> Vec<(Vec<f64>, Vec<f64>)> {
    let half = arguments.rate * arguments.seconds;
    let first = whole.duly.now().saturating_add(AHEAD).as_millis();
    let mut messages = Vec::new();
    for n in 0..2 * half {
        for (place, broker) in brokers.iter().enumerate() {
            // Not all of them in the same millisecond.
            let due = first + n * 1_000 / arguments.rate + place as u64 * 1_000 / arguments.rate / 6;
            let id = format!("r{round}-{place}-{n}");
            messages.push(whole.message(&**broker, id, Timestamp::from_millis(due)));
        }
    }
    whole.send(messages).await;
    let middle = Timestamp::from_millis(first + arguments.seconds * 1_000);
    let end = middle.saturating_add(Duration::from_secs(arguments.seconds));
    let hangs = brokers.iter().find(|broker| broker.name() == hanging);
    pause(middle.since(whole.duly.now())).await;
    if let Some(broker) = hangs {
        aside(broker, |broker| broker.pause()).await;
    }
    // A little longer, so that the last of the others are not helped.
    pause(end.since(whole.duly.now()) + Duration::from_secs(1)).await;
    let acknowledged: Vec<_> = whole.watched.iter().map(|watched| watched.take()).collect();
    if let Some(broker) = hangs {
        aside(broker, |broker| broker.cont()).await;
    }
    whole.drained(PATIENCE).await;
    whole.watched.iter().for_each(|watched| drop(watched.take()));
    let parts = acknowledged.into_iter().map(|acknowledged| {
        let (before, during): (Vec<_>, Vec<_>) =
            acknowledged.into_iter().partition(|acknowledged| acknowledged.due < middle);
        let late = |acknowledged: Vec<crate::whole::Acknowledged>| {
            acknowledged.into_iter().map(|acknowledged| acknowledged.late).collect()
        };
        (late(before), late(during))
    });
    parts.collect()
}
