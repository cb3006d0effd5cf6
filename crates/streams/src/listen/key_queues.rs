//! Entries of an ordered group that wait for earlier ones of their key: in memory, or parked in Redis.
//!
//! An entry in memory holds a slot. Of one key only [`KEY_SLOTS`] are in memory, and none while the key waits for a
//! retry: the rest is parked, which means that this process knows its id only. So the slots are all taken only if as
//! many keys are handled as calls may run, and no key waits for another.

use std::{
    collections::{HashMap, VecDeque},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Instant,
};

use tokio::sync::{OwnedSemaphorePermit, watch};

use crate::{
    EntryId,
    group::{ClaimedEntry, Lane},
};

/// Entries of one key in memory. Also the slots per concurrent handler call.
pub(super) const KEY_SLOTS: usize = 16;

/// Entries that are parked before the listener stops reading.
pub(super) const PARKED_MAX: usize = 10_000;

/// An entry that waits.
pub(super) struct WaitingEntry {
    pub(super) lane: Arc<Lane>,
    pub(super) id: EntryId,
    /// The id as numbers.
    order: Option<(u64, u64)>,
    pub(super) state: EntryState,
}

/// Where an entry is that waits.
pub(super) enum EntryState {
    Loaded(LoadedEntry),
    /// In Redis only, not to be handled before `due`.
    Parked {
        due: Option<Instant>,
        _count: ParkedCount,
    },
}

/// An entry in memory.
pub(super) struct LoadedEntry {
    pub(super) entry: ClaimedEntry,
    /// Whether Redis holds it in flight, so that its attempt needs no record before it begins.
    pub(super) is_in_flight: bool,
    pub(super) slot: OwnedSemaphorePermit,
}

/// Counts one parked entry until it is dropped.
pub(super) struct ParkedCount(watch::Sender<usize>);

impl ParkedCount {
    fn new(all: &watch::Sender<usize>) -> Self {
        all.send_modify(|count| *count += 1);
        Self(all.clone())
    }
}

impl Drop for ParkedCount {
    fn drop(&mut self) {
        self.0.send_modify(|count| *count -= 1);
    }
}

impl WaitingEntry {
    pub(super) fn loaded(lane: Arc<Lane>, loaded: LoadedEntry) -> Self {
        let id = loaded.entry.raw.id.clone();
        Self { lane, order: numbers_of(&id), id, state: EntryState::Loaded(loaded) }
    }

    fn is_parked(&self) -> bool {
        matches!(self.state, EntryState::Parked { .. })
    }
}

fn numbers_of(id: &EntryId) -> Option<(u64, u64)> {
    let (millis, serial) = id.as_str().split_once('-')?;
    Some((millis.parse().ok()?, serial.parse().ok()?))
}

/// The result of adding an entry.
pub(super) enum Added {
    /// It is the only one of its key: nobody handles the queue yet.
    First,
    Queued,
    /// It must be parked.
    Refused(ClaimedEntry),
}

/// The next entry of a key.
pub(super) enum NextEntry {
    /// Taken from the queue.
    Loaded(Arc<Lane>, LoadedEntry),
    /// It stays in the queue until it is loaded, not before this time.
    Parked(Arc<Lane>, Option<Instant>),
}

fn is_full(queue: &VecDeque<WaitingEntry>) -> bool {
    queue.len() >= KEY_SLOTS || queue.back().is_some_and(WaitingEntry::is_parked)
}

type Queues = HashMap<Vec<u8>, VecDeque<WaitingEntry>>;

/// The queue of each key that has an entry in its handler, or waiting.
#[derive(Default)]
pub(super) struct KeyQueues {
    by_key: Mutex<Queues>,
    parked: watch::Sender<usize>,
}

impl KeyQueues {
    fn by_key(&self) -> MutexGuard<'_, Queues> {
        self.by_key.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// How many entries are parked.
    pub(super) fn parked_count(&self) -> watch::Receiver<usize> {
        self.parked.subscribe()
    }

    pub(super) fn parked(&self, lane: Arc<Lane>, id: EntryId, due: Option<Instant>) -> WaitingEntry {
        let state = EntryState::Parked { due, _count: ParkedCount::new(&self.parked) };
        WaitingEntry { lane, order: numbers_of(&id), id, state }
    }

