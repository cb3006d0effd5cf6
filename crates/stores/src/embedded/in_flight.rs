//! What is claimed now: leases, tokens, and the log that lets a crash be counted.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex},
};

use duly_core::{MessageId, Monotonic, Timestamp, store::Holder};

use super::{disk::DiskFile, index::Place, locked, numbers::Numbered};

/// Bytes of a head that are held in memory while its message is claimed. A larger one is read again once it is delivered.
const HEAD_BYTES_MAX: usize = 512;

/// What a claim is lost by, if it is not settled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Loss {
    /// Its lease ends.
    Lease,
    /// The process that had it has ended, maybe because of it.
    Process,
    /// The process has ended, and another message is known to be the cause.
    ProcessByOther,
}

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
    /// What it means if it is not settled.
    pub(super) loss: Loss,
    /// What will be kept of it once it is delivered; empty if it is too large to be held in memory until then.
    pub(super) head: Box<[u8]>,
    /// Bytes of its entry.
    pub(super) bytes: u32,
    /// Its place among equals in time.
    pub(super) rank: u8,
}

impl Held {
    /// What is remembered of the head of a claimed message.
    pub(super) fn remembered(head: &[u8]) -> Box<[u8]> {
        if head.len() <= HEAD_BYTES_MAX { head.into() } else { Box::default() }
    }
}

/// Some claims whose leases end together: when, and the first of their tokens, which follow one another.
type Group = (Monotonic, u64);

/// Of a claim whose end was met. No token is zero.
const NO_GROUP: Group = (Monotonic::from_micros(0), 0);

/// How many tokens a group has, and how many of them are still claimed under it.
struct Members {
    count: u64,
    held: u64,
}

/// All claimed messages by their token.
#[derive(Default)]
pub(super) struct InFlight {
    held: HashMap<u64, (Held, Group), Numbered>,
    /// When leases end, a claim's worth at a time. A renewed claim leaves its group for one of its own, and a group goes with
    /// its last claim: there are never more groups than claims, however long the leases are.
    ends: BTreeMap<Group, Members>,
    next_token: u64,
}

