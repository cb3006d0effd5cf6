//! Records of ended messages: their heads, in slices that expire whole.

mod record;

use std::{
    collections::{HashMap, HashSet, VecDeque},
    io,
    sync::Arc,
};

use duly_core::{Lane, MessageId, Record, Timestamp};

pub(super) use self::record::{EndKind, EndPeek, encode, head_fields};
use super::{
    disk::DiskFile,
    entry::{ALIGN, Garbled, Peek},
    manifest::SliceLine,
    number_hasher::NumberHasher,
    options::SLICE_BYTES_MAX,
    table::read_all,
};

/// Slices that the retention is divided in: a sixteenth of what is kept expires at a time.
const SLICES: usize = 16;

/// Ends of one slice that are to be written to its file.
pub(super) struct UnwrittenEnds {
    slice: u32,
    pub(super) file: Arc<dyn DiskFile>,
    /// Where they are written.
    pub(super) at: u64,
    pub(super) bytes: Vec<u8>,
}

/// A sixteenth of the retention: ended messages of some seconds or minutes.
///
/// Invariants:
/// - `file_len` and `file_crc` describe the same bytes of the file; `buffer` follows them.
/// - `offsets` has, for each id, where the latest that is kept of it begins, in the file or in the buffer.
pub(super) struct Slice {
    number: u32,
    file: Arc<dyn DiskFile>,
    /// Bytes in the file.
    file_len: u64,
    /// Their checksum.
    file_crc: u32,
    /// Bytes to be written after them.
    buffer: Vec<u8>,
    first: Timestamp,
    last: Timestamp,
    /// Written to since the last sync.
    dirty: bool,
    offsets: HashMap<u64, u32, NumberHasher>,
    /// The numbers of the lanes whose messages are in it.
    lanes: HashSet<u32, NumberHasher>,
}

impl Slice {
    fn new(number: u32, file: Arc<dyn DiskFile>, first: Timestamp) -> Self {
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
            let Some((hash, lane, _)) = head_fields(peek.head()) else {
                return Err(io::ErrorKind::InvalidData.into());
            };
            if at == 0 {
                slice.first = peek.ended();
            }
            slice.last = peek.ended();
            slice.offsets.insert(hash, (at / ALIGN) as u32);
            // Nothing is kept of a purged message, and nobody asks for its lane.
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
        // Most ends have about a hundred bytes. One with many properties is read a second time.
        let bytes = read_all(&*self.file, offset, 512)?;
        match EndPeek::length(&bytes) {
            Some(len) if len > bytes.len() => {
                read_all(&*self.file, offset, (len as u64).min(self.file_len - offset))
            }
            _ => Ok(bytes),
        }
    }

    pub(super) fn number(&self) -> u32 {
        self.number
    }

    /// Bytes in the file, and their checksum.
    pub(super) fn file_state(&self) -> (u64, u32) {
        (self.file_len, self.file_crc)
    }

    fn len(&self) -> usize {
        self.offsets.len()
    }

    /// Bytes on disk and on their way there.
    fn bytes(&self) -> u64 {
        self.file_len + self.buffer.len() as u64
    }

    /// Whether `off8` is the latest that is kept of `hash` in this slice.
    fn is_latest(&self, hash: u64, off8: u32) -> bool {
        self.offsets.get(&hash) == Some(&off8)
    }

    fn has(&self, hash: u64) -> bool {
        self.offsets.contains_key(&hash)
    }
}

/// Records of ended messages: all slices, oldest first.
///
/// Invariants:
/// - Only the last slice is added to.
/// - A slice past retention is in `expired` until no manifest on disk names it; only then is its file deleted.
pub(super) struct Ended {
    slices: VecDeque<Slice>,
    expired: Vec<Slice>,
    /// Files for slices, made ahead by the background thread.
    spare_files: Vec<(u32, Arc<dyn DiskFile>)>,
    slice_max: usize,
    slice_ms: u64,
    retention_ms: u64,
    retention_max: usize,
    /// Filled again for each end, so that it is not allocated for each.
    scratch: Vec<u8>,
}

impl Ended {
    pub(super) fn new(retention: std::time::Duration, retention_max: usize) -> Self {
        let retention_ms = u64::try_from(retention.as_millis()).unwrap_or(u64::MAX);
        Self {
            slices: VecDeque::new(),
            expired: Vec::new(),
            spare_files: Vec::new(),
            slice_max: (retention_max / SLICES).max(1),
            slice_ms: (retention_ms / SLICES as u64).max(1),
            retention_ms,
            retention_max,
            scratch: Vec::new(),
        }
    }

    /// An empty buffer to [`encode`] an end in; [`return_scratch`](Self::return_scratch) returns it.
    pub(super) fn take_scratch(&mut self) -> Vec<u8> {
        let mut scratch = std::mem::take(&mut self.scratch);
        scratch.clear();
        scratch
    }

    pub(super) fn return_scratch(&mut self, scratch: Vec<u8>) {
        self.scratch = scratch;
    }

    /// Adds a slice that was read from disk.
    pub(super) fn load(&mut self, slice: Slice) {
        self.slices.push_back(slice);
    }

    /// Whether there is no file for the next slice.
    pub(super) fn wants_file(&self) -> bool {
        self.spare_files.is_empty()
    }

    /// Adds an empty file for a later slice.
    pub(super) fn add_file(&mut self, number: u32, file: Arc<dyn DiskFile>) {
        self.spare_files.push((number, file));
    }

