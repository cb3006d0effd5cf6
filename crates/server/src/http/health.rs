//! `/healthz`, `/readyz` and `/metrics`.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use duly::{Health, Lane};
use http::{StatusCode, header};
use tokio::time::timeout;

use super::{
    answer,
    app::App,
    caller::Who,
    fault::{ApiResult, Fault, RETRY_AFTER_SECONDS},
};
use crate::{
    auth::Role,
    wire::{OrphanLane, Ready},
};

/// The state of a healthy part.
const OK: &str = "ok";
/// The state of a failing part for callers without a token: details name hosts, lanes and files.
const FAILING: &str = "failing";
/// The state of a degraded part for callers without a token.
const DEGRADED: &str = "in part";

/// Timeout of the store for listing lanes of sinks that left the configuration.
const ORPHANS_WITHIN: Duration = Duration::from_secs(1);

/// Whether the process is alive
#[utoipa::path(get, path = "/livez", operation_id = "get_liveness", tag = "health", responses((status = 200, description = "It is", body = String)))]
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// Whether a message could be accepted and delivered now: which part fails, and what an accepted message survives
#[utoipa::path(
    get, path = "/readyz", operation_id = "get_readiness", tag = "health",
    responses((status = 200, description = "It could", body = Ready), (status = 503, description = "It could not", body = Ready))
)]
pub(super) async fn ready(State(app): State<Arc<App>>, who: Result<Who, Fault>) -> Response {
    let health = app.duly.health().await;
    let mut ready = Ready { ready: true, durability: app.duly.durability().to_string(), ..Ready::default() };
    // Orchestrators have no token; the status and the failing part are enough for them.
    let is_told = who.is_ok_and(|who| who.sees_all() && !who.caller().roles.is_empty());
    for (name, wrong) in parts(&app, &health) {
        ready.ready &= wrong.is_none();
        let wrong = wrong.map(|words| if is_told { words } else { FAILING.into() });
        ready.parts.insert(name.into(), wrong.unwrap_or_else(|| OK.into()));
    }
    if let Some(error) = &health.degraded {
        let words = if is_told { error.to_string() } else { DEGRADED.into() };
        ready.parts.insert("degraded".into(), words);
    }
    ready.warnings.extend(app.proxied.warning(app.age()).map(str::to_owned));
    // Health may be cached for some seconds. A store that hangs since then must not delay the response.
    if is_told && health.is_ready() {
        ready.orphans = timeout(ORPHANS_WITHIN, orphans(&app)).await.unwrap_or_default();
    }
    if ready.ready {
        return Json(ready).into_response();
    }
    let later = [(header::RETRY_AFTER, RETRY_AFTER_SECONDS)];
    (StatusCode::SERVICE_UNAVAILABLE, later, Json(ready)).into_response()
}

/// Each part and its error.
fn parts(app: &App, health: &Health) -> Vec<(&'static str, Option<String>)> {
    let store = health.store().err().map(|error| error.to_string());
    let server = app.stopping.borrow().then(|| "stopping".to_owned());
    let mut parts = vec![("store", store), ("server", server)];
    parts.extend(health.parts());
    parts
}

async fn orphans(app: &App) -> Vec<OrphanLane> {
    let elsewhere = app.duly.served_elsewhere().await.unwrap_or_default();
    let lanes = app.duly.lanes().await.unwrap_or_default().into_iter();
    let orphan = |status: duly::LaneStatus| match &status.lane {
        Lane::Sink(sink) if !app.sinks.contains_key(sink) && !elsewhere.contains(sink.as_str()) => {
            let pending = status.pending + status.in_flight;
            (pending > 0).then(|| OrphanLane { sink: sink.as_str().into(), pending })
        }
        _ => None,
    };
    lanes.filter_map(orphan).collect()
}

/// Everything that is measured, for Prometheus
#[utoipa::path(get, path = "/metrics", operation_id = "get_metrics", tag = "health", responses((status = 200, description = "Text", body = String)))]
pub(super) async fn metrics(State(app): State<Arc<App>>, who: Who) -> ApiResult<Response> {
    who.need(Role::Read)?.require_all_topics()?;
    Ok(answer::metrics(&app, &who, app.telemetry.render().await.into_bytes()))
}