impl InFlight {
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
        let Some((first, _)) = claims.first() else { return };
        let group = (end, *first);
        let count = claims.len() as u64;
        self.ends.insert(group, Members { count, held: count });
        self.held.extend(claims.into_iter().map(|(token, held)| (token, (held, group))));
    }

    pub(super) fn get(&self, token: u64, id: &MessageId) -> Option<&Held> {
        self.held.get(&token).map(|(held, _)| held).filter(|held| held.id == *id)
    }

    /// The claim, if it is still its holder's at `now`.
    pub(super) fn valid(&self, token: u64, id: &MessageId, now: Monotonic) -> Option<&Held> {
        self.get(token, id).filter(|held| held.lease_end > now)
    }

    pub(super) fn take(&mut self, token: u64) -> Option<Held> {
        let (held, group) = self.held.remove(&token)?;
        self.leave(group);
        Some(held)
    }

    /// One claim of a group is no longer under it.
    fn leave(&mut self, group: Group) {
        if let Some(members) = self.ends.get_mut(&group) {
            members.held = members.held.saturating_sub(1);
            if members.held == 0 {
                self.ends.remove(&group);
            }
        }
    }

    pub(super) fn get_mut(&mut self, token: u64) -> Option<&mut Held> {
        self.held.get_mut(&token).map(|(held, _)| held)
    }

    /// A claimed message was moved. Only a claim that outlived a restart can be in a bucket, so this is rare.
    pub(super) fn moved(&mut self, from: Place, to: Place) {
        if let Some((held, _)) = self.held.values_mut().find(|(held, _)| held.place == from) {
            held.place = to;
        }
    }

    pub(super) fn extend(&mut self, token: u64, end: Monotonic) {
        if let Some(held) = self.get_mut(token) {
            held.lease_end = end;
            self.look_again(token, end);
        }
    }

    /// Up to `limit` claims whose lease has ended by `now`, and the rest of the last group of them. Each is met once: who cannot
    /// deal with it now asks to [`look_again`](Self::look_again).
    pub(super) fn ended(&mut self, now: Monotonic, limit: usize) -> Vec<u64> {
        let mut ended = Vec::new();
        while ended.len() < limit {
            let Some(entry) = self.ends.first_entry().filter(|entry| entry.key().0 <= now) else { break };
            let (group, members) = entry.remove_entry();
            for token in group.1..group.1 + members.count {
                if let Some((_, under)) = self.held.get_mut(&token).filter(|(_, under)| *under == group) {
                    *under = NO_GROUP;
                    ended.push(token);
                }
            }
        }
        ended
    }

    /// The claim is met at `at`, and not before.
    pub(super) fn look_again(&mut self, token: u64, at: Monotonic) {
        let Some((_, group)) = self.held.get_mut(&token) else { return };
        let left = std::mem::replace(group, (at, token));
        if left == (at, token) {
            return;
        }
        self.leave(left);
        // The group that it was claimed in may stand under the same key, if it was renewed twice.
        let known = self.ends.entry((at, token)).or_insert(Members { count: 1, held: 0 });
        known.held += 1;
    }

    /// The claim was met at `now` and is still there: it is met at once again, or at its end if that is later. Its holder
    /// may have extended it meanwhile.
    pub(super) fn meet_again(&mut self, token: u64, now: Monotonic) {
        if let Some(end) = self.get_mut(token).map(|held| held.lease_end) {
            self.look_again(token, end.max(now));
        }
    }

    pub(super) fn next_end(&self) -> Option<Monotonic> {
        self.ends.first_key_value().map(|((end, _), _)| *end)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (u64, &Held)> {
        self.held.iter().map(|(token, (held, _))| (*token, held))
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
    /// The claim never happened.
    pub(super) fn released(token: u64, held: &Held) -> Self {
        Self {
            hash: held.hash,
            token,
            version: held.version,
            lease_ms: 0,
            client: false,
            alone: held.alone,
            released: true,
        }
    }

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
        Self::at(file, 0)
    }

    /// Goes on in a file that has notes up to `end`.
    pub(super) fn at(file: Arc<dyn DiskFile>, end: u64) -> Self {
        Self { inner: Mutex::new((file, end)) }
    }

    /// Whether room was laid down for it.
    pub(super) fn has_room(&self) -> io::Result<bool> {
        locked(&self.inner).0.len().map(|len| len > 0)
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

/// Where the notes of a claims log end, and the room begins that was laid down for more.
pub(super) fn end_of_notes(bytes: &[u8]) -> u64 {
    let notes = bytes.chunks(NOTE);
    let blank = notes.rev().take_while(|note| note.iter().all(|byte| *byte == 0));
    bytes.len().saturating_sub(blank.map(<[u8]>::len).sum()) as u64
}

/// Reads the whole notes of a claims log. A power cut may have left any of them.
pub(super) fn read_notes(bytes: &[u8]) -> impl Iterator<Item = Note> + '_ {
    bytes.chunks_exact(NOTE).filter_map(Note::read)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn at(seconds: u64) -> Monotonic {
        Monotonic::from_micros(seconds * 1_000_000)
    }

    fn claim(flight: &mut InFlight, count: usize, end: Monotonic) -> Vec<u64> {
        let id = MessageId::parse("a").unwrap();
        let claims: Vec<(u64, Held)> = (0..count)
            .map(|_| {
                let held = Held {
                    id: id.clone(),
                    hash: 1,
                    place: Place { file: 1, off8: 1 },
                    lane: 0,
                    ready: Timestamp::default(),
                    version: 1,
                    holder: Holder::Client,
                    alone: false,
                    lease_end: end,
                    loss: Loss::Lease,
                    head: Box::default(),
                    bytes: 0,
                    rank: 0,
                };
                (flight.token(), held)
            })
            .collect();
        let tokens = claims.iter().map(|(token, _)| *token).collect();
        flight.hold(end, claims);
        tokens
    }

    #[test]
    fn a_settled_claim_leaves_nothing_behind_until_its_lease_would_have_ended() {
        let mut flight = InFlight::default();
        for _ in 0..1_000 {
            for token in claim(&mut flight, 3, at(12 * 3600)) {
                flight.extend(token, at(13 * 3600));
                flight.take(token);
            }
        }
        assert_eq!((flight.len(), flight.ends.len()), (0, 0));
        // One that is still claimed keeps one place, whatever became of the others, and however often it is renewed.
        let tokens = claim(&mut flight, 100, at(60));
        tokens[1..].iter().for_each(|token| drop(flight.take(*token)));
        (0..50).for_each(|more| flight.extend(tokens[0], at(100 + more)));
        assert_eq!((flight.len(), flight.ends.len()), (1, 1));
        assert_eq!(flight.next_end(), Some(at(149)));
    }

    #[test]
    fn every_claim_is_met_once_when_its_lease_ends() {
        let mut flight = InFlight::default();
        let tokens = claim(&mut flight, 4, at(60));
        flight.take(tokens[1]);
        flight.extend(tokens[2], at(90));
        // Renewed, and back to the instant at which the others end.
        flight.extend(tokens[0], at(70));
        flight.extend(tokens[0], at(60));
        assert!(flight.ended(at(59), 10).is_empty());
        assert_eq!(flight.ended(at(60), 10), [tokens[0], tokens[3]]);
        assert!(flight.ended(at(60), 10).is_empty());
        flight.look_again(tokens[3], at(61));
        assert_eq!(flight.ended(at(90), 10), [tokens[3], tokens[2]]);
    }
}
