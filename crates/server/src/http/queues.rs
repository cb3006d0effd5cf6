//! The built-in queue: receive with a lease, ack, nack, extend, pause.

use std::{sync::Arc, time::Duration};

use axum::{
    body::Body,
    extract::{Path, State},
    response::Response,
};
use duly::{ErrorCode, Lane, LaneStatus, Topic};
use http::StatusCode;
use serde::Deserialize;
use utoipa::IntoParams;

use super::{
    answer,
    app::App,
    body,
    caller::Who,
    delivery,
    fault::{ApiResult, Fault},
    messages::{Count, ReadQuery},
    receipts,
};
use crate::{
    auth::Role,
    wire::{
        Delay, Extend, Nack, Queue, QueuesAnswer, ReceiptResults, Receipts, Receive, ReceiveAny, Received,
    },
};

/// Longest wait of a receive.
pub(super) const WAIT_MAX: Duration = Duration::from_secs(60);
/// Longest lease.
pub(super) const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// Messages of one receive, queues of one page.
pub(super) const MAX: usize = 1_000;

/// Receive due messages, waiting for the first if asked to
#[utoipa::path(
    post, path = "/v1/queues/{topic}/receive", operation_id = "receive_from_queue", tag = "queues", request_body = Receive,
    params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 200, description = "The messages; none if nothing came in time", body = Received),
    )
)]
pub(super) async fn receive(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
    sent: Body,
) -> ApiResult<Response> {
    who.need(Role::Consume)?.require_topic(&topic)?;
    let Receive { max, wait, lease } = body::json_or_default(&app, sent).await?;
    let want = want(max, wait.as_ref(), lease.as_ref())?;
    delivery::require_enabled(&app)?;
    delivery::receive(&app, &who, &[topic], want).await
}

/// Receive due messages of several queues, waiting for the first if asked to
#[utoipa::path(
    post, path = "/v1/receive", tag = "queues", request_body = ReceiveAny,
    responses(
        (status = 200, description = "The messages; none if nothing came in time", body = Received),
    )
)]
pub(super) async fn receive_any(State(app): State<Arc<App>>, who: Who, sent: Body) -> ApiResult<Response> {
    who.need(Role::Consume)?;
    let ReceiveAny { topics, max, wait, lease } = body::json(&app, sent).await?;
    for (at, topic) in topics.iter().enumerate() {
        who.require_topic(topic)?;
        Topic::parse_new(topic)
            .map_err(|error| Fault::at(error.code, format!("topics[{at}]"), error.detail))?;
    }
    let want = want(max, wait.as_ref(), lease.as_ref())?;
    delivery::require_enabled(&app)?;
    delivery::receive(&app, &who, &topics, want).await
}

fn want(max: Option<usize>, wait: Option<&Delay>, given: Option<&Delay>) -> ApiResult<duly::Receive> {
    let words = ("one receive gives", "messages");
    let max = Count { code: ErrorCode::TooMany, path: "max", words, max: MAX }.check(max.unwrap_or(10))?;
    Ok(duly::Receive { max, wait: span(wait, "wait", Duration::ZERO, WAIT_MAX)?, lease: lease(given)? })
}

fn span(
    given: Option<&Delay>,
    path: &'static str,
    otherwise: Duration,
    max: Duration,
) -> ApiResult<Duration> {
    let span = given.map_or(Ok(otherwise), |delay| delay.span(path))?;
    if span > max {
        return Err(Fault::at(ErrorCode::TooLong, path, format!("at most {max:?} here, not {span:?}")));
    }
    Ok(span)
}

pub(super) fn lease(given: Option<&Delay>) -> ApiResult<Duration> {
    let lease = span(given, "lease", LEASE_DEFAULT, LEASE_MAX)?;
    if lease.is_zero() {
        return Err(Fault::at(ErrorCode::BadDelay, "lease", "a lease of nothing is over before it begins"));
    }
    Ok(lease)
}

/// The messages were worked on: they are done
#[utoipa::path(
    post, path = "/v1/queues/{topic}/ack", operation_id = "ack_messages", tag = "queues", request_body = Receipts,
    params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 200, description = "One answer per receipt", body = ReceiptResults),
    )
)]
pub(super) async fn ack(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
    sent: Body,
) -> ApiResult<Response> {
    who.need(Role::Consume)?.require_topic(&topic)?;
    receipts::ack(&app, &who, Some(&topic), sent).await
}

