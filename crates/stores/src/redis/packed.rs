//! One message as one string, as `prelude.lua` says: what scripts read is at the front, the body last.
//!
//! A message that was never tried has no life, one with nothing but a topic and a body has no head: it costs 23 bytes
//! beside its topic and its body, 6 of them for when it was accepted.

use std::time::Duration;

use bytes::Bytes;
use duly_core::{
    Attempt, Backoff, Body, ContentKind, DeadReason, Key, LeaseLoss, MessageId, Outcome, Priority,
    Properties, Record, RetryOverride, SinkName, State, StoredMessage, Tag, Timestamp, Topic, store::Insert,
};

use super::keys::{six, time};
use crate::shared::claim_order::rank;

const FIXED: usize = 17;
/// Beside the state. Messages of the first versions do not say when they were accepted.
const ACCEPTED: u8 = 8;
const MAYBE: u8 = 16;
const SINK: u8 = 32;
const LIFE: u8 = 64;
const HEAD: u8 = 128;

/// The number of the reason of what is not dead.
const NO_REASON: u8 = 255;

/// What the head has, in its order.
const HAS_TOPIC: u8 = 1;
const HAS_TAG: u8 = 2;
const HAS_KEY: u8 = 4;
const HAS_LATENESS: u8 = 8;
const HAS_RETRY: u8 = 16;
const HAS_PROPERTIES: u8 = 32;

/// What was read is no message.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Garbled;

/// Packs a message as it is inserted at `now`.
pub(super) fn pack_insert(insert: &Insert, now: Timestamp) -> Vec<u8> {
    if insert.past.is_none() {
        return pack(&insert.message, now);
    }
    let record = insert.clone().into_record(now);
    let life = life(&record);
    pack_parts(&record.message, (record.state, record.maybe_delivered), record.accepted.unwrap_or(now), &life)
}

/// Packs a message that is accepted at `now`.
pub(super) fn pack(message: &StoredMessage, now: Timestamp) -> Vec<u8> {
    pack_parts(message, (State::Pending, false), now, &[])
}

fn pack_parts(
    message: &StoredMessage,
    (state, maybe_delivered): (State, bool),
    accepted: Timestamp,
    life: &[u8],
) -> Vec<u8> {
    let head = head(message);
    let is_sink = !message.sink.is_queue();
    let lane = if is_sink { message.sink.as_str() } else { message.topic.as_str() };
    let mut out =
        Vec::with_capacity(FIXED + lane.len() + 6 + 4 + life.len() + 4 + head.len() + message.body.len());
    let kind = message.body.kind() as u8;
    let flag = |is: bool, bit: u8| if is { bit } else { 0 };
    let flags = kind
        | flag(is_sink, SINK)
        | flag(maybe_delivered, MAYBE)
        | flag(!life.is_empty(), LIFE)
        | flag(!head.is_empty(), HEAD);
    out.push(state_number(state) + ACCEPTED + 16 * rank(message.priority));
    out.push(flags);
    out.extend_from_slice(&six(message.due));
    out.extend_from_slice(&message.content_hash().to_be_bytes());
    put_short(&mut out, lane);
    out.extend_from_slice(&six(accepted));
    for part in [life, &head] {
        if !part.is_empty() {
            out.extend_from_slice(&(part.len() as u32).to_be_bytes());
            out.extend_from_slice(part);
        }
    }
    out.extend_from_slice(message.body.as_bytes());
    out
}

/// What happened to a message before it was inserted; nothing, if nothing did. It has no receipt: it was not delivered.
fn life(record: &Record) -> Vec<u8> {
    if record.attempts == 0 && record.history.is_empty() && record.state == State::Pending {
        return Vec::new();
    }
    let mut out = six(record.ready).to_vec();
    out.extend_from_slice(&record.attempts.to_be_bytes());
    out.extend_from_slice(&six(record.ended.unwrap_or_default()));
    out.push(record.reason.map_or(NO_REASON, |reason| reason as u8));
    out.extend_from_slice(&0_u32.to_be_bytes());
    out.push(record.history.len() as u8);
    record.history.iter().for_each(|attempt| out.extend_from_slice(&pack_attempt(attempt)));
    out
}

