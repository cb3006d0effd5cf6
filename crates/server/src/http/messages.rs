//! Routes of one message (send, get, reschedule, cancel, fire), and lists of messages.

use std::sync::Arc;

use axum::{
    Json,
    body::Body,
    extract::{FromRequestParts, Path, Query, State},
    response::Response,
};
use duly::{Changed, ErrorCode, MessageId, Record, Timestamp};
use http::{HeaderMap, StatusCode, request::Parts};
use serde::{Deserialize, de::DeserializeOwned};
use utoipa::IntoParams;

use super::{
    answer,
    app::App,
    body,
    caller::Who,
    fault::{ApiResult, Fault},
    intake, response, select,
    trace::Trace,
};
use crate::{
    auth::Role,
    wire::{Accepted, Cancelled, Message, NewMessage, Page, Reschedule, Rescheduled, plain},
};

/// Messages of one page.
pub(super) const LIMIT_MAX: usize = 1_000;
/// A page that has more bytes ends, and says where it goes on.
const PAGE_BYTES_MAX: usize = 4 << 20;

/// Schedule one message
#[utoipa::path(
    post, path = "/v1/messages", operation_id = "send_message", tag = "messages", request_body = NewMessage,
    responses(
        (status = 201, description = "Accepted: it is durable", body = Accepted),
        (status = 200, description = "Known with the same id and content: nothing changed", body = Accepted),
    )
)]
pub(super) async fn send(
    State(app): State<Arc<App>>,
    who: Who,
    headers: HeaderMap,
    sent: Body,
) -> ApiResult<(StatusCode, Json<Accepted>)> {
    who.need(Role::Produce)?;
    // Hold the share of memory until the message is on disk.
    let (new, _share) = body::json_with_share::<NewMessage>(&app, sent).await?;
    who.require_topic(&new.topic)?.require_id_allowed(new.id.as_deref())?;
    let (target, message) = intake::message(new, &Trace::of(&headers, &app))?;
    target.admit_topic(&app, &who).await?;
    let accepted = app.duly.send(message).await?;
    let status = if accepted.duplicate { StatusCode::OK } else { StatusCode::CREATED };
    Ok((status, Json(response::accepted(target, &accepted))))
}

/// What is known of a message
#[utoipa::path(
    get, path = "/v1/messages/{id}", operation_id = "get_message", tag = "messages", params(("id" = String, Path, description = "The message's id")),
    responses(
        (status = 200, description = "State, times, attempts with each error, receipt of the target", body = Message),
    )
)]
pub(super) async fn get(
    State(app): State<Arc<App>>,
    who: Who,
    Path(id): Path<String>,
) -> ApiResult<Response> {
    who.need(Role::Read)?;
    require_visible(&app, &who, &id).await?;
    let record = app.duly.get(&id).await?.ok_or_else(|| Fault::not_found(&id))?;
    // Another message may have taken this id since the check.
    check_visible(&who, &id, &record)?;
    answer::json(&app, &who, &response::message(&record))
}

/// Give a waiting message another due time
#[utoipa::path(
    patch, path = "/v1/messages/{id}", operation_id = "reschedule_message", tag = "messages", request_body = Reschedule,
    params(("id" = String, Path, description = "The message's id")),
    responses(
        (status = 200, description = "Done", body = Rescheduled),
    )
)]
pub(super) async fn reschedule(
    State(app): State<Arc<App>>,
    who: Who,
    Path(id): Path<String>,
    sent: Body,
) -> ApiResult<Json<Rescheduled>> {
    who.need(Role::Produce)?;
    let wish: Reschedule = body::json(&app, sent).await?;
    let due = select::due(&app, wish.delay.as_ref(), wish.deliver_at.as_ref())?;
    reschedule_to(&app, &who, &id, due).await
}

/// Deliver a waiting message now
#[utoipa::path(
    post, path = "/v1/messages/{id}/fire", operation_id = "fire_message", tag = "messages", params(("id" = String, Path, description = "The message's id")),
    responses(
        (status = 200, description = "It is due now", body = Rescheduled),
    )
)]
pub(super) async fn fire(
    State(app): State<Arc<App>>,
    who: Who,
    Path(id): Path<String>,
) -> ApiResult<Json<Rescheduled>> {
    who.need(Role::Produce)?;
    reschedule_to(&app, &who, &id, app.duly.now()).await
}

