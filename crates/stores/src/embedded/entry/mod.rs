//! How a message is written down: one self-describing, checksummed entry, the same bytes in the journal, in
//! buckets and in runs, so that moving a message is a copy.
//!
//! ```text
//!  0 length u32 (padded to 8)   4 crc32c u32 of all that follows
//!  8 version, low 32 bits      12 lane u32            16 content hash u64
//! 24 due u48                   30 flags u16           32 rank u8   33 id length u8   34 version, high 16 bits
//! 36 head length u32
//! 40 id, then what the flags announce: ready, attempts, topic, tag, key, lateness, retry, history, end, properties, accepted
//!    = the head; then body length u32, body, padding
//! ```
//! The head is what is kept of a finished message. Properties are the low byte of their count, then name and value of
//! each: they fill what the rest of the head leaves, so that there may be more of them than a byte counts.

mod read;
mod write;

use duly_core::{Attempt, DeadReason, LeaseLoss, Record, State, StoredMessage, Timestamp};

pub(in crate::embedded) use read::{decode, decode_head};
pub(in crate::embedded) use write::{encode, encode_fresh, fits};

/// Bytes before the id.
pub(in crate::embedded) const FIXED: usize = 40;
/// Entries begin at multiples of this, so that a position needs only 32 bits.
pub(in crate::embedded) const ALIGN: usize = 8;

/// Bytes of an instant.
const TIME_BYTES: usize = 6;

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
/// Entries of the first versions do not have it.
const ACCEPTED: u16 = 1 << 15;

/// A message with all that the store keeps beside it.
#[derive(Debug, Clone)]
pub(in crate::embedded) struct Stored {
    pub(in crate::embedded) message: StoredMessage,
    pub(in crate::embedded) content_hash: u64,
    pub(in crate::embedded) version: u64,
    pub(in crate::embedded) accepted: Option<Timestamp>,
    pub(in crate::embedded) ready: Timestamp,
    pub(in crate::embedded) attempts: u32,
    pub(in crate::embedded) lost: LeaseLoss,
    pub(in crate::embedded) maybe_delivered: bool,
    pub(in crate::embedded) history: Vec<Attempt>,
    pub(in crate::embedded) dead: Option<(DeadReason, Timestamp)>,
}

impl Stored {
    /// Adds a try to the history, which keeps the latest.
    pub(in crate::embedded) fn remember(&mut self, attempt: Attempt) {
        self.maybe_delivered |= attempt.outcome.maybe_delivered();
        Attempt::remember(&mut self.history, attempt);
    }

    pub(in crate::embedded) fn into_record(self, state: State) -> Record {
        let mut record = Record::accepted(self.message, self.accepted);
        (record.state, record.ready, record.attempts) = (state, self.ready, self.attempts);
        (record.history, record.maybe_delivered) = (self.history, self.maybe_delivered);
        (record.reason, record.ended) = self.dead.unzip();
        record
    }
}

/// The entry's bytes are not an entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(in crate::embedded) struct Garbled;

/// A view of an entry that is not decoded.
#[derive(Clone, Copy)]
pub(in crate::embedded) struct Peek<'a>(&'a [u8]);

impl<'a> Peek<'a> {
    /// The entry at the start of `bytes`, its checksum verified.
    pub(in crate::embedded) fn checked(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let entry = Self::framed(bytes)?;
        let crc = u32::from_le_bytes(field(entry.0, 4)?);
        if crc32c::crc32c(&entry.0[8..]) != crc { Err(Garbled) } else { Ok(entry) }
    }

    /// The entry at the start of `bytes`, for bytes that were verified before.
    pub(in crate::embedded) fn framed(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let len = u32::from_le_bytes(field(bytes, 0)?) as usize;
        if len < FIXED || !len.is_multiple_of(ALIGN) || len > bytes.len() {
            return Err(Garbled);
        }
        let entry = Self(&bytes[..len]);
        let head = entry.head_len();
        if head < FIXED + usize::from(bytes[33]) || head > len { Err(Garbled) } else { Ok(entry) }
    }

    /// The beginning of an entry whose end was not read: enough for its key.
    pub(in crate::embedded) fn start(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let id = bytes.get(33).copied().map(usize::from).ok_or(Garbled)?;
        if bytes.len() < FIXED + id + 6 { Err(Garbled) } else { Ok(Self(bytes)) }
    }

    /// The head of an entry, which is kept of a finished message.
    pub(in crate::embedded) fn of_head(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let id = bytes.get(33).copied().map(usize::from).ok_or(Garbled)?;
        if bytes.len() < FIXED + id { Err(Garbled) } else { Ok(Self(bytes)) }
    }

    /// How long an entry that begins with `bytes` says it is.
    pub(in crate::embedded) fn length(bytes: &[u8]) -> Result<usize, Garbled> {
        let len = u32::from_le_bytes(field(bytes, 0)?) as usize;
        if len < FIXED || !len.is_multiple_of(ALIGN) { Err(Garbled) } else { Ok(len) }
    }

