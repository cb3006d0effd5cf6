//! A segment of the journal as it lies on disk.
//!
//! ```text
//! segment: header, then frames
//! header:  magic u32, segment u32, salt u64, crc32c u32, 12 zero bytes
//! frame:   magic u32, segment u32, number u64, payload length u32, crc32c u32, salt u64, then records
//! record:  kind u8, 3 zero bytes, length u32, then the record, padded to 8
//! ```
//! Segments are written with zeros before they are needed: a sync into written blocks is cheap, and a full disk cannot tear a
//! frame. They are reused under a new number. Bytes of an earlier use, message bodies among them, are not mistaken for a frame:
//! each frame has the salt of its segment, a random number drawn for each use after those bytes were written.
//!
//! The header is durable before the segment gets its name. It is written twice, and the first frame overwrites the second copy. So
//! a segment whose header is followed by neither a frame nor the copy is damaged, never empty.
//!
//! Format 1 has no header, and zeros instead of the salt. Its segments are read, and not reused.

use std::{
    hash::{BuildHasher, RandomState},
    io,
    path::Path,
};

use super::{
    disk::{Disk, DiskFile, beyond_repair},
    entry::ALIGN,
    journal::{RecordKind, Segment},
    table::read_all,
};

/// The random number in all frames of one use of a segment.
pub(super) type Salt = u64;

/// Bytes of a segment before its frames.
pub(super) const SEGMENT_HEADER: usize = 32;
/// Bytes of a frame before its records.
pub(super) const FRAME_HEADER: usize = 32;
/// Bytes of a record before its body.
pub(super) const RECORD_HEADER: usize = 8;
/// The name of a segment that is being laid down and has no number yet.
pub(super) const UNNAMED: &str = "journal.new";

const SEGMENT_MAGIC: u32 = u32::from_le_bytes(*b"DLS2");
const FRAME_MAGIC: u32 = u32::from_le_bytes(*b"DLJ2");
const FRAME_MAGIC_1: u32 = u32::from_le_bytes(*b"DLJ1");

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn long(bytes: &[u8], at: usize) -> u64 {
    u64::from(word(bytes, at)) | u64::from(word(bytes, at + 4)) << 32
}

/// How frames of a segment are recognised.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Layout {
    Format1,
    Salted(Salt),
}

impl Layout {
    fn magic(self) -> u32 {
        match self {
            Self::Format1 => FRAME_MAGIC_1,
            Self::Salted(_) => FRAME_MAGIC,
        }
    }

    /// Where the first frame begins.
    fn start(self) -> usize {
        match self {
            Self::Format1 => 0,
            Self::Salted(_) => SEGMENT_HEADER,
        }
    }

    /// Whether a frame of the segment begins at the start of `bytes`, whole or not.
    fn begins(self, bytes: &[u8], segment: u32) -> bool {
        bytes.len() >= FRAME_HEADER
            && word(bytes, 0) == self.magic()
            && word(bytes, 4) == segment
            && match self {
                Self::Format1 => true,
                Self::Salted(salt) => long(bytes, 24) == salt,
            }
    }

    fn crc(self, header: &[u8], payload: &[u8]) -> u32 {
        let crc = crc32c::crc32c(&header[..20]);
        let crc = match self {
            Self::Format1 => crc,
            Self::Salted(_) => crc32c::crc32c_append(crc, &header[24..FRAME_HEADER]),
        };
        crc32c::crc32c_append(crc, payload)
    }

    /// The records of the frame that begins at `at`, if it is whole and has such a number.
    fn frame_at(
        self,
        bytes: &[u8],
        at: usize,
        segment: u32,
        number_fits: impl Fn(u64) -> bool,
    ) -> Option<&[u8]> {
        let frame = bytes.get(at..).filter(|frame| self.begins(frame, segment))?;
        let (header, rest) = frame.split_at(FRAME_HEADER);
        if !number_fits(long(header, 8)) {
            return None;
        }
        let payload = rest.get(..word(header, 16) as usize)?;
        (self.crc(header, payload) == word(header, 20)).then_some(payload)
    }

    /// Whether a whole frame of the segment with such a number lies anywhere in `bytes`.
    fn has_frame(self, bytes: &[u8], segment: u32, number_fits: impl Fn(u64) -> bool) -> bool {
        let magic = self.magic().to_le_bytes();
        (0..bytes.len()).step_by(ALIGN).any(|at| {
            bytes[at..].starts_with(&magic) && self.frame_at(bytes, at, segment, &number_fits).is_some()
        })
    }
}

