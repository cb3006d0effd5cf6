//! What is stored, and every change of it that is no matter of leases.

use std::{
    cmp::Reverse,
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use duly_core::{
    Body, DeadReason, Lane, LeaseLoss, MessageId, Monotonic, Now, Priority, Record, State, StoredMessage,
    Timestamp,
    store::{Changed, Holder, Insert, Inserted, StoreError, StoreErrorKind, Totals},
};

use super::Options;

/// One message with what only the store needs to know of it.
#[derive(Debug)]
pub(super) struct Entry {
    pub(super) record: Record,
    /// What [`StoredMessage::same_content`] compares, for when the body is gone.
    pub(super) content: u64,
    pub(super) lost: LeaseLoss,
    /// Set exactly while the message is in flight.
    pub(super) lease: Option<Lease>,
}

/// One claim.
#[derive(Debug, Clone, Copy)]
pub(super) struct Lease {
    pub(super) token: u64,
    pub(super) holder: Holder,
    /// All that a client claimed: nothing else can be why it is lost.
    pub(super) alone: bool,
    pub(super) end: Monotonic,
    /// The same moment in wall time: what a restart, whose monotonic clock starts again, goes by.
    pub(super) end_wall: Timestamp,
    /// How long it was given for: after a restart it lasts no longer, even if wall time has stepped meanwhile.
    pub(super) span: Duration,
}

/// The order in which a lane gives its messages out.
type ClaimOrder = (Timestamp, Reverse<Priority>, MessageId);

#[derive(Debug, Default)]
pub(super) struct LaneState {
    pub(super) paused: bool,
    pub(super) waiting: BTreeSet<ClaimOrder>,
    pub(super) in_flight: u64,
    pub(super) dead: u64,
}

impl LaneState {
    fn is_empty(&self) -> bool {
        !self.paused && self.waiting.is_empty() && self.in_flight == 0 && self.dead == 0
    }
}

#[derive(Debug, Default)]
pub(super) struct StoreState {
    options: Options,
    pub(super) entries: BTreeMap<MessageId, Entry>,
    pub(super) lanes: BTreeMap<Lane, LaneState>,
    /// What is in flight, by the end of its lease.
    pub(super) leases: BTreeSet<(Monotonic, MessageId)>,
    /// Delivered and cancelled, by their end.
    ended: BTreeSet<(Timestamp, MessageId)>,
    /// How many pending messages come due when.
    pub(super) forecast: BTreeMap<Timestamp, u64>,
    pub(super) totals: Totals,
    pub(super) last_token: u64,
}

pub(super) fn claim_order(record: &Record) -> ClaimOrder {
    (record.ready, Reverse(record.message.priority), record.message.id.clone())
}

impl StoreState {
    pub(super) fn new(options: Options) -> Self {
        Self { options, ..Self::default() }
    }

    /// Puts an entry into every index that its state calls for.
    pub(super) fn put(&mut self, entry: Entry) {
        let record = &entry.record;
        let (id, name) = (record.message.id.clone(), record.message.lane());
        let lane = self.lanes.entry(name.clone()).or_default();
        match record.state {
            State::Pending => {
                lane.waiting.insert(claim_order(record));
                *self.forecast.entry(record.ready).or_default() += 1;
                self.totals.pending += 1;
            }
            State::InFlight => {
                lane.in_flight += 1;
                self.leases.extend(entry.lease.map(|lease| (lease.end, id.clone())));
                self.totals.in_flight += 1;
            }
            State::Dead => {
                lane.dead += 1;
                self.totals.dead += 1;
            }
            _ => {
                self.ended.insert((record.ended.unwrap_or_default(), id.clone()));
            }
        }
        self.forget_if_empty(&name);
        self.entries.insert(id, entry);
    }

    /// A lane without anything is as one that never was: topics are free text, and would fill the memory.
    fn forget_if_empty(&mut self, lane: &Lane) {
        if self.lanes.get(lane).is_some_and(LaneState::is_empty) {
            self.lanes.remove(lane);
        }
    }

    /// Takes an entry out of every index. Whatever changes it does so between `take` and `put`.
    pub(super) fn take(&mut self, id: &MessageId) -> Option<Entry> {
        let entry = self.entries.remove(id)?;
        let (record, name) = (&entry.record, entry.record.message.lane());
        let lane = self.lanes.entry(name.clone()).or_default();
        match record.state {
            State::Pending => {
                lane.waiting.remove(&claim_order(record));
                if let Some(count) = self.forecast.get_mut(&record.ready) {
                    *count -= 1;
                }
                if self.forecast.get(&record.ready) == Some(&0) {
                    self.forecast.remove(&record.ready);
                }
                self.totals.pending -= 1;
            }
            State::InFlight => {
                lane.in_flight -= 1;
                if let Some(lease) = &entry.lease {
                    self.leases.remove(&(lease.end, id.clone()));
                }
                self.totals.in_flight -= 1;
            }
            State::Dead => {
                lane.dead -= 1;
                self.totals.dead -= 1;
            }
            _ => {
                self.ended.remove(&(record.ended.unwrap_or_default(), id.clone()));
            }
        }
        self.forget_if_empty(&name);
        Some(entry)
    }

    /// Takes the entry if it is in `state`, else says what answers the caller.
    fn take_in(&mut self, id: &MessageId, state: State) -> Result<Entry, Changed> {
        match self.entries.get(id).map(|entry| entry.record.state) {
            Some(found) if found == state => self.take(id).ok_or(Changed::Unknown),
            Some(other) => Err(Changed::TooLate(other)),
            None => Err(Changed::Unknown),
        }
    }

    pub(super) fn insert(&mut self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        let waits = |insert: &&Insert| !insert.is_dead() && self.existing(&insert.message).is_none();
        let new = batch.iter().filter(waits).count() as u64;
        let max = self.options.pending_max;
        if new > 0 && self.totals.pending + new > max {
            let what = format!("{} messages are waiting and the limit is {max}", self.totals.pending);
            return Err(StoreError::new(StoreErrorKind::TooMany, what));
        }
        Ok(batch.into_iter().map(|insert| self.insert_one(now, insert)).collect())
    }

    fn insert_one(&mut self, now: Now, insert: Insert) -> Inserted {
        let message = &insert.message;
        if let Some(entry) = self.existing(message) {
            let same = entry.content == message.content_hash();
            let Record { message: first, state, .. } = &entry.record;
            return if same {
                Inserted::Duplicate { due: first.due, state: *state }
            } else {
                Inserted::Conflict
            };
        }
        let (id, content) = (message.id.clone(), message.content_hash());
        self.take(&id);
        let record = insert.into_record(now.wall());
        self.put(Entry { record, content, lost: LeaseLoss::None, lease: None });
        self.totals.accepted += 1;
        Inserted::Accepted
    }

    /// The entry that makes `message` a duplicate or a conflict. A cancelled one does not.
    fn existing(&self, message: &StoredMessage) -> Option<&Entry> {
        self.entries.get(&message.id).filter(|entry| entry.record.state != State::Cancelled)
    }

    pub(super) fn cancel(&mut self, now: Now, id: &MessageId) -> Changed {
        let mut entry = match self.take_in(id, State::Pending) {
            Ok(entry) => entry,
            Err(answer) => return answer,
        };
        let record = &mut entry.record;
        record.state = State::Cancelled;
        record.ended = Some(now.wall());
        record.message.body = Body::default();
        let maybe_delivered = record.maybe_delivered;
        self.put(entry);
        self.totals.cancelled += 1;
        Changed::Done { maybe_delivered }
    }

    pub(super) fn reschedule(&mut self, id: &MessageId, due: Timestamp) -> Changed {
        let mut entry = match self.take_in(id, State::Pending) {
            Ok(entry) => entry,
            Err(answer) => return answer,
        };
        entry.record.message.due = due;
        entry.record.ready = due;
        let maybe_delivered = entry.record.maybe_delivered;
        self.put(entry);
        Changed::Done { maybe_delivered }
    }

    pub(super) fn expire(&mut self, now: Now, id: &MessageId, due: Timestamp) -> Changed {
        let mut entry = match self.take_in(id, State::Pending) {
            Ok(entry) => entry,
            Err(answer) => return answer,
        };
        let record = &mut entry.record;
        let maybe_delivered = record.maybe_delivered;
        let is_moved = record.message.due != due;
        if !is_moved {
            record.state = State::Dead;
            record.ended = Some(now.wall());
            record.reason = Some(DeadReason::Expired);
        }
        self.put(entry);
        if is_moved { Changed::TooLate(State::Pending) } else { Changed::Done { maybe_delivered } }
    }

    pub(super) fn replay(&mut self, now: Now, id: &MessageId) -> Changed {
        let mut entry = match self.take_in(id, State::Dead) {
            Ok(entry) => entry,
            Err(answer) => return answer,
        };
        let maybe_delivered = entry.record.maybe_delivered;
        let (mut message, accepted) = (entry.record.message, entry.record.accepted);
        message.due = now.wall();
        // An earlier try that may have arrived stays one: a later cancel must say so.
        entry.record = Record::accepted(message, accepted);
        entry.record.maybe_delivered = maybe_delivered;
        entry.lost = LeaseLoss::None;
        self.put(entry);
        Changed::Done { maybe_delivered }
    }

    pub(super) fn purge(&mut self, id: &MessageId) -> Changed {
        match self.take_in(id, State::Dead) {
            Ok(entry) => {
                self.totals.purged += 1;
                Changed::Done { maybe_delivered: entry.record.maybe_delivered }
            }
            Err(answer) => answer,
        }
    }

    pub(super) fn set_paused(&mut self, lane: &Lane, paused: bool) {
        self.lanes.entry(lane.clone()).or_default().paused = paused;
        self.forget_if_empty(lane);
    }

    /// Drops what is past retention, by time and by count.
    pub(super) fn forget_old(&mut self, now: Now) {
        while let Some((ended, id)) = self.ended.first().cloned() {
            let too_old = ended.saturating_add(self.options.retention) <= now.wall();
            if !too_old && self.ended.len() <= self.options.retention_max {
                return;
            }
            self.take(&id);
        }
    }
}
