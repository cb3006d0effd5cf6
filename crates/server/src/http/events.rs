//! `/v1/events`: server-sent events.

use std::{convert::Infallible, sync::Arc};

use axum::{
    extract::State,
    response::{
        IntoResponse, Response,
        sse::{self, KeepAlive, Sse},
    },
};
use duly::{ErrorCode, Event, Events, Lane, SinkName, Topic};
use serde::Deserialize;
use tokio::sync::broadcast;
use utoipa::IntoParams;

use super::{
    app::App,
    caller::Who,
    fault::{ApiResult, Fault},
    followers::FollowerPlace,
    messages::{Asked, asked},
};
use crate::{
    auth::Role,
    wire::{self, Alert, EVENTS_KEEP_ALIVE},
};

/// The events to follow.
#[derive(Debug, Default, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct Follow {
    /// Only these types, with commas between.
    types: Option<String>,
    /// Only this sink.
    sink: Option<String>,
    /// Only this topic of the built-in queue.
    topic: Option<String>,
}

impl Follow {
    fn check(&self) -> ApiResult<()> {
        self.topic.as_deref().map(Topic::parse_new).transpose()?;
        self.sink.as_deref().map(SinkName::parse).transpose()?;
        let mut types = self.types.iter().flat_map(|types| types.split(','));
        match types.find(|wanted| !wire::Event::KINDS.contains(&wanted.trim())) {
            None => Ok(()),
            Some(unknown) => {
                let kinds = wire::Event::KINDS.join(", ");
                let detail = format!("{:?} is no type of events; there are: {kinds}", unknown.trim());
                Err(Fault::at(ErrorCode::BadQuery, "types", detail))
            }
        }
    }
}

/// Follow what happens
///
/// Server-sent events; each has a `type` and JSON as its data. A reader that is too slow loses the oldest events and
/// hears how many as `missed`; it never slows deliveries. A token for some topics hears of these topics of the built-in queue alone,
/// and of `missed` without the number.
#[utoipa::path(
    get, path = "/v1/events", operation_id = "follow_events", tag = "overview", params(Follow),
    responses(
        (status = 200, description = "A stream without end", body = wire::Event, content_type = "text/event-stream"),
    )
)]
pub(super) async fn follow(
    State(app): State<Arc<App>>,
    who: Who,
    query: Asked<Follow>,
) -> ApiResult<Response> {
    let follow = asked(query)?;
    who.need(Role::Read)?;
    match (&follow.topic, &follow.sink) {
        (Some(topic), _) => who.require_topic(topic)?,
        // Events of a sink do not carry the topic.
        (None, Some(sink)) if sink != SinkName::QUEUE => who.require_all_topics()?,
        _ => &who,
    };
    follow.check()?;
    let place = app.followers.enter(who.caller()).ok_or_else(|| {
        Fault::new(
            ErrorCode::Busy,
            "as many follow events as the server allows; try again when one of them has gone",
        )
    })?;
    let follower = Follower {
        events: app.duly.events(),
        alerts: app.telemetry.listen(),
        missed: 0,
        follow,
        app,
        who,
        _place: place,
    };
    let stream = futures_util::stream::unfold(follower, async |mut follower| {
        let event = follower.next().await?;
        let data = serde_json::to_string(&event).unwrap_or_default();
        let event = sse::Event::default().event(event.kind()).data(data);
        Some((Ok::<_, Infallible>(event), follower))
    });
    Ok(Sse::new(stream).keep_alive(KeepAlive::new().interval(EVENTS_KEEP_ALIVE)).into_response())
}

struct Follower {
    app: Arc<App>,
    events: Events,
    alerts: broadcast::Receiver<Alert>,
    missed: u64,
    follow: Follow,
    who: Who,
    _place: FollowerPlace,
}

impl Follower {
    async fn next(&mut self) -> Option<wire::Event> {
        loop {
            let event = tokio::select! {
                event = self.events.next() => {
                    let event = event?;
                    let missed = self.events.missed();
                    if missed > self.missed {
                        // This event is dropped, too: reporting the number matters more.
                        let count = missed - std::mem::replace(&mut self.missed, missed) + 1;
                        self.app.telemetry.dropped_events(count);
                        // The number would reveal the traffic of other topics.
                        return Some(wire::Event::Missed { count: if self.who.sees_all() { count } else { 1 } });
                    }
                    if !self.lane_wanted(&event) {
                        continue;
                    }
                    to_wire(event)
                }
                Ok(alert) = self.alerts.recv() => {
                    if !self.alert_wanted(&alert) {
                        continue;
                    }
                    wire::Event::Alert { alert: Box::new(alert) }
                }
                () = self.app.stopped() => return None,
            };
            if self.wanted(event.kind()) {
                return Some(event);
            }
        }
    }

