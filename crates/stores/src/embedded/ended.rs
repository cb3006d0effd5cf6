//! What is kept of finished messages: their heads, in slices that are dropped whole.

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::Arc,
};

use duly_core::{Attempt, Lane, MessageId, Outcome, Record, State, Timestamp};

use super::{
    disk::DiskFile,
    entry::{self, ALIGN, Garbled, Peek},
    numbers::Numbered,
    options::SLICE_BYTES_MAX,
    table::read_all,
};

/// How many slices the retention is divided in: what is dropped at once is a sixteenth.
const SLICES: usize = 16;

/// The end of a message, ready to be written: in the journal and in its slice alike.
///
/// ```text
/// state u8, 1 zero byte, receipt length u16, head length u32, ended u64, head, receipt, padding
/// ```
pub(super) fn encode(state: State, at: Timestamp, receipt: Option<&str>, head: &[u8], out: &mut Vec<u8>) {
    let receipt = receipt.unwrap_or_default().as_bytes();
    let receipt = &receipt[..receipt.len().min(RECEIPT_MAX)];
    let state = match state {
        State::Delivered => 0u8,
        State::Cancelled => 1,
        _ => 2,
    };
    out.extend_from_slice(&[state, 0]);
    out.extend_from_slice(&(receipt.len() as u16).to_le_bytes());
    out.extend_from_slice(&(head.len() as u32).to_le_bytes());
    out.extend_from_slice(&at.as_millis().to_le_bytes());
    out.extend_from_slice(head);
    out.extend_from_slice(receipt);
    let len = out.len().next_multiple_of(ALIGN);
    out.resize(len, 0);
}

const FIXED: usize = 16;
/// The most bytes kept of a target's receipt.
const RECEIPT_MAX: usize = 1024;

/// A look at a kept end.
#[derive(Clone, Copy)]
pub(super) struct EndPeek<'a>(&'a [u8]);

impl<'a> EndPeek<'a> {
    pub(super) fn at(bytes: &'a [u8]) -> Result<Self, Garbled> {
        let peek = Self(bytes);
        if bytes.len() < FIXED || peek.len() > bytes.len() {
            Err(Garbled)
        } else {
            Ok(Self(&bytes[..peek.len()]))
        }
    }

    fn receipt_len(self) -> usize {
        usize::from(u16::from_le_bytes([self.0[2], self.0[3]]))
    }

    fn head_len(self) -> usize {
        u32::from_le_bytes([self.0[4], self.0[5], self.0[6], self.0[7]]) as usize
    }

    pub(super) fn len(self) -> usize {
        (FIXED + self.receipt_len() + self.head_len()).next_multiple_of(ALIGN)
    }

    /// `None` for a purged message: nothing of it is kept.
    pub(super) fn state(self) -> Option<State> {
        match self.0[0] {
            0 => Some(State::Delivered),
            1 => Some(State::Cancelled),
            _ => None,
        }
    }

    pub(super) fn ended(self) -> Timestamp {
        let mut eight = [0; 8];
        eight.copy_from_slice(&self.0[8..16]);
        Timestamp::from_millis(u64::from_le_bytes(eight))
    }

    pub(super) fn head(self) -> &'a [u8] {
        &self.0[FIXED..FIXED + self.head_len()]
    }

    /// What lists are sorted by.
    pub(super) fn key(self) -> Option<(Timestamp, &'a str)> {
        let peek = entry::Peek::of_head(self.head()).ok()?;
        Some((peek.due(), peek.id_text()))
    }

    fn receipt(self) -> Option<String> {
        let bytes = &self.0[FIXED + self.head_len()..][..self.receipt_len()];
        (!bytes.is_empty()).then(|| String::from_utf8_lossy(bytes).into_owned())
    }

    /// The record that people ask for.
    pub(super) fn record(self, lane: &Lane) -> Result<(Record, u64), Garbled> {
        let (stored, _) = entry::decode_head(self.head(), lane)?;
        let hash = stored.content_hash;
        let mut record = stored.into_record(self.state().ok_or(Garbled)?);
        record.ended = Some(self.ended());
        record.receipt = self.receipt();
        if record.state == State::Delivered {
            record.attempts = record.attempts.saturating_add(1);
            let detail = record.receipt.clone().unwrap_or_default();
            Attempt::remember(&mut record.history, Attempt::new(self.ended(), Outcome::Delivered, detail));
        }
        Ok((record, hash))
    }
}

