//! How a message is written down: one self-describing, checksummed entry, the same bytes in the journal, in
//! buckets and in runs, so that moving a message is a copy.
//!
//! ```text
//!  0 length u32 (padded to 8)   4 crc32c u32 of all that follows
//!  8 version u32               12 lane u32            16 content hash u64
//! 24 due u48                   30 flags u16           32 rank u8   33 id length u8
//! 36 head length u32
//! 40 id, then what the flags announce: ready, attempts, topic, tag, key, lateness, retry, history, end, properties
//!    = the head; then body length u32, body, padding
//! ```
//! The head is what is kept of a finished message.

use std::time::Duration;

use bytes::Bytes;
use duly_core::{
    Attempt, Backoff, Body, ContentKind, DeadReason, Key, Lane, Lost, Message, MessageId, Outcome, Priority,
    Properties, Record, RetryOverride, SinkName, State, Tag, Timestamp, Topic,
};

/// Bytes before the id.
pub(super) const FIXED: usize = 40;
/// Entries begin at multiples of this, so that a place needs only 32 bits.
pub(super) const ALIGN: usize = 8;

const READY: u16 = 1 << 2;
const TAG: u16 = 1 << 3;
const KEY: u16 = 1 << 4;
const PROPERTIES: u16 = 1 << 5;
const LATENESS: u16 = 1 << 6;
const RETRY: u16 = 1 << 7;
const HISTORY: u16 = 1 << 8;
const MAYBE: u16 = 1 << 9;
const LOST_SHIFT: u16 = 10;
const DEAD: u16 = 1 << 12;
const TOPIC: u16 = 1 << 13;
const ATTEMPTS: u16 = 1 << 14;

/// A message with all that the store keeps beside it.
#[derive(Debug, Clone)]
pub(super) struct Stored {
    pub(super) message: Message,
    pub(super) content_hash: u64,
    pub(super) version: u32,
    pub(super) ready: Timestamp,
    pub(super) attempts: u32,
    pub(super) lost: Lost,
    pub(super) maybe_delivered: bool,
    pub(super) history: Vec<Attempt>,
    pub(super) dead: Option<(DeadReason, Timestamp)>,
}

impl Stored {
    /// Adds a try to the history, which keeps the latest.
    pub(super) fn remember(&mut self, attempt: Attempt) {
        self.maybe_delivered |= attempt.outcome.maybe_delivered();
        if self.history.len() >= Attempt::KEPT_MAX {
            self.history.remove(0);
        }
        self.history.push(attempt);
    }

    pub(super) fn into_record(self, state: State) -> Record {
        Record {
            state,
            ready: self.ready,
            attempts: self.attempts,
            history: self.history,
            maybe_delivered: self.maybe_delivered,
            ended: self.dead.map(|(_, at)| at),
            receipt: None,
            reason: self.dead.map(|(reason, _)| reason),
            message: self.message,
        }
    }
}

/// Appends the entry of a message just accepted.
pub(super) fn encode_fresh(message: &Message, version: u32, lane: u32, out: &mut Vec<u8>) {
    let fresh = Beside {
        content_hash: message.content_hash(),
        ready: message.due,
        attempts: 0,
        lost: Lost::No,
        maybe_delivered: false,
        history: &[],
        dead: None,
    };
    encode_parts(message, &fresh, version, lane, out);
}

/// Appends the entry to `out`.
pub(super) fn encode(stored: &Stored, version: u32, lane: u32, out: &mut Vec<u8>) {
    let beside = Beside {
        content_hash: stored.content_hash,
        ready: stored.ready,
        attempts: stored.attempts,
        lost: stored.lost,
        maybe_delivered: stored.maybe_delivered,
        history: &stored.history,
        dead: stored.dead,
    };
    encode_parts(&stored.message, &beside, version, lane, out);
}

/// What is kept beside a message.
struct Beside<'a> {
    content_hash: u64,
    ready: Timestamp,
    attempts: u32,
    lost: Lost,
    maybe_delivered: bool,
    history: &'a [Attempt],
    dead: Option<(DeadReason, Timestamp)>,
}

