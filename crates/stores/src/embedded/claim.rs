//! `claim`: takes due messages of a lane under a lease.

use std::sync::Arc;

use bytes::Bytes;
use duly_core::{
    Attempt, Lane, Monotonic, Now, Receipt, Timestamp,
    store::{Claim, ClaimBudget, Claimed, Holder, LeasedMessage, StoreError, StoreErrorKind},
};

use super::{
    SharedEngine,
    claim_log::ClaimRecord,
    disk::DiskFile,
    engine::Engine,
    entry::{self, Peek, Stored},
    in_flight::{ClaimedMessage, Loss},
    index::Position,
    lanes::{HotEntry, ReleaseKey},
    options::{LANE_IN_FLIGHT_MIN, UNREAD_AFTER},
    survey::UnreadPart,
    table::read_entry,
};

/// How often a claim waits for the background thread before it returns without messages.
const ROUNDS_MAX: usize = 16;

/// The messages a claim took, when to claim again, and the files of entries to read back.
type PopResult = (Vec<Popped>, Option<Timestamp>, Vec<Option<Arc<dyn DiskFile>>>);

/// What is due and was taken, and what must be passed over before there can be more.
type DueMessages = (Vec<Popped>, Option<UnreadPart>);

/// A message that was taken out of its lane and is not decoded yet.
struct Popped {
    token: u64,
    near: HotEntry,
    ready: Timestamp,
}

impl Engine {
    /// Takes what is due in a lane, in order.
    fn pop_due(&mut self, number: u32, claim: &Claim, patient: bool) -> DueMessages {
        let now = self.now.wall();
        let end = self.lease_end(claim.lease);
        let limit = claim.limit.min(self.in_flight_room(number));
        // Messages on their way to the hot window come first if they are due first.
        let before = if patient { self.unopened_and_awaited() } else { None };
        let mut popped = Vec::new();
        let mut held = Vec::new();
        let mut budget = ClaimBudget::default();
        let mut head = self.refill(number, now);
        while popped.len() < limit {
            // The backlog on disk is read only when its turn comes.
            if head.key.as_ref().is_some_and(|key| self.goes_first(number, key, now)) {
                if head.unread.is_some() {
                    break;
                }
                head = self.refill(number, now);
                continue;
            }
            let Some(mut lane) = self.lanes.get_mut(number) else { break };
            let Some((key, first)) = lane.hot().first_key_value().filter(|(key, _)| key.ready <= now) else {
                break;
            };
            let waits = before.is_some_and(|before| key.ready >= before);
            if waits || (patient && lane.spilling().is_some_and(|spilling| spilling < key)) {
                break;
            }
            let alone = first.suspect;
            if alone && !popped.is_empty() {
                break;
            }
            if !budget.takes(first.data.as_ref().map_or(0, Bytes::len)) {
                break;
            }
            let Some((key, near)) = lane.pop_hot() else { break };
            if !self.index.claim(near.hash, near.position) {
                continue;
            }
            lane.claim();
            let token = self.in_flight.token();
            let ready = key.ready;
            held.push((token, claimed_as(key, &near, number, claim.holder, end)));
            popped.push(Popped { token, near, ready });
            if alone {
                break;
            }
        }
        if let [(_, held)] = held.as_mut_slice() {
            held.only = claim.holder.holds_alone(1);
        }
        self.in_flight.hold(end, held);
        (popped, head.unread)
    }

    /// Whether the backlog entry with this key is due and goes before the hot window of the lane.
    fn goes_first(&self, number: u32, unread: &ReleaseKey, now: Timestamp) -> bool {
        let lane = || self.lanes.get(number).and_then(|lane| lane.hot().first_key_value());
        unread.ready <= now && lane().is_none_or(|(first, _)| unread < first)
    }

    /// Whether something of the lane is in memory or in its backlog, and due.
    fn is_due(&self, lane: u32) -> bool {
        let first = self.lanes.get(lane).and_then(|lane| lane.first());
        first.is_some_and(|key| key.ready <= self.now.wall())
    }

