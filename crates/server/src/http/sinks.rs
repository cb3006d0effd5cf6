//! Routes of sinks: list, pause, resume, probe.

use std::{collections::BTreeMap, sync::Arc};

use axum::{
    Json,
    extract::{Path, State},
};
use duly::{BreakerState, ErrorCode, Lane, LaneSnapshot, LaneStatus, SinkName};
use http::StatusCode;
use tokio::time::timeout;

use super::{
    app::{App, SinkEntry},
    caller::Who,
    fault::{ApiResult, Fault},
};
use crate::{
    auth::Role,
    wire::{Sink, SinksAnswer},
};

/// The sinks, with their state
#[utoipa::path(
    get, path = "/v1/sinks", operation_id = "list_sinks", tag = "sinks",
    responses(
        (status = 200, description = "By name", body = SinksAnswer),
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, who: Who) -> ApiResult<Json<SinksAnswer>> {
    who.need(Role::Read)?.require_all_topics()?;
    let statuses: BTreeMap<Lane, LaneStatus> =
        app.duly.lanes().await?.into_iter().map(|status| (status.lane.clone(), status)).collect();
    let looks: BTreeMap<Lane, LaneSnapshot> = app.duly.served().await?.into_iter().collect();
    let delivered = app.telemetry.rates().delivered_by_sink;
    let elsewhere = app.duly.served_elsewhere().await?;
    let orphans = statuses.keys().filter_map(|lane| match lane {
        Lane::Sink(name) if !app.sinks.contains_key(name) && !elsewhere.contains(name.as_str()) => Some(name),
        _ => None,
    });
    let mut sinks: Vec<Sink> = Vec::new();
    for name in app.sinks.keys().chain(orphans) {
        let lane = Lane::Sink(name.clone());
        let mut sink = sink(&app, name, statuses.get(&lane), looks.get(&lane));
        sink.delivered_per_second = delivered.get(name.as_str()).copied().unwrap_or_default();
        sinks.push(sink);
    }
    sinks.sort_unstable_by(|one, two| one.name.cmp(&two.name));
    Ok(Json(SinksAnswer { sinks }))
}

fn sink(app: &App, name: &SinkName, status: Option<&LaneStatus>, snapshot: Option<&LaneSnapshot>) -> Sink {
    let entry = app.sinks.get(name);
    let paused = status.is_some_and(|status| status.paused);
    let state = match (entry, snapshot.map(|snapshot| snapshot.target)) {
        (None, _) => "orphan",
        _ if paused => "paused",
        (_, Some(BreakerState::Open)) => "unreachable",
        (_, Some(BreakerState::HalfOpen)) => "half_open",
        _ => "reachable",
    };
    let overdue = status
        .and_then(|status| status.oldest_ready)
        .map(|oldest| super::millis(app.duly.now().since(oldest)));
    Sink {
        name: name.as_str().into(),
        kind: entry.map_or("orphan", |entry| entry.kind).into(),
        state: state.into(),
        last_error: snapshot.and_then(|snapshot| snapshot.last_error.clone()),
        destinations_unreachable: snapshot.map_or(0, |snapshot| snapshot.destinations_open as u64),
        paused,
        pending: status.map_or(0, |status| status.pending),
        ready: status.map_or(0, |status| status.ready),
        in_flight: status.map_or(0, |status| status.in_flight),
        dead: status.map_or(0, |status| status.dead),
        oldest_overdue_ms: overdue,
        rate_limit: entry.and_then(|entry| entry.rate).map(|rate| f64::from(rate.per_second)),
        delivered_per_second: 0.0,
    }
}

/// Stop deliveries to a sink, durably and on every node
#[utoipa::path(
    post, path = "/v1/sinks/{name}/pause", operation_id = "pause_sink", tag = "sinks", params(("name" = String, Path, description = "The sink")),
    responses(
        (status = 204, description = "Paused; what is under way finishes"),
    )
)]
pub(super) async fn pause(
    State(app): State<Arc<App>>,
    who: Who,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    who.need(Role::Operate)?.require_all_topics()?;
    known(&app, &name)?;
    app.duly.pause_sink(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Let a sink go on
#[utoipa::path(
    post, path = "/v1/sinks/{name}/resume", operation_id = "resume_sink", tag = "sinks", params(("name" = String, Path, description = "The sink")),
    responses(
        (status = 204, description = "It goes on"),
    )
)]
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    who: Who,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    who.need(Role::Operate)?.require_all_topics()?;
    known(&app, &name)?;
    app.duly.resume_sink(&name).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Ask a sink's target whether it could take messages now, without delivering one
#[utoipa::path(
    post, path = "/v1/sinks/{name}/probe", operation_id = "probe_sink", tag = "sinks", params(("name" = String, Path, description = "The sink")),
    responses(
        (status = 204, description = "It could"),
    )
)]
pub(super) async fn probe(
    State(app): State<Arc<App>>,
    who: Who,
    Path(name): Path<String>,
) -> ApiResult<StatusCode> {
    who.need(Role::Operate)?.require_all_topics()?;
    let entry = known(&app, &name)?;
    let probed = timeout(entry.timeout, entry.sink.probe()).await;
    // If the breaker is open, the lane tries now instead of at its next probe.
    app.duly.probe(&name)?;
    match probed {
        Ok(Ok(())) => Ok(StatusCode::NO_CONTENT),
        Ok(Err(error)) => Err(Fault::new(ErrorCode::SinkUnreachable, format!("sink {name:?}: {error}"))),
        Err(_) => Err(Fault::new(
            ErrorCode::SinkUnreachable,
            format!("sink {name:?}: no answer within {:?}", entry.timeout),
        )),
    }
}

fn known<'a>(app: &'a App, name: &str) -> ApiResult<&'a SinkEntry> {
    app.sinks.get(&SinkName::parse(name)?).ok_or_else(|| {
        let names: Vec<_> = app.sinks.keys().map(SinkName::as_str).collect();
        let there = if names.is_empty() {
            "none is configured".into()
        } else {
            format!("there are: {}", names.join(", "))
        };
        Fault::new(ErrorCode::NoSuchSink, format!("no sink {name:?}; {there}"))
    })
}
