//! Lanes: the hot window of each in release order, what waits in runs on disk, and how many messages it has.

use std::{
    collections::{BTreeMap, HashMap},
    ops::Deref,
};

use bytes::Bytes;
use duly_core::{Lane, MessageId, Timestamp};

use super::{
    entry::{Garbled, Peek},
    index::Position,
    number_hasher::NumberHasher,
    options::NEAR_COST,
};

/// The order in which a lane releases: `(ready, priority descending, id)`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct ReleaseKey {
    pub(super) ready: Timestamp,
    pub(super) rank: u8,
    pub(super) id: MessageId,
}

impl ReleaseKey {
    pub(super) fn of(peek: Peek<'_>) -> Result<Self, Garbled> {
        let id = MessageId::parse(peek.id_text()).map_err(|_| Garbled)?;
        Ok(Self { ready: peek.ready(), rank: peek.rank(), id })
    }

    /// Sorts before what is released at `time` or later.
    pub(super) fn from(time: Timestamp) -> Self {
        Self { ready: time, rank: 0, id: first_id() }
    }
}

/// A message of the hot window.
#[derive(Debug, Clone)]
pub(super) struct HotEntry {
    pub(super) hash: u64,
    pub(super) position: Position,
    /// Its entry; `None` if it must be read from its position.
    pub(super) data: Option<Bytes>,
    /// Its last claim was lost: it is claimed alone.
    pub(super) suspect: bool,
}

impl HotEntry {
    /// The memory it takes: what counts against the budget of the hot window.
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
    pub(super) key: ReleaseKey,
}

/// One lane.
///
/// Invariants, kept by [`LaneMut`]:
/// - Each live message of the lane is counted once: in `pending`, `in_flight` or `dead`.
/// - `near_count` counts the pending messages whose bucket was opened. Their entries are in the hot window, in a run, or on
///   their way from the one to the other.
pub(super) struct LaneState {
    lane: Lane,
    paused: bool,
    /// The hot window: claimable from memory when their time comes. It may hold entries of messages that have ended: the index has the state.
    hot: BTreeMap<ReleaseKey, HotEntry>,
    /// The backlog: near, but in runs on disk.
    extents: Vec<Extent>,
    pending: u64,
    near_count: u64,
    in_flight: u64,
    dead: u64,
    /// The first of those on their way from memory to a run.
    spilling: Option<ReleaseKey>,
    /// The last journal segment with a record that names this lane.
    segment: u32,
}

impl LaneState {
    fn new(lane: Lane) -> Self {
        Self {
            lane,
            paused: false,
            hot: BTreeMap::new(),
            extents: Vec::new(),
            pending: 0,
            near_count: 0,
            in_flight: 0,
            dead: 0,
            spilling: None,
            segment: 0,
        }
    }

    pub(super) fn lane(&self) -> &Lane {
        &self.lane
    }

    pub(super) fn is_paused(&self) -> bool {
        self.paused
    }

    /// Messages that wait, wherever they are.
    pub(super) fn pending(&self) -> u64 {
        self.pending
    }

    /// Of the pending messages, how many are near.
    pub(super) fn near_count(&self) -> u64 {
        self.near_count
    }

    pub(super) fn in_flight(&self) -> u64 {
        self.in_flight
    }

    pub(super) fn dead(&self) -> u64 {
        self.dead
    }

    /// The hot window, in release order.
    pub(super) fn hot(&self) -> &BTreeMap<ReleaseKey, HotEntry> {
        &self.hot
    }

    /// The first of the messages on their way from memory to a run.
    pub(super) fn spilling(&self) -> Option<&ReleaseKey> {
        self.spilling.as_ref()
    }

    /// The key that goes next, in memory or on disk.
    pub(super) fn first(&self) -> Option<&ReleaseKey> {
        let disk = self.extents.iter().map(|extent| &extent.key).min();
        let memory = self.hot.first_key_value().map(|(key, _)| key);
        match (memory, disk) {
            (Some(memory), Some(disk)) => Some(memory.min(disk)),
            (memory, disk) => memory.or(disk),
        }
    }

