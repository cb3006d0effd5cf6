//! Lanes: what each has near at hand, in release order, and what waits on disk for those that nobody drains.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use duly_core::{Lane, MessageId, Timestamp};

use super::{
    entry::{Garbled, Peek},
    index::Place,
    numbers::Numbered,
    options::NEAR_COST,
};

/// The order in which a lane releases: `(ready, priority descending, id)`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct NearKey {
    pub(super) ready: Timestamp,
    pub(super) rank: u8,
    pub(super) id: MessageId,
}

impl NearKey {
    pub(super) fn of(peek: Peek<'_>) -> Result<Self, Garbled> {
        let id = MessageId::parse(peek.id_text()).map_err(|_| Garbled)?;
        Ok(Self { ready: peek.ready(), rank: peek.rank(), id })
    }

    /// Sorts before what is released at `time` or later.
    pub(super) fn from(time: Timestamp) -> Self {
        Self { ready: time, rank: 0, id: first_id() }
    }
}

/// A message near at hand.
#[derive(Debug, Clone)]
pub(super) struct HotEntry {
    pub(super) hash: u64,
    pub(super) place: Place,
    /// Its entry, unless it must be read from its place.
    pub(super) data: Option<Bytes>,
    /// Its last claim was lost.
    pub(super) suspect: bool,
}

impl HotEntry {
    /// The memory it takes: what counts against the window.
    pub(super) fn cost(&self) -> usize {
        NEAR_COST + self.data.as_ref().map_or(0, Bytes::len)
    }
}

/// A stretch of a run that belongs to one lane, in release order.
#[derive(Debug, Clone)]
pub(super) struct Extent {
    pub(super) table: u32,
    pub(super) next: u64,
    pub(super) end: u64,
    /// The key of the entry at `next`.
    pub(super) key: NearKey,
}

/// One lane.
pub(super) struct LaneState {
    pub(super) lane: Lane,
    pub(super) paused: bool,
    /// Near at hand, claimable when their time comes.
    pub(super) near: BTreeMap<NearKey, HotEntry>,
    /// Near but on disk.
    pub(super) extents: Vec<Extent>,
    /// Waiting, wherever they are.
    pub(super) pending: u64,
    /// Of these, how many are near.
    pub(super) near_count: u64,
    pub(super) in_flight: u64,
    pub(super) dead: u64,
    /// The first of those on their way from memory to a run.
    pub(super) limbo: Option<NearKey>,
    /// The last journal segment with a record that names this lane.
    segment: u32,
}

impl LaneState {
    fn new(lane: Lane) -> Self {
        Self {
            lane,
            paused: false,
            near: BTreeMap::new(),
            extents: Vec::new(),
            pending: 0,
            near_count: 0,
            in_flight: 0,
            dead: 0,
            limbo: None,
            segment: 0,
        }
    }

    /// The key that goes next, in memory or on disk.
    pub(super) fn first(&self) -> Option<&NearKey> {
        let disk = self.extents.iter().map(|extent| &extent.key).min();
        let memory = self.near.first_key_value().map(|(key, _)| key);
        match (memory, disk) {
            (Some(memory), Some(disk)) => Some(memory.min(disk)),
            (memory, disk) => memory.or(disk),
        }
    }

    /// Whether it has no message that is alive, and no pause.
    fn is_empty(&self) -> bool {
        !self.paused && self.pending == 0 && self.in_flight == 0 && self.dead == 0
    }

    /// Notes that the message with `key` is on its way from memory to a run.
    pub(super) fn note_limbo(&mut self, key: &NearKey) {
        if self.limbo.as_ref().is_none_or(|known| key < known) {
            self.limbo = Some(key.clone());
        }
    }

    /// Due and waiting at `now`.
    pub(super) fn ready(&self, now: Timestamp) -> u64 {
        let after = NearKey::from(Timestamp::from_millis(now.as_millis() + 1));
        let later = self.near.range(after..).count() as u64;
        // Runs hold what is overdue; after a step back of the clock they may hold some that wait again, counted as ready.
        self.near_count.saturating_sub(later)
    }
}

/// The id that sorts before all others of a length of one.
fn first_id() -> MessageId {
    MessageId::made(Timestamp::default(), 0)
}

/// All lanes, by number. A number is never used for another lane.
///
/// A topic of the built-in queue is [forgotten](Self::forget) once it holds nothing. If it comes back, it gets another number.
#[derive(Default)]
pub(super) struct Lanes {
    all: HashMap<u32, LaneState, Numbered>,
    numbers: HashMap<Lane, u32>,
    /// The number of the next new lane.
    next: u32,
}

impl Lanes {
    pub(super) fn number(&self, lane: &Lane) -> Option<u32> {
        self.numbers.get(lane).copied()
    }

    /// The number that the next new lane gets; `None` if all were used.
    pub(super) fn next(&self) -> Option<u32> {
        (self.next < u32::MAX).then_some(self.next)
    }

    /// Adds a lane under a number that no lane had.
    pub(super) fn add(&mut self, number: u32, lane: Lane) {
        self.numbers.insert(lane.clone(), number);
        self.all.insert(number, LaneState::new(lane));
        self.reserve(number.saturating_add(1));
    }

    /// Whether no lane ever had this number.
    pub(super) fn is_new(&self, number: u32) -> bool {
        number >= self.next
    }

    /// Gives out no number below this.
    pub(super) fn reserve(&mut self, next: u32) {
        self.next = self.next.max(next);
    }

    pub(super) fn get(&self, number: u32) -> Option<&LaneState> {
        self.all.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut LaneState> {
        self.all.get_mut(&number)
    }

    /// Notes that a record in this journal segment names the lane.
    pub(super) fn named_in(&mut self, number: u32, segment: u32) {
        if let Some(state) = self.all.get_mut(&number) {
            state.segment = state.segment.max(segment);
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &LaneState> {
        self.all.values()
    }

    /// All of them with their numbers, in no order.
    pub(super) fn numbered(&self) -> impl Iterator<Item = (u32, &LaneState)> {
        self.all.iter().map(|(number, state)| (*number, state))
    }

    pub(super) fn len(&self) -> usize {
        self.all.len()
    }

    /// Forgets topics of the built-in queue that hold nothing and that nothing on disk names once the journal begins with
    /// `journal_start`. `is_kept` says whether a finished message of the lane is kept.
    pub(super) fn forget(&mut self, journal_start: u32, is_kept: impl Fn(u32) -> bool) -> Vec<Lane> {
        let over: Vec<u32> = self
            .numbered()
            .filter(|(number, state)| {
                // What is not in the journal is in a table only while it is alive.
                let is_over = state.is_empty() && state.segment < journal_start;
                is_over && matches!(state.lane, Lane::Queue(_)) && !is_kept(*number)
            })
            .map(|(number, _)| number)
            .collect();
        let mut forgotten = Vec::with_capacity(over.len());
        for number in over {
            let Some(state) = self.all.remove(&number) else { continue };
            // After a checkpoint that failed and a restart, a lane may have an older number, too.
            if self.numbers.get(&state.lane) == Some(&number) {
                self.numbers.remove(&state.lane);
            }
            forgotten.push(state.lane);
        }
        forgotten
    }
}
