//! From the hash of an id to the position of its entry: 12 bytes a message, grown a few kilobytes at a time.
//!
//! The low bits of the hash choose one of many small segments. Each is an open-addressed table that grows by a quarter when it
//! is full, so that no insert waits for a large rehash. A slot has 32 more bits of the hash as a fingerprint. A hit is only a
//! candidate: its entry must be read to compare the full id.

/// Where an entry lies: the number of the file, and the offset divided by 8.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(super) struct Position {
    pub(super) file: u32,
    pub(super) off8: u32,
}

/// No entry may begin here or after: an offset divided by 8 fits 32 bits, and a tombstone stores it plus one.
pub(super) const POSITION_END: u64 = u32::MAX as u64 * super::entry::ALIGN as u64;

impl Position {
    pub(super) fn offset(self) -> u64 {
        u64::from(self.off8) * super::entry::ALIGN as u64
    }

    pub(super) fn new(file: u32, offset: u64) -> Self {
        debug_assert!(offset < POSITION_END, "byte {offset} of file {file} has no position");
        Self { file, off8: (offset / super::entry::ALIGN as u64) as u32 }
    }
}

/// State of a message that needs no read of its entry.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) struct Marks {
    /// Claimed or quarantined: it cannot be claimed, cancelled or rescheduled.
    pub(super) claimed: bool,
    /// Counted among the near messages of its lane.
    pub(super) near: bool,
}

const CLAIMED: u32 = 1 << 31;
const NEAR: u32 = 1 << 30;
/// File numbers stay below the marks. Zero is an empty slot.
pub(super) const FILE_MAX: u32 = NEAR - 1;
const SEGMENT_BITS: u32 = 16;

#[derive(Clone, Copy)]
struct Slot {
    fingerprint: u32,
    file: u32,
    off8: u32,
}

const EMPTY: Slot = Slot { fingerprint: 0, file: 0, off8: 0 };

impl Slot {
    fn position(self) -> Position {
        Position { file: self.file & FILE_MAX, off8: self.off8 }
    }

    fn marks(self) -> Marks {
        Marks { claimed: self.file & CLAIMED != 0, near: self.file & NEAR != 0 }
    }

    fn new(fingerprint: u32, position: Position, marks: Marks) -> Self {
        let claimed = if marks.claimed { CLAIMED } else { 0 };
        let near = if marks.near { NEAR } else { 0 };
        Self { fingerprint, file: position.file | claimed | near, off8: position.off8 }
    }
}

#[derive(Clone, Default)]
struct Segment {
    slots: Box<[Slot]>,
    used: u32,
}

/// All live messages by the hash of their id.
///
/// Invariant: `len` is the number of used slots of all segments. A slot is reached from its home without passing an empty one.
pub(super) struct Index {
    segments: Vec<Segment>,
    len: usize,
}

fn split(hash: u64) -> (usize, u32) {
    ((hash & ((1 << SEGMENT_BITS) - 1)) as usize, (hash >> SEGMENT_BITS) as u32)
}

impl Segment {
    fn home(&self, fingerprint: u32) -> usize {
        ((u64::from(fingerprint) * self.slots.len() as u64) >> 32) as usize
    }

    fn next(&self, at: usize) -> usize {
        if at + 1 == self.slots.len() { 0 } else { at + 1 }
    }

    fn find(&self, fingerprint: u32, position: Position) -> Option<usize> {
        if self.slots.is_empty() {
            return None;
        }
        let mut at = self.home(fingerprint);
        while self.slots[at].file != 0 {
            if self.slots[at].fingerprint == fingerprint && self.slots[at].position() == position {
                return Some(at);
            }
            at = self.next(at);
        }
        None
    }

    fn put(&mut self, slot: Slot) {
        // A segment grows when it is seven eighths full: fuller ones have probes that cost more than the memory that they save.
        if (self.used as usize + 1) * 8 > self.slots.len() * 7 {
            let larger = (self.slots.len() + self.slots.len() / 4 + 4).next_multiple_of(4);
            let old = std::mem::replace(&mut self.slots, vec![EMPTY; larger].into_boxed_slice());
            for slot in old.into_iter().filter(|slot| slot.file != 0) {
                self.place(slot);
            }
        }
        self.place(slot);
        self.used += 1;
    }