/// Appends the entry to `out`, which stays aligned. `lane` is the number of the message's lane.
fn encode_parts(m: &Message, stored: &Beside<'_>, version: u32, lane: u32, out: &mut Vec<u8>) {
    let start = out.len();
    let mut flags = match m.body.kind() {
        ContentKind::Text => 0,
        ContentKind::Json => 1,
        ContentKind::Bytes => 2,
    };
    let lost = match stored.lost {
        Lost::No => 0,
        Lost::InCompany => 1,
        Lost::Alone => 2,
    };
    flags |= lost << LOST_SHIFT;
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

    let id = m.id.as_str().as_bytes();
    let mut fixed = [0u8; FIXED];
    fixed[8..12].copy_from_slice(&version.to_le_bytes());
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
        out.push(m.properties.len() as u8);
        for (name, value) in m.properties.iter() {
            put_short(out, name);
            put_long(out, value);
        }
    }
    let head = (out.len() - start) as u32;
    out.extend_from_slice(&(m.body.len() as u32).to_le_bytes());
    out.extend_from_slice(m.body.as_bytes());
    let len = (out.len() - start).next_multiple_of(ALIGN);
    out.resize(start + len, 0);
    let entry = &mut out[start..];
    entry[36..40].copy_from_slice(&head.to_le_bytes());
    entry[0..4].copy_from_slice(&(len as u32).to_le_bytes());
    let crc = crc32c::crc32c(&entry[8..]);
    entry[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Priorities as they sort: the higher goes first.
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
    let backoff = match retry.backoff {
        None => 0,
        Some(Backoff::Fixed) => 1,
        Some(Backoff::Linear) => 2,
        Some(Backoff::Exponential) => 3,
    };
    // All ones stands for "not said": no real value is that large.
    out.extend_from_slice(&retry.attempts.unwrap_or(u32::MAX).to_le_bytes());
    out.push(backoff);
    out.extend_from_slice(&retry.min.map_or(u64::MAX, millis).to_le_bytes());
    out.extend_from_slice(&retry.max.map_or(u64::MAX, millis).to_le_bytes());
}

fn put_history(out: &mut Vec<u8>, history: &[Attempt]) {
    out.push(history.len() as u8);
    for attempt in history {
        put_time(out, attempt.at);
        out.push(attempt.outcome as u8);
        put_long(out, &attempt.detail);
    }
}

/// The entry's bytes are not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Garbled;

/// A look at an entry without decoding it.
#[derive(Clone, Copy)]
pub(super) struct Peek<'a>(&'a [u8]);

impl<'a> Peek<'a> {
    /// The entry at the start of `bytes`, its checksum verified.
    pub(super) fn checked(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let entry = Self::framed(bytes)?;
        let crc = u32::from_le_bytes(field(entry.0, 4)?);
        if crc32c::crc32c(&entry.0[8..]) != crc { Err(Garbled) } else { Ok(entry) }
    }

    /// The entry at the start of `bytes`, for bytes that were verified before.
    pub(super) fn framed(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let len = u32::from_le_bytes(field(bytes, 0)?) as usize;
        if len < FIXED || !len.is_multiple_of(ALIGN) || len > bytes.len() {
            return Err(Garbled);
        }
        let entry = Self(&bytes[..len]);
        let head = entry.head_len();
        if head < FIXED + usize::from(bytes[33]) || head > len { Err(Garbled) } else { Ok(entry) }
    }

    /// The beginning of an entry whose end was not read: enough for its key.
    pub(super) fn start(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let id = bytes.get(33).copied().map(usize::from).ok_or(Garbled)?;
        if bytes.len() < FIXED + id + 6 { Err(Garbled) } else { Ok(Self(bytes)) }
    }

    /// How long an entry that begins with `bytes` says it is.
    pub(super) fn length(bytes: &[u8]) -> Result<usize, Garbled> {
        let len = u32::from_le_bytes(field(bytes, 0)?) as usize;
        if len < FIXED || !len.is_multiple_of(ALIGN) { Err(Garbled) } else { Ok(len) }
    }

    pub(super) fn len(self) -> usize {
        self.0.len()
    }

    pub(super) fn version(self) -> u32 {
        u32::from_le_bytes(self.array(8))
    }

    pub(super) fn lane(self) -> u32 {
        u32::from_le_bytes(self.array(12))
    }

    pub(super) fn content_hash(self) -> u64 {
        u64::from_le_bytes(self.array(16))
    }

    pub(super) fn due(self) -> Timestamp {
        self.time(24)
    }

    fn flags(self) -> u16 {
        u16::from_le_bytes(self.array(30))
    }

    pub(super) fn rank(self) -> u8 {
        self.0[32]
    }

