//! Hands received messages out, as many as the memory for answers has room for.

use std::time::Duration;

use axum::response::Response;
use duly::{Receive, Received};
use tokio::time::{Instant, timeout_at};

use super::{
    answer::{AnswerShare, Messages, no_room},
    app::App,
    fault::ApiResult,
    response,
};

/// A receive waits at least this long for room, also if it does not wait for messages.
const ROOM_WAIT_MIN: Duration = Duration::from_secs(1);

/// Receives messages. Those for which there is no room are released at once: nothing is held while a receive waits for room.
pub(super) async fn receive(app: &App, topics: &[String], mut want: Receive) -> ApiResult<Response> {
    let begin = Instant::now();
    let end = begin + want.wait;
    let mut share = AnswerShare::default();
    loop {
        let has_room_for_one = share.is_held();
        let received = tokio::select! {
            received = app.duly.receive_any(topics, want.clone()) => received?,
            // At shutdown a waiting receiver gets an empty response, and repeats the call at another server.
            () = app.stopped() => Vec::new(),
        };
        if received.is_empty() && has_room_for_one && Instant::now() < end {
            // Somebody else has taken what there was room for. Room is not held while nothing is due.
            share = AnswerShare::default();
            want.wait = end - Instant::now();
            continue;
        }
        let (answer, no_room_for) = answer(app, received, share).await;
        let Some(bytes) = no_room_for.filter(|_| answer.is_empty()) else { return Ok(answer.end(None)) };
        drop(answer);
        let room = timeout_at(end.max(begin + ROOM_WAIT_MIN), app.answers.share(bytes));
        share = tokio::select! {
            room = room => room.map_err(|_| no_room())?,
            () = app.stopped() => return Err(no_room()),
        };
        want.wait = Duration::ZERO;
    }
}

/// The answer with as many of the messages as there is room for, and the bytes that one more would need. The others are released.
async fn answer(app: &App, received: Vec<Received>, share: AnswerShare) -> (Messages, Option<usize>) {
    let mut answer = Messages::new(share);
    let mut received = received.into_iter();
    while let Some(message) = received.next() {
        let receipt = message.receipt.clone();
        if let Err(bytes) = answer.push(app, &response::received(message)) {
            let left: Vec<_> =
                std::iter::once(receipt).chain(received.map(|message| message.receipt)).collect();
            release(app, left).await;
            return (answer, Some(bytes));
        }
    }
    (answer, None)
}

/// Gives messages back without an attempt, also if the client goes away meanwhile.
async fn release(app: &App, receipts: Vec<String>) {
    let duly = app.duly.clone();
    let released = tokio::spawn(async move { duly.release(&receipts).await });
    // What is not released comes again when its lease ends.
    if let Ok(Err(error)) = released.await {
        tracing::warn!(%error, "release failed");
    }
}
