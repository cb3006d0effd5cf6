//! The exported metrics. Every label is bounded: by the configuration, or by [`TopicLabels::MAX`].

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::atomic::Ordering::Relaxed,
    time::Duration,
};

use duly::{
    BreakerState, Health, HistogramSnapshot, Lane, LaneMetrics, LaneSnapshot, LaneStatus, Metrics, SinkName,
    Totals,
};

use super::{
    Telemetry,
    alerts::Name,
    page::{Family, Page},
};

/// The label of everything beyond the bound.
const OTHER: &str = "other";

/// Topics of the queue with a label of their own. A label is never taken away, or counters would decrease.
pub(super) struct TopicLabels(BTreeSet<String>);

impl TopicLabels {
    /// Max topics with a label.
    pub(super) const MAX: usize = 100;

    /// Topics with alert rules always have a label.
    pub(super) fn new<'a>(certain: impl Iterator<Item = &'a String>) -> Self {
        Self(certain.cloned().collect())
    }

    fn name<'a>(&mut self, topic: &'a str) -> &'a str {
        if topic == OTHER || !self.0.contains(topic) && self.0.len() >= Self::MAX {
            return OTHER;
        }
        if !self.0.contains(topic) {
            self.0.insert(topic.to_owned());
        }
        topic
    }
}

/// The values of one lane, or of all lanes without a label of their own.
#[derive(Default)]
struct Row {
    measured: LaneMetrics,
    pending: u64,
    ready: u64,
    in_flight: u64,
    dead: u64,
    paused: bool,
    overdue: Duration,
}

impl Row {
    fn measure(&mut self, measured: &LaneMetrics) {
        self.measured.delivered += measured.delivered;
        self.measured.failed += measured.failed;
        self.measured.dead += measured.dead;
        self.measured.lateness.add(&measured.lateness);
        self.measured.calls.add(&measured.calls);
    }

    fn hold(&mut self, status: &LaneStatus, now: duly::Timestamp) {
        self.pending += status.pending;
        self.ready += status.ready;
        self.in_flight += status.in_flight;
        self.dead += status.dead;
        self.paused |= status.paused;
        self.overdue =
            self.overdue.max(status.oldest_ready.map_or(Duration::ZERO, |oldest| now.since(oldest)));
    }
}

/// By sink and topic; a push sink has no topic.
type Rows = BTreeMap<(String, String), Row>;

impl Telemetry {
    /// Everything, measured now.
    pub(super) async fn page(&self) -> Page {
        let measures = self.duly.metrics();
        let lanes = self.duly.lanes().await;
        let totals = self.duly.totals().await;
        let health = self.duly.health().await;
        let snapshots = self.duly.served().await.unwrap_or_default();
        let mut page = Page::default();
        self.process(&mut page);
        self.requests.write(&mut page);
        self.exports.write(&mut page);
        let help = "Whether a message could be accepted and delivered now, as /readyz says";
        page.gauge("duly_node_ready", help).value(&[], u8::from(health.is_ready()));
        counts(&mut page, &measures);
        let dropped = self.events_dropped.load(Relaxed);
        let help = "Events that a follower of /v1/events was too slow for";
        page.counter("duly_events_dropped_total", help).value(&[], dropped);
        let rows = self.rows(&measures, lanes.as_deref().unwrap_or_default());
        per_lane(&mut page, &rows);
        per_sink(&mut page, &rows, &snapshots);
        per_topic(&mut page, &measures);
        store(&mut page, &measures, &health);
        // Without an answer of the store there are no totals.
        if let Ok(totals) = totals {
            ledger(&mut page, totals);
        }
        self.alerts_on(&mut page);
        page
    }

    fn process(&self, page: &mut Page) {
        let info = page.gauge("duly_build_info", "The version that runs");
        info.value(&[("version", env!("CARGO_PKG_VERSION"))], 1u64);
        let uptime = self.duly.clock().now().mono().since(self.began).as_secs_f64();
        page.gauge("duly_uptime_seconds", "How long this process has run").value(&[], uptime);
    }