    fn place(&mut self, slot: Slot) {
        let mut at = self.home(slot.fingerprint);
        while self.slots[at].file != 0 {
            at = self.next(at);
        }
        self.slots[at] = slot;
    }

    /// Takes a slot out and moves later ones of its run back, so that no tombstones are needed.
    fn take(&mut self, mut hole: usize) {
        let mut at = self.next(hole);
        while self.slots[at].file != 0 {
            let home = self.home(self.slots[at].fingerprint);
            // Whether a probe from its home to its slot passes `hole`.
            let on_the_way = if home <= at { home <= hole && hole < at } else { hole >= home || hole < at };
            if on_the_way {
                self.slots[hole] = self.slots[at];
                hole = at;
            }
            at = self.next(at);
        }
        self.slots[hole] = EMPTY;
        self.used -= 1;
        if self.used == 0 {
            self.slots = Box::default();
        }
    }
}

impl Index {
    pub(super) fn new() -> Self {
        Self { segments: vec![Segment::default(); 1 << SEGMENT_BITS], len: 0 }
    }

    pub(super) fn len(&self) -> usize {
        self.len
    }

    /// Adds a message; the caller knows that it is new.
    pub(super) fn insert(&mut self, hash: u64, position: Position, marks: Marks) {
        let (segment, fingerprint) = split(hash);
        self.segments[segment].put(Slot::new(fingerprint, position, marks));
        self.len += 1;
    }

    /// Makes room for `total` messages, so that no segment grows while a large store is opened.
    pub(super) fn reserve(&mut self, total: usize) {
        // With some room for segments that get more than the mean by chance.
        let mean = total / self.segments.len();
        let slots = (mean + mean / 16 + 8) * 8 / 7;
        for segment in self.segments.iter_mut().filter(|segment| segment.slots.is_empty() && mean > 0) {
            segment.slots = vec![EMPTY; slots].into_boxed_slice();
        }
    }

    /// Adds many new messages and empties `many`. Messages of the same segment are added together: most of the time of an insert is
    /// spent waiting for memory.
    pub(super) fn insert_many(&mut self, many: &mut Vec<(u64, Position, Marks)>) {
        let mut starts = vec![0u32; self.segments.len() + 1];
        many.iter().for_each(|(hash, _, _)| starts[split(*hash).0 + 1] += 1);
        (1..starts.len()).for_each(|at| starts[at] += starts[at - 1]);
        let mut order = vec![0u32; many.len()];
        for (at, (hash, _, _)) in (0..).zip(many.iter()) {
            let next = &mut starts[split(*hash).0];
            order[*next as usize] = at;
            *next += 1;
        }
        for at in order {
            let (hash, position, marks) = many[at as usize];
            self.insert(hash, position, marks);
        }
        many.clear();
    }

