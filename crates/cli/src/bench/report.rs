//! The report of a run.

use std::{collections::BTreeMap, fmt::Write as _, time::Duration};

use serde::Serialize;

use super::{histogram::Histogram, load_run::LoadRun};
use crate::{Output, Tint, clock};
use duly_client::wire::Lateness;

/// The results of a run: counts, rates, latencies.
#[derive(Debug, Serialize)]
pub(super) struct Report {
    pub(super) connections: usize,
    pub(super) batch: usize,
    /// How long was sent.
    pub(super) duration_ms: u64,
    pub(super) sent: u64,
    pub(super) accepted: u64,
    pub(super) accepted_per_second: f64,
    /// None: nothing was received.
    pub(super) delivered: Option<u64>,
    pub(super) delivered_per_second: Option<f64>,
    /// Received again, after an acknowledgement was lost.
    pub(super) duplicates: u64,
    /// Accepted, and not received within the wait.
    pub(super) missing: Option<u64>,
    /// Received before their due time: must be 0.
    pub(super) early: u64,
    #[serde(flatten)]
    pub(super) errors: Errors,
    /// From sending to the answer.
    pub(super) accept_latency: Lateness,
    /// From the due time to the receipt.
    pub(super) lateness: Option<Lateness>,
}

/// What went wrong. In JSON, its fields are those of the report.
#[derive(Debug, Serialize)]
pub(super) struct Errors {
    /// All of them: refusals and broken connections.
    #[serde(rename = "errors")]
    pub(super) count: u64,
    /// Messages that were refused, by error code.
    pub(super) refused: BTreeMap<String, u64>,
    pub(super) broken_connections: u64,
}

impl Report {
    pub(super) fn new(
        shared: &LoadRun,
        connections: usize,
        sending: Duration,
        latency: &Histogram,
        late: Option<&Histogram>,
    ) -> Self {
        use std::sync::{PoisonError, atomic::Ordering::SeqCst};
        let counts = &shared.counts;
        let refused = shared.refusals.lock().unwrap_or_else(PoisonError::into_inner).clone();
        let (accepted, delivered) = (counts.accepted.load(SeqCst), shared.deliveries.delivered());
        let broken = counts.reconnects.load(SeqCst);
        // A run so short that all came at once has no rate.
        let per_second = |count: u64, span: Duration| count as f64 / span.as_secs_f64().max(0.001);
        Self {
            connections,
            batch: shared.plan.batch,
            duration_ms: u64::try_from(sending.as_millis()).unwrap_or(u64::MAX),
            sent: counts.sent.load(SeqCst),
            accepted,
            accepted_per_second: per_second(accepted, sending),
            delivered: late.map(|_| delivered),
            delivered_per_second: late.map(|_| per_second(delivered, shared.delivering())),
            duplicates: shared.deliveries.duplicates(),
            missing: late.map(|_| shared.deliveries.missing()),
            early: counts.early.load(SeqCst),
            errors: Errors {
                count: refused.values().sum::<u64>() + broken,
                refused,
                broken_connections: broken,
            },
            accept_latency: latency.quantiles(),
            lateness: late.map(Histogram::quantiles),
        }
    }

    pub(super) fn to_text(&self, out: &Output) -> String {
        let rate = |per_second: f64| format!("{}/s", clock::grouped(per_second.round() as u64));
        let mut rows = out.table(&["WHAT", ">COUNT", ">RATE"]);
        rows.row(["accepted".into(), clock::grouped(self.accepted), rate(self.accepted_per_second)]);
        if let (Some(delivered), Some(per_second)) = (self.delivered, self.delivered_per_second) {
            rows.row(["delivered".into(), clock::grouped(delivered), rate(per_second)]);
        }
        if self.duplicates > 0 {
            rows.row(["came again".into(), clock::grouped(self.duplicates), String::new()]);
        }
        rows.row(["errors".into(), clock::grouped(self.errors.count), String::new()]);
        let mut text = rows.text();
        text.push('\n');
        let mut rows = out.table(&["MILLISECONDS", ">P50", ">P99", ">P99.9", ">MAX"]);
        let mut row = |name: &str, times: &Lateness| {
            let cell = |ms: f64| format!("{ms:.2}");
            rows.row([
                name.to_owned(),
                cell(times.p50_ms),
                cell(times.p99_ms),
                cell(times.p999_ms),
                cell(times.max_ms),
            ]);
        };
        row("to accept", &self.accept_latency);
        if let Some(late) = &self.lateness {
            row("lateness", late);
        }
        text += &rows.text();
        for (code, count) in &self.errors.refused {
            let _ = writeln!(text, "{} refused: {code}", clock::grouped(*count));
        }
        if self.early > 0 {
            let early = out.tint(Tint::Red, &format!("{} came before their time", self.early));
            let _ = writeln!(text, "{early}");
        }
        text
    }
}
