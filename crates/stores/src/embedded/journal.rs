//! The journal: every change, once, in order, before anybody is answered.
//!
//! Callers append records to the pending frame under the engine's lock; one writer thread takes the frame, writes
//! it, syncs it, and answers all who were in it: group commit. Frame N+1 is written only after N was synced, so a bad
//! last frame is a torn write and is cut whole, and a bad frame with a valid one after it is damage.
//!
//! ```text
//! frame:   magic u32, segment u32, number u64, payload length u32, crc32c u32, 8 zero bytes, then records
//! record:  kind u8, 3 zero bytes, length u32, then the record, padded to 8
//! ```
//! Segments are laid down before they are needed (a sync into written blocks is cheap, and a full disk cannot tear a
//! frame) and used again under a new number: old frames in them carry the old one and are not mistaken for new.

use std::{
    collections::VecDeque,
    io,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use tokio::sync::Notify;

use super::{disk::DiskFile, entry::ALIGN, index::Place, table::read_all};

const MAGIC: u32 = 0x314a_4c44;
/// Bytes of a frame before its records.
pub(super) const FRAME_HEADER: usize = 32;
/// Bytes of a record before its body.
pub(super) const RECORD_HEADER: usize = 8;

/// What a record says.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Kind {
    /// A message was accepted: its entry.
    Accepted,
    /// A known message has a new entry: retried, rescheduled, dead, replayed.
    Changed,
    /// A message is over: what is kept of it.
    Ended,
    /// A lane was seen first: its number and name.
    Lane,
    /// A lane was paused or resumed.
    Paused,
}

impl Kind {
    fn of(byte: u8) -> Option<Self> {
        [Self::Accepted, Self::Changed, Self::Ended, Self::Lane, Self::Paused]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Whether a frame is durable; all who are in it wait here.
#[derive(Default)]
pub(super) struct Commit {
    state: AtomicU8,
    notify: Notify,
}

impl Commit {
    const DONE: u8 = 1;
    const FAILED: u8 = 2;

    /// Waits until the frame is synced; `false` if that failed.
    pub(super) async fn wait(&self) -> bool {
        loop {
            let notified = self.notify.notified();
            tokio::pin!(notified);
            notified.as_mut().enable();
            match self.state.load(Ordering::Acquire) {
                0 => notified.await,
                state => return state == Self::DONE,
            }
        }
    }

    pub(super) fn finish(&self, good: bool) {
        self.state.store(if good { Self::DONE } else { Self::FAILED }, Ordering::Release);
        self.notify.notify_waiters();
    }
}

/// Records on their way to one place of one segment.
pub(super) struct Frame {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) base: u64,
    pub(super) commit: Arc<Commit>,
    segment: u32,
    number: u64,
    bytes: Vec<u8>,
}

impl Frame {
    fn is_empty(&self) -> bool {
        self.bytes.len() <= FRAME_HEADER
    }

    fn end(&self) -> u64 {
        self.base + self.bytes.len() as u64
    }

    /// The frame's bytes, its header filled in.
    pub(super) fn seal(&mut self) -> &[u8] {
        let payload = (self.bytes.len() - FRAME_HEADER) as u32;
        let header = &mut self.bytes[..FRAME_HEADER];
        header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4..8].copy_from_slice(&self.segment.to_le_bytes());
        header[8..16].copy_from_slice(&self.number.to_le_bytes());
        header[16..20].copy_from_slice(&payload.to_le_bytes());
        let crc = crc32c::crc32c_append(crc32c::crc32c(&self.bytes[..20]), &self.bytes[FRAME_HEADER..]);
        self.bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        &self.bytes
    }
}

/// A segment laid down and ready for use.
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) file: Arc<dyn DiskFile>,
    /// Entries that are alive nowhere else.
    pub(super) live: u64,
    /// The number of its first frame, once it is in use.
    pub(super) first: u64,
}

