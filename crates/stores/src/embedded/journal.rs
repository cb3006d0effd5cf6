//! The journal: every change, once, in order, before anybody is answered.
//!
//! Group commit: callers append records to the last frame under the engine's lock. One writer thread takes the frame, writes
//! it, syncs it, and answers every caller with a record in it. Frame N+1 is written only after frame N was synced. So a bad
//! last frame is a torn write and is cut off, and a bad frame with a valid one after it is damage.
//! The format of frames and segments on disk is in [`segment`](super::segment).

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use tokio::sync::Notify;

use super::{
    disk::DiskFile,
    entry::ALIGN,
    index::Position,
    segment::{FRAME_HEADER, RECORD_HEADER, SEGMENT_HEADER, Salt, seal},
};

/// The kind of a record. The numbers are written to disk: they never change, and a new kind gets a new number.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum RecordKind {
    /// A message was accepted: its entry.
    Accepted = 0,
    /// A known message has a new entry: retried, rescheduled, dead, replayed.
    Changed = 1,
    /// A message has ended: what is kept of it.
    Ended = 2,
    /// A lane was seen for the first time: its number and name.
    Lane = 3,
    /// A lane was paused or resumed.
    Paused = 4,
}

impl RecordKind {
    pub(super) fn of(byte: u8) -> Option<Self> {
        [Self::Accepted, Self::Changed, Self::Ended, Self::Lane, Self::Paused]
            .into_iter()
            .find(|kind| *kind as u8 == byte)
    }
}

/// Whether a frame is durable. Everybody with a record in it waits here.
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

/// Records on their way to one position of one segment.
pub(super) struct Frame {
    pub(super) file: Arc<dyn DiskFile>,
    pub(super) base: u64,
    pub(super) commit: Arc<Commit>,
    segment: u32,
    salt: Salt,
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
        seal(&mut self.bytes, self.segment, self.number, self.salt);
        &self.bytes
    }
}

/// A segment laid down and ready for use.
pub(super) struct Segment {
    pub(super) number: u32,
    pub(super) file: Arc<dyn DiskFile>,
    /// The salt of its frames.
    pub(super) salt: Salt,
    /// Entries that are alive nowhere else.
    pub(super) live: u64,
    /// The number of its first frame, once it is in use.
    pub(super) first: u64,
}

/// Spare segments that an open store does not use. Opening the store takes one, so that it can be opened on a full disk.
pub(super) const SPARES_KEPT: usize = 1;

/// The end of the journal, where records are added.
///
/// Invariants:
/// - There is always a last frame and a current segment: the last frame takes records, and lies in the current segment.
/// - Frames are numbered without a gap, and frame N+1 is taken by the writer only after frame N.
/// - `segments` ascend by number. One is dropped only when no entry in it is alive and a manifest starts behind it.
/// - `checkpointed` never exceeds `appended`.
pub(super) struct Journal {
    /// Not yet taken by the writer, oldest first.
    frames: VecDeque<Frame>,
    /// Segments in use, oldest first; the last one is the current.
    segments: VecDeque<Segment>,
    /// Segments ready for use, in the order of their numbers.
    spares: VecDeque<Segment>,
    segment_bytes: u64,
    /// Segments from this number on have a header and salted frames; those before were written by format 1.
    salted_from: u32,
    /// Buffers of written frames, to be filled again.
    idle: Vec<Vec<u8>>,
    /// Where the frame begins that the writer has taken.
    writing_at: Option<Position>,
    /// Bytes added since the store was opened.
    appended: u64,
    /// How many of them the last checkpoint covers.
    checkpointed: u64,
    /// The frame that the writer has taken, or had last.
    writing: Arc<Commit>,
    /// The number of the last frame that is durable.
    durable: u64,
    /// The writer has nothing to do and waits to be woken.
    is_writer_idle: bool,
    /// The background thread waits for a frame to become durable.
    is_awaited: bool,
}

