//! The log of claims, by which a restart knows what a crashed process had claimed.

use std::{
    io,
    sync::{Arc, Mutex},
};

use super::{disk::DiskFile, in_flight::ClaimedMessage, locked};

/// Bytes of one record of the claims log.
const RECORD_BYTES: usize = 32;
const CLIENT: u8 = 1;
const ALONE: u8 = 2;
const RELEASED: u8 = 4;
const ONLY: u8 = 8;

/// A record of the claims log: a claim, or the release of one. A release leaves no record in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ClaimRecord {
    pub(super) hash: u64,
    pub(super) token: u64,
    pub(super) version: u64,
    pub(super) lease_ms: u32,
    pub(super) client: bool,
    pub(super) alone: bool,
    pub(super) only: bool,
    /// Released: the claim does not count.
    pub(super) released: bool,
}

impl ClaimRecord {
    /// The record of a release.
    pub(super) fn released(token: u64, held: &ClaimedMessage) -> Self {
        Self {
            hash: held.hash,
            token,
            version: held.version,
            lease_ms: 0,
            client: false,
            alone: held.alone,
            only: held.only,
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
        let only = if self.only { ONLY } else { 0 };
        out.extend_from_slice(&[client | alone | released | only, 0, version[4], version[5]]);
        let crc = crc32c::crc32c(&out[start..]);
        out.extend_from_slice(&crc.to_le_bytes());
    }

    fn read(bytes: &[u8]) -> Option<Self> {
        let word = |at: usize| u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        if crc32c::crc32c(&bytes[..RECORD_BYTES - 4]) != word(RECORD_BYTES - 4) {
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
            only: bytes[24] & ONLY != 0,
            released: bytes[24] & RELEASED != 0,
        })
    }
}

/// The log of claims. It is written before a message is sent and never synced: the crash of a process is counted as an attempt. A
/// power cut may lose a claim; the message is then delivered again.
pub(super) struct ClaimLog {
    inner: Mutex<Tail>,
}

/// Where the next record goes.
struct Tail {
    file: Arc<dyn DiskFile>,
    end: u64,
    /// How many bytes behind `end` a failed write may have left.
    dirty: usize,
}

impl Tail {
    /// Overwrites with zeros what a failed write may have left: the next record would replace only its first one, and the rest would be
    /// read after it. This takes no room. Until it succeeds, nothing may be written.
    fn blank(&mut self) -> io::Result<()> {
        if self.dirty > 0 {
            let left = self.file.len()?.saturating_sub(self.end).min(self.dirty as u64);
            self.file.write_at(&vec![0; left as usize], self.end)?;
            self.dirty = 0;
        }
        Ok(())
    }

    fn write(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.blank()?;
        if let Err(error) = self.file.write_at(bytes, self.end) {
            self.dirty = bytes.len();
            if let Err(error) = self.blank() {
                tracing::warn!(%error, "claims log not cleaned after a failed write; claims are refused until it is");
            }
            return Err(error);
        }
        self.end += bytes.len() as u64;
        Ok(())
    }
}

impl ClaimLog {
    /// Bytes allocated for a log before it is used, so that claims go on for a while on a full disk.
    pub(super) fn room(segment_bytes: u64) -> u64 {
        (segment_bytes / 4).min(1 << 20)
    }

    pub(super) fn new(file: Arc<dyn DiskFile>) -> Self {
        Self::at(file, 0)
    }

    /// Goes on in a file that has records up to `end`.
    pub(super) fn at(file: Arc<dyn DiskFile>, end: u64) -> Self {
        Self { inner: Mutex::new(Tail { file, end, dirty: 0 }) }
    }

    /// Whether bytes were allocated for it.
    pub(super) fn has_room(&self) -> io::Result<bool> {
        locked(&self.inner).file.len().map(|len| len > 0)
    }

    pub(super) fn write(&self, records: impl IntoIterator<Item = ClaimRecord>) -> io::Result<()> {
        let mut bytes = Vec::new();
        records.into_iter().for_each(|record| record.write(&mut bytes));
        if bytes.is_empty() {
            return Ok(());
        }
        locked(&self.inner).write(&bytes)
    }

    /// Makes durable what is written, if anything is.
    pub(super) fn sync(&self) -> io::Result<()> {
        let inner = locked(&self.inner);
        if inner.end == 0 { Ok(()) } else { inner.file.sync() }
    }