    pub(super) fn id_text(self) -> &'a str {
        std::str::from_utf8(&self.0[FIXED..FIXED + usize::from(self.0[33])]).unwrap_or("")
    }

    pub(super) fn ready(self) -> Timestamp {
        if self.flags() & READY == 0 { self.due() } else { self.time(FIXED + usize::from(self.0[33])) }
    }

    pub(super) fn is_dead(self) -> bool {
        self.flags() & DEAD != 0
    }

    pub(super) fn is_lost(self) -> bool {
        self.flags() >> LOST_SHIFT & 3 != 0
    }

    pub(super) fn maybe_delivered(self) -> bool {
        self.flags() & MAYBE != 0
    }

    fn head_len(self) -> usize {
        u32::from_le_bytes(self.array(36)) as usize
    }

    /// What is kept of a finished message.
    pub(super) fn head(self) -> &'a [u8] {
        &self.0[..self.head_len()]
    }

    /// A field of the fixed part, which `framed` made sure is there.
    fn array<const N: usize>(self, at: usize) -> [u8; N] {
        let mut bytes = [0; N];
        bytes.copy_from_slice(&self.0[at..at + N]);
        bytes
    }

    fn time(self, at: usize) -> Timestamp {
        let mut bytes = [0; 8];
        if let Some(six) = self.0.get(at..at + 6) {
            bytes[..6].copy_from_slice(six);
        }
        Timestamp::from_millis(u64::from_le_bytes(bytes))
    }
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Garbled> {
    bytes.get(at..at + N).and_then(|part| part.try_into().ok()).ok_or(Garbled)
}

/// Reads a whole entry; the body shares `bytes`.
pub(super) fn decode(bytes: &Bytes, lane: &Lane) -> Result<Stored, Garbled> {
    let peek = Peek::framed(bytes)?;
    let (mut stored, rest) = decode_head(peek.0, lane)?;
    let kind = match peek.flags() & 3 {
        0 => ContentKind::Text,
        1 => ContentKind::Json,
        _ => ContentKind::Bytes,
    };
    let len = u32::from_le_bytes(field(rest, 0)?) as usize;
    let from = peek.len() - rest.len() + 4;
    if from + len > peek.len() {
        return Err(Garbled);
    }
    stored.message.body = Body::from_parts(kind, bytes.slice(from..from + len));
    Ok(stored)
}

/// Reads the head of an entry: everything but the body. Also says what follows it.
pub(super) fn decode_head<'a>(bytes: &'a [u8], lane: &Lane) -> Result<(Stored, &'a [u8]), Garbled> {
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
    };
    let mut message = Message::new(id, sink, topic, peek.due());
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
        message.properties = take_properties(&mut rest)?;
    }
    let lost = match flags >> LOST_SHIFT & 3 {
        0 => Lost::No,
        1 => Lost::InCompany,
        _ => Lost::Alone,
    };
    let stored = Stored {
        message,
        content_hash: peek.content_hash(),
        version: peek.version(),
        ready,
        attempts,
        lost,
        maybe_delivered: peek.maybe_delivered(),
        history,
        dead,
    };
    Ok((stored, rest))
}

pub(super) fn take<const N: usize>(rest: &mut &[u8]) -> Result<[u8; N], Garbled> {
    let part = field(rest, 0)?;
    *rest = &rest[N..];
    Ok(part)
}

pub(super) fn take_time(rest: &mut &[u8]) -> Result<Timestamp, Garbled> {
    let six: [u8; 6] = take(rest)?;
    let mut bytes = [0; 8];
    bytes[..6].copy_from_slice(&six);
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

pub(super) fn take_long<'a>(rest: &mut &'a [u8]) -> Result<&'a str, Garbled> {
    let len = u16::from_le_bytes(take(rest)?);
    take_text(rest, usize::from(len))
}

fn take_properties(rest: &mut &[u8]) -> Result<Properties, Garbled> {
    let [count] = take(rest)?;
    let mut properties = Properties::default();
    for _ in 0..count {
        let name = take_short(rest)?;
        properties.put(name, take_long(rest)?);
    }
    Ok(properties)
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
            1 => Some(Backoff::Fixed),
            2 => Some(Backoff::Linear),
            3 => Some(Backoff::Exponential),
            _ => return Err(Garbled),
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
            let detail = take_long(rest)?.to_owned();
            Ok(Attempt { at, outcome: outcome_of(outcome)?, detail })
        })
        .collect()
}

fn outcome_of(byte: u8) -> Result<Outcome, Garbled> {
    use Outcome::{Again, Delivered, Failed, Lost, Misconfigured, Refused, Throttled, Unknown, Unreachable};
    [Delivered, Unreachable, Throttled, Unknown, Refused, Misconfigured, Again, Failed, Lost]
        .into_iter()
        .find(|outcome| *outcome as u8 == byte)
        .ok_or(Garbled)
}

fn take_reason(rest: &mut &[u8]) -> Result<DeadReason, Garbled> {
    let [byte] = take(rest)?;
    [DeadReason::Exhausted, DeadReason::Refused, DeadReason::Expired, DeadReason::Invalid]
        .into_iter()
        .find(|reason| *reason as u8 == byte)
        .ok_or(Garbled)
}
