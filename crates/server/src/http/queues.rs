//! The built-in queue: receive with a lease, ack, nack, extend, pause.

use std::{sync::Arc, time::Duration};

use axum::{
    Json,
    body::Body,
    extract::{Path, State},
};
use duly::{Lane, LaneStatus, Record, Settled};
use duly_core::Receipt;
use http::StatusCode;

use super::{
    app::App,
    body,
    caller::Who,
    fault::{Answer, Fault},
    tell,
};
use crate::{
    auth::Role,
    wire::{
        Delay, Extend, Nack, Problem, Queue, QueuesAnswer, ReceiptResult, ReceiptResults, Receipts, Receive,
        Received,
    },
};

/// The longest a receiver may wait for its first message.
const WAIT_MAX: Duration = Duration::from_secs(60);
/// The longest a receiver may keep a message without extending.
const LEASE_MAX: Duration = Duration::from_secs(12 * 3600);
const LEASE_DEFAULT: Duration = Duration::from_secs(30);
/// Messages of one receive, receipts of one settle.
const MAX: usize = 1_000;

/// Receive due messages, waiting for the first if asked to
#[utoipa::path(
    post, path = "/v1/queues/{topic}/receive", tag = "queues", request_body = Receive,
    params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 200, description = "The messages; none if nothing came in time", body = Received),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn receive(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
    sent: Body,
) -> Answer<Json<Received>> {
    who.need(Role::Produce)?.touch(&topic)?;
    let wish: Receive = body::json_or_default(&app, sent).await?;
    let max = wish.max.unwrap_or(10);
    if !(1..=MAX).contains(&max) {
        return Err(Fault::at(
            "too_many",
            "max",
            format!("one receive gives 1 to {MAX} messages, not {max}"),
        ));
    }
    let want = duly::Receive {
        max,
        wait: span(wish.wait.as_ref(), "wait", Duration::ZERO, WAIT_MAX)?,
        lease: lease(wish.lease.as_ref())?,
    };
    let messages = tokio::select! {
        messages = app.duly.receive(&topic, want) => messages?,
        // Whoever waits is told that nothing came: they ask again, and find another server.
        () = app.stopped() => Vec::new(),
    };
    Ok(Json(Received { messages: messages.into_iter().map(tell::received).collect() }))
}

fn span(given: Option<&Delay>, path: &'static str, otherwise: Duration, max: Duration) -> Answer<Duration> {
    let span = given.map_or(Ok(otherwise), |delay| delay.span(path))?;
    if span > max {
        return Err(Fault::at("bad_delay", path, format!("at most {max:?} here, not {span:?}")));
    }
    Ok(span)
}

fn lease(given: Option<&Delay>) -> Answer<Duration> {
    let lease = span(given, "lease", LEASE_DEFAULT, LEASE_MAX)?;
    if lease.is_zero() {
        return Err(Fault::at("bad_delay", "lease", "a lease of nothing is over before it begins"));
    }
    Ok(lease)
}

/// The messages were worked on: they are done
#[utoipa::path(
    post, path = "/v1/queues/{topic}/ack", tag = "queues", request_body = Receipts,
    params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 200, description = "One answer per receipt", body = ReceiptResults),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn ack(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
    sent: Body,
) -> Answer<Json<ReceiptResults>> {
    who.need(Role::Produce)?.touch(&topic)?;
    let Receipts { receipts } = body::json(&app, sent).await?;
    let receipts = sorted(&app, &who, &topic, receipts).await?;
    let settled = app.duly.ack(&receipts.own).await?;
    Ok(receipts.results(settled))
}

/// The messages were not worked on: again later
#[utoipa::path(
    post, path = "/v1/queues/{topic}/nack", tag = "queues", request_body = Nack,
    params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 200, description = "One answer per receipt", body = ReceiptResults),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn nack(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
    sent: Body,
) -> Answer<Json<ReceiptResults>> {
    who.need(Role::Produce)?.touch(&topic)?;
    let Nack { receipts, delay } = body::json(&app, sent).await?;
    let delay = delay.map(|delay| delay.span("delay")).transpose()?;
    if delay.is_some_and(|delay| delay > app.limits.delay_max) {
        return Err(Fault::at("too_far", "delay", "longer than any message may wait"));
    }
    let receipts = sorted(&app, &who, &topic, receipts).await?;
    let settled = app.duly.nack(&receipts.own, delay).await?;
    Ok(receipts.results(settled))
}

