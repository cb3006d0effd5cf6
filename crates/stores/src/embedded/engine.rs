//! The state of the store in memory. Everything here happens under one lock and does no waiting.

use std::{
    collections::{BTreeMap, HashMap},
    sync::Arc,
};

use bytes::Bytes;
use duly_core::{
    Lane, Monotonic, Now, State, Timestamp,
    store::{StoreError, StoreErrorKind, Totals},
};

use super::{
    Options,
    damage::SetAside,
    disk::DiskFile,
    ended::{self, Ended, Slice},
    entry::{self, Peek},
    in_flight::{Held, InFlight},
    index::{Index, Marks, Place},
    journal::{Kind, SPARES_KEPT, Tail},
    lanes::{HotEntry, Lanes, NearKey},
    moving::blocked::BlockedTables,
    numbers::Numbered,
    options::{ENDED_BYTES_MAX, WAITING_BYTES_MAX},
    table::Table,
    wheel::{FAN, Opened, Route, Slot},
};

/// Entries on their way to a bucket's table.
#[derive(Default)]
pub(super) struct Buffer {
    pub(super) bytes: Vec<u8>,
    /// Per entry: the hash of its id, and where it lies until it is written.
    pub(super) from: Vec<(u64, Place)>,
}

impl Buffer {
    pub(super) fn push(&mut self, hash: u64, place: Place, entry: &[u8]) {
        // Grown by a quarter, not doubled: hundreds of these stand beside each other.
        if self.bytes.capacity() - self.bytes.len() < entry.len() {
            self.bytes.reserve_exact((self.bytes.len() / 4).max(4096).max(entry.len()));
        }
        self.bytes.extend_from_slice(entry);
        self.from.push((hash, place));
    }
}

/// A span of future time.
pub(super) struct Bucket {
    /// Tables written so far; the last one is added to unless it is sealed.
    pub(super) tables: Vec<u32>,
    pub(super) sealed: bool,
    pub(super) buffer: Buffer,
    /// Pending messages in each 64th of the span.
    pub(super) parts: [u32; FAN],
}

impl Default for Bucket {
    fn default() -> Self {
        Self { tables: Vec::new(), sealed: false, buffer: Buffer::default(), parts: [0; FAN] }
    }
}

/// What a caller wants room for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Class {
    /// New messages: they leave the reserve alone.
    Insert,
    /// The end of old ones: they may use the reserve, so that a full disk drains.
    Change,
}

/// Whether there is room.
pub(super) enum Admission {
    Granted,
    /// Not yet: the writer or the background thread must catch up first.
    Wait,
}

/// The store in memory.
pub(super) struct Engine {
    pub(super) options: Options,
    pub(super) now: Now,
    pub(super) opened: Opened,
    pub(super) index: Index,
    pub(super) lanes: Lanes,
    pub(super) buckets: BTreeMap<Slot, Bucket>,
    pub(super) tables: HashMap<u32, Table, Numbered>,
    pub(super) journal: Tail,
    pub(super) flight: InFlight,
    pub(super) ended: Ended,
    /// Dead letters on their way to their table.
    pub(super) dead: Buffer,
    pub(super) dead_count: u64,
    pub(super) totals: Totals,
    pub(super) next_file: u32,
    pub(super) next_version: u64,
    /// Bytes in the buffers of buckets.
    pub(super) buffered: usize,
    /// Bytes of near messages in memory.
    pub(super) window: usize,
    /// The disk has no room: new messages are refused.
    pub(super) full: bool,
    /// Why the store does nothing any more.
    pub(super) closed: Option<String>,
    pub(super) stop: bool,
    /// Tables with nothing alive, deleted once the next manifest no longer names them.
    pub(super) graveyard: Vec<u32>,
    /// The start of the first bucket whose messages are on their way into memory.
    pub(super) arriving: Option<Timestamp>,
    /// The start of a wide bucket whose messages are on their way to narrower ones.
    pub(super) splitting: Option<Timestamp>,
    /// The same two, unless the bucket is so large that claims do not wait for it.
    pub(super) arriving_soon: Option<Timestamp>,
    pub(super) splitting_soon: Option<Timestamp>,
    /// Messages that cannot be read.
    pub(super) damaged: SetAside,
    /// Tables that cannot be moved on now.
    pub(super) blocked: BlockedTables,
    /// Slices whose files go with the next manifest.
    pub(super) ended_over: Vec<Slice>,
    /// Files for slices, made ahead by the background thread.
    pub(super) slice_files: Vec<(u32, Arc<dyn DiskFile>)>,
    pub(super) checkpointed_at: u64,
    /// The claims logs that the next manifest no longer needs.
    pub(super) claim_files: Vec<u32>,
    /// The writer has nothing to do and waits to be woken.
    pub(super) writer_waits: bool,
    /// Bytes that are filled again and again.
    pub(super) scratch: Vec<u8>,
    /// The background thread waits for a frame to become durable.
    pub(super) background_waits: bool,
}