/// The end of the journal, where records are added.
pub(super) struct Tail {
    /// Not yet taken by the writer, oldest first; the last one takes records.
    frames: VecDeque<Frame>,
    /// Segments in use, oldest first; the last one is the current.
    pub(super) segments: VecDeque<Segment>,
    /// Segments ready for use, in the order of their numbers.
    pub(super) spares: VecDeque<Segment>,
    segment_bytes: u64,
    /// Buffers of frames written, to be filled again.
    idle: Vec<Vec<u8>>,
    /// Where the frame begins that the writer has in hand.
    in_hand: Option<Place>,
    /// Bytes added since the store was opened.
    pub(super) appended: u64,
    /// The frame that the writer has in hand, or had last.
    writing: Arc<Commit>,
    /// The number of the last frame that is durable.
    pub(super) durable: u64,
}

impl Tail {
    pub(super) fn new(mut first: Segment, number: u64, segment_bytes: u64) -> Self {
        first.first = number;
        let mut tail = Self {
            frames: VecDeque::new(),
            segments: VecDeque::new(),
            spares: VecDeque::new(),
            segment_bytes,
            idle: Vec::new(),
            in_hand: None,
            appended: 0,
            writing: Arc::default(),
            durable: number.saturating_sub(1),
        };
        tail.writing.finish(true);
        tail.frames.push_back(tail.frame(&first, 0, number));
        tail.segments.push_back(first);
        tail
    }

    fn frame(&self, segment: &Segment, base: u64, number: u64) -> Frame {
        Frame {
            file: segment.file.clone(),
            base,
            commit: Arc::default(),
            segment: segment.number,
            number,
            bytes: vec![0; FRAME_HEADER],
        }
    }

    /// Sets the number of the first frame, before anything was added.
    pub(super) fn start_at(&mut self, number: u64) {
        self.durable = number.saturating_sub(1);
        self.last().number = number;
        if let Some(segment) = self.segments.back_mut() {
            segment.first = number;
        }
    }

