//! The same change for many messages, by ids or by filter.

use std::sync::Arc;

use axum::{Json, body::Body, extract::State};
use duly::{Changed, ErrorCode, MessageId, Record, Timestamp};

use super::{
    app::App,
    body,
    caller::Who,
    fault::{ApiResult, Fault},
    select,
};
use crate::{
    auth::Role,
    wire::{BulkAnswer, BulkRequest, Filter, MovedRequest},
};

/// Messages changed by one call of the store when a filter selects them.
const STEP: usize = 1_000;

/// The change.
#[derive(Clone, Copy)]
enum Change {
    Cancel,
    Move(Timestamp),
    /// Due at `at`, which is now. What became due since `since` was fired by an earlier part of the same change, or is due by itself.
    Fire {
        at: Timestamp,
        since: Timestamp,
    },
    Replay,
    Purge,
}

impl Change {
    /// The state that messages must be in.
    fn from(self) -> duly::State {
        match self {
            Self::Cancel | Self::Move(_) | Self::Fire { .. } => duly::State::Pending,
            Self::Replay | Self::Purge => duly::State::Dead,
        }
    }

    /// Whether a pending message with this due time needs no change.
    fn is_done(self, due: Timestamp) -> bool {
        match self {
            Self::Move(to) => due == to,
            Self::Fire { at, since } => (since..=at).contains(&due),
            Self::Cancel | Self::Replay | Self::Purge => false,
        }
    }

    async fn perform(self, app: &App, ids: &[MessageId]) -> ApiResult<Vec<Changed>> {
        Ok(match self {
            Self::Cancel => app.duly.cancel_many(ids).await?,
            Self::Move(due) | Self::Fire { at: due, .. } => {
                let batch: Vec<_> = ids.iter().map(|id| (id.clone(), due)).collect();
                app.duly.reschedule_many(batch).await?
            }
            Self::Replay => app.duly.replay(ids).await?,
            Self::Purge => app.duly.purge(ids).await?,
        })
    }
}

/// Cancel many
#[utoipa::path(
    post, path = "/v1/messages/cancel", operation_id = "cancel_messages", tag = "messages", request_body = BulkRequest,
    responses(
        (status = 200, description = "How many", body = BulkAnswer),
    )
)]
pub(super) async fn cancel(State(app): State<Arc<App>>, who: Who, sent: Body) -> ApiResult<Json<BulkAnswer>> {
    who.need(Role::Operate)?;
    many(&app, &who, Change::Cancel, body::json(&app, sent).await?).await
}

/// Give many another due time
#[utoipa::path(
    post, path = "/v1/messages/reschedule", operation_id = "reschedule_messages", tag = "messages", request_body = MovedRequest,
    responses(
        (status = 200, description = "How many", body = BulkAnswer),
    )
)]
pub(super) async fn reschedule(
    State(app): State<Arc<App>>,
    who: Who,
    sent: Body,
) -> ApiResult<Json<BulkAnswer>> {
    who.need(Role::Operate)?;
    let wish: MovedRequest = body::json(&app, sent).await?;
    let due = select::due(&app, wish.delay.as_ref(), wish.deliver_at.as_ref())?;
    let MovedRequest { ids, filter, dry_run, as_of, matched, .. } = wish;
    many(&app, &who, Change::Move(due), BulkRequest { ids, filter, dry_run, as_of, matched }).await
}

/// Deliver many now
#[utoipa::path(
    post, path = "/v1/messages/fire", operation_id = "fire_messages", tag = "messages", request_body = BulkRequest,
    responses(
        (status = 200, description = "How many", body = BulkAnswer),
    )
)]
pub(super) async fn fire(State(app): State<Arc<App>>, who: Who, sent: Body) -> ApiResult<Json<BulkAnswer>> {
    who.need(Role::Operate)?;
    let wish: BulkRequest = body::json(&app, sent).await?;
    // Due at the time of this call, never at one the caller sent: an earlier time could exceed `max_lateness` and kill the message.
    let at = app.duly.now();
    let since = wish.as_of.as_ref().map_or(Ok(at), |since| since.time("as_of"))?.min(at);
    many(&app, &who, Change::Fire { at, since }, wish).await
}