    fn rows(&self, measures: &Metrics, lanes: &[LaneStatus]) -> Rows {
        let mut state = self.state();
        let mut rows = Rows::new();
        let sinks = self.duly.sinks();
        for sink in &sinks {
            rows.entry((sink.to_string(), String::new())).or_default();
        }
        let mut key = |lane: &Lane| match lane {
            Lane::Queue(topic) => {
                (SinkName::QUEUE.to_owned(), state.topic_labels.name(topic.as_str()).to_owned())
            }
            Lane::Sink(sink) if sinks.contains(&sink) => (sink.to_string(), String::new()),
            // The sink left the configuration, which bounds the labels.
            _ => (OTHER.to_owned(), String::new()),
        };
        for (lane, measured) in &measures.lanes {
            rows.entry(key(lane)).or_default().measure(measured);
        }
        let now = self.duly.now();
        for status in lanes {
            rows.entry(key(&status.lane)).or_default().hold(status, now);
        }
        let rest = (SinkName::QUEUE.to_owned(), OTHER.to_owned());
        rows.entry(rest).or_default().measure(&measures.other);
        rows
    }

    fn alerts_on(&self, page: &mut Page) {
        let state = self.state();
        let on = page.gauge("duly_alert", "Whether an alert is on");
        for name in Name::ALL {
            // Sinks that left the configuration are unbounded: one value for all of them.
            let is_on =
                if name == Name::Orphan { state.watch.any_on(name) } else { state.watch.is_on(name, None) };
            on.value(&[("name", name.as_str())], u8::from(is_on));
        }
        for topic in state.watch.topics() {
            for name in Name::OF_TOPICS {
                let is_on = state.watch.is_on(name, Some(topic));
                on.value(&[("name", name.as_str()), ("topic", topic)], u8::from(is_on));
            }
        }
    }
}

fn counts(page: &mut Page, measures: &Metrics) {
    let stats = &measures.stats;
    let submitted = page.counter("duly_messages_submitted_total", "Messages sent to this process");
    submitted.value(&[("outcome", "accepted")], stats.accepted);
    submitted.value(&[("outcome", "duplicate")], stats.duplicates);
    for (name, help, count) in [
        ("duly_messages_cancelled_total", "Messages cancelled", stats.cancelled),
        (
            "duly_messages_received_total",
            "Messages given to receivers of the built-in queue",
            stats.handed_out,
        ),
        ("duly_leases_lost_total", "Claims that ended before their outcome was recorded", stats.leases_lost),
        ("duly_leases_expired_total", "Leases that expired, receivers' too", stats.leases_ended),
        ("duly_clock_jumps_total", "Steps of wall time", stats.clock_jumps),
        ("duly_store_failures_total", "Calls of the store that failed", stats.store_failures),
    ] {
        page.counter(name, help).value(&[], count);
    }
}