    /// Whether a further entry of the key may not be in memory: others are parked before it, or fill the slots of the key.
    pub(super) fn must_park(&self, key: &[u8]) -> bool {
        self.by_key().get(key).is_some_and(is_full)
    }

    /// Adds an entry, unless it is in memory and may not be.
    pub(super) fn add(&self, key: &[u8], item: WaitingEntry) -> Added {
        let mut by_key = self.by_key();
        let Some(queue) = by_key.get_mut(key) else {
            by_key.insert(key.to_vec(), VecDeque::from([item]));
            return Added::First;
        };
        match item.state {
            EntryState::Loaded(loaded) if is_full(queue) => return Added::Refused(loaded.entry),
            _ => {}
        }
        // A recovered entry may come before some that are queued. Those of one stream are in its order.
        let is_of_stream =
            |at: &usize| queue.get(*at).is_some_and(|other| other.lane.priority == item.lane.priority);
        let of_stream = (0..queue.len()).rev().filter(is_of_stream);
        let later = of_stream.take_while(|at| queue[*at].order > item.order).last();
        queue.insert(later.unwrap_or(queue.len()), item);
        Added::Queued
    }

    /// Takes the next entry of a key if it is in memory. If there is no entry, the key is forgotten.
    pub(super) fn next(&self, key: &[u8]) -> Option<NextEntry> {
        let mut by_key = self.by_key();
        let queue = by_key.get_mut(key)?;
        match queue.pop_front() {
            Some(WaitingEntry { lane, state: EntryState::Loaded(loaded), .. }) => {
                Some(NextEntry::Loaded(lane, loaded))
            }
            Some(first) => {
                let EntryState::Parked { due, .. } = first.state else { return None };
                let next = NextEntry::Parked(first.lane.clone(), due);
                queue.push_front(first);
                Some(next)
            }
            None => {
                by_key.remove(key);
                None
            }
        }
    }

    /// Takes the next entries of a key that are parked in the stream of `lane`.
    pub(super) fn pop_parked(&self, key: &[u8], lane: &Lane, count: usize) -> Vec<WaitingEntry> {
        let mut by_key = self.by_key();
        let Some(queue) = by_key.get_mut(key) else { return Vec::new() };
        let is_next = |next: &WaitingEntry| next.is_parked() && next.lane.priority == lane.priority;
        let run = queue.iter().take(count).take_while(|next| is_next(next)).count();
        queue.drain(..run).collect()
    }

    /// Puts entries back before all others of their key.
    pub(super) fn push_front(&self, key: &[u8], items: Vec<WaitingEntry>) {
        let mut by_key = self.by_key();
        let queue = by_key.entry(key.to_vec()).or_default();
        items.into_iter().rev().for_each(|item| queue.push_front(item));
    }