/// Fills in the header of a frame. `bytes` begins with the room for it, and the records follow.
pub(super) fn seal(bytes: &mut [u8], segment: u32, number: u64, salt: Salt) {
    let payload = (bytes.len() - FRAME_HEADER) as u32;
    bytes[0..4].copy_from_slice(&FRAME_MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&segment.to_le_bytes());
    bytes[8..16].copy_from_slice(&number.to_le_bytes());
    bytes[16..20].copy_from_slice(&payload.to_le_bytes());
    bytes[24..32].copy_from_slice(&salt.to_le_bytes());
    let (header, records) = bytes.split_at(FRAME_HEADER);
    let crc = Layout::Salted(salt).crc(header, records);
    bytes[20..24].copy_from_slice(&crc.to_le_bytes());
}

/// Both copies of the header of an unused segment.
fn blank(segment: u32, salt: Salt) -> [u8; 2 * SEGMENT_HEADER] {
    let mut bytes = [0; 2 * SEGMENT_HEADER];
    bytes[0..4].copy_from_slice(&SEGMENT_MAGIC.to_le_bytes());
    bytes[4..8].copy_from_slice(&segment.to_le_bytes());
    bytes[8..16].copy_from_slice(&salt.to_le_bytes());
    let crc = crc32c::crc32c(&bytes[..16]);
    bytes[16..20].copy_from_slice(&crc.to_le_bytes());
    bytes.copy_within(..SEGMENT_HEADER, SEGMENT_HEADER);
    bytes
}

/// The header of a segment.
#[derive(Debug, PartialEq, Eq)]
enum Start {
    /// Nothing was written to it since it got its header.
    Unused,
    /// It has frames, or the beginning of one.
    Used(Layout),
    /// It is damaged from this byte on.
    Bad(u64),
}

/// `salted`: whether the segment was written by a format that has headers.
fn start(bytes: &[u8], segment: u32, salted: bool) -> Start {
    if !salted {
        return Start::Used(Layout::Format1);
    }
    let Some((header, rest)) = bytes.split_at_checked(SEGMENT_HEADER) else { return Start::Bad(0) };
    let salt = long(header, 8);
    let own = word(header, 4);
    if *header != blank(own, salt)[..SEGMENT_HEADER] {
        return Start::Bad(0);
    }
    // A crash may have come between its next header and its next name.
    if rest.starts_with(header) {
        return Start::Unused;
    }
    let layout = Layout::Salted(salt);
    match own == segment {
        false => Start::Bad(0),
        true if layout.begins(rest, segment) => Start::Used(layout),
        // A torn write leaves the second copy of the header, or the begin of the frame: both lie in one sector.
        true => Start::Bad(SEGMENT_HEADER as u64),
    }
}

/// Lays down a segment. It gets its name only when it is complete.
pub(super) fn lay_down(disk: &dyn Disk, dir: &Path, number: u32, bytes: u64) -> io::Result<Segment> {
    let unnamed = dir.join(UNNAMED);
    let salt = draw();
    let file = disk.open(&unnamed)?;
    let made = file
        .set_len(0)
        .and_then(|()| file.write_at(&blank(number, salt), 0))
        // This syncs all of it.
        .and_then(|()| file.allocate(bytes));
    made.inspect_err(|_| {
        // An incomplete segment would only take room that is missing.
        let _ = disk.remove(&unnamed);
    })?;
    disk.rename(&unnamed, &dir.join(format!("journal-{number}")))?;
    disk.sync_dir(dir)?;
    Ok(Segment { number, file, salt, live: 0, first: 0 })
}

/// Gives a segment that is not needed any more a new number. The folder is to be synced before it is used.
pub(super) fn reuse(disk: &dyn Disk, dir: &Path, old: u32, number: u32) -> io::Result<Segment> {
    let path = dir.join(format!("journal-{old}"));
    let salt = draw();
    let file = disk.open(&path)?;
    // The header goes first, so that no segment of that name is without it.
    file.write_at(&blank(number, salt), 0)?;
    file.sync().map_err(beyond_repair)?;
    disk.rename(&path, &dir.join(format!("journal-{number}")))?;
    Ok(Segment { number, file, salt, live: 0, first: 0 })
}

/// A number that nobody outside the process can guess. No decision depends on it.
fn draw() -> Salt {
    RandomState::new().hash_one(0)
}