/// Keep the messages for longer
#[utoipa::path(
    post, path = "/v1/queues/{topic}/extend", tag = "queues", request_body = Extend,
    params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 200, description = "One answer per receipt", body = ReceiptResults),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn extend(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
    sent: Body,
) -> Answer<Json<ReceiptResults>> {
    who.need(Role::Produce)?.touch(&topic)?;
    let Extend { receipts, lease: wish } = body::json(&app, sent).await?;
    let lease = lease(wish.as_ref())?;
    let receipts = sorted(&app, &who, &topic, receipts).await?;
    let settled = app.duly.extend(&receipts.own, lease).await?;
    Ok(receipts.results(settled))
}

/// The receipts of one call.
struct Sorted {
    /// All of them, and whether each is among `own`.
    all: Vec<(String, bool)>,
    /// Those that the caller may settle, in their order.
    own: Vec<String>,
}

/// Receipts can be guessed: they hold a number and the message's id. Whoever is for some topics only settles nothing that
/// is not of the queue they named.
async fn sorted(app: &App, who: &Who, topic: &str, receipts: Vec<String>) -> Answer<Sorted> {
    if receipts.len() > MAX {
        let detail = format!("{} receipts, the limit is {MAX}; send them in parts", receipts.len());
        return Err(Fault::at("too_many", "receipts", detail));
    }
    if who.sees_all() {
        return Ok(Sorted {
            all: receipts.iter().map(|receipt| (receipt.clone(), true)).collect(),
            own: receipts,
        });
    }
    let id = |receipt: &String| receipt.parse().map(|receipt: Receipt| receipt.id);
    let ids = receipts.iter().map(id).collect::<Result<Vec<_>, _>>()?;
    let of_queue = |record: Option<Record>| {
        record.is_some_and(|r| matches!(r.message.lane(), Lane::Queue(own) if own.as_str() == topic))
    };
    let own = app.duly.get_many_without_bodies(&ids).await?.into_iter().map(of_queue);
    let all: Vec<_> = receipts.into_iter().zip(own).collect();
    let own = all.iter().filter(|(_, own)| *own).map(|(receipt, _)| receipt.clone()).collect();
    Ok(Sorted { all, own })
}

impl Sorted {
    fn results(self, settled: Vec<Settled>) -> Json<ReceiptResults> {
        let mut settled = settled.into_iter();
        let result = |(receipt, own)| {
            let outcome = match if own { settled.next() } else { None } {
                Some(Settled::Done) => "done",
                Some(Settled::Unknown) => "unknown",
                Some(Settled::Lost) | None => "lost",
            };
            ReceiptResult { receipt, outcome: outcome.into() }
        };
        Json(ReceiptResults { results: self.all.into_iter().map(result).collect() })
    }
}

/// The topics of the built-in queue, with counts
#[utoipa::path(
    get, path = "/v1/queues", tag = "queues",
    responses(
        (status = 200, description = "By topic", body = QueuesAnswer),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, who: Who) -> Answer<Json<QueuesAnswer>> {
    who.need(Role::Read)?;
    let now = app.duly.now();
    let queue = |status: LaneStatus| {
        let Lane::Queue(topic) = &status.lane else { return None };
        who.sees(topic.as_str()).then(|| Queue {
            topic: topic.as_str().into(),
            paused: status.paused,
            pending: status.pending,
            ready: status.ready,
            leased: status.in_flight,
            dead: status.dead,
            oldest_overdue_ms: status.oldest_ready.map(|oldest| super::millis(now.since(oldest))),
        })
    };
    let mut queues: Vec<_> = app.duly.lanes().await?.into_iter().filter_map(queue).collect();
    queues.sort_unstable_by(|one, two| one.topic.cmp(&two.topic));
    Ok(Json(QueuesAnswer { queues }))
}

/// Stop a queue, durably: nothing is received until it is resumed
#[utoipa::path(
    post, path = "/v1/queues/{topic}/pause", tag = "queues", params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 204, description = "Paused"),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn pause(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
) -> Answer<StatusCode> {
    who.need(Role::Operate)?.touch(&topic)?;
    app.duly.pause_queue(&topic).await?;
    Ok(StatusCode::NO_CONTENT)
}

/// Let a queue go on
#[utoipa::path(
    post, path = "/v1/queues/{topic}/resume", tag = "queues", params(("topic" = String, Path, description = "The queue")),
    responses(
        (status = 204, description = "It goes on"),
        (status = "default", description = "See /errors", body = Problem, content_type = "application/problem+json"),
    )
)]
pub(super) async fn resume(
    State(app): State<Arc<App>>,
    who: Who,
    Path(topic): Path<String>,
) -> Answer<StatusCode> {
    who.need(Role::Operate)?.touch(&topic)?;
    app.duly.resume_queue(&topic).await?;
    Ok(StatusCode::NO_CONTENT)
}
