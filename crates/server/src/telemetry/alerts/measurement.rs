//! The measurement behind an alert: one sentence for people, and the same numbers for programs.

use std::time::Duration;

use duly::{Lane, Totals};

use crate::wire::{AlertValues, TotalsAnswer};

/// The fault that was measured.
#[derive(Debug)]
pub(super) struct Wrong {
    pub(super) detail: String,
    pub(super) values: AlertValues,
    /// The number of messages that a person must look at, if there are such. The alert is sent again when it has doubled.
    pub(super) count: Option<u64>,
}

impl Wrong {
    fn new(detail: String, values: AlertValues) -> Self {
        Self { detail, values, count: None }
    }

    pub(super) fn overdue(lane: &Lane, waited: Duration, limit: Duration) -> Self {
        let detail = format!(
            "{lane}: the oldest due message has waited {}, the limit is {}",
            words(waited),
            words(limit)
        );
        let (measured_ms, limit_ms) = (Some(millis(waited)), Some(millis(limit)));
        let lane = Some(lane.to_string());
        Self::new(detail, AlertValues { lane, measured_ms, limit_ms, ..AlertValues::default() })
    }

    pub(super) fn queue_length(pending: u64, limit: u64) -> Self {
        let detail = format!("{pending} messages are pending, the limit is {limit}");
        let (count, limit) = (Some(pending), Some(limit));
        Self::new(detail, AlertValues { count, limit, ..AlertValues::default() })
    }

    pub(super) fn lateness(p99: Duration, limit: Duration, attempts: u64) -> Self {
        let detail = format!(
            "99 of 100 attempts began within {}, the limit is {}; of {attempts} attempts in a minute",
            words(p99),
            words(limit)
        );
        let (measured_ms, limit_ms, attempts) = (Some(millis(p99)), Some(millis(limit)), Some(attempts));
        Self::new(detail, AlertValues { measured_ms, limit_ms, attempts, ..AlertValues::default() })
    }

    /// `limit` is a share, from 0 to 1.
    pub(super) fn failures(failed: u64, attempts: u64, limit: f64) -> Self {
        let percent = limit * 100.0;
        let detail =
            format!("{failed} of {attempts} attempts failed within a minute, the limit is {percent} %");
        let (failed, attempts, limit_rate) = (Some(failed), Some(attempts), Some(limit));
        Self::new(detail, AlertValues { failed, attempts, limit_rate, ..AlertValues::default() })
    }

    pub(super) fn dead_letters(dead: u64, limit: u64) -> Self {
        let detail =
            format!("{dead} messages were given up and are kept, the limit is {limit}; replay or purge them");
        let (count, limit) = (Some(dead), Some(limit));
        Self { detail, values: AlertValues { count, limit, ..AlertValues::default() }, count }
    }

    pub(super) fn orphan(pending: u64, sink: String) -> Self {
        let detail = format!(
            "{pending} messages wait for the sink {sink}, which is not configured; add it again, or cancel them"
        );
        let (count, sink) = (Some(pending), Some(sink));
        Self::new(detail, AlertValues { count, sink, ..AlertValues::default() })
    }

    pub(super) fn ledger(totals: &Totals) -> Self {
        let detail =
            format!("the ledger does not balance: {totals:?}; keep a copy of the data and report it");
        let totals = Some(TotalsAnswer::from(totals));
        Self::new(detail, AlertValues { totals, ..AlertValues::default() })
    }

    pub(super) fn not_ready(failing: &[(&'static str, String)]) -> Self {
        let words: Vec<_> = failing.iter().map(|(part, why)| format!("{part}: {why}")).collect();
        let detail = format!("no message could be accepted and delivered now: {}", words.join("; "));
        let parts = failing.iter().map(|(part, why)| ((*part).to_owned(), why.clone())).collect();
        Self::new(detail, AlertValues { parts, ..AlertValues::default() })
    }

    pub(super) fn degraded(why: &str) -> Self {
        let detail = format!("some messages wait while all others are delivered: {why}");
        Self::new(detail, AlertValues { why: Some(why.to_owned()), ..AlertValues::default() })
    }
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

/// A span for people: three digits are enough.
fn words(span: Duration) -> String {
    match span.as_secs() {
        0 => format!("{} ms", span.as_millis()),
        1..100 => format!("{:.1} s", span.as_secs_f64()),
        100..6_000 => format!("{} min", span.as_secs() / 60),
        seconds => format!("{} h", seconds / 3_600),
    }
}
