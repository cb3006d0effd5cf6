//! Settles received messages: ack, nack, extend, of one queue or of several.

use std::sync::Arc;

use axum::{body::Body, extract::State, response::Response};
use duly::{ErrorCode, Settled, Topic};

use super::{
    answer::{self, json_in},
    answer_memory::AnswerShare,
    app::App,
    body,
    caller::Who,
    fault::{ApiResult, Fault},
    queues::lease,
};
use crate::{
    auth::Role,
    wire::{Extend, Nack, ReceiptResult, ReceiptResults, Receipts},
};

/// Max receipts of one call.
pub(super) const MAX: usize = 1_000;
/// Bytes of a result besides its receipt, which has only characters that JSON does not escape.
const RESULT_BYTES: usize = 48;

/// The messages were worked on, whatever queues they are of: they are done
#[utoipa::path(
    post, path = "/v1/ack", tag = "queues", request_body = Receipts,
    responses(
        (status = 200, description = "One answer per receipt", body = ReceiptResults),
    )
)]
pub(super) async fn ack_any(State(app): State<Arc<App>>, who: Who, sent: Body) -> ApiResult<Response> {
    who.need(Role::Consume)?;
    ack(&app, &who, None, sent).await
}

/// The messages were not worked on, whatever queues they are of: again later, or dead letters
#[utoipa::path(
    post, path = "/v1/nack", tag = "queues", request_body = Nack,
    responses(
        (status = 200, description = "One answer per receipt", body = ReceiptResults),
    )
)]
pub(super) async fn nack_any(State(app): State<Arc<App>>, who: Who, sent: Body) -> ApiResult<Response> {
    who.need(Role::Consume)?;
    nack(&app, &who, None, sent).await
}

/// Keep the messages for longer, whatever queues they are of
#[utoipa::path(
    post, path = "/v1/extend", tag = "queues", request_body = Extend,
    responses(
        (status = 200, description = "One answer per receipt", body = ReceiptResults),
    )
)]
pub(super) async fn extend_any(State(app): State<Arc<App>>, who: Who, sent: Body) -> ApiResult<Response> {
    who.need(Role::Consume)?;
    extend(&app, &who, None, sent).await
}

pub(super) async fn ack(app: &App, who: &Who, queue: Option<&str>, sent: Body) -> ApiResult<Response> {
    let Receipts { receipts } = body::json_of_receipts(app, sent).await?;
    let receipts = sorted(app, who, queue, receipts).await?;
    let room = receipts.room(app, who)?;
    let settled = app.duly.ack(&receipts.own).await?;
    Ok(json_in(room, &receipts.results(settled)))
}

pub(super) async fn nack(app: &App, who: &Who, queue: Option<&str>, sent: Body) -> ApiResult<Response> {
    let Nack { receipts, delay, error, dead } = body::json_of_nack(app, sent, "error").await?;
    let delay = delay.map(|delay| delay.span("delay")).transpose()?;
    if delay.is_some_and(|delay| delay > app.limits.delay_max) {
        return Err(Fault::at(ErrorCode::TooFar, "delay", "longer than any message may wait"));
    }
    if dead && delay.is_some() {
        return Err(Fault::at(
            ErrorCode::BadField,
            "delay",
            "a dead letter does not come again; leave delay out",
        ));
    }
    let receipts = sorted(app, who, queue, receipts).await?;
    let mut how = duly::Nack::from(delay);
    how.error = error;
    how.dead = dead;
    let room = receipts.room(app, who)?;
    let settled = app.duly.nack(&receipts.own, how).await?;
    Ok(json_in(room, &receipts.results(settled)))
}

pub(super) async fn extend(app: &App, who: &Who, queue: Option<&str>, sent: Body) -> ApiResult<Response> {
    let Extend { receipts, lease: wish } = body::json_of_receipts(app, sent).await?;
    let lease = lease(wish.as_ref())?;
    let receipts = sorted(app, who, queue, receipts).await?;
    let room = receipts.room(app, who)?;
    let settled = app.duly.extend(&receipts.own, lease).await?;
    Ok(json_in(room, &receipts.results(settled)))
}

/// The receipts of one call.
struct Sorted {
    /// All receipts, and whether each is among `own`.
    all: Vec<(String, bool)>,
    /// The receipts that the caller may settle, in order.
    own: Vec<String>,
}

/// Receipts can be guessed: they hold a number and the message's id. A token for some topics settles no message of others: their
/// receipts are answered as lost. A receipt of a queue other than the one in the path is an error.
async fn sorted(app: &App, who: &Who, queue: Option<&str>, receipts: Vec<String>) -> ApiResult<Sorted> {
    queue.map(Topic::parse_new).transpose()?;
    if receipts.len() > MAX {
        let detail = format!("{} receipts, the limit is {MAX}; send them in parts", receipts.len());
        return Err(Fault::at(ErrorCode::TooMany, "receipts", detail));
    }
    let queues = app.duly.queues_of(&receipts).await?;
    let mut all = Vec::with_capacity(receipts.len());
    for (index, (receipt, own)) in receipts.into_iter().zip(queues).enumerate() {
        let is_own = own.as_ref().map_or_else(|| who.sees_all(), |own| who.sees(own.as_str()));
        if let (true, Some(own), Some(queue)) = (is_own, &own, queue)
            && own.as_str() != queue
        {
            let detail = format!(
                "it is of the queue {:?}, and this is the address of {queue:?}; nothing was changed. Send it to the address of its \
                 own queue, or to one of /v1/ack, /v1/nack and /v1/extend, which take receipts of any",
                own.as_str()
            );
            return Err(Fault::at(ErrorCode::WrongQueue, format!("receipts[{index}]"), detail));
        }
        all.push((receipt, is_own));
    }
    let own = all.iter().filter(|(_, own)| *own).map(|(receipt, _)| receipt.clone()).collect();
    Ok(Sorted { all, own })
}

impl Sorted {
    /// Room for the results, before anything is settled.
    fn room(&self, app: &App, who: &Who) -> ApiResult<AnswerShare> {
        let bytes = |(receipt, _): &(String, bool)| receipt.len() + RESULT_BYTES;
        answer::receipts_room(app, who, self.all.iter().map(bytes).sum())
    }

    fn results(self, settled: Vec<Settled>) -> ReceiptResults {
        let mut settled = settled.into_iter();
        let result = |(receipt, own)| {
            let outcome = match if own { settled.next() } else { None } {
                Some(Settled::Done) => "done",
                Some(Settled::Lost) | None => "lost",
                Some(_) => "unknown",
            };
            ReceiptResult { receipt, outcome: outcome.into() }
        };
        ReceiptResults { results: self.all.into_iter().map(result).collect() }
    }
}