/// The hash and the lane number in a head.
pub(super) fn head_facts(head: &[u8]) -> Option<(u64, u32, u64)> {
    let lane = u32::from_le_bytes(head.get(12..16)?.try_into().ok()?);
    let version = entry::version_in(head.get(..entry::FIXED)?);
    let id = head.get(entry::FIXED..entry::FIXED + usize::from(*head.get(33)?))?;
    let id = MessageId::parse(std::str::from_utf8(id).ok()?).ok()?;
    Some((id.hash64(), lane, version))
}

/// Some seconds or minutes of finished messages.
pub(super) struct Slice {
    pub(super) number: u32,
    pub(super) file: Arc<dyn DiskFile>,
    /// Bytes in the file.
    pub(super) file_len: u64,
    /// Their checksum.
    pub(super) file_crc: u32,
    /// Bytes to be written after them.
    pub(super) buffer: Vec<u8>,
    pub(super) first: Timestamp,
    pub(super) last: Timestamp,
    pub(super) dirty: bool,
    offsets: HashMap<u64, u32, Numbered>,
    /// The numbers of the lanes whose messages are in it.
    lanes: HashSet<u32, Numbered>,
}

impl Slice {
    pub(super) fn new(number: u32, file: Arc<dyn DiskFile>, first: Timestamp) -> Self {
        Self {
            number,
            file,
            file_len: 0,
            file_crc: 0,
            buffer: Vec::new(),
            first,
            last: first,
            dirty: false,
            offsets: HashMap::default(),
            lanes: HashSet::default(),
        }
    }

    /// Reads a slice back: `len` bytes of its file.
    pub(super) fn load(number: u32, file: Arc<dyn DiskFile>, len: u64) -> io::Result<Self> {
        let bytes = read_all(&*file, 0, len)?;
        let mut slice = Self::new(number, file, Timestamp::default());
        let mut at = 0;
        while at < bytes.len() {
            let Ok(peek) = EndPeek::at(&bytes[at..]) else { return Err(io::ErrorKind::InvalidData.into()) };
            let Some((hash, lane, _)) = head_facts(peek.head()) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            if at == 0 {
                slice.first = peek.ended();
            }
            slice.last = peek.ended();
            slice.offsets.insert(hash, (at / ALIGN) as u32);
            // Of a purged message nothing is kept, and nobody asks for its lane.
            if peek.state().is_some() {
                slice.lanes.insert(lane);
            }
            at += peek.len();
        }
        slice.file_len = at as u64;
        slice.file_crc = crc32c::crc32c(&bytes);
        Ok(slice)
    }

    fn add(&mut self, hash: u64, at: Timestamp, bytes: &[u8]) {
        let offset = self.bytes();
        self.offsets.insert(hash, (offset / ALIGN as u64) as u32);
        if let Ok(end) = EndPeek::at(bytes)
            && end.state().is_some()
            && let Ok(head) = Peek::of_head(end.head())
        {
            self.lanes.insert(head.lane());
        }
        self.buffer.extend_from_slice(bytes);
        self.last = at;
    }

    /// The kept bytes from `offset` on, of one message.
    fn read(&self, off8: u32) -> io::Result<Vec<u8>> {
        let offset = u64::from(off8) * ALIGN as u64;
        if offset >= self.file_len {
            return Ok(self.buffer[(offset - self.file_len) as usize..].to_vec());
        }
        // Most are a hundred bytes; one with many properties is read a second time.
        let bytes = read_all(&*self.file, offset, 512)?;
        if bytes.len() < FIXED || EndPeek::at(&bytes).is_ok() {
            return Ok(bytes);
        }
        let len = EndPeek(&bytes).len() as u64;
        read_all(&*self.file, offset, len.min(self.file_len - offset))
    }

    pub(super) fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Bytes on disk and on their way there.
    fn bytes(&self) -> u64 {
        self.file_len + self.buffer.len() as u64
    }

    /// Whether `off8` is the latest that is kept of `hash` in this slice.
    pub(super) fn is_latest(&self, hash: u64, off8: u32) -> bool {
        self.offsets.get(&hash) == Some(&off8)
    }

    pub(super) fn has(&self, hash: u64) -> bool {
        self.offsets.contains_key(&hash)
    }
}