    /// How many more messages of a lane may be claimed now.
    pub(super) fn in_flight_room(&self, lane: u32) -> usize {
        let held = self.lanes.get(lane).map_or(0, |lane| lane.in_flight() as usize);
        let free = self.options.in_flight_max.saturating_sub(self.in_flight.len());
        // Each claim makes `held` one larger and `free` one smaller: half of the difference can be claimed.
        let share = free.saturating_sub(held).div_ceil(2);
        share.max(LANE_IN_FLIGHT_MIN.saturating_sub(held))
    }
}

/// The state of a message that is claimed until `end`. Facts of an entry that is not in memory are added once it is read.
fn claimed_as(key: ReleaseKey, near: &HotEntry, lane: u32, holder: Holder, end: Monotonic) -> ClaimedMessage {
    let peek = near.data.as_deref().and_then(|data| Peek::framed(data).ok());
    ClaimedMessage {
        id: key.id,
        hash: near.hash,
        position: near.position,
        lane,
        ready: key.ready,
        version: peek.map_or(0, Peek::version),
        holder,
        alone: near.suspect,
        only: false,
        lease_end: end,
        loss: Loss::Lease,
        head: peek.map_or_else(Box::default, |peek| ClaimedMessage::remembered(peek.head())),
        bytes: peek.map_or(0, |peek| peek.len() as u32),
        rank: key.rank,
    }
}

pub(super) fn damaged(position: Position) -> StoreError {
    let what = format!(
        "the entry at byte {} of file {} does not match its checksum; restore the data folder from a backup",
        position.offset(),
        position.file
    );
    StoreError::new(StoreErrorKind::Damaged, what)
}

fn too_many(lane: &Lane) -> StoreError {
    let what = format!(
        "as many messages of {lane} are in flight as may be: acknowledge some, or wait until their leases end"
    );
    StoreError::new(StoreErrorKind::TooManyInFlight, what)
}

fn hash_of(entry: &[u8]) -> Option<u64> {
    Peek::framed(entry).and_then(ReleaseKey::of).ok().map(|key| key.id.hash64())
}

