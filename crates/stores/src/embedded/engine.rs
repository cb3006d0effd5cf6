//! The state of the store in memory. Everything here happens under one lock and does no waiting.
//!
//! Each part owns its own invariants; the methods here keep the parts in step: a message that ends leaves the index, its table or
//! segment, and the counts of its lane and bucket together.

use std::sync::Arc;

use bytes::Bytes;
use duly_core::{
    Lane, Monotonic, Now, Timestamp,
    store::{StoreError, StoreErrorKind, Totals},
};

use super::{
    Options,
    buckets::Buckets,
    buffer::Buffer,
    damage::DamagedMessages,
    disk::DiskFile,
    ended::{self, EndKind, Ended},
    entry::{self, Peek},
    in_flight::{ClaimedMessage, InFlight},
    index::{Index, Marks, Position},
    journal::{Journal, RecordKind, SPARES_KEPT},
    lanes::{HotEntry, Lanes, ReleaseKey},
    lifecycle::Lifecycle,
    options::{ENDED_BYTES_MAX, WAITING_BYTES_MAX},
    sequences::Sequences,
    stall::Stalls,
    tables::Tables,
    wheel::{Route, Slot},
};

/// The kind of change that needs room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// New messages: they leave the reserve alone.
    Insert,
    /// Changes and ends of messages: they may use the reserve, so that a full disk drains.
    Change,
}

/// Whether there is room.
pub(super) enum Admission {
    Granted,
    /// Not yet: the writer or the background thread must catch up first.
    Wait,
}

/// The store in memory.
///
/// Invariants over its parts:
/// - The index has exactly one position for each live message. The entry at that position is whole, and is counted as alive by its table or
///   by its journal segment.
/// - A live message is counted by its lane as pending, in flight or dead. A pending one is *near* (its mark in the index), and then its
///   lane counts it as such, or it is counted by one bucket.
/// - A message is marked as claimed in the index exactly while `in_flight` has it, or while it is quarantined as damaged.
pub(super) struct Engine {
    pub(super) options: Options,
    /// The time of the last call.
    pub(super) now: Now,
    /// Where each live message is.
    pub(super) index: Index,
    /// The hot window and the counts of each lane.
    pub(super) lanes: Lanes,
    /// Messages that are not near.
    pub(super) buckets: Buckets,
    pub(super) tables: Tables,
    pub(super) journal: Journal,
    pub(super) in_flight: InFlight,
    /// Records of ended messages.
    pub(super) ended: Ended,
    /// Dead letters on their way to their table.
    pub(super) dead_buffer: Buffer,
    /// Messages that cannot be read.
    pub(super) damaged: DamagedMessages,
    /// How many messages were ever accepted, delivered, cancelled and purged.
    pub(super) ever: Totals,
    pub(super) sequences: Sequences,
    pub(super) lifecycle: Lifecycle,
    /// Whether the journal and the background thread go on.
    pub(super) stalls: Stalls,
}

impl Engine {
    pub(super) fn check_open(&self) -> Result<(), StoreError> {
        self.lifecycle.check_open()
    }

    /// Whether a caller may add about `bytes` to the journal now.
    pub(super) fn admit(&mut self, bytes: usize, class: Class) -> Result<Admission, StoreError> {
        self.check_open()?;
        // A request for more than half a segment is treated as one for half a segment: it must get in some time.
        let bytes = (bytes as u64).min(self.options.segment_bytes / 2);
        // The reserve is for callers that are admitted at the same time: each must find the room that it was promised.
        let reserve = self.options.segment_bytes / if class == Class::Insert { 1 } else { 8 };
        if self.journal.room() < bytes + reserve {
            if self.lifecycle.is_full() {
                let what = "the disk has no room for new messages; free some, and Duly goes on by itself";
                return Err(StoreError::new(StoreErrorKind::Full, what));
            }
            return Ok(Admission::Wait);
        }
        if class == Class::Insert && self.lifecycle.is_full() {
            let what =
                "the disk is full; what is stored still goes out; free some room, and Duly goes on by itself";
            return Err(StoreError::new(StoreErrorKind::Full, what));
        }
        let is_crowded = class == Class::Insert
            && (self.buckets.buffered() > 3 * self.options.buffer_bytes
                || self.lanes.hot_bytes() > 2 * self.options.window_bytes);
        if is_crowded || self.journal.waiting() > WAITING_BYTES_MAX {
            return Ok(Admission::Wait);
        }
        Ok(Admission::Granted)
    }