    /// The extent whose next entry goes first.
    pub(super) fn first_extent(&self) -> Option<&Extent> {
        self.extents.iter().min_by(|a, b| a.key.cmp(&b.key))
    }

    /// Which extent begins there.
    pub(super) fn extent_at(&self, table: u32, next: u64) -> Option<usize> {
        self.extents.iter().position(|extent| (extent.table, extent.next) == (table, next))
    }

    /// Whether it has no live message, and no pause.
    fn is_empty(&self) -> bool {
        !self.paused && self.pending == 0 && self.in_flight == 0 && self.dead == 0
    }

    /// Due and waiting at `now`.
    pub(super) fn ready(&self, now: Timestamp) -> u64 {
        let after = ReleaseKey::from(Timestamp::from_millis(now.as_millis() + 1));
        let later = self.hot.range(after..).count() as u64;
        // Runs hold what is overdue. After a step back of the clock, some messages in them wait again; they count as ready.
        self.near_count.saturating_sub(later)
    }
}

/// One lane, to be changed. Every change of a count or of the hot window goes through here, so that the sums of [`Lanes`] agree.
pub(super) struct LaneMut<'a> {
    state: &'a mut LaneState,
    hot_bytes: &'a mut usize,
    dead: &'a mut u64,
}

impl Deref for LaneMut<'_> {
    type Target = LaneState;

    fn deref(&self) -> &LaneState {
        self.state
    }
}

impl LaneMut<'_> {
    pub(super) fn set_paused(&mut self, paused: bool) {
        self.state.paused = paused;
    }

    /// A message waits in the lane.
    pub(super) fn add_pending(&mut self) {
        self.state.pending += 1;
    }

    /// A pending message was cancelled, changed or ended.
    pub(super) fn remove_pending(&mut self) {
        self.state.pending = self.state.pending.saturating_sub(1);
    }

    /// A pending message has become near.
    pub(super) fn add_near(&mut self) {
        self.state.near_count += 1;
    }

    /// A near message ended, or is not near any more.
    pub(super) fn remove_near(&mut self) {
        self.state.near_count = self.state.near_count.saturating_sub(1);
    }

    /// A near message is claimed.
    pub(super) fn claim(&mut self) {
        self.remove_near();
        self.remove_pending();
        self.state.in_flight += 1;
    }

    /// A message is claimed by somebody from before the store was opened. It is not counted as pending.
    pub(super) fn restore_claim(&mut self) {
        self.state.in_flight += 1;
    }

    /// A claim has ended. What becomes of its message is counted by the caller.
    pub(super) fn end_claim(&mut self) {
        self.state.in_flight = self.state.in_flight.saturating_sub(1);
    }

    pub(super) fn add_dead(&mut self) {
        self.state.dead += 1;
        *self.dead += 1;
    }

    /// A dead letter was replayed or purged.
    pub(super) fn remove_dead(&mut self) {
        self.state.dead = self.state.dead.saturating_sub(1);
        *self.dead = self.dead.saturating_sub(1);
    }

    /// Puts a message into the hot window. An entry that had the same key there is out of date.
    pub(super) fn insert_hot(&mut self, key: ReleaseKey, entry: HotEntry) {
        *self.hot_bytes += entry.cost();
        if let Some(known) = self.state.hot.insert(key, entry) {
            self.forget_cost(&known);
        }
    }

    pub(super) fn remove_hot(&mut self, key: &ReleaseKey) {
        if let Some(entry) = self.state.hot.remove(key) {
            self.forget_cost(&entry);
        }
    }

    /// Takes the first message out of the hot window.
    pub(super) fn pop_hot(&mut self) -> Option<(ReleaseKey, HotEntry)> {
        let (key, entry) = self.state.hot.pop_first()?;
        self.forget_cost(&entry);
        Some((key, entry))
    }

    /// Takes the last message out of the hot window, if it is not before `cut`: it is on its way to a run.
    pub(super) fn spill_last(&mut self, cut: &ReleaseKey) -> Option<(ReleaseKey, HotEntry)> {
        let last = self.state.hot.last_entry().filter(|last| last.key() >= cut)?;
        let (key, entry) = last.remove_entry();
        self.note_spilling(&key);
        self.forget_cost(&entry);
        Some((key, entry))
    }

    /// The entry of a message in the hot window lies elsewhere now.
    pub(super) fn move_hot(&mut self, key: &ReleaseKey, position: Position) {
        if let Some(entry) = self.state.hot.get_mut(key) {
            entry.position = position;
        }
    }

    fn forget_cost(&mut self, entry: &HotEntry) {
        *self.hot_bytes = self.hot_bytes.saturating_sub(entry.cost());
    }

    /// The message with `key` is on its way from memory, or from one run, to another run.
    pub(super) fn note_spilling(&mut self, key: &ReleaseKey) {
        if self.state.spilling.as_ref().is_none_or(|known| key < known) {
            self.state.spilling = Some(key.clone());
        }
    }

    /// All messages that were on their way to a run have arrived, or were put back.
    pub(super) fn end_spilling(&mut self) {
        self.state.spilling = None;
    }

    pub(super) fn add_extent(&mut self, extent: Extent) {
        self.state.extents.push(extent);
    }

    /// Takes out the extent that begins there.
    pub(super) fn take_extent(&mut self, table: u32, next: u64) -> Option<Extent> {
        let at = self.extent_at(table, next)?;
        Some(self.state.extents.swap_remove(at))
    }

    /// The extent at this position goes on with the entry at `next`; with `None` it is used up.
    pub(super) fn advance_extent(&mut self, at: usize, next: Option<(u64, ReleaseKey)>) {
        match next {
            Some((next, key)) => {
                let extent = &mut self.state.extents[at];
                (extent.next, extent.key) = (next, key);
            }
            None => {
                self.state.extents.swap_remove(at);
            }
        }
    }
}