fn head(message: &StoredMessage) -> Vec<u8> {
    let mut out = vec![0];
    let mut has = 0;
    if !message.sink.is_queue() {
        has |= HAS_TOPIC;
        put_short(&mut out, message.topic.as_str());
    }
    if let Some(tag) = &message.tag {
        has |= HAS_TAG;
        put_short(&mut out, tag.as_str());
    }
    if let Some(key) = &message.key {
        has |= HAS_KEY;
        put_short(&mut out, key.as_str());
    }
    if let Some(lateness) = message.max_lateness {
        has |= HAS_LATENESS;
        out.extend_from_slice(&millis(Some(lateness)).to_be_bytes());
    }
    if let Some(retry) = &message.retry {
        has |= HAS_RETRY;
        out.extend_from_slice(&retry.attempts.unwrap_or(u32::MAX).to_be_bytes());
        out.push(retry.backoff.map_or(0, |backoff| backoff as u8));
        out.extend_from_slice(&millis(retry.min).to_be_bytes());
        out.extend_from_slice(&millis(retry.max).to_be_bytes());
    }
    if !message.properties.is_empty() {
        has |= HAS_PROPERTIES;
        out.extend_from_slice(&(message.properties.len() as u16).to_be_bytes());
        for (name, value) in message.properties.iter() {
            put_short(&mut out, name);
            put_long(&mut out, value);
        }
    }
    if has == 0 {
        return Vec::new();
    }
    out[0] = has;
    out
}

/// All ones stands for "not said": no real value is that large.
fn millis(span: Option<Duration>) -> u64 {
    span.map_or(u64::MAX, |span| u64::try_from(span.as_millis()).unwrap_or(u64::MAX).min(u64::MAX - 1))
}

fn put_short(out: &mut Vec<u8>, text: &str) {
    out.push(text.len() as u8);
    out.extend_from_slice(text.as_bytes());
}

fn put_long(out: &mut Vec<u8>, text: &str) {
    out.extend_from_slice(&(text.len() as u16).to_be_bytes());
    out.extend_from_slice(text.as_bytes());
}

/// Packs a try.
pub(super) fn pack_attempt(attempt: &Attempt) -> Vec<u8> {
    let mut out = six(attempt.at).to_vec();
    out.push(attempt.outcome as u8);
    put_long(&mut out, &attempt.detail);
    out
}

/// How scripts name a state.
pub(super) fn state_number(state: State) -> u8 {
    state as u8
}

/// Reads [`state_number`] back.
pub(super) fn state_of(number: u8) -> Option<State> {
    State::from_u8(number)
}

/// What was packed, with what only the store needs to know of it.
#[derive(Debug)]
pub(super) struct Unpacked {
    pub(super) record: Record,
    pub(super) lost: LeaseLoss,
}

/// Reads a packed message; the body shares `packed`. Whether it is in flight is written elsewhere.
pub(super) fn unpack(id: MessageId, packed: &Bytes) -> Result<Unpacked, Garbled> {
    let mut rest = Rest(packed);
    let (first, flags) = (rest.byte()?, rest.byte()?);
    let due = rest.time()?;
    rest.array::<8>()?;
    let lane = rest.short()?;
    let (sink, topic) = if flags & SINK == 0 {
        (SinkName::queue(), Some(Topic::parse(lane).map_err(|_| Garbled)?))
    } else {
        (SinkName::parse(lane).map_err(|_| Garbled)?, None)
    };
    let accepted = if first & ACCEPTED == 0 { None } else { Some(rest.time()?) };
    let life = if flags & LIFE == 0 { None } else { Some(rest.long_part()?) };
    let head = if flags & HEAD == 0 { &[][..] } else { rest.long_part()? };
    let kind = ContentKind::from_u8(flags & 3).unwrap_or_default();
    let body = packed.slice(packed.len() - rest.0.len()..);
    let mut message = read_head(id, sink, topic, due, head)?;
    message.priority = Priority::new(9u8.checked_sub(first >> 4).ok_or(Garbled)?).map_err(|_| Garbled)?;
    message.body = Body::from_parts(kind, body);
    let mut record = Record::accepted(message, accepted);
    record.state = state_of(first & 15 & !ACCEPTED).ok_or(Garbled)?;
    record.maybe_delivered = flags & MAYBE != 0;
    if let Some(life) = life {
        read_life(life, &mut record)?;
    }
    let lost =
        [LeaseLoss::None, LeaseLoss::InBatch, LeaseLoss::Alone].get(usize::from(flags >> 2 & 3)).copied();
    Ok(Unpacked { record, lost: lost.ok_or(Garbled)? })
}