/// All slices, oldest first.
pub(super) struct Ended {
    pub(super) slices: VecDeque<Slice>,
    slice_max: usize,
    slice_ms: u64,
    retention_ms: u64,
    keep: usize,
}

impl Ended {
    pub(super) fn new(retention: std::time::Duration, retention_max: usize) -> Self {
        let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        Self {
            slices: VecDeque::new(),
            slice_max: (retention_max / SLICES).max(1),
            slice_ms: (retention_ms / SLICES as u64).max(1),
            retention_ms,
            keep: retention_max,
        }
    }

    /// Whether the next end needs a new slice.
    pub(super) fn wants_slice(&self, at: Timestamp) -> bool {
        self.slices.back().is_none_or(|slice| {
            slice.len() >= self.slice_max
                // The same id may end again and again, and counts once.
                || slice.bytes() >= SLICE_BYTES_MAX
                || at.as_millis() > slice.first.as_millis().saturating_add(self.slice_ms)
        })
    }

    pub(super) fn add(&mut self, hash: u64, at: Timestamp, bytes: &[u8]) {
        if let Some(slice) = self.slices.back_mut() {
            slice.add(hash, at, bytes);
        }
    }

    /// Bytes that wait to be written.
    pub(super) fn waiting(&self) -> usize {
        self.slices.iter().map(|slice| slice.buffer.len()).sum()
    }

    /// Takes out the slices that are past retention at `now`, by age or by count.
    pub(super) fn expire(&mut self, now: Timestamp) -> Vec<Slice> {
        let mut total: usize = self.slices.iter().map(Slice::len).sum();
        let mut over = Vec::new();
        while let Some(oldest) = self.slices.front() {
            let old = oldest.last.as_millis().saturating_add(self.retention_ms) < now.as_millis();
            let many = total > self.keep && self.slices.len() > 1;
            if !old && !many {
                break;
            }
            total -= oldest.len();
            over.extend(self.slices.pop_front());
        }
        over
    }

    /// What is kept of the id, if it is within retention at `now`: the record and its content hash.
    pub(super) fn find(
        &self,
        hash: u64,
        id: &MessageId,
        lane_of: impl Fn(u32) -> Option<Lane>,
    ) -> io::Result<Option<(Record, u64)>> {
        for slice in self.slices.iter().rev() {
            let Some(off8) = slice.offsets.get(&hash) else { continue };
            let bytes = slice.read(*off8)?;
            let garbled = |_: Garbled| io::Error::from(io::ErrorKind::InvalidData);
            let peek = EndPeek::at(&bytes).map_err(garbled)?;
            let Some((_, lane, _)) = head_facts(peek.head()) else { continue };
            if peek.state().is_none() {
                return Ok(None);
            }
            let Some(lane) = lane_of(lane) else { continue };
            let found = peek.record(&lane).map_err(garbled)?;
            if found.0.message.id == *id {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Whether something may be kept of the id.
    pub(super) fn may_know(&self, hash: u64) -> bool {
        self.slices.iter().any(|slice| slice.has(hash))
    }

    /// Whether the last that is kept of `hash` is exactly `kept`.
    pub(super) fn knows(&self, hash: u64, kept: &[u8]) -> bool {
        let latest = self.slices.iter().rev().find_map(|slice| Some((slice, slice.offsets.get(&hash)?)));
        latest.is_some_and(|(slice, off8)| slice.read(*off8).is_ok_and(|bytes| bytes.starts_with(kept)))
    }

    /// Whether a message of the lane with this number is kept.
    pub(super) fn names_lane(&self, number: u32) -> bool {
        self.slices.iter().any(|slice| slice.lanes.contains(&number))
    }

    pub(super) fn retention_ms(&self) -> u64 {
        self.retention_ms
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::disk::{Disk, RealDisk},
        *,
    };

    #[test]
    fn a_slice_ends_by_its_bytes_also_where_one_id_ends_again_and_again() {
        let dir = tempfile::tempdir().unwrap();
        let file = RealDisk.open(&dir.path().join("ended-1")).unwrap();
        let (at, mut ended) =
            (Timestamp::from_millis(1), Ended::new(std::time::Duration::from_secs(60), 100));
        ended.slices.push_back(Slice::new(1, file, at));
        (0..3).for_each(|_| ended.add(7, at, &[0; 64]));
        assert!(!ended.wants_slice(at));
        ended.slices[0].file_len = SLICE_BYTES_MAX;
        assert!(ended.wants_slice(at));
    }
}