    /// Keeps the end of a message, for as long as the retention says.
    pub(super) fn keep(&mut self, hash: u64, at: Timestamp, kept: &[u8]) {
        if self.wants_slice(at)
            && let Some((number, file)) = self.spare_files.pop()
        {
            self.slices.push_back(Slice::new(number, file, at));
        }
        self.add(hash, at, kept);
        if self.slices.len() > 2 {
            self.expire(at);
        }
    }

    /// Whether the next end needs a new slice.
    fn wants_slice(&self, at: Timestamp) -> bool {
        self.slices.back().is_none_or(|slice| {
            slice.len() >= self.slice_max
                // An id that ends many times is counted once by `len`.
                || slice.bytes() >= SLICE_BYTES_MAX
                || at.as_millis() > slice.first.as_millis().saturating_add(self.slice_ms)
        })
    }

    fn add(&mut self, hash: u64, at: Timestamp, bytes: &[u8]) {
        if let Some(slice) = self.slices.back_mut() {
            slice.add(hash, at, bytes);
        }
    }

    /// Bytes that are not in a file yet.
    pub(super) fn waiting(&self) -> usize {
        self.slices.iter().map(|slice| slice.buffer.len()).sum()
    }

    /// Expires the slices that are past retention at `now`, by age or by count.
    pub(super) fn expire(&mut self, now: Timestamp) {
        let mut total: usize = self.slices.iter().map(Slice::len).sum();
        while let Some(oldest) = self.slices.front() {
            let old = oldest.last.as_millis().saturating_add(self.retention_ms) < now.as_millis();
            let many = total > self.retention_max && self.slices.len() > 1;
            if !old && !many {
                break;
            }
            total -= oldest.len();
            self.expired.extend(self.slices.pop_front());
        }
    }

    /// Takes the expired slices, for a manifest that does not name them.
    pub(super) fn take_expired(&mut self) -> Vec<Slice> {
        std::mem::take(&mut self.expired)
    }

    /// The manifest could not be written: the one on disk still names these.
    pub(super) fn put_expired_back(&mut self, slices: Vec<Slice>) {
        self.expired.extend(slices);
    }

    /// Whether the manifest on disk may name the slice with this number.
    pub(super) fn has_slice(&self, number: u32) -> bool {
        self.slices.iter().chain(&self.expired).any(|known| known.number == number)
    }

    /// The numbers of the slices that are kept, oldest first.
    pub(super) fn numbers(&self) -> Vec<u32> {
        self.slices.iter().map(|slice| slice.number).collect()
    }

    /// The slices that are kept, as the manifest names them.
    pub(super) fn lines(&self) -> Vec<SliceLine> {
        let line =
            |slice: &Slice| SliceLine { number: slice.number, len: slice.file_len, crc: slice.file_crc };
        self.slices.iter().map(line).collect()
    }

    /// Bytes of the files of all slices that are kept.
    pub(super) fn file_bytes(&self) -> u64 {
        self.slices.iter().map(|slice| slice.file_len).sum()
    }

    /// The file of a slice, how many bytes of it count, and what is to be written after them.
    pub(super) fn content(&self, number: u32) -> Option<(Arc<dyn DiskFile>, u64, Vec<u8>)> {
        let slice = self.slices.iter().find(|slice| slice.number == number)?;
        Some((slice.file.clone(), slice.file_len, slice.buffer.clone()))
    }

    /// A slice with bytes that are not in its file yet. They stay readable until they are [written](Self::wrote).
    pub(super) fn unwritten(&self) -> Option<UnwrittenEnds> {
        let slice = self.slices.iter().find(|slice| !slice.buffer.is_empty())?;
        let (file, at, bytes) = (slice.file.clone(), slice.file_len, slice.buffer.clone());
        Some(UnwrittenEnds { slice: slice.number, file, at, bytes })
    }

    /// The bytes are in the file. Says `false` if their slice has expired meanwhile.
    pub(super) fn wrote(&mut self, written: &UnwrittenEnds) -> bool {
        let known = self.slices.iter_mut().find(|slice| slice.number == written.slice);
        let Some(slice) = known else { return false };
        slice.buffer.drain(..written.bytes.len());
        slice.file_len += written.bytes.len() as u64;
        slice.file_crc = crc32c::crc32c_append(slice.file_crc, &written.bytes);
        slice.dirty = true;
        true
    }

    /// The files that were written to since the last sync. They are being synced now.
    pub(super) fn take_dirty(&mut self) -> impl Iterator<Item = Arc<dyn DiskFile>> {
        let dirty = self.slices.iter_mut().filter(|slice| slice.dirty);
        dirty.map(|slice| {
            slice.dirty = false;
            slice.file.clone()
        })
    }

    /// Where a slice stands among those that are kept, for [`is_latest`](Self::is_latest).
    pub(super) fn slice_index(&self, number: u32) -> Option<usize> {
        self.slices.iter().position(|slice| slice.number == number)
    }

    /// Whether `off8` of the slice at this index is the latest that is kept of `hash`.
    pub(super) fn is_latest(&self, slice: usize, hash: u64, off8: u32) -> bool {
        self.slices[slice].is_latest(hash, off8)
            && !self.slices.iter().skip(slice + 1).any(|later| later.has(hash))
    }

    /// The record of the id and its content hash, if it is within retention at `now`.
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
            let Some((_, lane, _)) = head_fields(peek.head()) else { continue };
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

    /// Whether an end may be kept for the hash of an id.
    pub(super) fn may_know(&self, hash: u64) -> bool {
        self.slices.iter().any(|slice| slice.has(hash))
    }

    /// Whether the latest end that is kept for `hash` is exactly `kept`.
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
mod tests;
