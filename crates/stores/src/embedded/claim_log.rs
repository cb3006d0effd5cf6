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
    inner: Mutex<(Arc<dyn DiskFile>, u64)>,
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
        Self { inner: Mutex::new((file, end)) }
    }

    /// Whether bytes were allocated for it.
    pub(super) fn has_room(&self) -> io::Result<bool> {
        locked(&self.inner).0.len().map(|len| len > 0)
    }

    pub(super) fn write(&self, records: impl IntoIterator<Item = ClaimRecord>) -> io::Result<()> {
        let mut bytes = Vec::new();
        records.into_iter().for_each(|record| record.write(&mut bytes));
        if bytes.is_empty() {
            return Ok(());
        }
        let mut inner = locked(&self.inner);
        if let Err(error) = inner.0.write_at(&bytes, inner.1) {
            // Of what was written, the next record would replace the first one only: the rest would be read after it.
            let _ = blank(&*inner.0, inner.1, bytes);
            return Err(error);
        }
        inner.1 += bytes.len() as u64;
        Ok(())
    }

    /// Makes durable what is written, if anything is.
    pub(super) fn sync(&self) -> io::Result<()> {
        let inner = locked(&self.inner);
        if inner.1 == 0 { Ok(()) } else { inner.0.sync() }
    }

    /// Goes on in another file, which begins with what is claimed now.
    pub(super) fn switch(&self, file: Arc<dyn DiskFile>, held: &[ClaimRecord]) -> io::Result<()> {
        let mut bytes = Vec::with_capacity(held.len() * RECORD_BYTES);
        held.iter().for_each(|record| record.write(&mut bytes));
        let mut inner = locked(&self.inner);
        file.write_at(&bytes, 0)?;
        *inner = (file, bytes.len() as u64);
        Ok(())
    }
}

/// Overwrites with zeros what a failed write of `bytes` at `offset` may have left. This takes no room.
fn blank(file: &dyn DiskFile, offset: u64, mut bytes: Vec<u8>) -> io::Result<()> {
    bytes.truncate(file.len()?.saturating_sub(offset).min(bytes.len() as u64) as usize);
    bytes.fill(0);
    file.write_at(&bytes, offset)
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
    use super::*;

    /// A file on a disk with this much room. As a file system does it, what fits is written before the error comes.
    struct SmallFile(Mutex<Vec<u8>>, usize);

    impl DiskFile for SmallFile {
        fn write_at(&self, bytes: &[u8], offset: u64) -> io::Result<()> {
            let (mut file, offset) = (locked(&self.0), offset as usize);
            let fits = bytes.len().min(self.1.saturating_sub(offset));
            let len = file.len().max(offset + fits);
            file.resize(len, 0);
            file[offset..offset + fits].copy_from_slice(&bytes[..fits]);
            if fits == bytes.len() { Ok(()) } else { Err(io::ErrorKind::StorageFull.into()) }
        }

        fn read_at(&self, buffer: &mut [u8], offset: u64) -> io::Result<usize> {
            let file = locked(&self.0);
            let read = buffer.len().min(file.len().saturating_sub(offset as usize));
            buffer[..read].copy_from_slice(&file[offset as usize..][..read]);
            Ok(read)
        }

        fn sync(&self) -> io::Result<()> {
            Ok(())
        }

        fn len(&self) -> io::Result<u64> {
            Ok(locked(&self.0).len() as u64)
        }

        fn set_len(&self, len: u64) -> io::Result<()> {
            locked(&self.0).resize(len as usize, 0);
            Ok(())
        }

        fn allocate(&self, _: u64) -> io::Result<()> {
            Ok(())
        }
    }

    #[test]
    fn a_release_after_a_cut_copy_of_claims_is_not_undone_by_the_copy() {
        let file = Arc::new(SmallFile(Mutex::default(), 5 * RECORD_BYTES + 7));
        let log = ClaimLog::new(file.clone());
        let claim = |token: u64| ClaimRecord {
            hash: token,
            token,
            version: 1,
            lease_ms: 1,
            client: true,
            alone: false,
            only: false,
            released: false,
        };
        log.write([claim(1)]).unwrap();
        log.write((2..12).map(claim)).unwrap_err();
        let release = ClaimRecord { released: true, ..claim(4) };
        log.write([release]).unwrap();
        let bytes = locked(&file.0).clone();
        let read: Vec<ClaimRecord> = read_records(&bytes).collect();
        assert_eq!(read, [claim(1), release], "the claims of the failed call are still there");
        assert_eq!(end_of_records(&bytes), 2 * RECORD_BYTES as u64);
    }
}
