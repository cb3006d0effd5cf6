//! Messages to a topic that the kills of `kills` do not affect, and how late they come meanwhile.

use duly::Message;
use duly_core::Timestamp;

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
) -> Vec<Message> {
    (0..COUNT)
        .map(|n| {
            let due = Timestamp::from_millis(first.as_millis() + SPAN.as_millis() as u64 * n / COUNT);
            whole.message_to(broker, bystander.topic, format!("{PREFIX}{n}"), due)
        })
        .collect()
}

/// p50, p99 and the most: before the first kill, and while a server was away.
pub(crate) fn lateness(
    acknowledged: &[Acknowledged],
    first: Timestamp,
    outages: &[(Timestamp, Timestamp)],
) -> Vec<(String, f64)> {
    let calm = first.saturating_add(KILLS[0]);
    let before = acknowledged.iter().filter(|acknowledged| acknowledged.due < calm);
    let during = acknowledged
        .iter()
        .filter(|acknowledged| outages.iter().any(|(from, to)| (*from..*to).contains(&acknowledged.due)));
    let mut rows = late("before the first kill", before.map(|acknowledged| acknowledged.late).collect());
    rows.extend(late("while a server is away", during.map(|acknowledged| acknowledged.late).collect()));
    rows
}

fn late(when: &str, mut late: Vec<f64>) -> Vec<(String, f64)> {
    late.sort_by(f64::total_cmp);
    let at = |share: f64| {
        late.get((late.len() as f64 * share) as usize).or(late.last()).copied().unwrap_or(f64::NAN)
    };
    [("p50", 0.5), ("p99", 0.99), ("most", 1.0)]
        .map(|(name, share)| (format!("  unaffected topic, {when}, lateness {name}"), at(share)))
        .to_vec()
}