    /// Parks all entries of a key, behind `first` if there is one. Returns those that were in memory; they hold their slots
    /// until they are dropped.
    pub(super) fn park_all(&self, key: &[u8], first: Option<WaitingEntry>) -> Vec<(Arc<Lane>, LoadedEntry)> {
        let mut by_key = self.by_key();
        let mut unloaded = Vec::new();
        let queue = by_key.entry(key.to_vec()).or_default();
        first.into_iter().for_each(|first| queue.push_front(first));
        for item in queue.iter_mut().filter(|item| !item.is_parked()) {
            let parked = EntryState::Parked { due: None, _count: ParkedCount::new(&self.parked) };
            if let EntryState::Loaded(loaded) = std::mem::replace(&mut item.state, parked) {
                unloaded.push((item.lane.clone(), loaded));
            }
        }
        unloaded
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use redis_link::Address;
    use tokio::sync::Semaphore;

    use super::*;
    use crate::{Priority, entry::Raw, keys::Keys};

    fn lane(priority: Priority) -> Arc<Lane> {
        let keys = Keys::new("order", &Address::parse("redis://a").unwrap());
        Arc::new(Lane::new(&keys, "group", "consumer", priority))
    }

    fn parked(queues: &KeyQueues, lane: &Arc<Lane>, id: &str) -> WaitingEntry {
        queues.parked(lane.clone(), EntryId::new(id.into()), None)
    }

    fn ids(queues: &KeyQueues) -> Vec<String> {
        let next = || match queues.next(b"k")? {
            NextEntry::Loaded(_, loaded) => Some(loaded.entry.raw.id),
            NextEntry::Parked(lane, _) => queues.pop_parked(b"k", &lane, 1).pop().map(|item| item.id),
        };
        std::iter::from_fn(next).map(|id| id.as_str().to_owned()).collect()
    }

    fn loaded(slots: &Arc<Semaphore>, lane: &Arc<Lane>, id: &str) -> WaitingEntry {
        let (raw, slot) = (Raw::new(id.into(), Vec::new()), slots.clone().try_acquire_owned().unwrap());
        let entry = ClaimedEntry { raw, failures: 0, crashes: 0, wait: Some(Duration::ZERO) };
        WaitingEntry::loaded(lane.clone(), LoadedEntry { entry, is_in_flight: true, slot })
    }

    #[test]
    fn entries_of_a_stream_are_in_its_order_whenever_they_come() {
        let queues = KeyQueues::default();
        let (normal, high) = (lane(Priority::Normal), lane(Priority::High));
        assert!(matches!(queues.add(b"k", parked(&queues, &normal, "9-0")), Added::First));
        for (lane, id) in [(&normal, "10-0"), (&high, "3-0"), (&normal, "2-5"), (&high, "4-0")] {
            assert!(matches!(queues.add(b"k", parked(&queues, lane, id)), Added::Queued));
        }
        assert_eq!(*queues.parked_count().borrow(), 5);
        assert_eq!(ids(&queues), ["2-5", "9-0", "10-0", "3-0", "4-0"]);
        assert_eq!(*queues.parked_count().borrow(), 0);
        let again = queues.add(b"k", parked(&queues, &high, "5-0"));
        assert!(matches!(again, Added::First), "an empty queue is forgotten");
    }

    #[test]
    fn only_a_run_of_parked_entries_of_one_stream_is_taken_at_once() {
        let queues = KeyQueues::default();
        let (normal, high) = (lane(Priority::Normal), lane(Priority::High));
        for (lane, id) in [(&normal, "1-0"), (&normal, "2-0"), (&normal, "3-0"), (&high, "1-0")] {
            queues.add(b"k", parked(&queues, lane, id));
        }
        assert_eq!(queues.pop_parked(b"k", &normal, 2).len(), 2);
        assert_eq!(queues.pop_parked(b"k", &normal, 9).len(), 1);
        assert!(queues.pop_parked(b"k", &normal, 9).is_empty());
        queues.push_front(b"k", vec![parked(&queues, &normal, "1-0"), parked(&queues, &normal, "2-0")]);
        assert_eq!(ids(&queues), ["1-0", "2-0", "1-0"]);
    }

    #[test]
    fn a_key_has_a_share_of_the_slots_and_none_while_it_waits_for_a_retry() {
        let (queues, slots) = (KeyQueues::default(), Arc::new(Semaphore::new(2 * KEY_SLOTS)));
        let lane = lane(Priority::Normal);
        for serial in 1..=KEY_SLOTS {
            assert!(!queues.must_park(b"k"));
            queues.add(b"k", loaded(&slots, &lane, &format!("1-{serial}")));
        }
        assert!(queues.must_park(b"k") && !queues.must_park(b"other"));
        let refused = queues.add(b"k", loaded(&slots, &lane, "2-0"));
        assert!(matches!(refused, Added::Refused(_)), "also if the check was before the last of them");
        assert_eq!(slots.available_permits(), KEY_SLOTS);
        let unloaded = queues.park_all(b"k", Some(parked(&queues, &lane, "1-0")));
        assert_eq!((unloaded.len(), *queues.parked_count().borrow()), (KEY_SLOTS, KEY_SLOTS + 1));
        drop(unloaded);
        assert_eq!(slots.available_permits(), 2 * KEY_SLOTS);
        assert!(matches!(queues.add(b"k", loaded(&slots, &lane, "2-0")), Added::Refused(_)));
        assert_eq!(ids(&queues).first().map(String::as_str), Some("1-0"));
    }
}