/// The id that sorts before all others of a length of one.
fn first_id() -> MessageId {
    MessageId::generate(Timestamp::default(), 0)
}

/// All lanes, by number.
///
/// Invariants:
/// - A number is never used for another lane. A topic of the built-in queue is [forgotten](Self::forget) once it holds nothing; if it
///   comes back, it gets another number.
/// - `hot_bytes` is what the hot entries of all lanes cost, and `dead` the sum of their dead letters.
#[derive(Default)]
pub(super) struct Lanes {
    all: HashMap<u32, LaneState, NumberHasher>,
    numbers: HashMap<Lane, u32>,
    /// The number of the next new lane.
    next: u32,
    hot_bytes: usize,
    dead: u64,
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

    pub(super) fn get_mut(&mut self, number: u32) -> Option<LaneMut<'_>> {
        let state = self.all.get_mut(&number)?;
        Some(LaneMut { state, hot_bytes: &mut self.hot_bytes, dead: &mut self.dead })
    }

    /// Bytes that the hot window of all lanes takes.
    pub(super) fn hot_bytes(&self) -> usize {
        self.hot_bytes
    }

    /// Counts the bytes of the hot window again: callers wait for it to shrink, and must not wait because of a miscount.
    pub(super) fn recount_hot_bytes(&mut self) {
        let entries = self.all.values().flat_map(|lane| lane.hot.values());
        self.hot_bytes = entries.map(HotEntry::cost).sum();
    }

    /// Dead letters of all lanes.
    pub(super) fn dead(&self) -> u64 {
        self.dead
    }

    /// The numbers of the lanes that have messages in the hot window, ascending.
    pub(super) fn with_hot(&self) -> Vec<u32> {
        let lanes = self.numbered().filter(|(_, lane)| !lane.hot.is_empty());
        let mut numbers: Vec<u32> = lanes.map(|(number, _)| number).collect();
        numbers.sort_unstable();
        numbers
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
                // A message that is not in the journal is in a table only while it is alive.
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

#[cfg(test)]
mod tests;