impl Engine {
    pub(super) fn check_open(&self) -> Result<(), StoreError> {
        match &self.closed {
            None => Ok(()),
            Some(why) => Err(StoreError::new(StoreErrorKind::Closed, why.clone())),
        }
    }

    /// Whether a caller may add about `bytes` to the journal now.
    pub(super) fn admit(&mut self, bytes: usize, class: Class) -> Result<Admission, StoreError> {
        self.check_open()?;
        // More than fits is let in all the same, once there is this much: it must get in some time.
        let bytes = (bytes as u64).min(self.options.segment_bytes / 2);
        // The rest is for those who were let in at the same time: a frame must not need room that is not there.
        let reserve = self.options.segment_bytes / if class == Class::Insert { 1 } else { 8 };
        if self.journal.room() < bytes + reserve {
            if self.full {
                let what = "the disk has no room for new messages; free some, and Duly goes on by itself";
                return Err(StoreError::new(StoreErrorKind::Full, what));
            }
            return Ok(Admission::Wait);
        }
        if class == Class::Insert && self.full {
            let what =
                "the disk is full; what is stored still goes out; free some room, and Duly goes on by itself";
            return Err(StoreError::new(StoreErrorKind::Full, what));
        }
        let crowded = class == Class::Insert
            && (self.buffered > 3 * self.options.buffer_bytes || self.window > 2 * self.options.window_bytes);
        if crowded || self.journal.waiting() > WAITING_BYTES_MAX {
            return Ok(Admission::Wait);
        }
        Ok(Admission::Granted)
    }

    /// Notes the time. The background thread must be told if buckets have come near.
    pub(super) fn tick(&mut self, now: Now) -> bool {
        self.now = now;
        let wanted = self.opened.wanted(now.wall());
        if wanted == self.opened {
            return false;
        }
        let behind = self.buckets.keys().any(|slot| slot.number < wanted.0[usize::from(slot.level)]);
        if !behind {
            self.opened = wanted;
        }
        behind || self.blocked.is_behind(&wanted)
    }