impl SharedEngine {
    pub(super) async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        // A lease that cannot be ended concerns only its own message. The sweep logs the error.
        let _ = self.end_leases(now).await;
        let Some((popped, next, files)) = self.pop(now, &claim).await? else { return Ok(Claimed::default()) };
        let mut messages = Vec::with_capacity(popped.len());
        let mut records = Vec::with_capacity(popped.len());
        let mut late = Vec::new();
        let mut failed = None;
        let (mut budget, mut over) = (ClaimBudget::default(), Vec::new());
        let lease_ms = u32::try_from(claim.lease.as_millis()).unwrap_or(u32::MAX);
        let only = claim.holder.holds_alone(popped.len());
        for (one, file) in popped.into_iter().zip(files) {
            if !over.is_empty() {
                over.push(one.token);
                continue;
            }
            let read = one.near.data.is_none();
            let loaded = self.load(one.near.data, one.near.position, one.near.hash, file, &claim.lane).await;
            let (stored, data) = match loaded {
                Ok(Some(loaded)) => loaded,
                Ok(None) => continue,
                Err(error) => {
                    self.give_up(one.token, now, &error);
                    failed = Some(error);
                    continue;
                }
            };
            if !budget.takes(data.len()) {
                // Its size was not known before it was read.
                over.push(one.token);
                continue;
            }
            if read {
                late.push((one.token, stored.version, data));
            }
            records.push(ClaimRecord {
                hash: one.near.hash,
                token: one.token,
                version: stored.version,
                lease_ms,
                client: claim.holder.is_client(),
                alone: one.near.suspect,
                only,
                released: false,
            });
            messages.push(LeasedMessage {
                receipt: Receipt { shard: 0, token: one.token, id: stored.message.id.clone() },
                ready: one.ready,
                attempt: stored.attempts.saturating_add(1),
                lost: stored.lost,
                lost_at: Attempt::lost_at(&stored.history),
                fence: None,
                message: stored.message,
            });
        }
        if !late.is_empty() {
            self.complete(late);
        }
        let next = if over.is_empty() { next } else { Some(now.wall()) };
        self.release_claims(&over);
        if let Err(error) = self.claims.write(records) {
            let tokens: Vec<_> = messages.into_iter().map(|leased| leased.receipt.token).collect();
            self.release_claims(&tokens);
            let full = super::background::is_full(&error);
            let kind = if full { StoreErrorKind::Full } else { StoreErrorKind::Unavailable };
            let what = format!("the claim could not be recorded: {error}");
            return Err(StoreError::new(kind, what).with_source(error));
        }
        match failed.filter(|error| messages.is_empty() && error.kind != StoreErrorKind::Damaged) {
            Some(error) => Err(error),
            None => Ok(Claimed { messages, next }),
        }
    }

    /// The message of an entry, from memory or from its position; `None` if it is not claimed any more.
    pub(super) async fn load(
        &self,
        data: Option<Bytes>,
        position: Position,
        hash: u64,
        file: Option<Arc<dyn DiskFile>>,
        lane: &Lane,
    ) -> Result<Option<(Stored, Bytes)>, StoreError> {
        let data = match data {
            Some(data) => data,
            None => match self.read_back(position, hash, file).await? {
                Some(data) => data,
                None => return Ok(None),
            },
        };
        let stored = entry::decode(&data, lane).map_err(|_| damaged(position))?;
        Ok(Some((stored, data)))
    }

    /// A claimed message cannot be read, so that nobody has received it. A damaged one is quarantined; otherwise it is read again in a
    /// while. Other messages of its lane are not affected.
    pub(super) fn give_up(&self, token: u64, now: Now, error: &StoreError) {
        let mut engine = self.engine();
        if error.kind == StoreErrorKind::Damaged {
            engine.quarantine_claimed(token);
        } else if let Some(held) = engine.in_flight.get_mut(token) {
            tracing::warn!(id = %held.id, %error, "message unreadable; retried later");
            held.lease_end = now.mono();
            engine.in_flight.recheck_at(token, now.mono().saturating_add(UNREAD_AFTER));
        }
    }

    /// Takes what is due out of its lane. Waits a little if the background thread is still loading it.
    async fn pop(&self, now: Now, claim: &Claim) -> Result<Option<PopResult>, StoreError> {
        for round in 0.. {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            let blocked_by = {
                let mut engine = self.engine();
                engine.check_open()?;
                let behind = engine.tick(now);
                if behind {
                    self.background.notify_one();
                }
                let Some(number) = engine.lanes.number(&claim.lane) else { return Ok(None) };
                if engine.lanes.get(number).is_none_or(|lane| lane.is_paused()) {
                    return Ok(None);
                }
                if !engine.may_claim() {
                    let what = "the disk is full and so is its reserve: delivery waits until there is room";
                    return Err(StoreError::new(StoreErrorKind::Full, what));
                }
                if engine.lanes.get(number).is_none_or(|lane| lane.pending() == 0) {
                    // Nothing of it is being loaded, either.
                    return Ok(None);
                }
                let room = engine.in_flight_room(number);
                if room == 0 && claim.holder.is_client() && engine.is_due(number) {
                    return Err(too_many(&claim.lane));
                }
                let (popped, blocked_by) = engine.pop_due(number, claim, round < ROUNDS_MAX);
                let next = engine.next_due(number).filter(|_| room > popped.len());
                let coming = next.is_some_and(|next| next <= now.wall()) && claim.limit > 0;
                if !popped.is_empty() || !coming || round == ROUNDS_MAX {
                    let unread = |one: &Popped| {
                        if one.near.data.is_some() { None } else { engine.file(one.near.position) }
                    };
                    let files = popped.iter().map(unread).collect();
                    return Ok(Some((popped, next, files)));
                }
                blocked_by.map(|unread| (number, unread))
            };
            match blocked_by {
                Some((lane, unread)) => self.pass_over_backlog(lane, &unread).await,
                None => moved.await,
            }
        }
        Ok(None)
    }

    /// Reads the entry of a claimed message that was not in memory; `None` if it is not claimed any more. Waits for its journal frame
    /// if that is not written yet.
    pub(super) async fn read_back(
        &self,
        position: Position,
        hash: u64,
        file: Option<Arc<dyn DiskFile>>,
    ) -> Result<Option<Bytes>, StoreError> {
        let mut file = file;
        let mut position = position;
        loop {
            self.written(position).await?;
            let read = file.as_ref().map(|file| read_entry(&**file, position));
            let engine = self.engine();
            // The bytes are of this message only if it is still at this position: the background thread moves messages and reuses
            // journal segments.
            if engine.index.marks(hash, position).is_some() {
                return match read {
                    Some(Ok(bytes)) if hash_of(&bytes) == Some(hash) => Ok(Some(Bytes::from(bytes))),
                    Some(Err(error)) if error.kind() != std::io::ErrorKind::InvalidData => {
                        let what = format!("reading the data folder failed: {error}");
                        Err(StoreError::new(StoreErrorKind::Unavailable, what).with_source(error))
                    }
                    _ => Err(damaged(position)),
                };
            }
            // A claimed message has exactly one position. Without one, its claim has ended meanwhile.
            let Some((moved, _)) = engine.index.candidates(hash).find(|(_, marks)| marks.claimed) else {
                return Ok(None);
            };
            position = moved;
            file = engine.file(position);
        }
    }

    /// Adds the facts of claimed messages that were known only once their entries were read.
    fn complete(&self, late: Vec<(u64, u64, Bytes)>) {
        let mut engine = self.engine();
        for (token, version, data) in late {
            if let Some(held) = engine.in_flight.get_mut(token)
                && let Ok(peek) = Peek::framed(&data)
            {
                held.version = version;
                held.head = ClaimedMessage::remembered(peek.head());
                held.bytes = peek.len() as u32;
            }
        }
    }

    /// Releases claims whose messages were not returned to a caller.
    fn release_claims(&self, tokens: &[u64]) {
        if tokens.is_empty() {
            return;
        }
        let released: Vec<ClaimRecord> = {
            let mut engine = self.engine();
            let release = |token: &u64| {
                let held = engine.end_claim(*token)?;
                engine.release(&held);
                Some(ClaimRecord::released(*token, &held))
            };
            tokens.iter().filter_map(release).collect()
        };
        // A checkpoint may have written them to its claims log meanwhile.
        if let Err(error) = self.claims.write(released) {
            tracing::warn!(%error, "release of claims failed");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duly_core::Topic;

    use super::{
        super::test_bed::{Bed, message, now, tiny},
        *,
    };

    #[test]
    fn a_claim_taken_back_after_a_checkpoint_is_held_by_nobody() {
        testkit::block_on(async {
            let folder = tempfile::tempdir().unwrap();
            let bed = Bed::open(folder.path(), tiny());
            bed.insert(0, [message("work", 1, 0, 10)]).await;
            let lane = Lane::Queue(Topic::parse("work").unwrap());
            let claim = Claim { lane, limit: 1, lease: Duration::from_secs(60), holder: Holder::Client };
            let (popped, ..) = bed.shared.pop(now(0), &claim).await.unwrap().unwrap();
            bed.shared.checkpoint().unwrap();
            let tokens: Vec<u64> = popped.iter().map(|one| one.token).collect();
            assert_eq!(tokens.len(), 1);
            bed.shared.release_claims(&tokens);
            // The process dies before it claims anything else.
            drop(bed);
            let bed = Bed::open(folder.path(), tiny());
            assert_eq!(bed.claim(1, "work", 1).await.messages.len(), 1);
        });
    }
}