    /// Sets the time, and notes what is under way at it.
    pub(super) fn set_now(&mut self, now: Now) {
        self.now = now;
        self.stalls.observe(self.journal.writing_at(), now.mono());
    }

    /// Sets the time. Returns whether buckets must be opened now: then the background thread is to be woken.
    pub(super) fn tick(&mut self, now: Now) -> bool {
        self.set_now(now);
        let wanted = self.buckets.wanted(now.wall());
        if wanted == *self.buckets.opened() {
            return false;
        }
        !self.buckets.try_open_to(wanted) || self.tables.blocked().is_behind(&wanted)
    }

    /// The number of a lane. A new lane gets one.
    pub(super) fn lane_number(&mut self, lane: &Lane) -> Result<u32, StoreError> {
        if let Some(number) = self.lanes.number(lane) {
            return Ok(number);
        }
        let number = self.lanes.next().ok_or_else(|| {
            let what = "this store has had as many topics as it can number; move its messages to a new one \
                        (duly migrate-store), and do not use a topic per message";
            StoreError::new(StoreErrorKind::TooMany, what)
        })?;
        self.lanes.add(number, lane.clone());
        let position = self.journal.add(RecordKind::Lane, |out| write_lane(number, lane, out));
        self.lanes.named_in(number, position.file);
        Ok(number)
    }

    /// Gives a new entry a lane number that is in use: the number that its caller saw may have been forgotten since.
    pub(super) fn renumber(
        &mut self,
        lane: impl FnOnce() -> Lane,
        entry: &mut [u8],
    ) -> Result<(), StoreError> {
        if Peek::framed(entry).is_ok_and(|peek| self.lanes.get(peek.lane()).is_some()) {
            return Ok(());
        }
        let number = self.lane_number(&lane())?;
        entry::set_lane(entry, number);
        Ok(())
    }

    /// Gives an entry the next version. This happens under the lock, so that the order of versions is the order of the journal.
    fn stamp(&mut self, entry: &mut [u8]) {
        entry::stamp(entry, self.sequences.version());
    }

    /// The journal names the lane of this entry at `position`.
    fn note_lane(&mut self, entry: &[u8], position: Position) {
        if let Ok(peek) = Peek::framed(entry) {
            self.lanes.named_in(peek.lane(), position.file);
        }
    }

    /// Takes a new message: its entry and the hash of its id.
    pub(super) fn accept(&mut self, hash: u64, entry: &mut [u8]) {
        self.stamp(entry);
        let position = self.journal.add(RecordKind::Accepted, |out| out.extend_from_slice(entry));
        self.note_lane(entry, position);
        self.journal.count(position.file, true);
        let marks = self.place_entry(hash, position, entry);
        self.index.insert(hash, position, marks);
        self.ever.accepted += 1;
    }

    /// Replaces the entry of a message. It is not claimed any more.
    pub(super) fn change(&mut self, hash: u64, old: Position, old_bytes: u64, entry: &mut [u8]) {
        self.stamp(entry);
        let position = self.journal.add(RecordKind::Changed, |out| out.extend_from_slice(entry));
        self.note_lane(entry, position);
        self.journal.count(position.file, true);
        self.forget_position(old, old_bytes);
        let marks = self.place_entry(hash, position, entry);
        self.index.replace(hash, old, position, Some(marks));
    }

