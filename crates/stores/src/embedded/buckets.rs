//! Messages that are not near: which bucket counts each of them, and what waits to be written to the bucket's table.

use std::collections::BTreeMap;

use duly_core::Timestamp;

use super::{
    buffer::Buffer,
    entry::Peek,
    index::Position,
    wheel::{FAN, LEVELS, Opened, Route, Slot},
};

/// A span of future time.
pub(super) struct Bucket {
    /// The tables that hold its messages, oldest first. New entries go to the last one until it is sealed.
    tables: Vec<u32>,
    /// Entries that are not in a table of this bucket yet.
    buffer: Buffer,
    /// Pending messages in each 64th of the span.
    parts: [u32; FAN],
}

impl Default for Bucket {
    fn default() -> Self {
        Self { tables: Vec::new(), buffer: Buffer::default(), parts: [0; FAN] }
    }
}

impl Bucket {
    pub(super) fn buffer(&self) -> &Buffer {
        &self.buffer
    }

    pub(super) fn last_table(&self) -> Option<u32> {
        self.tables.last().copied()
    }

    pub(super) fn parts(&self) -> &[u32; FAN] {
        &self.parts
    }
}

/// Messages that were taken out of their bucket and are not yet where they go.
///
/// Invariant: `awaited` is never before `start`, and `None` if `start` is.
#[derive(Default)]
struct InTransit {
    /// Nothing on its way is released before this.
    start: Option<Timestamp>,
    /// The same for what claims wait for. A large bucket is not waited for: it would delay every lane.
    awaited: Option<Timestamp>,
}

/// All buckets that hold a message, and how far the wheel is opened.
///
/// Invariants:
/// - `buffered` is the sum of the bytes in the buffers of all buckets.
/// - Each pending message that is not near is counted by exactly one bucket, in the part that its release time falls into, wherever
///   its entry lies: in a table, in a buffer, or still in the journal.
/// - `opened` passes a bucket only when the bucket is [taken out](Self::open) or does not exist.
pub(super) struct Buckets {
    opened: Opened,
    all: BTreeMap<Slot, Bucket>,
    buffered: usize,
    /// On their way to narrower buckets.
    splitting: InTransit,
    /// On their way into memory.
    loading: InTransit,
}

impl Buckets {
    pub(super) fn new(opened: Opened) -> Self {
        Self {
            opened,
            all: BTreeMap::new(),
            buffered: 0,
            splitting: InTransit::default(),
            loading: InTransit::default(),
        }
    }

    pub(super) fn opened(&self) -> &Opened {
        &self.opened
    }

    /// How far the wheel should be opened at `now`.
    pub(super) fn wanted(&self, now: Timestamp) -> Opened {
        self.opened.wanted(now)
    }

    pub(super) fn route(&self, time: Timestamp) -> Route {
        self.opened.route(time)
    }

    /// Whether a bucket should be open once the wheel is opened to `wanted`, and is not.
    pub(super) fn are_behind(&self, wanted: &Opened) -> bool {
        self.all.keys().any(|slot| slot.number < wanted.0[usize::from(slot.level)])
    }

    /// Opens the wheel to `wanted`, unless a bucket before that is not opened yet: then `false`.
    pub(super) fn try_open_to(&mut self, wanted: Opened) -> bool {
        let may = !self.are_behind(&wanted);
        if may {
            self.opened = wanted;
        }
        may
    }

    /// The first bucket of the level that should be open once the wheel is opened to `wanted`.
    pub(super) fn first_behind(&self, level: usize, wanted: &Opened) -> Option<Slot> {
        let (number, level) = (wanted.0[level], level as u8);
        let mut range = self.all.range(Slot { level, number: 0 }..Slot { level, number });
        range.next().map(|(slot, _)| *slot)
    }

    /// Takes a bucket out: its tables and its buffer. What comes for its span from now on goes to narrower buckets.
    pub(super) fn open(&mut self, slot: Slot) -> Option<(Vec<u32>, Buffer)> {
        let opened = &mut self.opened.0[usize::from(slot.level)];
        *opened = (*opened).max(slot.number + 1);
        let bucket = self.all.remove(&slot)?;
        self.buffered = self.buffered.saturating_sub(bucket.buffer.len());
        Some((bucket.tables, bucket.buffer))
    }

