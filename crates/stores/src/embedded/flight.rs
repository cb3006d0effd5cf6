//! What is claimed now: leases, tokens, and the log that lets a crash be counted.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex},
};

use duly_core::{MessageId, Monotonic, Timestamp, store::Holder};

use super::{disk::DiskFile, index::Place, locked, numbers::Numbered};

/// One claimed message.
#[derive(Debug, Clone)]
pub(super) struct Held {
    pub(super) id: MessageId,
    pub(super) hash: u64,
    pub(super) place: Place,
    pub(super) lane: u32,
    pub(super) ready: Timestamp,
    pub(super) version: u64,
    pub(super) holder: Holder,
    /// Claimed alone because its last claim was lost.
    pub(super) alone: bool,
    pub(super) lease_end: Monotonic,
    /// What will be kept of it once it is delivered; empty if it must be read first.
    pub(super) head: Box<[u8]>,
    /// Bytes of its entry.
    pub(super) bytes: u32,
    /// Its place among equals in time.
    pub(super) rank: u8,
}

/// All claimed messages by their token.
#[derive(Default)]
pub(super) struct Flight {
    held: HashMap<u64, Held, Numbered>,
    /// When leases end, a claim's worth at a time: the first token, and how many follow one another. A renewed one is met
    /// again under its later end.
    ends: BTreeMap<(Monotonic, u64), u64>,
    next_token: u64,
}

impl Flight {
    pub(super) fn starting_at(next_token: u64) -> Self {
        Self { next_token, ..Self::default() }
    }

    pub(super) fn len(&self) -> usize {
        self.held.len()
    }

    /// Takes a token, larger than every one before.
    pub(super) fn token(&mut self) -> u64 {
        self.next_token += 1;
        self.next_token
    }

    /// Adds claims whose leases end together; their tokens follow one another.
    pub(super) fn hold(&mut self, end: Monotonic, claims: Vec<(u64, Held)>) {
        if let Some((first, _)) = claims.first() {
            self.ends.insert((end, *first), claims.len() as u64);
        }
        self.held.extend(claims);
    }

    pub(super) fn get(&self, token: u64, id: &MessageId) -> Option<&Held> {
        self.held.get(&token).filter(|held| held.id == *id)
    }

    /// The claim, if it is still its holder's at `now`.
    pub(super) fn valid(&self, token: u64, id: &MessageId, now: Monotonic) -> Option<&Held> {
        self.get(token, id).filter(|held| held.lease_end > now)
    }

    pub(super) fn take(&mut self, token: u64) -> Option<Held> {
        self.held.remove(&token)
    }

    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut Held> {
        self.held.get_mut(&token)
    }

    /// A claimed message was moved. Only a claim that outlived a restart can be in a bucket, so this is rare.
    pub(super) fn moved(&mut self, from: Place, to: Place) {
        if let Some(held) = self.held.values_mut().find(|held| held.place == from) {
            held.place = to;
        }
    }

    pub(super) fn extend(&mut self, token: u64, end: Monotonic) {
        if let Some(held) = self.held.get_mut(&token) {
            held.lease_end = end;
            self.ends.entry((end, token)).or_insert(1);
        }
    }

    /// Up to `limit` claims whose lease has ended by `now`.
    pub(super) fn ended(&mut self, now: Monotonic, limit: usize) -> Vec<u64> {
        let mut ended = Vec::new();
        while ended.len() < limit {
            let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= now) else { break };
            let ((_, first), count) = entry.remove_entry();
            for token in first..first + count {
                match self.held.get(&token) {
                    Some(held) if held.lease_end <= now => ended.push(token),
                    _ => {}
                }
            }
        }
        ended
    }

    /// Puts back what `ended` gave and could not be dealt with.
    pub(super) fn ended_again(&mut self, token: u64, at: Monotonic) {
        self.ends.entry((at, token)).or_insert(1);
    }

    pub(super) fn next_end(&self) -> Option<Monotonic> {
        self.ends.first_key_value().map(|((end, _), _)| *end)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Held)> {
        self.held.iter().map(|(token, held)| (*token, held))
    }
}

/// Bytes of one note of the claims log.
const NOTE: usize = 32;
const CLIENT: u8 = 1;
const ALONE: u8 = 2;
const RELEASED: u8 = 4;

/// A claim, or the end of one that leaves no trace in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Note {
    pub(super) hash: u64,
    pub(super) token: u64,
    pub(super) version: u64,
    pub(super) lease_ms: u32,
    pub(super) client: bool,
    pub(super) alone: bool,
    /// Handed back: the claim never happened.
    pub(super) released: bool,
}

impl Note {
    fn write(self, out: &mut Vec<u8>) {
        let start = out.len();
        out.extend_from_slice(&self.hash.to_le_bytes());
        out.extend_from_slice(&self.token.to_le_bytes());
        let version = self.version.to_le_bytes();
        out.extend_from_slice(&version[..4]);
        out.extend_from_slice(&self.lease_ms.to_le_bytes());
        let client = if self.client { CLIENT } else { 0 };
        let alone = if self.alone { ALONE } else { 0 };
        let released = if self.released { RELEASED } else { 0 };
        out.extend_from_slice(&[client | alone | released, 0, version[4], version[5]]);
        let crc = crc32c::crc32c(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if crc32c::crc32c(&bytes[..NOTE - 4]) != word(NOTE - 4) {
            return None;
        }
        let long = |at: usize| u64::from(word(at)) | u64::from(word(at + 4)) << 32;
        Some(Self {
            hash: long(0),
            token: long(8),
            version: u64::from(word(16)) | u64::from(u16::from_le_bytes([bytes[26], bytes[27]])) << 32,
            lease_ms: word(20),
            client: bytes[24] & CLIENT != 0,
            alone: bytes[24] & ALONE != 0,
            released: bytes[24] & RELEASED != 0,
        })
    }
}

/// The log of claims: written before the send begins, never synced. A dead process is counted; a power cut may
/// forget a claim, and then the message simply comes again.
pub(super) struct ClaimLog {
    inner: Mutex<(Arc<dyn DiskFile>, u64)>,
}

impl ClaimLog {
    /// Bytes laid down for a log before it is used, so that claims go on for a while on a full disk.
    pub(super) fn room(segment_bytes: u64) -> u64 {
        (segment_bytes / 4).min(1 << 20)
    }

    pub(super) fn new(file: Arc<dyn DiskFile>) -> Self {
        Self { inner: Mutex::new((file, 0)) }
    }

    pub(super) fn write(&self, notes: impl IntoIterator<Item = Note>) -> io::Result<()> {
        let mut bytes = Vec::new();
        notes.into_iter().for_each(|note| note.write(&mut bytes));
        if bytes.is_empty() {
            return Ok(());
        }
        let mut inner = locked(&self.inner);
        inner.0.write_at(&bytes, inner.1)?;
        inner.1 += bytes.len() as u64;
        Ok(())
    }

    /// Goes on in another file, which begins with what is held now.
    pub(super) fn switch(&self, file: Arc<dyn DiskFile>, held: &[Note]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(held.len() * NOTE);
        held.iter().for_each(|note| note.write(&mut bytes));
        let mut inner = locked(&self.inner);
        file.write_at(&bytes, 0)?;
        *inner = (file, bytes.len() as u64);
        Ok(())
    }
}

/// Reads the whole notes of a claims log. A power cut may have left any of them.
pub(super) fn read_notes(bytes: &[u8]) -> impl Iterator<Item = Note> + '_ {
    bytes.chunks_exact(NOTE).filter_map(Note::read)
}
