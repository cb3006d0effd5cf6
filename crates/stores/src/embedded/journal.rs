//! The journal: every change, once, in order, before anybody is answered.
//!
//! Callers append records to the pending frame under the engine's lock; one writer thread takes the frame, writes
//! it, syncs it, and answers all who were in it: group commit. Frame N+1 is written only after N was synced, so a bad
//! last frame is a torn write and is cut whole, and a bad frame with a valid one after it is damage.
//! How frames and segments lie on disk is in [`segment`](super::segment).

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
    index::Place,
    segment::{FRAME_HEADER, RECORD_HEADER, SEGMENT_HEADER, Salt, seal},
};

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
    pub(super) fn of(byte: u8) -> Option<Self> {
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
    /// What its frames carry.
    pub(super) salt: Salt,
    /// Entries that are alive nowhere else.
    pub(super) live: u64,
    /// The number of its first frame, once it is in use.
    pub(super) first: u64,
}

/// Spare segments that are left alone while the store is open: opening it takes one, also on a disk that has no room for another.
pub(super) const SPARES_KEPT: usize = 1;

/// The end of the journal, where records are added.
pub(super) struct Tail {
    /// Not yet taken by the writer, oldest first; the last one takes records.
    frames: VecDeque<Frame>,
    /// Segments in use, oldest first; the last one is the current.
    pub(super) segments: VecDeque<Segment>,
    /// Segments ready for use, in the order of their numbers.
    pub(super) spares: VecDeque<Segment>,
    segment_bytes: u64,
    /// Segments from this number on have a header and salted frames; those before were written by format 1.
    pub(super) salted_from: u32,
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
            salted_from: 0,
            idle: Vec::new(),
            in_hand: None,
            appended: 0,
            writing: Arc::default(),
            durable: number.saturating_sub(1),
        };
        tail.writing.finish(true);
        tail.frames.push_back(tail.frame(&first, SEGMENT_HEADER as u64, number));
        tail.segments.push_back(first);
        tail
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
        // There is always one: `new` makes it and `take` puts another before it removes one.
        let last = self.frames.len() - 1;
        &mut self.frames[last]
    }

    /// Bytes that can be added without laying down another segment, and without those that are left alone.
    pub(super) fn room(&mut self) -> u64 {
        let here = self.segment_bytes.saturating_sub(self.last().end());
        here + self.spares.len().saturating_sub(SPARES_KEPT) as u64 * self.segment_bytes
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