    /// Adds an entry to the buffer of a bucket, and to its counts unless the bucket counts the message already.
    pub(super) fn push(
        &mut self,
        slot: Slot,
        hash: u64,
        position: Position,
        peek: Peek<'_>,
        is_counted: bool,
    ) {
        let bucket = self.all.entry(slot).or_default();
        if !is_counted {
            bucket.parts[slot.part(peek.ready())] += 1;
        }
        bucket.buffer.push(hash, position, peek.bytes());
        self.buffered += peek.len();
    }

    /// A message with this release time is no longer pending in the bucket.
    pub(super) fn uncount(&mut self, slot: Slot, ready: Timestamp) {
        if let Some(bucket) = self.all.get_mut(&slot) {
            let part = &mut bucket.parts[slot.part(ready)];
            *part = part.saturating_sub(1);
        }
    }

    /// Whether the bucket counts a message in the part of this release time.
    pub(super) fn counts(&self, slot: Slot, ready: Timestamp) -> bool {
        self.all.get(&slot).is_some_and(|bucket| bucket.parts[slot.part(ready)] > 0)
    }

    /// Adds a table that was read from disk, with the release times of the messages that are alive in it.
    pub(super) fn load_table(&mut self, slot: Slot, table: u32, times: impl Iterator<Item = Timestamp>) {
        let bucket = self.all.entry(slot).or_default();
        bucket.tables.push(table);
        times.for_each(|ready| bucket.parts[slot.part(ready)] += 1);
    }

    /// Adds a new table to a bucket: its buffer is written there.
    pub(super) fn add_table(&mut self, slot: Slot, table: u32) {
        if let Some(bucket) = self.all.get_mut(&slot) {
            bucket.tables.push(table);
        }
    }

    pub(super) fn remove_table(&mut self, slot: Slot, table: u32) {
        if let Some(bucket) = self.all.get_mut(&slot) {
            bucket.tables.retain(|known| *known != table);
        }
    }

    /// Takes the buffer of a bucket to write it.
    pub(super) fn take_buffer(&mut self, slot: Slot) -> Buffer {
        let taken = self.all.get_mut(&slot).map(|bucket| std::mem::take(&mut bucket.buffer));
        let buffer = taken.unwrap_or_default();
        self.buffered = self.buffered.saturating_sub(buffer.len());
        buffer
    }

    /// Puts a buffer back that could not be written, before what came since.
    pub(super) fn put_buffer_back(&mut self, slot: Slot, buffer: Buffer) {
        self.buffered += buffer.len();
        let bucket = self.all.entry(slot).or_default();
        let newer = std::mem::replace(&mut bucket.buffer, buffer);
        bucket.buffer.append(&newer);
    }

    /// Bytes in the buffers of all buckets.
    pub(super) fn buffered(&self) -> usize {
        self.buffered
    }

    /// The buckets whose buffers are to be written: all of them, or only the fuller ones.
    pub(super) fn to_flush(&self, all: bool) -> Vec<Slot> {
        let half_mean = self.buffered / self.all.len().max(1) / 2;
        let is_full = |bytes: usize| bytes > 0 && (all || bytes >= half_mean);
        self.all.iter().filter(|(_, bucket)| is_full(bucket.buffer.len())).map(|(slot, _)| *slot).collect()
    }

    pub(super) fn get(&self, slot: Slot) -> Option<&Bucket> {
        self.all.get(&slot)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (Slot, &Bucket)> {
        self.all.iter().map(|(slot, bucket)| (*slot, bucket))
    }

    /// The messages of a bucket that starts at `start` are on their way to narrower buckets.
    pub(super) fn begin_split(&mut self, start: Timestamp, is_large: bool) {
        self.splitting = InTransit { start: Some(start), awaited: Some(start).filter(|_| !is_large) };
    }

    pub(super) fn end_split(&mut self) {
        self.splitting = InTransit::default();
    }

    /// The messages of a bucket that starts at `start` are on their way into memory, besides those of earlier ones.
    pub(super) fn begin_load(&mut self, start: Timestamp, is_large: bool) {
        let first = self.loading.start.map_or(start, |known| known.min(start));
        self.loading = InTransit { start: Some(first), awaited: Some(start).filter(|_| !is_large) };
    }

    /// Of the buckets on their way into memory only large ones are left; the first of them starts at `first`.
    pub(super) fn end_load(&mut self, first: Option<Timestamp>) {
        self.loading = InTransit { start: first, awaited: None };
    }

    /// Nothing in a bucket, or on its way out of one, is released before this.
    pub(super) fn unopened(&self) -> Option<Timestamp> {
        [self.first_start(), self.loading.start, self.splitting.start].into_iter().flatten().min()
    }

    /// The same without what is on its way out of large buckets.
    pub(super) fn unopened_and_awaited(&self) -> Option<Timestamp> {
        [self.first_start(), self.loading.awaited, self.splitting.awaited].into_iter().flatten().min()
    }

    /// The start of the first bucket with anything in it.
    fn first_start(&self) -> Option<Timestamp> {
        (0..LEVELS as u8)
            .filter_map(|level| {
                let from = Slot { level, number: 0 };
                let to = Slot { level: level + 1, number: 0 };
                self.all.range(from..to).next().map(|(slot, _)| slot.start())
            })
            .min()
    }

    /// When the next bucket must be opened.
    pub(super) fn next_opening(&self) -> Option<Timestamp> {
        self.all.keys().map(|slot| Opened::opens_at(*slot)).min()
    }
}

#[cfg(test)]
mod tests {
    use duly_core::{MessageId, StoredMessage};