/// Whether anything was written to the segment since it got its number. A bad first frame must not hide the ones after it.
pub(super) fn is_used(file: &dyn DiskFile, segment: u32, salted: bool) -> io::Result<bool> {
    if !salted {
        return is_used_1(file, segment);
    }
    let first = read_all(file, 0, (SEGMENT_HEADER + FRAME_HEADER) as u64)?;
    match start(&first, segment, salted) {
        Start::Unused => Ok(false),
        Start::Used(_) => Ok(true),
        Start::Bad(at) => {
            let what = format!("it has a bad header at byte {at}; restore the folder from a backup");
            Err(io::Error::new(io::ErrorKind::InvalidData, what))
        }
    }
}

/// The same for format 1. A segment that begins with a whole frame of an earlier use is unused.
fn is_used_1(file: &dyn DiskFile, segment: u32) -> io::Result<bool> {
    let layout = Layout::Format1;
    let header = read_all(file, 0, FRAME_HEADER as u64)?;
    if header.len() == FRAME_HEADER && word(&header, 0) == layout.magic() {
        let own = word(&header, 4);
        if own == segment {
            return Ok(true);
        }
        let first = read_all(file, 0, FRAME_HEADER as u64 + u64::from(word(&header, 16)).min(file.len()?))?;
        if layout.frame_at(&first, 0, own, |_| true).is_some() {
            return Ok(false);
        }
    }
    Ok(layout.has_frame(&read_all(file, 0, file.len()?)?, segment, |_| true))
}

/// The end of a segment as it was read.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing more was written: the next frame would begin here.
    Clean(u64),
    /// The last frame is torn; it begins here.
    Torn(u64),
    /// A frame is bad and valid ones follow it, or a valid frame has a record that cannot be understood.
    Damaged(u64),
    /// The header is missing or bad.
    Headless(u64),
}

/// The records read from a segment.
pub(super) struct SegmentEnd {
    pub(super) end: End,
    /// The number of the frame that follows.
    pub(super) next: u64,
    /// Where its last whole frame begins.
    pub(super) last: Option<usize>,
}

/// A record read back.
pub(super) struct Record<'a> {
    pub(super) kind: RecordKind,
    pub(super) body: &'a [u8],
    /// Where the body lies in its segment.
    pub(super) offset: u64,
    /// The number of its frame.
    pub(super) frame: u64,
}