    /// Every position that may hold the message, almost always none or one.
    pub(super) fn candidates(&self, hash: u64) -> impl Iterator<Item = (Position, Marks)> + '_ {
        let (segment, fingerprint) = split(hash);
        let segment = &self.segments[segment];
        let mut at = if segment.slots.is_empty() { None } else { Some(segment.home(fingerprint)) };
        std::iter::from_fn(move || {
            loop {
                let here = at?;
                let slot = segment.slots[here];
                if slot.file == 0 {
                    at = None;
                    return None;
                }
                at = Some(segment.next(here));
                if slot.fingerprint == fingerprint {
                    return Some((slot.position(), slot.marks()));
                }
            }
        })
    }

    /// The marks of the message at `position`, if it is still there.
    pub(super) fn marks(&self, hash: u64, position: Position) -> Option<Marks> {
        let (segment, fingerprint) = split(hash);
        let segment = &self.segments[segment];
        segment.find(fingerprint, position).map(|at| segment.slots[at].marks())
    }

    /// Marks the message at `position` as claimed; `false` if it is not there or claimed already.
    pub(super) fn claim(&mut self, hash: u64, position: Position) -> bool {
        let (segment, fingerprint) = split(hash);
        let segment = &mut self.segments[segment];
        let Some(at) = segment.find(fingerprint, position) else { return false };
        if segment.slots[at].file & CLAIMED != 0 {
            return false;
        }
        segment.slots[at].file |= CLAIMED;
        true
    }

    /// Marks the message at `position` as near; `false` if it is not there, claimed or near already.
    pub(super) fn mark_near(&mut self, hash: u64, position: Position) -> bool {
        let (segment, fingerprint) = split(hash);
        let segment = &mut self.segments[segment];
        let Some(at) = segment.find(fingerprint, position) else { return false };
        if segment.slots[at].file & (CLAIMED | NEAR) != 0 {
            return false;
        }
        segment.slots[at].file |= NEAR;
        true
    }

    pub(super) fn set_marks(&mut self, hash: u64, position: Position, marks: Marks) {
        self.replace(hash, position, position, Some(marks));
    }

    /// Moves a message from `old` to `new`; the marks stay unless given. `None` if it is not at `old` any more.
    pub(super) fn replace(
        &mut self,
        hash: u64,
        old: Position,
        new: Position,
        marks: Option<Marks>,
    ) -> Option<Marks> {
        let (segment, fingerprint) = split(hash);
        let segment = &mut self.segments[segment];
        let at = segment.find(fingerprint, old)?;
        let marks = marks.unwrap_or(segment.slots[at].marks());
        segment.slots[at] = Slot::new(fingerprint, new, marks);
        Some(marks)
    }

    /// Takes a message out. `None` if it is not at `position` any more.
    pub(super) fn remove(&mut self, hash: u64, position: Position) -> Option<Marks> {
        let (segment, fingerprint) = split(hash);
        let segment = &mut self.segments[segment];
        let at = segment.find(fingerprint, position)?;
        let marks = segment.slots[at].marks();
        segment.take(at);
        self.len -= 1;
        Some(marks)
    }
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    /// A cheap generator with a full period: the same run every time.
    fn numbers(seed: u64) -> impl FnMut() -> u64 {
        let mut state = seed;
        move || {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            (state >> 33) ^ (state << 31)
        }
    }

    #[test]
    fn it_agrees_with_a_map_through_inserts_moves_and_removals() {
        let (mut index, mut model) = (Index::new(), HashMap::new());
        let mut next = numbers(7);
        for step in 0..200_000u32 {
            // Few segments and few fingerprints, so that probes wrap and collide.
            let hash = (next() % 64) | (next() % 4096) << 36;
            let position = Position { file: 1 + step % 1000, off8: step };
            match (next() % 3, model.remove(&hash)) {
                (_, None) => {
                    index.insert(hash, position, Marks::default());
                    model.insert(hash, position);
                }
                (0, Some(old)) => assert!(index.remove(hash, old).is_some()),
                (_, Some(old)) => {
                    assert!(index.replace(hash, old, position, None).is_some());
                    model.insert(hash, position);
                }
            }
            assert_eq!(index.len(), model.len());
        }
        for (hash, position) in &model {
            assert_eq!(
                index.candidates(*hash).map(|(position, _)| position).collect::<Vec<_>>(),
                [*position]
            );
        }
    }

    #[test]
    fn two_messages_with_one_fingerprint_are_both_candidates() {
        let mut index = Index::new();
        let (one, two) = (Position { file: 1, off8: 1 }, Position { file: 2, off8: 2 });
        index.insert(42, one, Marks::default());
        index.insert(42, two, Marks { claimed: true, near: true });
        assert_eq!(index.candidates(42).count(), 2);
        assert_eq!(index.remove(42, one), Some(Marks::default()));
        assert_eq!(index.candidates(42).collect::<Vec<_>>(), [(two, Marks { claimed: true, near: true })]);
    }
}
