//! Hands received messages out, as many as the memory for answers has room for.

use std::time::Duration;

use axum::response::Response;
use duly::{ErrorCode, Receive, Received};
use tokio::time::{Instant, timeout_at};

use super::{
    answer::{Messages, no_room},
    app::App,
    caller::Who,
    fault::{ApiResult, Fault},
    response,
};

/// A receive waits at least this long for room, also if it does not wait for messages.
const ROOM_WAIT_MIN: Duration = Duration::from_secs(1);

/// Refuses to hand out messages at a node that only accepts.
pub(super) fn require_enabled(app: &App) -> ApiResult<()> {
    if app.node.delivers {
        return Ok(());
    }
    let detail = "this node only accepts (deliver = false); receive from a node that delivers";
    Err(Fault::new(ErrorCode::DeliveryDisabled, detail))
}

/// Receives messages. Those for which there is no room are released at once: nothing is held while a receive waits for room.
pub(super) async fn receive(
    app: &App,
    who: &Who,
    topics: &[String],
    mut want: Receive,
) -> ApiResult<Response> {
    let begin = Instant::now();
    let end = begin + want.wait;
    let mut share = app.answers.share(who.caller());
    loop {
        let has_room_for_one = share.bytes() > 0;
        let mut answer = Messages::new(share);
        let mut no_room_for = None;
        let fits = |message: &Received| match answer.push(&response::received(message)) {
            Ok(()) => true,
            Err(bytes) => {
                no_room_for.get_or_insert(bytes);
                false
            }
        };
        tokio::select! {
            received = app.duly.receive_fitting(topics, want.clone(), fits) => received?,
            // At shutdown a waiting receiver gets an empty response, and repeats the call at another server.
            () = app.stopped() => return Ok(empty(app, who)),
        };
        let Some(bytes) = no_room_for.filter(|_| answer.is_empty()) else {
            if answer.is_empty() && has_room_for_one && Instant::now() < end {
                // Somebody else has taken what there was room for. Room is not held while nothing is due.
                share = app.answers.share(who.caller());
                want.wait = end - Instant::now();
                continue;
            }
            return Ok(answer.end(None));
        };
        drop(answer);
        let room = app.answers.share(who.caller()).wait(bytes);
        share = tokio::select! {
            room = timeout_at(end.max(begin + ROOM_WAIT_MIN), room) => room.map_err(|_| no_room())?,
            () = app.stopped() => return Ok(empty(app, who)),
        };
        want.wait = Duration::ZERO;
    }
}

fn empty(app: &App, who: &Who) -> Response {
    Messages::new(app.answers.share(who.caller())).end(None)
}