/// Reads the frames of one segment in order, from number `next` on.
pub(super) fn read_segment(
    bytes: &[u8],
    segment: u32,
    salted: bool,
    mut next: u64,
    mut each: impl FnMut(Record<'_>) -> bool,
) -> SegmentEnd {
    let layout = match start(bytes, segment, salted) {
        Start::Unused => return SegmentEnd { end: End::Clean(SEGMENT_HEADER as u64), next, last: None },
        Start::Bad(at) => return SegmentEnd { end: End::Headless(at), next, last: None },
        Start::Used(layout) => layout,
    };
    let mut at = layout.start();
    let mut last = None;
    while let Some(payload) = layout.frame_at(bytes, at, segment, |number| number == next) {
        let from = at + FRAME_HEADER;
        for record in records(payload) {
            let taken = record.is_ok_and(|(kind, body, start)| {
                each(Record { kind, body, offset: (from + start) as u64, frame: next })
            });
            if !taken {
                return SegmentEnd { end: End::Damaged(at as u64), next, last };
            }
        }
        last = Some(at);
        at = (from + payload.len()).next_multiple_of(ALIGN);
        next += 1;
    }
    let rest = &bytes[at.min(bytes.len())..];
    let end = if layout.has_frame(rest, segment, |number| number >= next) {
        End::Damaged(at as u64)
    } else if layout.begins(rest, segment) {
        End::Torn(at as u64)
    } else {
        End::Clean(at as u64)
    };
    SegmentEnd { end, next, last }
}

/// A record of a frame cannot be understood, although the frame is whole.
struct Unknown;

/// The records of a frame: kind, body, and where the body begins.
fn records(payload: &[u8]) -> impl Iterator<Item = Result<(RecordKind, &[u8], usize), Unknown>> {
    let mut at = 0;
    std::iter::from_fn(move || {
        let header = payload.get(at..).filter(|rest| !rest.is_empty())?;
        let from = at + RECORD_HEADER;
        let record = header.get(..RECORD_HEADER).and_then(|header| {
            let body = payload.get(from..)?.get(..word(header, 4) as usize)?;
            Some((RecordKind::of(header[0])?, body, from))
        });
        at = record.map_or(payload.len(), |(_, body, _)| (from + body.len()).next_multiple_of(ALIGN));
        Some(record.ok_or(Unknown))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    const SALT: Salt = 0x0123_4567_89ab_cdef;

    /// A frame with one record.
    fn frame(segment: u32, number: u64, salt: Salt, body: &[u8]) -> Vec<u8> {
        let mut bytes = vec![0; FRAME_HEADER];
        bytes.extend_from_slice(&[RecordKind::Paused as u8, 0, 0, 0]);
        bytes.extend_from_slice(&(body.len() as u32).to_le_bytes());
        bytes.extend_from_slice(body);
        bytes.resize(bytes.len().next_multiple_of(ALIGN), 0);
        seal(&mut bytes, segment, number, salt);
        bytes
    }

    /// A segment with these frames, and after them what an earlier use left.
    fn segment(number: u32, frames: &[Vec<u8>], left: &[u8]) -> Vec<u8> {
        let mut bytes = blank(number, SALT)[..SEGMENT_HEADER].to_vec();
        frames.iter().for_each(|frame| bytes.extend_from_slice(frame));
        bytes.extend_from_slice(left);
        bytes
    }

    fn read(bytes: &[u8], number: u32, next: u64) -> (End, u64) {
        let found = read_segment(bytes, number, true, next, |_| true);
        (found.end, found.next)
    }

    #[test]
    fn frames_of_an_earlier_use_and_of_bodies_are_no_frames() {
        let whole = [frame(7, 3, SALT, b"one"), frame(7, 4, SALT, b"two")];
        let end = (SEGMENT_HEADER + whole.iter().map(Vec::len).sum::<usize>()) as u64;
        // All of it right, but for the salt, which nobody outside knows.
        let forged = frame(7, 5, SALT + 1, &frame(7, 6, 0, b"three"));
        let mut format_1 = forged.clone();
        format_1[..4].copy_from_slice(b"DLJ1");
        for left in [forged, format_1] {
            assert_eq!(read(&segment(7, &whole, &left), 7, 3), (End::Clean(end), 5));
        }
        // In a torn frame as well.
        let mut torn = frame(7, 5, SALT, &frame(7, 6, SALT + 1, b"three"));
        torn[FRAME_HEADER + 4] ^= 1;
        assert_eq!(read(&segment(7, &whole, &torn), 7, 3), (End::Torn(end), 5));
        // One with the salt is ours, and the one before it is bad.
        let mut bad = frame(7, 5, SALT, b"three");
        bad[FRAME_HEADER + 4] ^= 1;
        bad.extend_from_slice(&frame(7, 6, SALT, b"four"));
        assert_eq!(read(&segment(7, &whole, &bad), 7, 3), (End::Damaged(end), 5));
    }

    #[test]
    fn a_segment_is_unused_used_or_damaged_and_its_beginning_says_which() {
        let unused = blank(7, SALT);
        assert_eq!(start(&unused, 7, true), Start::Unused);
        assert_eq!(start(&unused, 6, true), Start::Unused, "its next number, and not yet its next name");
        let used = segment(7, &[frame(7, 1, SALT, b"one")], &[]);
        assert_eq!(start(&used, 7, true), Start::Used(Layout::Salted(SALT)));
        assert_eq!(start(&used, 8, true), Start::Bad(0), "another's");
        assert_eq!(start(&[0; 4096], 7, true), Start::Bad(0));
        assert_eq!(start(&[], 7, true), Start::Bad(0));
        for at in 0..20 {
            let mut bad = used.clone();
            bad[at] ^= 1;
            assert_eq!(start(&bad, 7, true), Start::Bad(0), "byte {at}");
        }
        for at in (32..40).chain(56..64) {
            let mut bad = used.clone();
            bad[at] ^= 1;
            assert_eq!(start(&bad, 7, true), Start::Bad(32), "byte {at}");
        }
    }

    #[test]
    fn a_record_that_cannot_be_understood_is_not_passed_over() {
        let mut unknown = frame(7, 1, SALT, b"one");
        unknown[FRAME_HEADER] = 99;
        seal(&mut unknown, 7, 1, SALT);
        assert_eq!(read(&segment(7, &[unknown], &[]), 7, 1), (End::Damaged(SEGMENT_HEADER as u64), 1));
        let mut long = frame(7, 1, SALT, b"one");
        long[FRAME_HEADER + 4] = 200;
        seal(&mut long, 7, 1, SALT);
        assert_eq!(read(&segment(7, &[long], &[]), 7, 1), (End::Damaged(SEGMENT_HEADER as u64), 1));
    }
}
