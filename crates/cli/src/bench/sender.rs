//! One connection that sends.

use std::{
    sync::{Arc, atomic::Ordering::Relaxed},
    time::{Duration, Instant},
};

use bytes::BytesMut;
use http::StatusCode;

use super::{
    histogram::Histogram,
    load_run::{ANSWER_WITHIN, LoadRun},
    plan::Dice,
};
use crate::{Failure, clock};
use duly_client::{
    Direct,
    wire::{ItemError, Problem},
};

/// Behind its time by more than this, a request's wait counts as latency; below, it is only the timer's grain.
const GRAIN: Duration = Duration::from_millis(2);

/// Sends until the time is over; gives how long accepting took.
pub(super) async fn run(shared: Arc<LoadRun>, number: usize) -> Result<Histogram, Failure> {
    let mut latency = Histogram::default();
    let mut dice = Dice::new(number as u64 + clock::now_us());
    let mut buffer = BytesMut::new();
    let (mut sent, mut link) = (0_u64, None);
    while !shared.over() {
        let intended = shared.turn().await;
        if shared.over() {
            break;
        }
        let direct = match &mut link {
            Some(direct) => direct,
            None => match shared.reconnect().await? {
                Some(direct) => link.insert(direct),
                None => break,
            },
        };
        let ids: Vec<String> =
            (0..shared.plan.batch as u64).map(|i| shared.plan.id(number, sent + i)).collect();
        sent += ids.len() as u64;
        let body = shared.plan.fill(&mut buffer, &ids, &mut dice);
        if let Some(ledger) = &shared.ledger {
            ledger.ids("sent", ids.iter().map(String::as_str))?;
        }
        let began = clock::instant();
        match send(&shared, direct, body, &ids).await {
            Ok(()) => latency.record_span(measured_from(intended, began).elapsed()),
            Err(failure) => {
                link = None;
                shared.broke(failure)?;
            }
        }
    }
    Ok(latency)
}

fn measured_from(intended: Option<Instant>, began: Instant) -> Instant {
    intended.filter(|at| began.saturating_duration_since(*at) > GRAIN).unwrap_or(began)
}

async fn send(
    shared: &LoadRun,
    direct: &mut Direct,
    body: bytes::Bytes,
    ids: &[String],
) -> Result<(), Failure> {
    let single = shared.plan.batch == 1;
    shared.counts.sent.fetch_add(ids.len() as u64, Relaxed);
    let (status, answer) = if single {
        direct.post("/v1/messages", body, ANSWER_WITHIN).await?
    } else {
        direct.post_lines("/v1/messages/batch", body, ANSWER_WITHIN).await?
    };
    if !status.is_success() {
        let code = serde_json::from_slice::<Problem>(&answer).map_or_else(|_| status.to_string(), |p| p.code);
        shared.refused(&code, ids.len() as u64);
        // The server closes the connection after this one: the next request needs another.
        if status == StatusCode::PAYLOAD_TOO_LARGE {
            return Err(Failure::failed(code));
        }
        if matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::SERVICE_UNAVAILABLE) {
            clock::sleep(Duration::from_millis(50)).await;
        }
        return Ok(());
    }
    if single {
        return shared.accepted(ids.iter().map(String::as_str));
    }
    // Line by line, in the order of the ids. An answer that ended early leaves the rest unknown.
    let mut taken = Vec::with_capacity(ids.len());
    let lines = answer.split(|byte| *byte == b'\n').filter(|line| !line.is_empty());
    for (id, line) in ids.iter().zip(lines) {
        if line.starts_with(b"{\"error\"") {
            shared.refused(&refusal(line), 1);
        } else {
            taken.push(id.as_str());
        }
    }
    shared.accepted(taken.into_iter())
}

fn refusal(line: &[u8]) -> String {
    #[derive(serde::Deserialize)]
    struct Refused {
        error: ItemError,
    }
    serde_json::from_slice::<Refused>(line).map_or_else(|_| "not_json".into(), |refused| refused.error.code)
}