async fn reschedule_to(app: &App, who: &Who, id: &str, due: Timestamp) -> ApiResult<Json<Rescheduled>> {
    require_visible(app, who, id).await?;
    let maybe_delivered = maybe_delivered_of(id, app.duly.reschedule(id, due).await?)?;
    Ok(Json(Rescheduled {
        id: id.into(),
        state: duly::State::Pending.as_str().into(),
        deliver_at: due.to_string(),
        deliver_at_ms: due.as_millis(),
        maybe_delivered,
    }))
}

/// Cancel a waiting message
#[utoipa::path(
    delete, path = "/v1/messages/{id}", operation_id = "cancel_message", tag = "messages", params(("id" = String, Path, description = "The message's id")),
    responses(
        (status = 200, description = "It will not be delivered; `already` if it was cancelled before", body = Cancelled),
    )
)]
pub(super) async fn cancel(
    State(app): State<Arc<App>>,
    who: Who,
    Path(id): Path<String>,
) -> ApiResult<Json<Cancelled>> {
    who.need(Role::Produce)?;
    require_visible(&app, &who, &id).await?;
    let changed = app.duly.cancel(&id).await?;
    // A client that got no response repeats the call: the message is cancelled, so this is a success.
    let already = changed == Changed::TooLate(duly::State::Cancelled);
    let maybe_delivered = if already {
        app.duly.get(&id).await?.is_some_and(|record| record.maybe_delivered)
    } else {
        maybe_delivered_of(&id, changed)?
    };
    let state = duly::State::Cancelled.as_str().into();
    Ok(Json(Cancelled { id, state, already, maybe_delivered }))
}

/// A message of a topic that the caller may not access is reported as unknown, so that nothing about it leaks.
fn check_visible(who: &Who, id: &str, record: &Record) -> ApiResult<()> {
    if who.sees(record.message.topic.as_str()) { Ok(()) } else { Err(Fault::not_found(id)) }
}

/// Refuses a message that the caller may not see. Without its body: the time to read it would reveal that the message exists.
async fn require_visible(app: &App, who: &Who, id: &str) -> ApiResult<()> {
    if who.sees_all() {
        return Ok(());
    }
    let found = app.duly.get_many_without_bodies(&[MessageId::parse(id)?]).await?.pop().flatten();
    check_visible(who, id, &found.ok_or_else(|| Fault::not_found(id))?)
}

/// Whether the changed message may have been delivered before; an error if nothing changed.
fn maybe_delivered_of(id: &str, changed: Changed) -> ApiResult<bool> {
    match changed {
        Changed::Done { maybe_delivered } => Ok(maybe_delivered),
        Changed::TooLate(state) => Err(Fault::too_late(id, state)),
        _ => Err(Fault::not_found(id)),
    }
}

/// Which messages to list.
#[derive(Debug, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
#[into_params(parameter_in = Query)]
pub(super) struct List {
    /// `pending`, `in_flight`, `delivered`, `dead` or `cancelled`; pending unless told otherwise.
    state: Option<String>,
    /// Only this sink.
    pub(super) sink: Option<String>,
    /// Only this topic.
    pub(super) topic: Option<String>,
    /// Due at or after: RFC 3339, or milliseconds since 1970.
    pub(super) due_from: Option<String>,
    /// Due before.
    pub(super) due_to: Option<String>,
    /// Where the page before ended.
    cursor: Option<String>,
    /// At most so many: 1 to 1,000, 100 unless told otherwise.
    limit: Option<usize>,
}

/// Parses the query of a URL.
pub(super) type Asked<T> = Result<Query<T>, axum::extract::rejection::QueryRejection>;

/// The query of a caller with the role `read`.
pub(super) struct ReadQuery<T> {
    pub(super) who: Who,
    pub(super) query: T,
}

impl<T: DeserializeOwned> FromRequestParts<Arc<App>> for ReadQuery<T> {
    type Rejection = Fault;