fn read_head(
    id: MessageId,
    sink: SinkName,
    topic: Option<Topic>,
    due: Timestamp,
    head: &[u8],
) -> Result<StoredMessage, Garbled> {
    let mut rest = Rest(head);
    let has = if head.is_empty() { 0 } else { rest.byte()? };
    let topic = match topic {
        Some(topic) => topic,
        None => Topic::parse(rest.short()?).map_err(|_| Garbled)?,
    };
    let mut message = StoredMessage::new(id, sink, topic, due);
    if has & HAS_TAG != 0 {
        message.tag = Some(Tag::parse(rest.short()?).map_err(|_| Garbled)?);
    }
    if has & HAS_KEY != 0 {
        message.key = Some(Key::parse(rest.short()?).map_err(|_| Garbled)?);
    }
    if has & HAS_LATENESS != 0 {
        message.max_lateness = rest.span()?;
    }
    if has & HAS_RETRY != 0 {
        let attempts = u32::from_be_bytes(rest.array()?);
        let backoff = match rest.byte()? {
            0 => None,
            number => Some(Backoff::from_u8(number).ok_or(Garbled)?),
        };
        let attempts = (attempts != u32::MAX).then_some(attempts);
        let (min, max) = (rest.span()?, rest.span()?);
        message.retry = Some(Box::new(RetryOverride { attempts, backoff, min, max }));
    }
    if has & HAS_PROPERTIES != 0 {
        let mut properties = Properties::default();
        for _ in 0..u16::from_be_bytes(rest.array()?) {
            let name = rest.short()?;
            properties.put(name, rest.long()?);
        }
        message.properties = properties;
    }
    Ok(message)
}

fn read_life(life: &[u8], record: &mut Record) -> Result<(), Garbled> {
    let mut rest = Rest(life);
    record.ready = rest.time()?;
    record.attempts = u32::from_be_bytes(rest.array()?);
    let ended = rest.time()?;
    record.ended = (ended != Timestamp::default()).then_some(ended);
    record.reason = match rest.byte()? {
        NO_REASON => None,
        number => Some(DeadReason::from_u8(number).ok_or(Garbled)?),
    };
    // One byte stands before a receipt, so that an empty one is still one.
    if let [_, receipt @ ..] = rest.long_part()? {
        record.receipt = Some(std::str::from_utf8(receipt).map_err(|_| Garbled)?.to_owned());
    }
    for _ in 0..rest.byte()? {
        let at = rest.time()?;
        let outcome = outcome_of(rest.byte()?)?;
        record.history.push(Attempt::new(at, outcome, rest.long()?));
    }
    // Scripts refuse a history with more behind it, so it is none here, too.
    if rest.0.is_empty() { Ok(()) } else { Err(Garbled) }
}

fn outcome_of(number: u8) -> Result<Outcome, Garbled> {
    Outcome::from_u8(number).ok_or(Garbled)
}

/// What is left to read.
struct Rest<'a>(&'a [u8]);

impl<'a> Rest<'a> {
    fn part(&mut self, len: usize) -> Result<&'a [u8], Garbled> {
        let (part, rest) = self.0.split_at_checked(len).ok_or(Garbled)?;
        self.0 = rest;
        Ok(part)
    }

    fn array<const N: usize>(&mut self) -> Result<[u8; N], Garbled> {
        self.part(N)?.try_into().map_err(|_| Garbled)
    }

    fn byte(&mut self) -> Result<u8, Garbled> {
        Ok(self.array::<1>()?[0])
    }

    fn time(&mut self) -> Result<Timestamp, Garbled> {
        time(self.part(6)?).ok_or(Garbled)
    }

    fn span(&mut self) -> Result<Option<Duration>, Garbled> {
        let millis = u64::from_be_bytes(self.array()?);
        Ok((millis != u64::MAX).then(|| Duration::from_millis(millis)))
    }

    fn text(&mut self, len: usize) -> Result<&'a str, Garbled> {
        std::str::from_utf8(self.part(len)?).map_err(|_| Garbled)
    }

    fn short(&mut self) -> Result<&'a str, Garbled> {
        let len = self.byte()?;
        self.text(usize::from(len))
    }

    fn long(&mut self) -> Result<&'a str, Garbled> {
        let len = u16::from_be_bytes(self.array()?);
        self.text(usize::from(len))
    }

    fn long_part(&mut self) -> Result<&'a [u8], Garbled> {
        let len = u32::from_be_bytes(self.array()?);
        self.part(len as usize)
    }
}

#[cfg(test)]
mod tests;