/// The values of the label `outcome`: `failed` is followed by another attempt, `dead` is not.
fn outcomes(lane: &LaneMetrics) -> [(&'static str, u64); 3] {
    [("delivered", lane.delivered), ("failed", lane.failed), ("dead", lane.dead)]
}

fn per_lane(page: &mut Page, rows: &Rows) {
    type Read = fn(&Row) -> f64;
    let help = "Attempts to deliver, and messages given up without one";
    let attempts = page.counter("duly_attempts_total", help);
    for ((sink, topic), row) in rows {
        for (outcome, count) in outcomes(&row.measured) {
            attempts.value(&[("sink", sink), ("topic", topic), ("outcome", outcome)], count);
        }
    }
    let gauges: [(_, _, Read); 6] = [
        ("duly_pending", "Pending messages, due or not", |row| row.pending as f64),
        ("duly_ready", "Pending messages that are due", |row| row.ready as f64),
        ("duly_in_flight", "Messages claimed and not yet settled", |row| row.in_flight as f64),
        ("duly_dead_letters", "Dead letters kept", |row| row.dead as f64),
        ("duly_paused", "Whether an operator paused it", |row| f64::from(u8::from(row.paused))),
        ("duly_oldest_overdue_seconds", "How long the oldest due message has waited", |row| {
            row.overdue.as_secs_f64()
        }),
    ];
    let write = |family: &mut Family, read: Read| {
        for ((sink, topic), row) in rows {
            family.value(&[("sink", sink), ("topic", topic)], read(row));
        }
    };
    for (name, help, read) in gauges {
        write(page.gauge(name, help), read);
    }
}

fn per_sink(page: &mut Page, rows: &Rows, snapshots: &[(Lane, LaneSnapshot)]) {
    let mut late: BTreeMap<&str, HistogramSnapshot> = BTreeMap::new();
    for ((sink, _), row) in rows {
        late.entry(sink).or_default().add(&row.measured.lateness);
    }
    let family = page.histogram("duly_lateness_seconds", "How long after it was ready an attempt began");
    for (sink, spread) in &late {
        family.spans(&[("sink", sink)], spread);
    }
    let push = || rows.iter().filter(|((_, topic), _)| topic.is_empty());
    let family = page.histogram("duly_sink_call_seconds", "How long calls of a sink took");
    for ((sink, _), row) in push() {
        family.spans(&[("sink", sink)], &row.measured.calls);
    }
    let family = page.gauge("duly_sink_up", "Whether a sink is reachable, as far as this process knows");
    for (lane, snapshot) in snapshots {
        if let Lane::Sink(sink) = lane {
            family.value(&[("sink", sink.as_str())], u8::from(snapshot.target == BreakerState::Closed));
        }
    }
    let help = "Destinations inside the target of a sink (topics, queues, URL origins) that are silent, full or forbidden";
    let family = page.gauge("duly_sink_destinations_unreachable", help);
    for (lane, snapshot) in snapshots {
        if let Lane::Sink(sink) = lane {
            family.value(&[("sink", sink.as_str())], snapshot.destinations_open as u64);
        }
    }
}

fn per_topic(page: &mut Page, measures: &Metrics) {
    let help = "duly_attempts_total of topics with alerts of their own, whichever sinks they go to";
    let family = page.counter("duly_topic_attempts_total", help);
    for (topic, measured) in &measures.topics {
        for (outcome, count) in outcomes(measured) {
            family.value(&[("topic", topic.as_str()), ("outcome", outcome)], count);
        }
    }
    let help = "How long after it was ready an attempt began, of topics with alerts of their own";
    let family = page.histogram("duly_topic_lateness_seconds", help);
    for (topic, measured) in &measures.topics {
        family.spans(&[("topic", topic.as_str())], &measured.lateness);
    }
}

fn store(page: &mut Page, measures: &Metrics, health: &Health) {
    let store = &measures.store;
    let help = "How long changes take to become durable once they are being written";
    page.histogram("duly_store_commit_seconds", help).spans(&[], &store.commit);
    page.histogram("duly_store_sync_seconds", "How long the sync of changes takes").spans(&[], &store.sync);
    page.gauge("duly_store_disk_bytes", "Bytes of the store's files").value(&[], store.disk_bytes);
    page.gauge("duly_store_waiting_bytes", "Bytes that wait to be made durable")
        .value(&[], store.waiting_bytes);
    let help = "Whether the store has no room for new messages";
    page.gauge("duly_store_full", help).value(&[], u8::from(store.full));
    let help = "Messages that the store could not read any more, since it was opened";
    page.gauge("duly_damaged_messages", help).value(&[], store.damaged);
    let help = "Whether the log of claims was missing when the store was opened";
    page.gauge("duly_store_claims_log_missing", help).value(&[], u8::from(store.claims_log_missing));
    let help = "Sinks and topics that the store keeps in memory: in use, or used a while ago";
    page.gauge("duly_store_lanes", help).value(&[], store.lanes);
    if let Some(skew) = store.clock_skew_us {
        let help = "How far this machine's clock is ahead of the store's, which all nodes go by";
        page.gauge("duly_clock_skew_seconds", help).value(&[], skew as f64 / 1e6);
    }
    if let Some(index) = store.index {
        let help =
            "Whether messages are found by the index in Redis; if not, in MySQL itself, and later than usual";
        page.gauge("duly_index_used", help).value(&[], u8::from(index.is_used));
        let family = page.counter("duly_index_repairs_total", "Differences found in the index and repaired");
        family.value(&[("repair", "entry_dropped")], index.dropped);
        family.value(&[("repair", "row_restored")], index.restored);
        page.counter("duly_index_rebuilds_total", "How often the index was built anew")
            .value(&[], index.rebuilt);
    }
    let help = "Whether the store answers, takes messages and gives out what is due";
    page.gauge("duly_store_up", help).value(&[], u8::from(health.store().is_ok()));
    let help = "Whether a part of the store fails while the others work";
    page.gauge("duly_store_degraded", help).value(&[], u8::from(health.degraded.is_some()));
}

fn ledger(page: &mut Page, totals: Totals) {
    let help = "Messages accepted since the store was made";
    page.gauge("duly_store_accepted", help).value(&[], totals.accepted);
    let family = page.gauge("duly_store_messages", "What became of them, by state");
    for (state, count) in [
        ("pending", totals.pending),
        ("in_flight", totals.in_flight),
        ("delivered", totals.delivered),
        ("cancelled", totals.cancelled),
        ("dead", totals.dead),
        ("purged", totals.purged),
    ] {
        family.value(&[("state", state)], count);
    }
    let help = "Whether the states add up to what was accepted";
    page.gauge("duly_ledger_balanced", help).value(&[], u8::from(totals.balance()));
}
