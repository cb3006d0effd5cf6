//! `duly stats`: totals, rates and lateness.

use clap::Args;

use super::{Failure, Output, Tint, clock};
use duly_client::{
    Client,
    wire::{AlertState, Stats},
};

/// Show totals, rates and how late deliveries were
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly stats
  duly stats -o json | jq .lateness.p99_ms")]
pub(crate) struct Totals {}

impl Totals {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let stats = client.stats().await?;
        out.answer(&stats, |stats| to_text(out, stats))
    }
}

fn to_text(out: &Output, stats: &Stats) -> String {
    let (totals, late) = (&stats.totals, &stats.lateness);
    let mut rows = out.table(&["WHAT", ">COUNT", ""]);
    for (what, count, note) in [
        ("accepted", totals.accepted, format!("{:.1}/s", stats.accepted_per_second)),
        ("pending", totals.pending, String::new()),
        ("in flight", totals.in_flight, String::new()),
        ("delivered", totals.delivered, format!("{:.1}/s", stats.delivered_per_second)),
        ("cancelled", totals.cancelled, String::new()),
        ("dead", totals.dead, String::new()),
        ("purged", totals.purged, String::new()),
        ("failed attempts", stats.failed, "since the start".into()),
        ("duplicates", stats.duplicates, "since the start".into()),
    ] {
        rows.row([what.to_owned(), clock::grouped(count), note]);
    }
    let mut text = rows.text();
    text += &format!(
        "\nlateness p50 {:.1} ms, p99 {:.1} ms, p99.9 {:.1} ms, max {:.1} ms of {}\n",
        late.p50_ms,
        late.p99_ms,
        late.p999_ms,
        late.max_ms,
        clock::grouped(late.count)
    );
    text += &if totals.balanced {
        format!("ledger {}\n", out.tint(Tint::Green, "balanced"))
    } else {
        format!("ledger {}\n", out.tint(Tint::Red, "NOT balanced: please report this"))
    };
    text += &format!("up {}, version {}\n", clock::span(stats.uptime_ms), stats.version);
    for alert in stats.alerts.iter().filter(|alert| alert.state == AlertState::Raised) {
        let scope = alert.scope.as_deref().unwrap_or("all");
        let name = out.tint(Tint::Yellow, &alert.name);
        text += &format!("alert {name} ({scope}) since {}: {}\n", alert.since, alert.detail);
    }
    text
}