    /// The number of a lane, made known if it is new.
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
        let place = self.journal.add(Kind::Lane, |out| write_lane(number, lane, out));
        self.lanes.named_in(number, place.file);
        Ok(number)
    }

    /// Sees to it that a new entry names its lane by a number that is in use: the one that its caller saw may be forgotten by now.
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

    /// Gives an entry the next version. Under the lock, so that the order of versions is the order of the journal.
    fn stamp(&mut self, entry: &mut [u8]) {
        entry::stamp(entry, self.next_version);
        self.next_version += 1;
    }

    /// The journal names the lane of this entry at `place`.
    fn note_lane(&mut self, entry: &[u8], place: Place) {
        if let Ok(peek) = Peek::framed(entry) {
            self.lanes.named_in(peek.lane(), place.file);
        }
    }

    /// Takes a new message: its entry and the hash of its id.
    pub(super) fn accept(&mut self, hash: u64, entry: &mut [u8]) {
        self.stamp(entry);
        let place = self.journal.add(Kind::Accepted, |out| out.extend_from_slice(entry));
        self.note_lane(entry, place);
        self.journal.count(place.file, true);
        let marks = self.settle_down(hash, place, entry);
        self.index.insert(hash, place, marks);
        self.totals.accepted += 1;
    }

    /// Replaces the entry of a message. It is not claimed any more.
    pub(super) fn change(&mut self, hash: u64, old: Place, old_bytes: u64, entry: &mut [u8]) {
        self.stamp(entry);
        let place = self.journal.add(Kind::Changed, |out| out.extend_from_slice(entry));
        self.note_lane(entry, place);
        self.journal.count(place.file, true);
        self.leave(old, old_bytes);
        let marks = self.settle_down(hash, place, entry);
        self.index.replace(hash, old, place, Some(marks));
    }

    /// Ends a message. `head` is what is kept of it; `state` `None` keeps nothing.
    pub(super) fn end(
        &mut self,
        hash: u64,
        place: Place,
        bytes: u64,
        state: State,
        receipt: Option<&str>,
        head: &[u8],
    ) {
        let at = self.now.wall();
        let mut kept = std::mem::take(&mut self.scratch);
        kept.clear();
        ended::encode(state, at, receipt, head, &mut kept);
        let ended = self.journal.add(Kind::Ended, |out| out.extend_from_slice(&kept));
        if let Ok(peek) = Peek::of_head(head) {
            self.lanes.named_in(peek.lane(), ended.file);
        }
        self.leave(place, bytes);
        let gone = self.index.remove(hash, place);
        debug_assert!(gone.is_some(), "what ends was alive at its place");
        self.keep(hash, at, &kept);
        self.scratch = kept;
        match state {
            State::Delivered => self.totals.delivered += 1,
            State::Cancelled => self.totals.cancelled += 1,
            _ => self.totals.purged += 1,
        }
    }

    /// Keeps the end of a message for as long as retention says.
    pub(super) fn keep(&mut self, hash: u64, at: Timestamp, kept: &[u8]) {
        if self.ended.wants_slice(at)
            && let Some((number, file)) = self.slice_files.pop()
        {
            self.ended.slices.push_back(Slice::new(number, file, at));
        }
        self.ended.add(hash, at, kept);
        if self.ended.slices.len() > 2 {
            let over = self.ended.expire(at);
            self.ended_over.extend(over);
        }
    }

    /// Puts an entry where its time says: near, into a bucket, or among the dead. Says how it is marked.
    pub(super) fn settle_down(&mut self, hash: u64, place: Place, entry: &[u8]) -> Marks {
        let Ok(peek) = Peek::framed(entry) else { return Marks::default() };
        let Some(lane) = self.lanes.get_mut(peek.lane()) else { return Marks::default() };
        if peek.is_dead() {
            lane.dead += 1;
            self.dead_count += 1;
            self.dead.push(hash, place, entry);
            return Marks::default();
        }
        lane.pending += 1;
        self.arrange(hash, place, peek, entry)
    }

    /// Puts a pending entry near or into a bucket. Says how it is marked.
    pub(super) fn arrange(&mut self, hash: u64, place: Place, peek: Peek<'_>, entry: &[u8]) -> Marks {
        match self.opened.route(peek.ready()) {
            Route::Near => {
                // Beyond the budget only the key stays: the entry is read back when its turn comes.
                let fits = self.window + entry.len() < self.options.window_bytes;
                let data = fits.then(|| Bytes::copy_from_slice(entry));
                self.draw_near(hash, place, peek, data)
            }
            Route::Bucket(slot) => {
                let bucket = self.buckets.entry(slot).or_default();
                bucket.parts[slot.part(peek.ready())] += 1;
                bucket.buffer.push(hash, place, entry);
                self.buffered += entry.len();
                Marks::default()
            }
        }
    }

    /// Puts a message into its lane's memory. What had the same key there is out of date, and its memory is free.
    pub(super) fn add_near(&mut self, number: u32, key: NearKey, near: HotEntry) {
        let Some(lane) = self.lanes.get_mut(number) else { return };
        self.window += near.cost();
        if let Some(known) = lane.near.insert(key, near) {
            self.window = self.window.saturating_sub(known.cost());
        }
    }

    /// Adds a pending message to what its lane has near at hand.
    pub(super) fn draw_near(
        &mut self,
        hash: u64,
        place: Place,
        peek: Peek<'_>,
        data: Option<Bytes>,
    ) -> Marks {
        let (Some(lane), Ok(key)) = (self.lanes.get_mut(peek.lane()), NearKey::of(peek)) else {
            return Marks::default();
        };
        lane.near_count += 1;
        let number = peek.lane();
        self.add_near(number, key, HotEntry { hash, place, data, suspect: peek.is_lost() });
        Marks { claimed: false, near: true }
    }

    /// The entry at `place` is no longer alive there.
    pub(super) fn leave(&mut self, place: Place, bytes: u64) {
        if self.journal.count(place.file, false) {
            return;
        }
        if let Some(table) = self.tables.get_mut(&place.file) {
            table.forget(place.off8, bytes);
            if table.live == 0 {
                self.bury(place.file);
            }
        }
    }

    /// A table with nothing alive goes with the next manifest, unless a bucket still adds to it.
    pub(super) fn bury(&mut self, number: u32) {
        let Some(table) = self.tables.get(&number).filter(|table| !table.busy) else { return };
        if let Some(slot) = table.kind.slot()
            && let Some(bucket) = self.buckets.get_mut(&slot)
        {
            bucket.tables.retain(|known| *known != number);
            if bucket.tables.is_empty() {
                bucket.sealed = false;
            }
        }
        if !self.graveyard.contains(&number) {
            self.graveyard.push(number);
        }
    }

    /// A pending message is taken out of the counts: cancelled, rescheduled.
    pub(super) fn uncount(&mut self, place: Place, marks: Marks, peek: Peek<'_>) {
        let Some(lane) = self.lanes.get_mut(peek.lane()) else { return };
        lane.pending = lane.pending.saturating_sub(1);
        if marks.near {
            lane.near_count = lane.near_count.saturating_sub(1);
            if let Ok(key) = NearKey::of(peek)
                && let Some(near) = lane.near.remove(&key)
            {
                self.window = self.window.saturating_sub(near.cost());
            }
            return;
        }
        if let Some(slot) = self.counted_in(place, peek.ready())
            && let Some(bucket) = self.buckets.get_mut(&slot)
        {
            let part = &mut bucket.parts[slot.part(peek.ready())];
            *part = part.saturating_sub(1);
        }
    }

    /// Takes a claim out of the books of its lane.
    pub(super) fn let_go(&mut self, token: u64) -> Option<Held> {
        let held = self.flight.take(token)?;
        if let Some(lane) = self.lanes.get_mut(held.lane) {
            lane.in_flight = lane.in_flight.saturating_sub(1);
        }
        Some(held)
    }

    /// Makes a claimed message claimable again, as if it had not been claimed.
    pub(super) fn release(&mut self, held: &Held) {
        self.index.set_marks(held.hash, held.place, Marks { claimed: false, near: true });
        let Some(lane) = self.lanes.get_mut(held.lane) else { return };
        lane.pending += 1;
        lane.near_count += 1;
        let key = NearKey { ready: held.ready, rank: held.rank, id: held.id.clone() };
        let near = HotEntry { hash: held.hash, place: held.place, data: None, suspect: held.alone };
        self.add_near(held.lane, key, near);
    }

    /// The file that holds `place`.
    pub(super) fn file(&self, place: Place) -> Option<Arc<dyn DiskFile>> {
        if let Some(table) = self.tables.get(&place.file) {
            return Some(table.data.clone());
        }
        self.journal
            .segments
            .iter()
            .find(|segment| segment.number == place.file)
            .map(|segment| segment.file.clone())
    }

    /// Whether `place` can be read back already.
    pub(super) fn is_written(&self, place: Place) -> bool {
        self.tables.contains_key(&place.file) || self.journal.is_written(place)
    }

    pub(super) fn totals(&self) -> Totals {
        let in_flight = self.flight.len() as u64;
        let pending = (self.index.len() as u64).saturating_sub(in_flight + self.dead_count);
        self.totals.now(pending, in_flight, self.dead_count)
    }

    /// The next number for a file of any kind.
    pub(super) fn file_number(&mut self) -> u32 {
        self.next_file += 1;
        self.next_file
    }

    /// Whether the background thread has something to do that should not wait for its next round.
    pub(super) fn wants_background(&self) -> bool {
        self.buffered > self.options.buffer_bytes
            || self.window > self.options.window_bytes
            || self.ended.waiting() > ENDED_BYTES_MAX
            || self.journal.appended - self.checkpointed_at > self.options.checkpoint_bytes
            || self.journal.spares.len() < 2 + SPARES_KEPT
            || self.slice_files.is_empty()
    }

    pub(super) fn lease_end(&self, lease: std::time::Duration) -> Monotonic {
        self.now.mono().saturating_add(lease)
    }
}

/// A lane as the journal and the manifest know it.
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