/// The messages were not worked on: again later
#[utoipa::path(
    post, path = "/v1/queues/{topic}/nack", operation_id = "nack_messages", tag = "queues", request_body = Nack,
    params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 200, description = "One answer per receipt", body = ReceiptResults),
    )
)]
pub(super) async fn nack(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
    sent: Body,
) -> ApiResult<Response> {
    who.need(Role::Consume)?.require_topic(&topic)?;
    receipts::nack(&app, &who, Some(&topic), sent).await
}

/// Keep the messages for longer
#[utoipa::path(
    post, path = "/v1/queues/{topic}/extend", operation_id = "extend_leases", tag = "queues", request_body = Extend,
    params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 200, description = "One answer per receipt", body = ReceiptResults),
    )
)]
pub(super) async fn extend(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
    sent: Body,
) -> ApiResult<Response> {
    who.need(Role::Consume)?.require_topic(&topic)?;
    receipts::extend(&app, &who, Some(&topic), sent).await
}

/// Which queues to list.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct QueuesWanted {
    /// Where the page before ended.
    cursor: Option<String>,
    /// At most so many: 1 to 1,000, 1,000 unless told otherwise.
    limit: Option<usize>,
}

/// The topics of the built-in queue, with counts
#[utoipa::path(
    get, path = "/v1/queues", operation_id = "list_queues", tag = "queues", params(QueuesWanted),
    responses(
        (status = 200, description = "A page, by topic", body = QueuesAnswer),
    )
)]
pub(super) async fn list(
    State(app): State<Arc<App>>,
    ReadQuery { who, query: QueuesWanted { cursor, limit } }: ReadQuery<QueuesWanted>,
) -> ApiResult<Response> {
    let words = ("a page has", "queues");
    let bound = Count { code: ErrorCode::TooMany, path: "limit", words, max: MAX };
    let limit = bound.check(limit.unwrap_or(MAX))?;
    let now = app.duly.now();
    let queue = |status: &LaneStatus| {
        let Lane::Queue(topic) = &status.lane else { return None };
        let is_wanted =
            cursor.as_deref().is_none_or(|last| topic.as_str() > last) && who.sees(topic.as_str());
        is_wanted.then(|| Queue {
            topic: topic.as_str().into(),
            paused: status.paused,
            pending: status.pending,
            ready: status.ready,
            leased: status.in_flight,
            dead: status.dead,
            oldest_overdue_ms: status.oldest_ready.map(|oldest| super::millis(now.since(oldest))),
        })
    };
    let mut queues: Vec<_> = if who.sees_all() && cursor.is_none() {
        app.duly.lanes().await?.iter().filter_map(queue).collect()
    } else {
        app.recent_lanes.get(&app.duly).await?.iter().filter_map(queue).collect()
    };
    queues.sort_unstable_by(|one, two| one.topic.cmp(&two.topic));
    let has_more = queues.len() > limit;
    queues.truncate(limit);
    let cursor = queues.last().filter(|_| has_more).map(|last| last.topic.clone());
    answer::json(&app, &who, &QueuesAnswer { queues, cursor })
}

/// Stop a queue, durably: nothing is received until it is resumed
#[utoipa::path(
    post, path = "/v1/queues/{topic}/pause", operation_id = "pause_queue", tag = "queues", params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 204, description = "Paused"),
    )
)]
pub(super) async fn pause(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
) -> ApiResult<StatusCode> {
    who.need(Role::Operate)?.require_topic(&topic)?;
    // A paused topic is kept even without messages, so it counts.
    app.topics.admit(&app.duly, &who, &topic).await?;
    app.duly.pause_queue(&topic).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Let a queue go on
#[utoipa::path(
    post, path = "/v1/queues/{topic}/resume", operation_id = "resume_queue", tag = "queues", params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 204, description = "It goes on"),
    )
)]
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
) -> ApiResult<StatusCode> {
    who.need(Role::Operate)?.require_topic(&topic)?;
    let is_paused = |status: &LaneStatus| {
        status.paused && matches!(&status.lane, Lane::Queue(own) if own.as_str() == topic)
    };
    // An older version may have paused a queue by a name that is not allowed any more.
    let name = Topic::parse_new(&topic);
    // A store may keep the name of a resumed queue, so a limited token could fill the store with names.
    if (!who.sees_all() || name.is_err()) && !app.duly.lanes().await?.iter().any(is_paused) {
        return Ok(name.map(|_| StatusCode::NO_CONTENT)?);
    }
    app.duly.resume_queue(&topic).await?;
    Ok(StatusCode::NO_CONTENT)
}