    fn last(&mut self) -> &mut Frame {
        // There is always one: `new` makes it and `take` puts another before it removes one.
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Bytes that can be added without laying down another segment.
    pub(super) fn room(&mut self) -> u64 {
        let here = self.segment_bytes.saturating_sub(self.last().end());
        here + self.spares.len() as u64 * self.segment_bytes
    }

    /// Bytes waiting for the writer.
    pub(super) fn waiting(&self) -> usize {
        self.frames.iter().map(|frame| frame.bytes.len()).sum()
    }

    /// Adds a record and says where its body lies. `write` appends the body.
    pub(super) fn add(&mut self, kind: Kind, write: impl FnOnce(&mut Vec<u8>)) -> Place {
        let segment_bytes = self.segment_bytes;
        let frame = self.last();
        let start = frame.bytes.len();
        frame.bytes.extend_from_slice(&[kind as u8, 0, 0, 0, 0, 0, 0, 0]);
        write(&mut frame.bytes);
        let len = frame.bytes.len() - start - RECORD_HEADER;
        frame.bytes[start + 4..start + 8].copy_from_slice(&(len as u32).to_le_bytes());
        frame.bytes.resize((start + RECORD_HEADER + len).next_multiple_of(ALIGN), 0);
        self.appended += (RECORD_HEADER + len) as u64;
        let frame = self.last();
        let mut at = frame.base + (start + RECORD_HEADER) as u64;
        if frame.end() > segment_bytes
            && let Some(segment) = self.spares.pop_front()
        {
            at = self.move_to(segment, start);
        }
        Place::new(self.last().segment, at)
    }

    /// The record at `start` of the last frame did not fit its segment: it opens the next one.
    fn move_to(&mut self, segment: Segment, start: usize) -> u64 {
        let last = self.last();
        let record = last.bytes.split_off(start);
        let number = last.number + 1;
        let mut frame = self.frame(&segment, 0, number);
        frame.bytes.extend_from_slice(&record);
        if self.last().is_empty() {
            // Nobody waits for an empty frame, and its number must not be missing.
            frame.number = self.last().number;
            frame.commit = self.last().commit.clone();
            self.frames.pop_back();
        }
        self.segments.push_back(Segment { first: frame.number, ..segment });
        self.frames.push_back(frame);
        (FRAME_HEADER + RECORD_HEADER) as u64
    }

    /// What to wait for until everything added so far is durable.
    pub(super) fn commit(&self) -> Arc<Commit> {
        self.frames
            .iter()
            .rev()
            .find(|frame| !frame.is_empty())
            .map_or(&self.writing, |frame| &frame.commit)
            .clone()
    }

    /// Ends the last frame, so that what is added from now on has the number that is answered, or a later one.
    pub(super) fn cut(&mut self) -> u64 {
        if !self.last().is_empty() {
            self.push_frame();
        }
        self.last().number
    }

    /// An entry of the segment came alive or ceased to be. `false` if there is no such segment.
    pub(super) fn count(&mut self, segment: u32, born: bool) -> bool {
        let Some(segment) = self.segments.iter_mut().rev().find(|known| known.number == segment) else {
            return false;
        };
        segment.live = if born { segment.live + 1 } else { segment.live.saturating_sub(1) };
        true
    }

    /// Whether `segment` is one of the journal's.
    pub(super) fn has(&self, segment: u32) -> bool {
        self.segments.iter().any(|known| known.number == segment)
    }

    /// Nothing more will be written: all who wait are told.
    pub(super) fn fail(&mut self) {
        if self.in_hand.is_some() {
            self.writing.finish(false);
        }
        self.frames.iter().for_each(|frame| frame.commit.finish(false));
    }

    /// Takes the oldest frame to be written; `None` if nothing was added.
    pub(super) fn take(&mut self) -> Option<Frame> {
        if self.frames.len() == 1 {
            let last = self.last();
            if last.is_empty() {
                return None;
            }
            self.push_frame();
        }
        let frame = self.frames.pop_front()?;
        self.writing = frame.commit.clone();
        self.in_hand = Some(Place::new(frame.segment, frame.base));
        Some(frame)
    }

    /// Begins another frame after the last one, in the same segment.
    fn push_frame(&mut self) {
        let last = self.last();
        let (base, number) = (last.end().next_multiple_of(ALIGN as u64), last.number + 1);
        let mut next = self.frame(&self.segments[self.segments.len() - 1], base, number);
        if let Some(mut bytes) = self.idle.pop() {
            bytes.clear();
            bytes.resize(FRAME_HEADER, 0);
            next.bytes = bytes;
        }
        self.frames.push_back(next);
    }

    /// The frame is durable: it can be read, and its buffer used again.
    pub(super) fn wrote(&mut self, frame: Frame) {
        self.in_hand = None;
        self.durable = frame.number;
        if self.idle.len() < 2 && frame.bytes.capacity() <= 4 << 20 {
            self.idle.push(frame.bytes);
        }
    }

    /// Whether what was added at `place` has been written.
    pub(super) fn is_written(&self, place: Place) -> bool {
        let begun = |start: Place| start.file == place.file && start <= place;
        let waiting = self.frames.iter().map(|frame| Place::new(frame.segment, frame.base));
        !waiting.chain(self.in_hand).any(begun)
    }

    /// The number of the segment that records go to now.
    pub(super) fn current(&self) -> u32 {
        self.segments.back().map_or(0, |segment| segment.number)
    }
}

/// What reading a segment found at its end.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum End {
    /// Nothing more was written: the next frame would begin here.
    Clean(u64),
    /// The last frame is torn; it begins here.
    Torn(u64),
    /// A frame is bad and valid ones follow it.
    Damaged(u64),
}

/// A record read back.
pub(super) struct Record<'a> {
    pub(super) kind: Kind,
    pub(super) body: &'a [u8],
    /// Where the body lies in its segment.
    pub(super) offset: u64,
    /// The number of its frame.
    pub(super) frame: u64,
}

