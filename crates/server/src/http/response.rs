//! Converts records of the library to wire types.

use base64::{Engine, engine::general_purpose::STANDARD};
use duly::{Accepted, Body, ContentKind, Properties, Received, Record, State};
use serde_json::value::RawValue;

use super::intake::Target;
use crate::{draft::is_too_deep, wire};

/// An accepted message.
pub(super) fn accepted(target: Target, accepted: &Accepted) -> wire::Accepted {
    wire::Accepted {
        id: accepted.id.as_str().into(),
        sink: target.sink,
        topic: target.topic,
        state: accepted.state.as_str().into(),
        deliver_at: accepted.due.to_string(),
        deliver_at_ms: accepted.due.as_millis(),
        duplicate: accepted.duplicate,
        kept: accepted.time_kept.then(|| "time".into()),
    }
}

/// A message with its body.
pub(super) fn message(record: &Record) -> wire::Message {
    let message = &record.message;
    let (body, body_base64) = body(&message.body);
    let kept = matches!(record.state, State::Pending | State::InFlight | State::Dead);
    let waits = record.state == State::Pending && record.ready > message.due;
    let delivered = record.ended.filter(|_| record.state == State::Delivered);
    wire::Message {
        id: message.id.as_str().into(),
        sink: message.sink.as_str().into(),
        topic: message.topic.as_str().into(),
        tag: message.tag.as_ref().map(|tag| tag.as_str().into()),
        key: message.key.as_ref().map(|key| key.as_str().into()),
        state: record.state.as_str().into(),
        times: wire::MessageTimes {
            accepted_at: record.accepted.map(|at| at.to_string()),
            accepted_at_ms: record.accepted.map(duly::Timestamp::as_millis),
            deliver_at: message.due.to_string(),
            deliver_at_ms: message.due.as_millis(),
            retry_at: waits.then(|| record.ready.to_string()),
            retry_at_ms: waits.then(|| record.ready.as_millis()),
        },
        priority: message.priority.get(),
        attempts_counted: record.attempts,
        attempts: record.history.iter().map(attempt).collect(),
        maybe_delivered: record.maybe_delivered,
        end: wire::MessageEnd {
            delivered_at: delivered.map(|at| at.to_string()),
            delivered_at_ms: delivered.map(duly::Timestamp::as_millis),
            ended_at: record.ended.map(|at| at.to_string()),
            ended_at_ms: record.ended.map(duly::Timestamp::as_millis),
            receipt: record.receipt.clone(),
            reason: record.reason.map(|reason| reason.as_str().into()),
        },
        content: wire::MessageContent {
            properties: properties(&message.properties),
            max_lateness_ms: message.max_lateness.map(super::millis),
            retry: message.retry.as_deref().map(retry),
            content_type: kept.then(|| message.body.kind().mime().into()),
            body: body.filter(|_| kept),
            body_base64: body_base64.filter(|_| kept),
        },
    }
}

/// A message without its body, for lists.
pub(super) fn listed(record: &Record) -> wire::Message {
    let mut listed = message(record);
    (listed.content.body, listed.content.body_base64, listed.content.content_type) = (None, None, None);
    listed
}

fn retry(own: &duly::RetryOverride) -> wire::Retry {
    let backoff = own.backoff.map(duly::Backoff::as_str);
    wire::Retry {
        attempts: own.attempts,
        backoff: backoff.map(Into::into),
        min: own.min.map(Into::into),
        max: own.max.map(Into::into),
    }
}

fn attempt(attempt: &duly::Attempt) -> wire::Attempt {
    wire::Attempt {
        at: attempt.at.to_string(),
        at_ms: attempt.at.as_millis(),
        outcome: attempt.outcome.as_str().into(),
        detail: attempt.detail.clone(),
    }
}

/// A received message.
pub(super) fn received(received: &Received) -> wire::ReceivedMessage {
    let message = &received.message;
    let (json, body, body_base64) = as_sent(&message.body);
    wire::ReceivedMessage {
        id: message.id.as_str().into(),
        receipt: received.receipt.clone(),
        topic: message.topic.as_str().into(),
        tag: message.tag.as_ref().map(|tag| tag.as_str().into()),
        key: message.key.as_ref().map(|key| key.as_str().into()),
        json,
        body,
        body_base64,
        content_type: message.body.kind().mime().into(),
        properties: properties(&message.properties),
        deliver_at: message.due.to_string(),
        deliver_at_ms: message.due.as_millis(),
        attempt: received.attempt,
    }
}

fn properties(properties: &Properties) -> std::collections::BTreeMap<String, String> {
    properties.iter().map(|(name, value)| (name.into(), value.into())).collect()
}

/// The body as it was sent: as JSON, text or base64. A body that does not match its content type falls back to the next of these. So does
/// JSON that is nested too deep: HTTP refuses it, but sources, outboxes and the library send it.
fn as_sent(sent: &Body) -> (Option<Box<RawValue>>, Option<String>, Option<String>) {
    if sent.kind() == ContentKind::Json && !sent.is_empty() && !is_too_deep(sent.as_bytes()) {
        let text = String::from_utf8(sent.as_bytes().to_vec()).ok();
        if let Some(json) = text.and_then(|text| RawValue::from_string(text).ok()) {
            return (Some(json), None, None);
        }
    }
    if sent.kind() == ContentKind::Bytes && !sent.is_empty() {
        return (None, None, Some(STANDARD.encode(sent.as_bytes())));
    }
    let (body, body_base64) = body(sent);
    (None, body, body_base64)
}

/// Text if it is UTF-8, else base64.
fn body(body: &Body) -> (Option<String>, Option<String>) {
    match std::str::from_utf8(body.as_bytes()) {
        Ok(text) => (Some(text.into()), None),
        Err(_) => (None, Some(STANDARD.encode(body.as_bytes()))),
    }
}
