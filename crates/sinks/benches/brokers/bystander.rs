//! Messages to a topic that the kills of `kills` do not affect, and how late they come meanwhile, beside the noise.

use duly::Message;
use duly_core::Timestamp;
use testkit::bench::report::quantile;

use crate::{
    broker::{Broker, Bystander},
    kills::{KILLS, SPAN},
    whole::{Acknowledged, Whole},
};

/// Their ids begin with this.
pub(crate) const PREFIX: &str = "beside-";
/// Spread over the same minute.
pub(crate) const COUNT: u64 = 6_000;

pub(crate) fn messages(
    whole: &Whole,
    broker: &dyn Broker,
    bystander: Bystander,
    first: Timestamp,
    run: &str,
) -> Vec<Message> {
    (0..COUNT)
        .map(|n| {
            let due = Timestamp::from_millis(first.as_millis() + SPAN.as_millis() as u64 * n / COUNT);
            whole.message_to(broker, bystander.topic, format!("{PREFIX}{run}{n}"), due)
        })
        .collect()
}

/// A figure, and what it is measured against.
pub(crate) type Row = (String, f64, f64);

/// While a server was away, beside before the first kill.
pub(crate) fn lateness(
    acknowledged: &[Acknowledged],
    first: Timestamp,
    outages: &[(Timestamp, Timestamp)],
) -> Vec<Row> {
    let calm = first.saturating_add(KILLS[0]);
    let is_away = |due: Timestamp| outages.iter().any(|(from, to)| (*from..*to).contains(&due));
    beside(
        "while a server is away, and before",
        late(acknowledged, |due| due < calm),
        late(acknowledged, is_away),
    )
}

/// The noise: the second half of a minute in which nothing was killed, beside the first.
pub(crate) fn noise(acknowledged: &[Acknowledged]) -> Vec<Row> {
    let first = acknowledged.iter().map(|acknowledged| acknowledged.due).min().unwrap_or_default();
    let middle = first.saturating_add(SPAN / 2);
    beside(
        "nothing killed, its second half and its first",
        late(acknowledged, |due| due < middle),
        late(acknowledged, |due| due >= middle),
    )
}

/// How late those came whose due time is so, in order.
fn late(acknowledged: &[Acknowledged], is_it: impl Fn(Timestamp) -> bool) -> Vec<f64> {
    let these = acknowledged.iter().filter(|acknowledged| is_it(acknowledged.due));
    let mut late: Vec<f64> = these.map(|acknowledged| acknowledged.late).collect();
    late.sort_by(f64::total_cmp);
    late
}

/// p50, p99 and the most.
fn beside(when: &str, before: Vec<f64>, after: Vec<f64>) -> Vec<Row> {
    let at = |late: &[f64], part| if late.is_empty() { f64::NAN } else { quantile(late, part) };
    [("p50", 0.5), ("p99", 0.99), ("most", 1.0)]
        .map(|(name, part)| (format!("  unaffected, {when}: {name}"), at(&after, part), at(&before, part)))
        .to_vec()
}