    async fn from_request_parts(parts: &mut Parts, app: &Arc<App>) -> ApiResult<Self> {
        let who = Who::from_request_parts(parts, app).await?;
        who.need(Role::Read)?;
        Ok(Self { who, query: asked(Query::try_from_uri(&parts.uri))? })
    }
}

/// A number of things that a caller chooses, from 1.
pub(super) struct Count {
    pub(super) code: ErrorCode,
    pub(super) path: &'static str,
    /// As in "a page has … queues".
    pub(super) words: (&'static str, &'static str),
    pub(super) max: usize,
}

impl Count {
    pub(super) fn check(&self, count: usize) -> ApiResult<usize> {
        if (1..=self.max).contains(&count) {
            return Ok(count);
        }
        let (Self { code, path, max, .. }, (holder, things)) = (self, self.words);
        Err(Fault::at(*code, *path, format!("{holder} 1 to {max} {things}, not {count}")))
    }
}

pub(super) fn asked<T>(query: Asked<T>) -> ApiResult<T> {
    let Query(query) = query.map_err(|rejection| unread(&rejection))?;
    Ok(query)
}

/// The parameter that cannot be parsed, and why.
fn unread(rejection: &axum::extract::rejection::QueryRejection) -> Fault {
    let text = rejection.body_text();
    let why = text.strip_prefix("Failed to deserialize query string: ").unwrap_or(&text);
    Fault::new(ErrorCode::BadQuery, format!("{}; /openapi.json lists the parts of each query", plain(why)))
}

/// List messages by due time
#[utoipa::path(
    get, path = "/v1/messages", operation_id = "list_messages", tag = "messages", params(List),
    responses(
        (status = 200, description = "A page; bodies are left out", body = Page),
    )
)]
pub(super) async fn list(State(app): State<Arc<App>>, who: Who, query: Asked<List>) -> ApiResult<Response> {
    let list = asked(query)?;
    let state = select::state(list.state.as_deref().unwrap_or("pending"))?;
    page(&app, &who, list, state).await
}

/// List dead letters by due time
#[utoipa::path(
    get, path = "/v1/dead", operation_id = "list_dead_letters", tag = "dead letters", params(List),
    responses(
        (status = 200, description = "A page; bodies are left out", body = Page),
    )
)]
pub(super) async fn dead(State(app): State<Arc<App>>, who: Who, query: Asked<List>) -> ApiResult<Response> {
    let list = asked(query)?;
    if list.state.as_deref().is_some_and(|state| state != "dead") {
        return Err(Fault::at(
            ErrorCode::BadState,
            "state",
            "this list has dead letters only; see /v1/messages",
        ));
    }
    page(&app, &who, list, duly::State::Dead).await
}

async fn page(app: &App, who: &Who, list: List, state: duly::State) -> ApiResult<Response> {
    who.need(Role::Read)?.require_some_topic(list.topic.as_deref())?;
    let mut query = select::listed(state, &list)?;
    query.after = list.cursor.as_deref().map(cursor).transpose()?;
    let words = ("a page has", "messages");
    let limit = Count { code: ErrorCode::TooMany, path: "limit", words, max: LIMIT_MAX };
    query.limit = limit.check(list.limit.unwrap_or(100))?;
    let page = app.duly.list(&query).await?;
    let cursor = |(due, id): (Timestamp, MessageId)| format!("{}-{id}", due.as_millis());
    let mut answer = answer::Messages::new(app.answers.share(who.caller()));
    let mut last = None;
    for record in &page.records {
        if answer.len() > PAGE_BYTES_MAX || answer.push(&response::listed(record)).is_err() {
            // The page ends before this one. The first has to have room.
            return last.map(|last| answer.end(Some(&cursor(last)))).ok_or_else(answer::no_room);
        }
        last = Some((record.message.due, record.message.id.clone()));
    }
    Ok(answer.end(page.next.map(cursor).as_deref()))
}

fn cursor(text: &str) -> ApiResult<(Timestamp, MessageId)> {
    let parsed = text
        .split_once('-')
        .and_then(|(due, id)| Some((Timestamp::from_millis(due.parse().ok()?), MessageId::parse(id).ok()?)));
    parsed.ok_or_else(|| {
        Fault::at(ErrorCode::BadCursor, "cursor", "give the cursor of the page before, unchanged")
    })
}