/// Deliver dead letters afresh
#[utoipa::path(
    post, path = "/v1/dead/replay", operation_id = "replay_dead_letters", tag = "dead letters", request_body = BulkRequest,
    responses(
        (status = 200, description = "How many", body = BulkAnswer),
    )
)]
pub(super) async fn replay(State(app): State<Arc<App>>, who: Who, sent: Body) -> ApiResult<Json<BulkAnswer>> {
    who.need(Role::Operate)?;
    many(&app, &who, Change::Replay, body::json(&app, sent).await?).await
}

/// Forget dead letters for good
#[utoipa::path(
    post, path = "/v1/dead/purge", operation_id = "purge_dead_letters", tag = "dead letters", request_body = BulkRequest,
    responses(
        (status = 200, description = "How many", body = BulkAnswer),
    )
)]
pub(super) async fn purge(State(app): State<Arc<App>>, who: Who, sent: Body) -> ApiResult<Json<BulkAnswer>> {
    who.need(Role::Operate)?;
    many(&app, &who, Change::Purge, body::json(&app, sent).await?).await
}

async fn many(app: &App, who: &Who, change: Change, wish: BulkRequest) -> ApiResult<Json<BulkAnswer>> {
    let mut answer = BulkAnswer { dry_run: wish.dry_run, ..BulkAnswer::default() };
    match (wish.ids, wish.filter) {
        (Some(_), None) if wish.as_of.is_some() || wish.matched.is_some() => {
            let detail = "as_of and matched belong to a filter; ids say themselves which and how many";
            let path = if wish.as_of.is_some() { "as_of" } else { "matched" };
            return Err(Fault::at(ErrorCode::BadSelection, path, detail));
        }
        (Some(ids), None) => by_ids(app, who, change, ids, &mut answer).await?,
        (None, Some(filter)) => {
            let as_of = wish.as_of.as_ref().map(|at| at.time("as_of")).transpose()?;
            let now = app.duly.now();
            let bound = Bound {
                // A time to come may be that of a node whose clock is ahead. It would match what dies again during this call.
                as_of: as_of.map_or(now, |as_of| as_of.min(now)),
                is_asked_for: as_of.is_some() || wish.dry_run,
                matched_max: wish.matched.unwrap_or(u64::MAX),
            };
            by_filter(app, who, change, (&filter, bound), &mut answer).await?;
        }
        _ => {
            let detail = "give ids, or a filter; the filter {} means all of them";
            return Err(Fault::at(ErrorCode::BadSelection, "filter", detail));
        }
    }
    Ok(Json(answer))
}

async fn by_ids(
    app: &App,
    who: &Who,
    change: Change,
    ids: Vec<String>,
    answer: &mut BulkAnswer,
) -> ApiResult<()> {
    let max = app.limits.batch_max;
    if ids.len() > max {
        return Err(Fault::at(
            ErrorCode::TooMany,
            "ids",
            format!("{} ids, the limit is {max}; send them in parts", ids.len()),
        ));
    }
    let parsed = ids.iter().enumerate().map(|(place, id)| {
        MessageId::parse(id).map_err(|fault| Fault::at(fault.code, format!("ids[{place}]"), fault.detail))
    });
    let ids = parsed.collect::<ApiResult<Vec<_>>>()?;
    for step in ids.chunks(STEP) {
        let step = own(app, who, step, &mut answer.unknown).await?;
        if answer.dry_run {
            for record in app.duly.get_many_without_bodies(&step).await? {
                let changed = match record.map(|record| record.state) {
                    None => Changed::Unknown,
                    Some(state) if state == change.from() => Changed::Done { maybe_delivered: false },
                    Some(state) => Changed::TooLate(state),
                };
                count(answer, change, changed);
            }
        } else {
            change.perform(app, &step).await?.into_iter().for_each(|changed| count(answer, change, changed));
        }
    }
    if answer.dry_run {
        answer.done = 0;
    }
    Ok(())
}