    /// Ends a message. `head` is what is kept of it.
    pub(super) fn end(
        &mut self,
        hash: u64,
        position: Position,
        bytes: u64,
        kind: EndKind,
        receipt: Option<&str>,
        head: &[u8],
    ) {
        let at = self.now.wall();
        let mut kept = self.ended.take_scratch();
        ended::encode(kind, at, receipt, head, &mut kept);
        let ended = self.journal.add(RecordKind::Ended, |out| out.extend_from_slice(&kept));
        if let Ok(peek) = Peek::of_head(head) {
            self.lanes.named_in(peek.lane(), ended.file);
        }
        self.forget_position(position, bytes);
        let removed = self.index.remove(hash, position);
        debug_assert!(removed.is_some(), "a message that ends was alive at its position");
        self.ended.keep(hash, at, &kept);
        self.ended.return_scratch(kept);
        self.count_end(kind);
    }

    pub(super) fn count_end(&mut self, kind: EndKind) {
        match kind {
            EndKind::Delivered => self.ever.delivered += 1,
            EndKind::Cancelled => self.ever.cancelled += 1,
            EndKind::Purged => self.ever.purged += 1,
        }
    }

    /// Puts an entry where its state and its time say: among the dead letters, into the hot window, or into a bucket. Returns how it
    /// is marked.
    pub(super) fn place_entry(&mut self, hash: u64, position: Position, entry: &[u8]) -> Marks {
        let Ok(peek) = Peek::framed(entry) else { return Marks::default() };
        let Some(mut lane) = self.lanes.get_mut(peek.lane()) else { return Marks::default() };
        if peek.is_dead() {
            lane.add_dead();
            self.dead_buffer.push(hash, position, entry);
            return Marks::default();
        }
        lane.add_pending();
        self.place_pending(hash, position, peek)
    }

    /// Puts a pending entry into the hot window or into a bucket. Returns how it is marked.
    pub(super) fn place_pending(&mut self, hash: u64, position: Position, peek: Peek<'_>) -> Marks {
        match self.buckets.route(peek.ready()) {
            Route::Near => {
                // Beyond the budget only the key stays in memory: the entry is read back when its turn comes.
                let fits = self.lanes.hot_bytes() + peek.len() < self.options.window_bytes;
                let data = fits.then(|| Bytes::copy_from_slice(peek.bytes()));
                self.place_near(hash, position, peek, data)
            }
            Route::Bucket(slot) => {
                self.buckets.push(slot, hash, position, peek, false);
                Marks::default()
            }
        }
    }

    /// Puts a pending entry into the hot window of its lane.
    pub(super) fn place_near(
        &mut self,
        hash: u64,
        position: Position,
        peek: Peek<'_>,
        data: Option<Bytes>,
    ) -> Marks {
        let (Some(mut lane), Ok(key)) = (self.lanes.get_mut(peek.lane()), ReleaseKey::of(peek)) else {
            return Marks::default();
        };
        lane.add_near();
        lane.insert_hot(key, HotEntry { hash, position, data, suspect: peek.is_lost() });
        Marks { claimed: false, near: true }
    }

    /// The entry at `position` is no longer alive there.
    pub(super) fn forget_position(&mut self, position: Position, bytes: u64) {
        if !self.journal.count(position.file, false) && self.tables.forget(position, bytes) {
            self.retire_if_empty(position.file);
        }
    }

    /// Lets a table with nothing alive go with the next manifest, unless it is being written to.
    pub(super) fn retire_if_empty(&mut self, number: u32) {
        if self.tables.retire(number)
            && let Some(slot) = self.tables.slot(number)
        {
            self.buckets.remove_table(slot, number);
        }
    }

    /// Takes a pending message out of the counts: it was cancelled or changed.
    pub(super) fn uncount(&mut self, position: Position, marks: Marks, peek: Peek<'_>) {
        let Some(mut lane) = self.lanes.get_mut(peek.lane()) else { return };
        lane.remove_pending();
        if marks.near {
            lane.remove_near();
            if let Ok(key) = ReleaseKey::of(peek) {
                lane.remove_hot(&key);
            }
            return;
        }
        self.uncount_far(position, peek.ready());
    }

    /// Takes a message that is not near out of the counts of its bucket.
    pub(super) fn uncount_far(&mut self, position: Position, ready: Timestamp) {
        if let Some(slot) = self.counted_in(position, ready) {
            self.buckets.uncount(slot, ready);
        }
    }