    use super::{super::entry, *};

    fn at(seconds: u64) -> Timestamp {
        Timestamp::from_millis(1_800_000_000_000 + seconds * 1_000)
    }

    fn entry(number: u32, due: Timestamp) -> Vec<u8> {
        let id = MessageId::parse(&format!("m{number}")).unwrap();
        let message = StoredMessage::new(id, "kafka".parse().unwrap(), "t".parse().unwrap(), due);
        let mut bytes = Vec::new();
        entry::encode_fresh(&message, None, at(0), 0, &mut bytes);
        bytes
    }

    fn push(buckets: &mut Buckets, number: u32, due: Timestamp) -> Slot {
        let bytes = entry(number, due);
        let Route::Bucket(slot) = buckets.route(due) else { panic!("it is near") };
        buckets.push(slot, 1, Position::new(1, 0), Peek::framed(&bytes).unwrap(), false);
        slot
    }

    fn buffered(buckets: &Buckets) -> usize {
        buckets.iter().map(|(_, bucket)| bucket.buffer().len()).sum()
    }

    #[test]
    fn buffered_bytes_agree_with_the_buffers_whatever_becomes_of_them() {
        let mut buckets = Buckets::new(Opened::default().wanted(at(0)));
        let slot = push(&mut buckets, 1, at(30));
        let other = push(&mut buckets, 2, at(3_600));
        assert_eq!(buckets.buffered(), buffered(&buckets));
        let taken = buckets.take_buffer(slot);
        assert_eq!(buckets.buffered(), buffered(&buckets));
        push(&mut buckets, 3, at(30));
        buckets.put_buffer_back(slot, taken);
        assert_eq!(buckets.get(slot).unwrap().buffer().from().len(), 2);
        assert_eq!(buckets.buffered(), buffered(&buckets));
        buckets.open(other);
        assert_eq!(buckets.buffered(), buffered(&buckets));
    }

    #[test]
    fn the_wheel_is_not_opened_past_a_bucket_that_holds_something() {
        let mut buckets = Buckets::new(Opened::default().wanted(at(0)));
        let slot = push(&mut buckets, 1, at(30));
        let wanted = buckets.wanted(at(60));
        assert!(!buckets.try_open_to(wanted));
        assert!(buckets.are_behind(&wanted));
        assert_eq!(buckets.first_behind(usize::from(slot.level), &wanted), Some(slot));
        buckets.open(slot);
        assert!(buckets.try_open_to(wanted));
        assert_eq!(*buckets.opened(), wanted);
    }

    #[test]
    fn claims_wait_for_a_small_bucket_on_its_way_and_not_for_a_large_one() {
        let mut buckets = Buckets::new(Opened::default().wanted(at(0)));
        buckets.begin_load(at(5), true);
        buckets.begin_load(at(7), false);
        assert_eq!((buckets.unopened(), buckets.unopened_and_awaited()), (Some(at(5)), Some(at(7))));
        buckets.end_load(Some(at(5)));
        assert_eq!((buckets.unopened(), buckets.unopened_and_awaited()), (Some(at(5)), None));
        buckets.end_load(None);
        buckets.begin_split(at(9), false);
        assert_eq!((buckets.unopened(), buckets.unopened_and_awaited()), (Some(at(9)), Some(at(9))));
        buckets.end_split();
        assert_eq!(buckets.unopened(), None);
    }
}