    /// The same, if what is there of its head and body agrees. So one changed byte does not make a small entry a huge one.
    pub(in crate::embedded) fn sure_length(bytes: &[u8]) -> Result<usize, Garbled> {
        let len = Self::length(bytes)?;
        let head = u32::from_le_bytes(field(bytes, 36)?) as usize;
        match field(bytes, head).map(u32::from_le_bytes) {
            Ok(body) if (head + 4 + body as usize).next_multiple_of(ALIGN) != len => Err(Garbled),
            _ if head > len => Err(Garbled),
            _ => Ok(len),
        }
    }

    pub(in crate::embedded) fn len(self) -> usize {
        self.0.len()
    }

    /// The bytes of the entry.
    pub(in crate::embedded) fn bytes(self) -> &'a [u8] {
        self.0
    }

    pub(in crate::embedded) fn version(self) -> u64 {
        version_in(self.0)
    }

    pub(in crate::embedded) fn lane(self) -> u32 {
        u32::from_le_bytes(self.array(12))
    }

    pub(in crate::embedded) fn content_hash(self) -> u64 {
        u64::from_le_bytes(self.array(16))
    }

    pub(in crate::embedded) fn due(self) -> Timestamp {
        self.time(24)
    }

    fn flags(self) -> u16 {
        u16::from_le_bytes(self.array(30))
    }

    pub(in crate::embedded) fn rank(self) -> u8 {
        self.0[32]
    }

    pub(in crate::embedded) fn id_text(self) -> &'a str {
        std::str::from_utf8(&self.0[FIXED..FIXED + usize::from(self.0[33])]).unwrap_or("")
    }

    pub(in crate::embedded) fn ready(self) -> Timestamp {
        if self.flags() & READY == 0 { self.due() } else { self.time(FIXED + usize::from(self.0[33])) }
    }

    pub(in crate::embedded) fn is_dead(self) -> bool {
        self.flags() & DEAD != 0
    }

    pub(in crate::embedded) fn is_lost(self) -> bool {
        self.flags() >> LOST_SHIFT & 3 != 0
    }

    pub(in crate::embedded) fn maybe_delivered(self) -> bool {
        self.flags() & MAYBE != 0
    }

    fn head_len(self) -> usize {
        u32::from_le_bytes(self.array(36)) as usize
    }

    /// The record kept of a finished message.
    pub(in crate::embedded) fn head(self) -> &'a [u8] {
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

/// The version in the fixed part of an entry or of a head.
pub(in crate::embedded) fn version_in(head: &[u8]) -> u64 {
    let low = u32::from_le_bytes([head[8], head[9], head[10], head[11]]);
    u64::from(low) | u64::from(u16::from_le_bytes([head[34], head[35]])) << 32
}

/// Gives an entry its version, and with it its checksum. Versions are given in the order of the journal: the larger one of
/// an id is the later one. 48 bits last for years at any rate.
pub(in crate::embedded) fn stamp(entry: &mut [u8], version: u64) {
    let bytes = version.to_le_bytes();
    entry[8..12].copy_from_slice(&bytes[..4]);
    entry[34..36].copy_from_slice(&bytes[4..6]);
    let crc = crc32c::crc32c(&entry[8..]);
    entry[4..8].copy_from_slice(&crc.to_le_bytes());
}

/// Names another lane. The entry is stamped after this.
pub(in crate::embedded) fn set_lane(entry: &mut [u8], lane: u32) {
    entry[12..16].copy_from_slice(&lane.to_le_bytes());
}

fn field<const N: usize>(bytes: &[u8], at: usize) -> Result<[u8; N], Garbled> {
    bytes.get(at..at + N).and_then(|part| part.try_into().ok()).ok_or(Garbled)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use duly_core::{Body, Lane, MessageId, StoredMessage, Timestamp};

    use super::*;

    #[test]
    fn an_entry_of_before_there_was_a_time_of_acceptance_is_still_read() {
        let id = MessageId::parse("a").unwrap();
        let mut message =
            StoredMessage::new(id, "kafka".parse().unwrap(), "t".parse().unwrap(), Timestamp::from_millis(9));
        message.properties.set("color", "red").unwrap();
        message.body = Body::text("hello");
        let (lane, now) = (Lane::Sink(message.sink.clone()), Timestamp::from_millis(3));
        let read = |mut bytes: Vec<u8>| {
            stamp(&mut bytes, 1);
            assert!(Peek::checked(&bytes).is_ok());
            decode(&Bytes::from(bytes), &lane).unwrap()
        };
        let mut bytes = Vec::new();
        encode_fresh(&message, None, now, 1, &mut bytes);
        let mut stored = read(bytes);
        assert_eq!((&stored.message, stored.accepted), (&message, Some(now)));

        stored.accepted = None;
        let mut bytes = Vec::new();
        encode(&stored, 1, &mut bytes);
        assert_eq!(Peek::framed(&bytes).unwrap().flags() & ACCEPTED, 0);
        let before = read(bytes);
        assert_eq!((before.message, before.accepted), (message, None));
    }
}
