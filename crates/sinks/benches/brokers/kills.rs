//! Messages come due within a minute while their broker is killed twice; then everything is counted.
//!
//! Where there is a topic that the kills do not affect, the same minute without kills comes first: it is the noise.

use std::{collections::BTreeSet, sync::Arc, time::Duration};

use duly::SinkOptions;
use duly_core::Timestamp;
use testkit::bench::{process, report::Report};

use crate::{
    Arguments,
    broker::{Broker, Bystander},
    bystander,
    whole::{Acknowledged, Watch, Whole, aside, pause},
};

/// All messages are due within this.
pub(crate) const SPAN: Duration = Duration::from_secs(60);
/// After so much of it the broker is killed.
pub(crate) const KILLS: [Duration; 2] = [Duration::from_secs(12), Duration::from_secs(40)];
/// Then so much passes before it is started: enough comes due meanwhile to fill the lane.
const AWAY: Duration = Duration::from_secs(3);
/// For the messages to be accepted, before the first is due.
const AHEAD: Duration = Duration::from_secs(5);
/// When nothing was delivered for this long, nothing more will be.
const PATIENCE: Duration = Duration::from_secs(120);

/// The ids of messages begin with this, and those of the minute without kills with the other.
const PREFIX: &str = "m-";
const CALM: &str = "calm-";

/// Answers what is broken.
pub(crate) async fn kills(
    report: &mut Report,
    broker: &Arc<dyn Broker>,
    arguments: &Arguments,
) -> Vec<String> {
    let calm = match broker.bystander() {
        Some(_) => calm(broker, arguments).await,
        None => Vec::new(),
    };
    let whole = Whole::start(std::slice::from_ref(broker), Watch::Everything, arguments.body).await;
    let first = send(&whole, broker, arguments.killed, PREFIX).await;
    let body = arguments.body;
    let bare_beside = match (broker.bystander(), broker.bare_bystander().await) {
        (Some(Bystander { topic, .. }), Some(client)) => {
            Some(tokio::spawn(bystander::bare(client, topic, body, first)))
        }
        _ => None,
    };
    let mut away = Duration::ZERO;
    let mut outages = Vec::new();
    for at in KILLS {
        pause(first.saturating_add(at).since(whole.duly.now())).await;
        let (began, from) = (process::now(), whole.duly.now());
        aside(broker, |broker| broker.kill()).await;
        pause(AWAY).await;
        aside(broker, |broker| broker.start()).await;
        away += began.elapsed();
        outages.push((from, whole.duly.now()));
    }
    whole.drained(PATIENCE).await;
    let after = whole.duly.now().since(first.saturating_add(SPAN));
    let totals = whole.duly.totals().await.unwrap();
    let failed = whole.duly.stats().failed;
    whole.duly.shutdown().await.unwrap();

    let (beside, acknowledged): (Vec<Acknowledged>, Vec<Acknowledged>) = whole.watched[0]
        .take()
        .into_iter()
        .partition(|acknowledged| acknowledged.id.starts_with(bystander::PREFIX));
    let acknowledged: BTreeSet<String> =
        acknowledged.into_iter().map(|acknowledged| acknowledged.id).collect();
    let sent_beside = broker.bystander().map_or(0, |_| bystander::COUNT);
    let delivered = totals.delivered.saturating_sub(beside.len() as u64);
    let mut found = broker.ids().await;
    found.retain(|id| id.starts_with(PREFIX));
    let distinct: BTreeSet<&String> = found.iter().collect();
    let duplicates = found.len() - distinct.len();
    let lost = acknowledged.iter().filter(|id| !distinct.contains(id)).count();
    let allowed = if broker.knows_copies() { 0 } else { SinkOptions::default().in_flight * KILLS.len() };
    let still = totals.pending + totals.in_flight;
    let name = broker.name();
    let mut row = |what: &str, value: f64, unit| report.alone(format!("{name}: {what}"), value, unit);
    row(&format!("killed twice ({})", broker.safety()), arguments.killed as f64, "messages");
    row("  away, both times together", away.as_secs_f64(), "s");
    row("  the last was delivered after the minute by", after.as_secs_f64(), "s");
    row("  tries that failed", failed as f64, "");
    row("  acknowledged by the broker", acknowledged.len() as f64, "");
    row("  recorded as delivered", delivered as f64, "");
    row("  still with Duly", still as f64, "");
    row("  given up", totals.dead as f64, "");
    row("  found in the broker, by id", distinct.len() as f64, "");
    row(&format!("  duplicates; {allowed} allowed"), duplicates as f64, "");
    row("  lost by the broker after it acknowledged", lost as f64, "");
    if let Some(bystander) = broker.bystander() {
        let outages = &outages[..bystander.unaffected_kills];
        let mut rows = bystander::noise(&calm);
        rows.extend(bystander::lateness("by Duly", &beside, first, outages));
        if let Some(bare) = bare_beside {
            rows.extend(bystander::lateness("by a bare client", &bare.await.unwrap(), first, outages));
        }
        for (what, late, before) in rows {
            report.beside(format!("{name}: {what}"), late, "ms", before);
        }
    }
    report.alone(format!("{name}:   load of the machine"), process::load(), "");

    let mut faults = Vec::new();
    let mut check = |is_so: bool, what: String| {
        if !is_so {
            faults.push(format!("{name}: {what}"));
        }
    };
    let accepted = arguments.killed as u64 + sent_beside;
    check(totals.balance() && totals.accepted == accepted, format!("unbalanced: {totals:?}"));
    check(totals.dead == 0, format!("{} were given up", totals.dead));
    check(delivered == acknowledged.len() as u64, "delivered is not what was acknowledged".into());
    check(totals.delivered + still == totals.accepted, "some are neither acknowledged nor with Duly".into());
    check(duplicates <= allowed, format!("{duplicates} duplicates, {allowed} allowed"));
    check(
        lost == 0 || !broker.keeps_what_it_acknowledged(),
        format!("{lost} were acknowledged and are not there"),
    );
    faults
}

/// Hands over `count` messages that are due within the minute, and those beside them. Gives when the first is due.
async fn send(whole: &Whole, broker: &Arc<dyn Broker>, count: usize, prefix: &str) -> Timestamp {
    let first = whole.duly.now().saturating_add(AHEAD);
    let due = |n: usize| {
        Timestamp::from_millis(first.as_millis() + SPAN.as_millis() as u64 * n as u64 / count as u64)
    };
    let all = (0..count).map(|n| whole.message(&**broker, format!("{prefix}{n}"), due(n)));
    let beside =
        broker.bystander().map(|bystander| bystander::messages(whole, &**broker, bystander, first, prefix));
    whole.send(all.chain(beside.into_iter().flatten()).collect()).await;
    first
}

/// The same minute, and nothing is killed: what became of the messages beside.
async fn calm(broker: &Arc<dyn Broker>, arguments: &Arguments) -> Vec<Acknowledged> {
    let whole = Whole::start(std::slice::from_ref(broker), Watch::Everything, arguments.body).await;
    send(&whole, broker, arguments.killed, CALM).await;
    whole.drained(PATIENCE).await;
    whole.duly.shutdown().await.unwrap();
    let mut beside = whole.watched[0].take();
    beside.retain(|acknowledged| acknowledged.id.starts_with(bystander::PREFIX));
    beside
}
