//! Writing an entry.

use std::time::Duration;

use duly_core::{
    Attempt, DeadReason, LeaseLoss, Priority, RetryOverride, StoredMessage, Timestamp, store::Past,
};

use super::{
    ACCEPTED, ALIGN, ATTEMPTS, DEAD, FIXED, HISTORY, KEY, LATENESS, LOST_SHIFT, MAYBE, PROPERTIES, READY,
    RETRY, Stored, TAG, TOPIC,
};

/// Bytes of a body that an entry can hold, with room for its head in a length of 32 bits.
const BODY_BYTES_MAX: usize = 1 << 30;
/// Properties that an entry can hold, so that its head stays well below the rest of those 32 bits.
const PROPERTIES_MAX: usize = 1 << 14;

/// Whether every length of the message fits its field in an entry. Names are limited by their parsers; properties and bodies may come
/// from callers that did not check them.
pub(in crate::embedded) fn fits(message: &StoredMessage) -> bool {
    let mut properties = message.properties.iter();
    message.body.len() <= BODY_BYTES_MAX
        && message.properties.len() <= PROPERTIES_MAX
        && properties
            .all(|(name, value)| name.len() <= usize::from(u8::MAX) && value.len() <= usize::from(u16::MAX))
}

/// Appends the entry of a message that is accepted at `now`, to be stamped with its version.
pub(in crate::embedded) fn encode_fresh(
    message: &StoredMessage,
    past: Option<&Past>,
    now: Timestamp,
    lane: u32,
    out: &mut Vec<u8>,
) {
    let fresh = Sidecar {
        content_hash: message.content_hash(),
        accepted: past.and_then(|past| past.accepted).or(Some(now)),
        ready: message.due,
        attempts: past.map_or(0, |past| past.attempts),
        lost: LeaseLoss::None,
        maybe_delivered: past.is_some_and(|past| past.maybe_delivered),
        history: past.map_or(&[], |past| &past.history),
        dead: past.and_then(|past| past.dead),
    };
    encode_parts(message, &fresh, lane, out);
}

/// Appends the entry to `out`, to be stamped with its version.
pub(in crate::embedded) fn encode(stored: &Stored, lane: u32, out: &mut Vec<u8>) {
    let sidecar = Sidecar {
        content_hash: stored.content_hash,
        accepted: stored.accepted,
        ready: stored.ready,
        attempts: stored.attempts,
        lost: stored.lost,
        maybe_delivered: stored.maybe_delivered,
        history: &stored.history,
        dead: stored.dead,
    };
    encode_parts(&stored.message, &sidecar, lane, out);
}

/// Fields stored beside a message.
struct Sidecar<'a> {
    content_hash: u64,
    accepted: Option<Timestamp>,
    ready: Timestamp,
    attempts: u32,
    lost: LeaseLoss,
    maybe_delivered: bool,
    history: &'a [Attempt],
    dead: Option<(DeadReason, Timestamp)>,
}

