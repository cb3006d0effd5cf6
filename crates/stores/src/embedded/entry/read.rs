//! Reading an entry.

use std::time::Duration;

use bytes::Bytes;
use duly_core::{
    Attempt, Backoff, Body, ContentKind, DeadReason, Key, Lane, LeaseLoss, MessageId, Outcome, Priority,
    Properties, RetryOverride, SinkName, StoredMessage, Tag, Timestamp, Topic,
};

use super::{
    ACCEPTED, ATTEMPTS, DEAD, FIXED, Garbled, HISTORY, KEY, LATENESS, LOST_SHIFT, PROPERTIES, Peek, READY,
    RETRY, Stored, TAG, TIME_BYTES, field,
};

/// Reads a whole entry; the body shares `bytes`.
pub(in crate::embedded) fn decode(bytes: &Bytes, lane: &Lane) -> Result<Stored, Garbled> {
    let peek = Peek::framed(bytes)?;
    let (mut stored, rest) = decode_head(peek.0, lane)?;
    let kind = ContentKind::from_u8((peek.flags() & 3) as u8).unwrap_or_default();
    let len = u32::from_le_bytes(field(rest, 0)?) as usize;
    let from = peek.len() - rest.len() + 4;
    if from + len > peek.len() {
        return Err(Garbled);
    }
    stored.message.body = Body::from_parts(kind, bytes.slice(from..from + len));
    Ok(stored)
}

/// Reads the head of an entry: everything but the body. Also says what follows it.
pub(in crate::embedded) fn decode_head<'a>(
    bytes: &'a [u8],
    lane: &Lane,
) -> Result<(Stored, &'a [u8]), Garbled> {
    let peek = Peek(bytes);
    if bytes.len() < FIXED || peek.head_len() > bytes.len() || FIXED + usize::from(bytes[33]) > bytes.len() {
        return Err(Garbled);
    }
    let flags = peek.flags();
    let mut rest = &bytes[FIXED + usize::from(bytes[33])..];
    let id = MessageId::parse(peek.id_text()).map_err(|_| Garbled)?;
    let ready = if flags & READY == 0 { peek.due() } else { take_time(&mut rest)? };
    let attempts = if flags & ATTEMPTS == 0 { 0 } else { u32::from_le_bytes(take(&mut rest)?) };
    let (sink, topic) = match lane {
        Lane::Queue(topic) => (SinkName::queue(), topic.clone()),
        Lane::Sink(sink) => (sink.clone(), Topic::parse(take_short(&mut rest)?).map_err(|_| Garbled)?),
        _ => return Err(Garbled),
    };
    let mut message = StoredMessage::new(id, sink, topic, peek.due());
    message.priority = Priority::new(9u8.saturating_sub(peek.rank())).map_err(|_| Garbled)?;
    if flags & TAG != 0 {
        message.tag = Some(Tag::parse(take_short(&mut rest)?).map_err(|_| Garbled)?);
    }
    if flags & KEY != 0 {
        message.key = Some(Key::parse(take_short(&mut rest)?).map_err(|_| Garbled)?);
    }
    if flags & LATENESS != 0 {
        message.max_lateness = Some(Duration::from_millis(u64::from_le_bytes(take(&mut rest)?)));
    }
    if flags & RETRY != 0 {
        message.retry = Some(Box::new(take_retry(&mut rest)?));
    }
    let history = if flags & HISTORY == 0 { Vec::new() } else { take_history(&mut rest)? };
    let dead = if flags & DEAD == 0 { None } else { Some((take_reason(&mut rest)?, take_time(&mut rest)?)) };
    if flags & PROPERTIES != 0 {
        // After the properties come the time of acceptance and the fields outside of the head.
        let accepted = if flags & ACCEPTED == 0 { 0 } else { TIME_BYTES };
        let after = bytes.len() - peek.head_len() + accepted;
        message.properties = take_properties(&mut rest, after)?;
    }
    let accepted = if flags & ACCEPTED == 0 { None } else { Some(take_time(&mut rest)?) };
    let lost = match flags >> LOST_SHIFT & 3 {
        0 => LeaseLoss::None,
        1 => LeaseLoss::InBatch,
        _ => LeaseLoss::Alone,
    };
    let stored = Stored {
        message,
        content_hash: peek.content_hash(),
        version: peek.version(),
        accepted,
        ready,
        attempts,
        lost,
        maybe_delivered: peek.maybe_delivered(),
        history,
        dead,
    };
    Ok((stored, rest))
}

fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Garbled> {
    let part = field(rest, 0)?;
    *rest = &rest[N..];
    Ok(part)
}

fn take_time(rest: &mut &[u8]) -> Result<Timestamp, Garbled> {
    let six: [u8; TIME_BYTES] = take(rest)?;
    let mut bytes = [0; 8];
    bytes[..TIME_BYTES].copy_from_slice(&six);
    Ok(Timestamp::from_millis(u64::from_le_bytes(bytes)))
}

fn take_text<'a>(rest: &mut &'a [u8], len: usize) -> Result<&'a str, Garbled> {
    let text = rest.get(..len).and_then(|part| std::str::from_utf8(part).ok()).ok_or(Garbled)?;
    *rest = &rest[len..];
    Ok(text)
}

fn take_short<'a>(rest: &mut &'a [u8]) -> Result<&'a str, Garbled> {
    let [len] = take(rest)?;
    take_text(rest, usize::from(len))
}

fn take_long<'a>(rest: &mut &'a [u8]) -> Result<&'a str, Garbled> {
    let len = u16::from_le_bytes(take(rest)?);
    take_text(rest, usize::from(len))
}

/// Reads properties until `after` bytes are left. Their count is only checked: it is the low byte, as there may be more of them than a
/// byte counts.
fn take_properties(rest: &mut &[u8], after: usize) -> Result<Properties, Garbled> {
    let [count] = take(rest)?;
    let mut properties = Properties::default();
    let mut read = 0u8;
    while rest.len() > after {
        let name = take_short(rest)?;
        properties.put(name, take_long(rest)?);
        read = read.wrapping_add(1);
    }
    if rest.len() == after && read == count { Ok(properties) } else { Err(Garbled) }
}

fn take_retry(rest: &mut &[u8]) -> Result<RetryOverride, Garbled> {
    let attempts = u32::from_le_bytes(take(rest)?);
    let [backoff] = take(rest)?;
    let (min, max) = (u64::from_le_bytes(take(rest)?), u64::from_le_bytes(take(rest)?));
    let span = |millis: u64| (millis != u64::MAX).then(|| Duration::from_millis(millis));
    Ok(RetryOverride {
        attempts: (attempts != u32::MAX).then_some(attempts),
        backoff: match backoff {
            0 => None,
            number => Some(Backoff::from_u8(number).ok_or(Garbled)?),
        },
        min: span(min),
        max: span(max),
    })
}

fn take_history(rest: &mut &[u8]) -> Result<Vec<Attempt>, Garbled> {
    let [count] = take(rest)?;
    (0..count)
        .map(|_| {
            let at = take_time(rest)?;
            let [outcome] = take(rest)?;
            Ok(Attempt::new(at, outcome_of(outcome)?, take_long(rest)?))
        })
        .collect()
}

fn outcome_of(byte: u8) -> Result<Outcome, Garbled> {
    Outcome::from_u8(byte).ok_or(Garbled)
}

fn take_reason(rest: &mut &[u8]) -> Result<DeadReason, Garbled> {
    let [byte] = take(rest)?;
    DeadReason::from_u8(byte).ok_or(Garbled)
}
