//! Metrics, alerts and the check of the books.

use std::{collections::BTreeMap, sync::Arc};

use duly::Duly;
use tokio::sync::broadcast;

use crate::{config::AlertRules, wire::Alert};

/// What is measured of one server.
pub struct Telemetry {
    alerts: broadcast::Sender<Alert>,
}

/// Per second, over the last ten seconds.
#[derive(Debug, Clone, Default)]
pub struct Rates {
    /// Accepted.
    pub accepted: f64,
    /// Delivered.
    pub delivered: f64,
    /// Delivered, per sink.
    pub delivered_by_sink: BTreeMap<String, f64>,
}

impl Telemetry {
    /// Begins to measure. Ends with the server: the background task holds nothing that keeps it alive.
    pub fn start(_duly: Duly, _rules: AlertRules) -> Arc<Self> {
        Arc::new(Self { alerts: broadcast::channel(64).0 })
    }

    /// Everything in Prometheus's text form.
    pub async fn render(&self) -> String {
        String::new()
    }

    /// The alerts that are on.
    pub fn alerts(&self) -> Vec<Alert> {
        Vec::new()
    }

    /// Alerts as they are raised and cleared.
    pub fn listen(&self) -> broadcast::Receiver<Alert> {
        self.alerts.subscribe()
    }

    /// A follower of events was too slow for so many of them.
    pub fn dropped_events(&self, _count: u64) {}

    /// How fast things go.
    pub fn rates(&self) -> Rates {
        Rates::default()
    }
}