/// Appends the entry to `out`, which stays aligned. `lane` is the number of the message's lane.
fn encode_parts(m: &StoredMessage, stored: &Sidecar<'_>, lane: u32, out: &mut Vec<u8>) {
    let start = out.len();
    let mut flags = m.body.kind() as u16;
    flags |= (stored.lost as u16) << LOST_SHIFT;
    let mut flag = |is: bool, bit: u16| {
        flags |= if is { bit } else { 0 };
        is
    };
    let has_ready = flag(stored.ready != m.due, READY);
    let has_attempts = flag(stored.attempts != 0, ATTEMPTS);
    let has_topic = flag(!m.sink.is_queue(), TOPIC);
    flag(m.tag.is_some(), TAG);
    flag(m.key.is_some(), KEY);
    flag(m.max_lateness.is_some(), LATENESS);
    flag(m.retry.is_some(), RETRY);
    let has_history = flag(!stored.history.is_empty(), HISTORY);
    flag(stored.maybe_delivered, MAYBE);
    flag(stored.dead.is_some(), DEAD);
    let has_properties = flag(!m.properties.is_empty(), PROPERTIES);
    flag(stored.accepted.is_some(), ACCEPTED);

    let id = m.id.as_str().as_bytes();
    let mut fixed = [0u8; FIXED];
    fixed[12..16].copy_from_slice(&lane.to_le_bytes());
    fixed[16..24].copy_from_slice(&stored.content_hash.to_le_bytes());
    fixed[24..30].copy_from_slice(&m.due.as_millis().to_le_bytes()[..6]);
    fixed[30..32].copy_from_slice(&flags.to_le_bytes());
    fixed[32] = rank(m.priority);
    fixed[33] = id.len() as u8;
    out.extend_from_slice(&fixed);
    out.extend_from_slice(id);
    if has_ready {
        put_time(out, stored.ready);
    }
    if has_attempts {
        out.extend_from_slice(&stored.attempts.to_le_bytes());
    }
    if has_topic {
        put_short(out, m.topic.as_str());
    }
    if let Some(tag) = &m.tag {
        put_short(out, tag.as_str());
    }
    if let Some(key) = &m.key {
        put_short(out, key.as_str());
    }
    if let Some(lateness) = m.max_lateness {
        out.extend_from_slice(&millis(lateness).to_le_bytes());
    }
    if let Some(retry) = &m.retry {
        put_retry(out, retry);
    }
    if has_history {
        put_history(out, stored.history);
    }
    if let Some((reason, at)) = stored.dead {
        out.push(reason as u8);
        put_time(out, at);
    }
    if has_properties {
        // Only the low byte of their count: the length of the head says where they end.
        out.push(m.properties.len() as u8);
        for (name, value) in m.properties.iter() {
            put_short(out, name);
            put_long(out, value);
        }
    }
    if let Some(accepted) = stored.accepted {
        put_time(out, accepted);
    }
    let head = (out.len() - start) as u32;
    out.extend_from_slice(&(m.body.len() as u32).to_le_bytes());
    out.extend_from_slice(m.body.as_bytes());
    let len = (out.len() - start).next_multiple_of(ALIGN);
    out.resize(start + len, 0);
    let entry = &mut out[start..];
    entry[36..40].copy_from_slice(&head.to_le_bytes());
    entry[0..4].copy_from_slice(&(len as u32).to_le_bytes());
}

/// A rank sorts before larger ones: the highest priority has the smallest.
fn rank(priority: Priority) -> u8 {
    9 - priority.get()
}

fn millis(span: Duration) -> u64 {
    u64::try_from(span.as_millis()).unwrap_or(u64::MAX)
}

fn put_time(out: &mut Vec<u8>, time: Timestamp) {
    out.extend_from_slice(&time.as_millis().to_le_bytes()[..6]);
}

fn put_short(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

fn put_long(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_le_bytes());
    out.extend_from_slice(text.as_bytes());
}

fn put_retry(out: &mut Vec<u8>, retry: &RetryOverride) {
    let backoff = retry.backoff.map_or(0, |backoff| backoff as u8);
    // All ones means "not set": no real value is that large.
    out.extend_from_slice(&retry.attempts.unwrap_or(u32::MAX).to_le_bytes());
    out.push(backoff);
    out.extend_from_slice(&retry.min.map_or(u64::MAX, millis).to_le_bytes());
    out.extend_from_slice(&retry.max.map_or(u64::MAX, millis).to_le_bytes());
}

fn put_history(out: &mut Vec<u8>, history: &[Attempt]) {
    let history = &history[history.len().saturating_sub(Attempt::KEPT_MAX)..];
    out.push(history.len() as u8);
    for attempt in history {
        put_time(out, attempt.at);
        out.push(attempt.outcome as u8);
        let detail = &attempt.detail;
        put_long(out, &detail[..detail.floor_char_boundary(Attempt::DETAIL_MAX)]);
    }
}
