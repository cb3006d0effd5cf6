//! Alive, ready, measured.

use std::sync::Arc;

use axum::{
    Json,
    extract::State,
    response::{IntoResponse, Response},
};
use duly::Lane;
use http::{StatusCode, header};

use super::{app::App, caller::Who, fault::Answer};
use crate::{
    auth::Role,
    wire::{OrphanLane, Ready},
};

/// Whether the process is alive
#[utoipa::path(get, path = "/livez", tag = "health", responses((status = 200, description = "It is", body = String)))]
pub(super) async fn live() -> &'static str {
    "ok\n"
}

/// Whether it can do its work: which part fails, and what an accepted message survives
#[utoipa::path(
    get, path = "/readyz", tag = "health",
    responses((status = 200, description = "It can", body = Ready), (status = 503, description = "It cannot", body = Ready))
)]
pub(super) async fn ready(State(app): State<Arc<App>>) -> Response {
    let mut ready = Ready { ready: true, durability: app.duly.durability().to_string(), ..Ready::default() };
    let store = app.duly.store_health().await;
    let mut part = |name: &str, state: Result<(), String>| {
        ready.ready &= state.is_ok();
        ready.parts.insert(name.into(), state.err().unwrap_or_else(|| "ok".into()));
    };
    let is_there = store.is_ok();
    part("store", store.map_err(|error| error.to_string()));
    let stopping = *app.stopping.borrow();
    part("server", if stopping { Err("stopping".into()) } else { Ok(()) });
    // A store that does not answer would be waited for once more by each of these.
    let (elsewhere, lanes) = match is_there {
        true => (
            app.duly.served_elsewhere().await.unwrap_or_default(),
            app.duly.lanes().await.unwrap_or_default(),
        ),
        false => Default::default(),
    };
    for status in lanes {
        if let Lane::Sink(sink) = &status.lane
            && !app.sinks.contains_key(sink)
            && !elsewhere.contains(sink.as_str())
            && status.pending + status.in_flight > 0
        {
            ready
                .orphans
                .push(OrphanLane { sink: sink.as_str().into(), pending: status.pending + status.in_flight });
        }
    }
    let status = if ready.ready { StatusCode::OK } else { StatusCode::SERVICE_UNAVAILABLE };
    (status, Json(ready)).into_response()
}

/// Everything that is measured, for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "health", responses((status = 200, description = "Text", body = String)))]
pub(super) async fn metrics(State(app): State<Arc<App>>, who: Who) -> Answer<Response> {
    who.need(Role::Read)?.whole()?;
    let kind = "text/plain; version=0.0.4; charset=utf-8";
    Ok(([(header::CONTENT_TYPE, kind)], app.telemetry.render().await).into_response())
}