/// The ids whose topics the caller may access. The others look like unknown ids to the caller.
async fn own(app: &App, who: &Who, ids: &[MessageId], unknown: &mut u64) -> ApiResult<Vec<MessageId>> {
    if who.sees_all() {
        return Ok(ids.to_vec());
    }
    let mut own = Vec::new();
    for record in app.duly.get_many_without_bodies(ids).await? {
        match record {
            Some(record) if who.sees(record.message.topic.as_str()) => own.push(record.message.id),
            _ => *unknown += 1,
        }
    }
    Ok(own)
}

fn count(answer: &mut BulkAnswer, change: Change, changed: Changed) {
    match changed {
        Changed::Done { maybe_delivered } => {
            answer.matched += 1;
            answer.done += 1;
            answer.maybe_delivered += u64::from(maybe_delivered);
        }
        // The same as DELETE of one message: a repeated cancel succeeds.
        Changed::TooLate(duly::State::Cancelled) if matches!(change, Change::Cancel) => {
            answer.matched += 1;
            answer.already += 1;
        }
        Changed::TooLate(_) => {
            answer.matched += 1;
            answer.too_late += 1;
        }
        _ => answer.unknown += 1,
    }
}

/// Bounds of a change by filter.
#[derive(Clone, Copy)]
struct Bound {
    as_of: Timestamp,
    /// Whether `as_of` bounds pending messages, too: the caller confirmed a count, or counts now. Otherwise messages accepted meanwhile may match.
    is_asked_for: bool,
    matched_max: u64,
}

impl Bound {
    /// Whether the message was in its state at that time. A dead letter that was replayed and died again was not, so no message
    /// is replayed in a loop.
    fn has(self, record: &Record) -> bool {
        let since = match record.state {
            duly::State::Dead => record.ended,
            _ => record.accepted.filter(|_| self.is_asked_for),
        };
        since.is_none_or(|since| since <= self.as_of)
    }
}

async fn by_filter(
    app: &App,
    who: &Who,
    change: Change,
    (filter, bound): (&Filter, Bound),
    answer: &mut BulkAnswer,
) -> ApiResult<()> {
    who.require_some_topic(filter.topic.as_deref())?;
    let mut query = select::filtered(change.from(), filter)?;
    query.limit = STEP;
    answer.as_of = Some(bound.as_of.to_string());
    loop {
        let page = app.duly.list(&query).await?;
        // A message that this call rescheduled may be listed again at its new time.
        let mut ids: Vec<_> = page
            .records
            .into_iter()
            .filter(|record| !change.is_done(record.message.due) && bound.has(record))
            .map(|record| record.message.id)
            .collect();
        let room = usize::try_from(bound.matched_max.saturating_sub(answer.matched)).unwrap_or(usize::MAX);
        answer.more = ids.len() > room;
        ids.truncate(room);
        if answer.dry_run {
            answer.matched += ids.len() as u64;
        } else if !ids.is_empty() {
            let matched = answer.matched + ids.len() as u64;
            change.perform(app, &ids).await?.into_iter().for_each(|changed| count(answer, change, changed));
            // A message that disappeared between list and change had matched, too.
            answer.matched = matched;
        }
        match page.next {
            _ if answer.more => return Ok(()),
            Some(next) => query.after = Some(next),
            None => return Ok(()),
        }
        if *app.stopping.borrow() {
            return Err(Fault::new(
                ErrorCode::ShuttingDown,
                format!("stopped after {} of them; ask again for the rest", answer.done),
            ));
        }
    }
}