    /// The bucket that counts a message that is not near: the bucket of its table, or the one that it is on its way to.
    fn counted_in(&self, position: Position, ready: Timestamp) -> Option<Slot> {
        if let Some(slot) = self.tables.slot(position.file) {
            return Some(slot);
        }
        let Route::Bucket(routed) = self.buckets.route(ready) else { return None };
        // Before the clock stepped back, it may have been on its way to a narrower one.
        let narrower = (0..routed.level).map(|level| Slot::at(level, ready));
        std::iter::once(routed).chain(narrower).find(|slot| self.buckets.counts(*slot, ready))
    }

    /// Takes a dead letter out of the counts: it was replayed or purged.
    pub(super) fn uncount_dead(&mut self, lane: u32) {
        if let Some(mut lane) = self.lanes.get_mut(lane) {
            lane.remove_dead();
        }
    }

    /// Ends a claim. What becomes of its message is up to the caller.
    pub(super) fn end_claim(&mut self, token: u64) -> Option<ClaimedMessage> {
        let held = self.in_flight.take(token)?;
        if let Some(mut lane) = self.lanes.get_mut(held.lane) {
            lane.end_claim();
        }
        Some(held)
    }

    /// Makes a message claimable again whose claim has [ended](Self::end_claim), as if it had not been claimed.
    pub(super) fn release(&mut self, held: &ClaimedMessage) {
        self.index.set_marks(held.hash, held.position, Marks { claimed: false, near: true });
        let Some(mut lane) = self.lanes.get_mut(held.lane) else { return };
        lane.add_pending();
        lane.add_near();
        let key = ReleaseKey { ready: held.ready, rank: held.rank, id: held.id.clone() };
        let entry = HotEntry { hash: held.hash, position: held.position, data: None, suspect: held.alone };
        lane.insert_hot(key, entry);
    }

    /// The file that holds `position`.
    pub(super) fn file(&self, position: Position) -> Option<Arc<dyn DiskFile>> {
        match self.tables.get(position.file) {
            Some(table) => Some(table.data().clone()),
            None => self.journal.file(position.file),
        }
    }

    /// Whether `position` can be read back already.
    pub(super) fn is_written(&self, position: Position) -> bool {
        self.tables.has(position.file) || self.journal.is_written(position)
    }

    pub(super) fn totals(&self) -> Totals {
        let (in_flight, dead) = (self.in_flight.len() as u64, self.lanes.dead());
        let pending = (self.index.len() as u64).saturating_sub(in_flight + dead);
        self.ever.now(pending, in_flight, dead)
    }

    /// Whether the background thread has something to do that should not wait for its next round.
    pub(super) fn wants_background(&self) -> bool {
        self.wants_flush()
            || self.is_window_full()
            || self.ended.waiting() > ENDED_BYTES_MAX
            || self.journal.uncheckpointed() > self.options.checkpoint_bytes
            || self.journal.spare_count() < 2 + SPARES_KEPT
            || self.ended.wants_file()
    }

    /// Whether the buffers of buckets are to be written.
    pub(super) fn wants_flush(&self) -> bool {
        self.buckets.buffered() > self.options.buffer_bytes
    }

    /// Whether the hot window is larger than its budget.
    pub(super) fn is_window_full(&self) -> bool {
        self.lanes.hot_bytes() > self.options.window_bytes
    }

    pub(super) fn lease_end(&self, lease: std::time::Duration) -> Monotonic {
        self.now.mono().saturating_add(lease)
    }
}

/// Writes a lane as the journal has it: number, kind, name.
pub(super) fn write_lane(number: u32, lane: &Lane, out: &mut Vec<u8>) {
    out.extend_from_slice(&number.to_le_bytes());
    let (kind, name) = lane.parts();
    out.push(kind);
    out.extend_from_slice(name.as_bytes());
}

/// Reads a lane back.
pub(super) fn read_lane(bytes: &[u8]) -> Option<(u32, Lane)> {
    let number = u32::from_le_bytes(bytes.get(..4)?.try_into().ok()?);
    let name = std::str::from_utf8(bytes.get(5..)?).ok()?;
    Some((number, Lane::from_parts(bytes[4], name)?))
}