/// Reads the frames of one segment in order, from number `next` on. Says how the segment ends, and the number that follows.
pub(super) fn read_segment(
    bytes: &[u8],
    segment: u32,
    mut next: u64,
    mut each: impl FnMut(Record<'_>) -> bool,
) -> (End, u64) {
    let mut at = 0;
    while let Some(payload) = frame_at(bytes, at, segment, |number| number == next) {
        let mut offset = at + FRAME_HEADER;
        for (kind, body, from) in Records(payload) {
            if !each(Record { kind, body, offset: (offset + from) as u64, frame: next }) {
                return (End::Damaged((offset + from) as u64), next);
            }
        }
        offset += payload.len();
        at = offset.next_multiple_of(ALIGN);
        next += 1;
    }
    let rest = &bytes[at.min(bytes.len())..];
    if has_frame(rest, segment, |number| number >= next) {
        return (End::Damaged(at as u64), next);
    }
    // Old frames of a reused segment are no tear: they name another segment.
    let ours = rest.len() >= FRAME_HEADER
        && rest[4..8] == segment.to_le_bytes()
        && rest[0..4] == MAGIC.to_le_bytes();
    (if ours { End::Torn(at as u64) } else { End::Clean(at as u64) }, next)
}

/// Whether a whole frame of the segment with such a number lies anywhere in `bytes`.
fn has_frame(bytes: &[u8], segment: u32, number_fits: impl Fn(u64) -> bool) -> bool {
    (0..bytes.len()).step_by(ALIGN).any(|at| {
        bytes[at..].starts_with(&MAGIC.to_le_bytes()) && frame_at(bytes, at, segment, &number_fits).is_some()
    })
}

/// Whether anything was written to the segment since it got its number. Only what begins neither with nothing nor with
/// a whole frame of an earlier use is read through: a bad first frame must not hide the ones after it.
pub(super) fn is_used(file: &dyn DiskFile, segment: u32) -> io::Result<bool> {
    let header = read_all(file, 0, FRAME_HEADER as u64)?;
    if header.iter().all(|byte| *byte == 0) {
        return Ok(false);
    }
    if header.len() == FRAME_HEADER && header[0..4] == MAGIC.to_le_bytes() {
        let word =
            |at: usize| u32::from_le_bytes([header[at], header[at + 1], header[at + 2], header[at + 3]]);
        if word(4) == segment {
            return Ok(true);
        }
        let first = read_all(file, 0, FRAME_HEADER as u64 + u64::from(word(16)).min(file.len()?))?;
        if frame_at(&first, 0, word(4), |_| true).is_some() {
            return Ok(false);
        }
    }
    Ok(has_frame(&read_all(file, 0, file.len()?)?, segment, |_| true))
}

fn frame_at(bytes: &[u8], at: usize, segment: u32, number_fits: impl Fn(u64) -> bool) -> Option<&[u8]> {
    let header: &[u8; FRAME_HEADER] = bytes.get(at..at + FRAME_HEADER)?.try_into().ok()?;
    let word = |from: usize| {
        u32::from_le_bytes([header[from], header[from + 1], header[from + 2], header[from + 3]])
    };
    let number = u64::from(word(8)) | u64::from(word(12)) << 32;
    if word(0) != MAGIC || word(4) != segment || !number_fits(number) {
        return None;
    }
    let payload = bytes.get(at + FRAME_HEADER..)?.get(..word(16) as usize)?;
    let crc = crc32c::crc32c_append(crc32c::crc32c(&header[..20]), payload);
    (crc == word(20)).then_some(payload)
}

/// The records of a frame: kind, body, and where the body begins.
struct Records<'a>(&'a [u8]);

impl<'a> IntoIterator for Records<'a> {
    type Item = (Kind, &'a [u8], usize);
    type IntoIter = Box<dyn Iterator<Item = Self::Item> + 'a>;

    fn into_iter(self) -> Self::IntoIter {
        let mut at = 0;
        Box::new(std::iter::from_fn(move || {
            let header = self.0.get(at..at + RECORD_HEADER)?;
            let kind = Kind::of(header[0])?;
            let len = u32::from_le_bytes([header[4], header[5], header[6], header[7]]) as usize;
            let from = at + RECORD_HEADER;
            let body = self.0.get(from..from + len)?;
            at = (from + len).next_multiple_of(ALIGN);
            Some((kind, body, from))
        }))
    }
}
