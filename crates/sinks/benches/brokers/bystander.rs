//! Messages to a topic that the kills of `kills` do not affect, and how late they come meanwhile, beside the noise.

use duly::{Clock, Message, SystemClock};
use duly_core::Timestamp;
use testkit::bench::report::quantile;

use crate::{
    broker::{Bare, Broker, Bystander},
    kills::{KILLS, SPAN},
    rates::delivery,
    whole::{Acknowledged, Whole, pause},
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

/// Publishes as many to the same topic at the same times by a bare client: what the broker itself costs them.
pub(crate) async fn bare(
    mut client: Box<dyn Bare>,
    topic: &'static str,
    body: usize,
    first: Timestamp,
) -> Vec<Acknowledged> {
    let clock = SystemClock::new().unwrap();
    let mut acknowledged = Vec::new();
    for n in 0..COUNT {
        let due = Timestamp::from_millis(first.as_millis() + SPAN.as_millis() as u64 * n / COUNT);
        pause(due.since(clock.now().wall())).await;
        let id = format!("{PREFIX}bare-{n}");
        client.publish(&[delivery(&id, topic, body)], 1).await;
        let late = clock.now().wall_micros() as f64 / 1e3 - due.as_millis() as f64;
        acknowledged.push(Acknowledged { id, due, late });
    }
    acknowledged
}

/// A figure, and what it is measured against.
pub(crate) type Row = (String, f64, f64);

/// While a server was away, beside before the first kill.
pub(crate) fn lateness(
    whose: &str,
    acknowledged: &[Acknowledged],
    first: Timestamp,
    outages: &[(Timestamp, Timestamp)],
) -> Vec<Row> {
    let calm = first.saturating_add(KILLS[0]);
    let is_away = |due: Timestamp| outages.iter().any(|(from, to)| (*from..*to).contains(&due));
    beside(
        &format!("{whose}, while a server is away, and before"),
        late(acknowledged, |due| due < calm),
        late(acknowledged, is_away),
    )
}

/// The noise: the second half of a minute in which nothing was killed, beside the first.
pub(crate) fn noise(acknowledged: &[Acknowledged]) -> Vec<Row> {
    let first = acknowledged.iter().map(|acknowledged| acknowledged.due).min().unwrap_or_default();
    let middle = first.saturating_add(SPAN / 2);
    beside(
        "by Duly, nothing killed, its second half and its first",
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