    fn wanted(&self, kind: &str) -> bool {
        self.follow.types.as_deref().is_none_or(|types| types.split(',').any(|wanted| wanted.trim() == kind))
    }

    /// A follower of one topic gets events of no other.
    fn alert_wanted(&self, alert: &Alert) -> bool {
        self.who.sees_alert(alert) && (self.follow.topic.is_none() || self.follow.topic == alert.scope)
    }

    fn lane_wanted(&self, event: &Event) -> bool {
        let Some(lane) = lane(event) else {
            return self.who.sees_all() && self.follow.topic.is_none() && self.follow.sink.is_none();
        };
        if !self.who.sees_lane(lane) {
            return false;
        }
        match (lane, &self.follow.sink, &self.follow.topic) {
            (_, None, None) => true,
            (Lane::Queue(own), sink, Some(topic)) => {
                own.as_str() == topic && sink.as_deref().is_none_or(|s| s == "queue")
            }
            (Lane::Queue(_), Some(sink), None) => sink == "queue",
            (Lane::Sink(own), Some(sink), None) => own.as_str() == sink,
            _ => false,
        }
    }
}

fn lane(event: &Event) -> Option<&Lane> {
    match event {
        Event::Accepted { lane, .. }
        | Event::Delivered { lane, .. }
        | Event::Failed { lane, .. }
        | Event::Dead { lane, .. }
        | Event::Rescheduled { lane, .. }
        | Event::Replayed { lane, .. }
        | Event::Cancelled { lane, .. }
        | Event::Purged { lane, .. }
        | Event::Paused { lane, .. }
        | Event::Resumed { lane, .. }
        | Event::SinkUnreachable { lane, .. }
        | Event::SinkRecovered { lane, .. }
        | Event::DestinationUnreachable { lane, .. }
        | Event::DestinationRecovered { lane, .. } => Some(lane),
        _ => None,
    }
}

fn to_wire(event: Event) -> wire::Event {
    match event {
        Event::Accepted { id, lane, due, .. } => {
            let (id, lane) = (id.to_string(), lane.to_string());
            wire::Event::Accepted { id, lane, deliver_at: due.to_string(), deliver_at_ms: due.as_millis() }
        }
        Event::Delivered { id, lane, attempt, lateness, .. } => wire::Event::Delivered {
            id: id.to_string(),
            lane: lane.to_string(),
            attempt,
            lateness_ms: lateness.as_secs_f64() * 1_000.0,
        },
        Event::Failed { id, lane, attempt, outcome, detail, retry_at, .. } => wire::Event::Failed {
            id: id.to_string(),
            lane: lane.to_string(),
            attempt,
            outcome: outcome.as_str().into(),
            detail,
            retry_at: retry_at.to_string(),
            retry_at_ms: retry_at.as_millis(),
        },
        Event::Dead { id, lane, reason, .. } => {
            wire::Event::Dead { id: id.to_string(), lane: lane.to_string(), reason: reason.as_str().into() }
        }
        Event::Cancelled { id, lane, .. } => {
            wire::Event::Cancelled { id: id.to_string(), lane: lane.to_string() }
        }
        Event::Rescheduled { id, lane, due, .. } => {
            let (id, lane) = (id.to_string(), lane.to_string());
            wire::Event::Rescheduled { id, lane, deliver_at: due.to_string(), deliver_at_ms: due.as_millis() }
        }
        Event::Replayed { id, lane, .. } => {
            wire::Event::Replayed { id: id.to_string(), lane: lane.to_string() }
        }
        Event::Purged { id, lane, .. } => wire::Event::Purged { id: id.to_string(), lane: lane.to_string() },
        Event::Paused { lane, .. } => wire::Event::Paused { lane: lane.to_string() },
        Event::Resumed { lane, .. } => wire::Event::Resumed { lane: lane.to_string() },
        Event::SinkUnreachable { lane, detail, .. } => {
            wire::Event::SinkUnreachable { lane: lane.to_string(), detail }
        }
        Event::SinkRecovered { lane, .. } => wire::Event::SinkRecovered { lane: lane.to_string() },
        Event::DestinationUnreachable { lane, destination, detail, .. } => {
            wire::Event::DestinationUnreachable { lane: lane.to_string(), destination, detail }
        }
        Event::DestinationRecovered { lane, destination, .. } => {
            wire::Event::DestinationRecovered { lane: lane.to_string(), destination }
        }
        Event::LeasesLost { count, .. } => wire::Event::LeasesLost { count: count as u64 },
        Event::StoreFailing { times, .. } => wire::Event::StoreFailing { times },
        Event::ClockJumped { by_us, .. } => wire::Event::ClockJumped { by_us },
        other => wire::Event::Other { what: format!("{other:?}") },
    }
}
