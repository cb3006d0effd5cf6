//! Metrics, alerts and the check of the ledger.

mod alerts;
mod exports;
mod metrics;
#[cfg(not(feature = "otel"))]
mod no_otlp;
#[cfg(feature = "otel")]
mod otlp;
mod page;
mod rates;
mod requests;
mod text;
mod webhook;

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    time::Duration,
};

use duly::{Duly, Monotonic, Now, StoreErrorKind};
use http::{Method, StatusCode};
use tokio::sync::broadcast;

use self::{
    alerts::{LaneMeasurements, Measurements, Name, Watch},
    metrics::TopicLabels,
    rates::{Sample, Samples},
    requests::RequestMetrics,
    webhook::Poster,
};
use crate::{
    config::AlertRules,
    wire::{Alert, AlertState},
};

pub use alerts::CALM;
pub use exports::ExportCounts;
#[cfg(not(feature = "otel"))]
pub use no_otlp::Otlp;
#[cfg(feature = "otel")]
pub use otlp::Otlp;
pub use rates::Rates;

/// Time between two checks of the server.
const CHECK_INTERVAL: Duration = Duration::from_secs(2);
/// A shared store is queried at every fifth check only.
const REMOTE_CHECKS_EVERY: u64 = 5;
/// If any part of a store reports one of these, its other queries fail as well.
const AWAY: [StoreErrorKind; 3] =
    [StoreErrorKind::Unavailable, StoreErrorKind::Unanswered, StoreErrorKind::Closed];
/// Alerts buffered for a slow listener; then it loses the oldest.
const KEPT: usize = 64;

/// Metrics and alerts of one server.
pub struct Telemetry {
    duly: Duly,
    alerts: broadcast::Sender<Alert>,
    poster: Option<Poster>,
    state: Mutex<State>,
    requests: RequestMetrics,
    exports: Arc<ExportCounts>,
    events_dropped: AtomicU64,
    checks: AtomicU64,
    began: Monotonic,
}

struct State {
    watch: Watch,
    samples: Samples,
    topic_labels: TopicLabels,
}

impl Telemetry {
    /// Starts the background task. It holds only a weak reference and ends with the server.
    ///
    /// The topics that have rules of their own are to be [watched](duly::Builder::watch_topics) by `duly`.
    pub fn start(duly: Duly, rules: AlertRules, exports: Arc<ExportCounts>) -> Arc<Self> {
        let clock = duly.clock().clone();
        let began = clock.now().mono();
        let poster = rules.webhook.as_deref().map(|url| Poster::start(url, &clock)).transpose();
        let poster = poster.unwrap_or_else(|fault| {
            tracing::error!(error = %fault, "alert webhook unusable");
            None
        });
        let state = State {
            topic_labels: TopicLabels::new(rules.topics.keys()),
            samples: Samples::default(),
            watch: Watch::new(rules, duly.sinks().into_iter().cloned()),
        };
        let telemetry = Arc::new(Self {
            duly,
            alerts: broadcast::channel(KEPT).0,
            poster,
            state: Mutex::new(state),
            requests: RequestMetrics::default(),
            exports,
            events_dropped: AtomicU64::new(0),
            checks: AtomicU64::new(0),
            began,
        });
        let weak = Arc::downgrade(&telemetry);
        tokio::spawn(async move {
            let mut next = began;
            while let Some(telemetry) = weak.upgrade() {
                // A check that panics must not end the loop.
                if let Err(error) = tokio::spawn(async move { telemetry.check().await }).await {
                    tracing::error!(%error, "telemetry update failed");
                }
                // From the last check: missed ones are not made up for.
                next = clock.now().mono().max(next).saturating_add(CHECK_INTERVAL);
                clock.sleep_until(next).await;
            }
        });
        telemetry
    }

    /// All metrics in the Prometheus text format.
    pub async fn render(&self) -> String {
        text::text(&self.page().await)
    }

    /// The alerts that are on.
    pub fn alerts(&self) -> Vec<Alert> {
        self.state().watch.on()
    }

    /// Alerts as they are raised and cleared.
    pub fn listen(&self) -> broadcast::Receiver<Alert> {
        self.alerts.subscribe()
    }

    /// Current rates.
    pub fn rates(&self) -> Rates {
        self.state().samples.rates()
    }

    /// Measures a request: how long it took until the head of its answer, by the template of its route.
    pub fn request(&self, route: &Arc<str>, method: &Method, status: StatusCode, took: Duration) {
        self.requests.record(route, method, status, took);
    }

    /// Counts events that a slow follower lost.
    pub fn dropped_events(&self, count: u64) {
        self.events_dropped.fetch_add(count, Relaxed);
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Measures once, evaluates the alert rules and publishes changes.
    async fn check(&self) {
        let now = self.duly.clock().now();
        let sample = Sample::of(now.mono(), &self.duly.metrics());
        self.state().samples.push(sample);
        let check = self.checks.fetch_add(1, Relaxed);
        let health = self.duly.health().await;
        let failing: Vec<_> =
            health.parts().into_iter().filter_map(|(part, wrong)| Some((part, wrong?))).collect();
        let degraded = health.degraded.as_ref().map(ToString::to_string);
        let is_far = self.duly.durability().is_remote() && !check.is_multiple_of(REMOTE_CHECKS_EVERY);
        let is_away = AWAY.iter().any(|kind| health.failing_with(*kind).is_some());
        // Do not wait for a store that does not answer: alerts about its content stay as they were.
        let (lanes, totals) = match is_far || is_away {
            true => (None, None),
            false => (self.lanes_seen(now).await, self.duly.totals().await.ok()),
        };
        let changes = {
            let mut state = self.state();
            let (attempts, topics) = state.samples.attempts();
            state.watch.evaluate(now, &Measurements { lanes, attempts, topics, totals, failing, degraded })
        };
        changes.iter().for_each(|alert| self.publish(alert));
    }

    async fn lanes_seen(&self, now: Now) -> Option<Vec<LaneMeasurements>> {
        let lanes = self.duly.lanes().await.ok()?;
        let elsewhere = self.duly.served_elsewhere().await.unwrap_or_default();
        // Another node watches over those.
        let lanes = lanes.into_iter().filter(|status| !elsewhere.contains(&status.lane.to_string()));
        let seen = lanes.map(|status| LaneMeasurements {
            overdue: status.oldest_ready.map_or(Duration::ZERO, |oldest| now.wall().since(oldest)),
            lane: status.lane,
            paused: status.paused,
            pending: status.pending,
            dead: status.dead,
        });
        Some(seen.collect())
    }

    fn publish(&self, alert: &Alert) {
        let (name, scope, detail) = (&alert.name, alert.scope.as_deref(), &alert.detail);
        match alert.state {
            AlertState::Raised if is_grave(name) => {
                tracing::error!(alert = name, scope, detail, "alert raised");
            }
            AlertState::Raised => tracing::warn!(alert = name, scope, detail, "alert raised"),
            AlertState::Cleared => tracing::info!(alert = name, scope, "alert cleared"),
        }
        // Having no subscriber is no error.
        let _ = self.alerts.send(alert.clone());
        if let Some(poster) = &self.poster {
            poster.post(alert);
        }
    }
}

fn is_grave(alert: &str) -> bool {
    Name::ALL.iter().any(|name| name.as_str() == alert && name.is_grave())
}

#[cfg(test)]
mod tests;