impl Journal {
    /// A journal that goes on in segment `first` with frame `number`. `spares` are ready for use.
    pub(super) fn new(
        mut first: Segment,
        spares: VecDeque<Segment>,
        number: u64,
        segment_bytes: u64,
        salted_from: u32,
    ) -> Self {
        first.first = number;
        let mut journal = Self {
            frames: VecDeque::new(),
            segments: VecDeque::new(),
            spares,
            segment_bytes,
            salted_from,
            idle: Vec::new(),
            writing_at: None,
            appended: 0,
            checkpointed: 0,
            writing: Arc::default(),
            durable: number.saturating_sub(1),
            is_writer_idle: false,
            is_awaited: false,
        };
        journal.writing.finish(true);
        journal.frames.push_back(journal.frame(&first, SEGMENT_HEADER as u64, number));
        journal.segments.push_back(first);
        journal
    }

    fn frame(&self, segment: &Segment, base: u64, number: u64) -> Frame {
        Frame {
            file: segment.file.clone(),
            base,
            commit: Arc::default(),
            segment: segment.number,
            salt: segment.salt,
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
        // There is always one: `new` makes the first, and `take` adds one before it removes one.
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Bytes that can be added without laying down another segment, and without the spares that are kept for opening.
    pub(super) fn room(&mut self) -> u64 {
        let here = self.segment_bytes.saturating_sub(self.last().end());
        here + self.spares.len().saturating_sub(SPARES_KEPT) as u64 * self.segment_bytes
    }

    /// Bytes waiting for the writer.
    pub(super) fn waiting(&self) -> usize {
        self.frames.iter().map(|frame| frame.bytes.len()).sum()
    }

    /// Adds a record and says where its body lies. `write` appends the body.
    pub(super) fn add(&mut self, kind: RecordKind, write: impl FnOnce(&mut Vec<u8>)) -> Position {
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
        Position::new(self.last().segment, at)
    }

    /// The record at `start` of the last frame did not fit its segment: it opens the next one.
    fn move_to(&mut self, segment: Segment, start: usize) -> u64 {
        let last = self.last();
        let record = last.bytes.split_off(start);
        let number = last.number + 1;
        let mut frame = self.frame(&segment, SEGMENT_HEADER as u64, number);
        frame.bytes.extend_from_slice(&record);
        if self.last().is_empty() {
            // Nobody waits for an empty frame, and its number must not be missing.
            frame.number = self.last().number;
            frame.commit = self.last().commit.clone();
            self.frames.pop_back();
        }
        self.segments.push_back(Segment { first: frame.number, ..segment });
        self.frames.push_back(frame);
        (SEGMENT_HEADER + FRAME_HEADER + RECORD_HEADER) as u64
    }

    /// The commit to wait for until everything added so far is durable.
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

    /// Nothing more will be written: everybody who waits for a frame gets an error.
    pub(super) fn fail(&mut self) {
        if self.writing_at.is_some() {
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
        self.writing_at = Some(Position::new(frame.segment, frame.base));
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

    /// The frame is durable: it can be read, and its buffer used again. Returns whether the background thread waits for that.
    pub(super) fn wrote(&mut self, frame: Frame) -> bool {
        self.writing_at = None;
        self.durable = frame.number;
        if self.idle.len() < 2 && frame.bytes.capacity() <= 4 << 20 {
            self.idle.push(frame.bytes);
        }
        std::mem::take(&mut self.is_awaited)
    }

    /// Where the frame begins that is being written and synced.
    pub(super) fn writing_at(&self) -> Option<Position> {
        self.writing_at
    }

    /// Whether what was added at `position` has been written.
    pub(super) fn is_written(&self, position: Position) -> bool {
        let begun = |start: Position| start.file == position.file && start <= position;
        let waiting = self.frames.iter().map(|frame| Position::new(frame.segment, frame.base));
        !waiting.chain(self.writing_at).any(begun)
    }

    /// The number of the segment that records go to now.
    pub(super) fn current(&self) -> u32 {
        self.segments.back().map_or(0, |segment| segment.number)
    }

    /// Whether every frame before `next` is durable.
    pub(super) fn is_durable_before(&self, next: u64) -> bool {
        self.durable + 1 >= next
    }

    pub(super) fn salted_from(&self) -> u32 {
        self.salted_from
    }

    /// The file of a segment in use.
    pub(super) fn file(&self, segment: u32) -> Option<Arc<dyn DiskFile>> {
        self.segments.iter().find(|known| known.number == segment).map(|known| known.file.clone())
    }

    /// Segments in use.
    pub(super) fn segment_count(&self) -> usize {
        self.segments.len()
    }

    pub(super) fn spare_count(&self) -> usize {
        self.spares.len()
    }

    /// Adds a segment that was laid down and not used, with a number larger than all before.
    pub(super) fn add_spare(&mut self, segment: Segment) {
        self.spares.push_back(segment);
    }

    /// Puts a segment of an earlier process before the current one. They come in the order of their numbers.
    pub(super) fn add_replayed(&mut self, segment: Segment) {
        let current = self.segments.len() - 1;
        self.segments.insert(current, segment);
    }

    /// Replay read so many bytes that no checkpoint covers: they bring the next one nearer, whoever wrote them.
    pub(super) fn note_replayed(&mut self, bytes: u64) {
        self.appended += bytes;
    }

    /// Takes out segments of earlier processes without a whole frame, and returns their numbers.
    pub(super) fn remove_empty(&mut self) -> Vec<u32> {
        let current = self.current();
        let firsts = self.segments.iter().skip(1).map(|segment| segment.first);
        // If the next segment begins with the same frame, there is none in this one.
        let empty: Vec<u32> = self
            .segments
            .iter()
            .zip(firsts)
            .filter(|(segment, next)| segment.first == *next && segment.number != current)
            .map(|(segment, _)| segment.number)
            .collect();
        self.segments.retain(|segment| !empty.contains(&segment.number));
        empty
    }

    /// The first segment that is needed if everything before `segment` was moved out of the journal, and its first frame.
    pub(super) fn first_needed(&self, segment: u32) -> Option<(u32, u64)> {
        let first = self.segments.iter().find(|known| known.live > 0 || known.number == segment);
        first.map(|known| (known.number, known.first))
    }

    /// Drops the segments before `start`, which the manifest does not need any more, and gives their numbers. All that was added so
    /// far counts as covered by its checkpoint: what came since the snapshot is little, and delays the next one a little.
    pub(super) fn checkpointed(&mut self, start: u32) -> Vec<u32> {
        let mut dropped = Vec::new();
        while self.segments.len() > 1 && self.segments.front().is_some_and(|first| first.number < start) {
            dropped.extend(self.segments.pop_front().map(|segment| segment.number));
        }
        self.checkpointed = self.appended;
        dropped
    }

    /// Bytes added since the last checkpoint.
    pub(super) fn uncheckpointed(&self) -> u64 {
        self.appended - self.checkpointed
    }

    /// The writer waits until it is [woken](Self::wake_writer).
    pub(super) fn idle_writer(&mut self) {
        self.is_writer_idle = true;
    }

    /// Whether the writer waits to be woken. From now on it does not.
    pub(super) fn wake_writer(&mut self) -> bool {
        std::mem::take(&mut self.is_writer_idle)
    }

    /// The background thread waits for the next frame to become durable.
    pub(super) fn await_frame(&mut self) {
        self.is_awaited = true;
    }

    /// Empties the spares, so that there is no room.
    #[cfg(test)]
    pub(super) fn take_spares(&mut self) -> VecDeque<Segment> {
        std::mem::take(&mut self.spares)
    }
}

#[cfg(test)]
mod tests;
