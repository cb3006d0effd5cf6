//! One connection that receives and acknowledges.

use std::{
    borrow::Cow,
    sync::{Arc, atomic::Ordering::Relaxed},
};

use bytes::Bytes;
use http::StatusCode;
use serde::{Deserialize, Serialize};

use super::{
    histogram::Histogram,
    load_run::{ANSWER_WITHIN, LoadRun},
};
use crate::{Failure, clock};
use duly_client::{Direct, segment, wire::Problem};

/// Of a received message only what is measured: the body is passed over.
#[derive(Deserialize)]
struct ReceivedMessage<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    receipt: Cow<'a, str>,
    deliver_at_ms: u64,
}

#[derive(Deserialize)]
struct Received<'a> {
    #[serde(borrow)]
    messages: Vec<ReceivedMessage<'a>>,
}

#[derive(Serialize)]
struct Receipts<'a> {
    receipts: Vec<&'a str>,
}

/// Receives until everything accepted has come, or the wait for it is over; gives how late it came.
pub(super) async fn run(shared: Arc<LoadRun>, topic: String) -> Result<Histogram, Failure> {
    let mut late = Histogram::default();
    let receive = format!("/v1/queues/{}/receive", segment(&topic));
    let ack = format!("/v1/queues/{}/ack", segment(&topic));
    let lease_ms = shared.lease.as_millis();
    let wanted = Bytes::from(format!(r#"{{"max":100,"wait":"1s","lease":{lease_ms}}}"#));
    let mut link = None;
    while !shared.drained() {
        let direct = match &mut link {
            Some(direct) => direct,
            None => match shared.reconnect().await? {
                Some(direct) => link.insert(direct),
                None => break,
            },
        };
        let done = async {
            let answer = call(&shared, direct, &receive, wanted.clone()).await?;
            let Some(receipts) = note(&shared, &answer, &mut late)? else { return Ok(()) };
            call(&shared, direct, &ack, receipts).await.map(|_| ())
        };
        if let Err(failure) = done.await {
            link = None;
            shared.stopped_receiving(failure)?;
        }
    }
    Ok(late)
}

/// Counts what came, and gives the acknowledgement.
fn note(shared: &LoadRun, answer: &[u8], late: &mut Histogram) -> Result<Option<Bytes>, Failure> {
    let now_us = clock::now_us();
    let fault = |e: serde_json::Error| Failure::failed(format!("what was received cannot be read: {e}"));
    let received: Received<'_> = serde_json::from_slice(answer).map_err(fault)?;
    if received.messages.is_empty() {
        return Ok(None);
    }
    for message in &received.messages {
        let Some((connection, number)) = shared.plan.place(&message.id) else { continue };
        let due_us = message.deliver_at_ms.saturating_mul(1_000);
        if now_us < due_us {
            shared.counts.early.fetch_add(1, Relaxed);
        }
        late.record(now_us.saturating_sub(due_us));
        shared.deliveries.received(connection, number);
    }
    if let Some(ledger) = &shared.ledger {
        let all = received.messages.iter().map(|message| (&*message.id, message.deliver_at_ms));
        ledger.received(all, now_us / 1_000)?;
    }
    shared.delivered_now();
    let receipts = Receipts { receipts: received.messages.iter().map(|message| &*message.receipt).collect() };
    serde_json::to_vec(&receipts).map(|body| Some(body.into())).map_err(fault)
}

async fn call(shared: &LoadRun, direct: &mut Direct, path: &str, body: Bytes) -> Result<Bytes, Failure> {
    let (status, answer) = direct.post(path, body, ANSWER_WITHIN).await?;
    if status.is_success() {
        return Ok(answer);
    }
    let (code, detail) = match serde_json::from_slice::<Problem>(&answer) {
        Ok(problem) => (problem.code.clone(), format!("{} [{}]", problem.detail, problem.code)),
        Err(_) => (status.to_string(), status.to_string()),
    };
    shared.refused(&code, 1);
    let failure = Failure::refused(status.as_u16(), format!("receiving was refused: {detail}"));
    // Any other refusal is for good: the same call has the same answer a little later.
    let passes = status.is_server_error()
        || matches!(status, StatusCode::REQUEST_TIMEOUT | StatusCode::TOO_MANY_REQUESTS);
    Err(if passes { failure.transient() } else { failure })
}