    /// Goes on in another file, which begins with what is claimed now.
    pub(super) fn switch(&self, file: Arc<dyn DiskFile>, held: &[ClaimRecord]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(held.len() * RECORD_BYTES);
        held.iter().for_each(|record| record.write(&mut bytes));
        let mut inner = locked(&self.inner);
        file.write_at(&bytes, 0)?;
        *inner = Tail { file, end: bytes.len() as u64, dirty: 0 };
        Ok(())
    }
}

/// Where the records of a claims log end and the allocated zeros begin.
pub(super) fn end_of_records(bytes: &[u8]) -> u64 {
    let records = bytes.chunks(RECORD_BYTES);
    let blank = records.rev().take_while(|record| record.iter().all(|byte| *byte == 0));
    bytes.len().saturating_sub(blank.map(<[u8]>::len).sum()) as u64
}

/// The whole records of a claims log. After a power cut any of them may be missing.
pub(super) fn read_records(bytes: &[u8]) -> impl Iterator<Item = ClaimRecord> + '_ {
    bytes.chunks_exact(RECORD_BYTES).filter_map(ClaimRecord::read)
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicBool, Ordering::SeqCst};

    use super::*;

    /// A file on a disk with this much room. As a file system does it, what fits is written before the error comes.
    struct SmallFile {
        bytes: Mutex<Vec<u8>>,
        room: usize,
        /// Nothing that begins with a zero can be written.
        refuses_zeros: AtomicBool,
    }

    impl SmallFile {
        /// A file with room for five records and a part of one.
        fn new() -> Arc<Self> {
            let room = 5 * RECORD_BYTES + 7;
            Arc::new(Self { bytes: Mutex::default(), room, refuses_zeros: AtomicBool::new(false) })
        }
    }

    impl DiskFile for SmallFile {
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            if bytes.first() == Some(&0) && self.refuses_zeros.load(SeqCst) {
                return Err(io::Error::other("as told"));
            }
            let (mut file, offset) = (locked(&self.bytes), offset as usize);
            let fits = bytes.len().min(self.room.saturating_sub(offset));
            let len = file.len().max(offset + fits);
            file.resize(len, 0);
            file[offset..offset + fits].copy_from_slice(&bytes[..fits]);
            if fits == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let file = locked(&self.bytes);
            let read = buffer.len().min(file.len().saturating_sub(offset as usize));
            buffer[..read].copy_from_slice(&file[offset as usize..][..read]);
            Ok(read)
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(locked(&self.bytes).len() as u64)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            locked(&self.bytes).resize(len as usize, 0);
            Ok(())
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    fn claim(token: u64) -> ClaimRecord {
        ClaimRecord {
            hash: token,
            token,
            version: 1,
            lease_ms: 1,
            client: true,
            alone: false,
            only: false,
            released: false,
        }
    }

    #[test]
    fn a_release_after_a_cut_copy_of_claims_is_not_undone_by_the_copy() {
        let file = SmallFile::new();
        let log = ClaimLog::new(file.clone());
        log.write([claim(1)]).unwrap();
        log.write((2..12).map(claim)).unwrap_err();
        let release = ClaimRecord { released: true, ..claim(4) };
        log.write([release]).unwrap();
        let bytes = locked(&file.bytes).clone();
        let read: Vec<ClaimRecord> = read_records(&bytes).collect();
        assert_eq!(read, [claim(1), release], "the claims of the failed call are still there");
        assert_eq!(end_of_records(&bytes), 2 * RECORD_BYTES as u64);
    }

    #[test]
    fn nothing_is_written_before_what_a_failed_write_left_is_gone() {
        let file = SmallFile::new();
        let log = ClaimLog::new(file.clone());
        log.write([claim(1)]).unwrap();
        file.refuses_zeros.store(true, SeqCst);
        let error = log.write((2..12).map(claim)).unwrap_err();
        assert_eq!(error.kind(), io::ErrorKind::StorageFull, "the first error is the one to tell");
        let release = ClaimRecord { released: true, ..claim(4) };
        for _ in 0..2 {
            log.write([release]).unwrap_err();
        }
        file.refuses_zeros.store(false, SeqCst);
        log.write([release]).unwrap();
        let bytes = locked(&file.bytes).clone();
        assert_eq!(read_records(&bytes).collect::<Vec<_>>(), [claim(1), release]);
        // A new file has nothing of that.
        file.refuses_zeros.store(true, SeqCst);
        log.write((2..12).map(claim)).unwrap_err();
        let next = SmallFile::new();
        log.switch(next.clone(), &[claim(1)]).unwrap();
        log.write([release]).unwrap();
        assert_eq!(read_records(&locked(&next.bytes)).collect::<Vec<_>>(), [claim(1), release]);
    }
}
