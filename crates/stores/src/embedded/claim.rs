//! Claims and their ends.

use std::sync::Arc;

use bytes::Bytes;
use duly_core::{
    Now, Receipt, Timestamp,
    store::{Claim, Claimed, Holder, Leased, StoreError, StoreErrorKind},
};

use super::{
    Shared,
    disk::DiskFile,
    engine::Engine,
    entry::{self, Peek},
    flight::{Held, Note},
    index::Place,
    lanes::{Near, NearKey},
    options::{BLOCK_BYTES, IN_FLIGHT_MAX, NEAR_COST},
    table::{read_all, read_entry},
};

/// How often a claim waits for the keeper before it answers that there is nothing yet.
const ROUNDS_MAX: usize = 16;

/// What a claim took, when to look again, and the files of what must be read back.
type Taken = (Vec<Popped>, Option<Timestamp>, Vec<Option<Arc<dyn DiskFile>>>);

/// Taken out of its lane, not decoded yet.
struct Popped {
    token: u64,
    near: Near,
    ready: Timestamp,
}

impl Engine {
    /// Takes what is due in a lane, in order.
    fn pop_due(&mut self, number: u32, claim: &Claim, patient: bool) -> Result<Vec<Popped>, StoreError> {
        let now = self.now.wall();
        let end = self.lease_end(claim.lease);
        let limit = claim.limit.min(IN_FLIGHT_MAX.saturating_sub(self.flight.len()));
        // What is still on its way comes first if it is due first.
        let before = if patient { self.unopened() } else { None };
        let mut popped = Vec::new();
        let mut held = Vec::new();
        let mut unread = self.refill(number, now)?;
        while popped.len() < limit {
            // What lies on disk is brought in only when its turn comes.
            let first =
                self.lanes.get(number).and_then(|lane| lane.near.first_key_value()).map(|(key, _)| key);
            if unread
                .as_ref()
                .is_some_and(|unread| unread.ready <= now && first.is_none_or(|first| unread < first))
            {
                unread = self.refill(number, now)?;
            }
            let Some(lane) = self.lanes.get_mut(number) else { break };
            let Some(first) = lane.near.first_entry().filter(|first| first.key().ready <= now) else { break };
            let waits = before.is_some_and(|before| first.key().ready >= before);
            if waits || (patient && lane.limbo.as_ref().is_some_and(|limbo| limbo < first.key())) {
                break;
            }
            let alone = first.get().suspect;
            if alone && !popped.is_empty() {
                break;
            }
            let (key, near) = first.remove_entry();
            self.window = self.window.saturating_sub(NEAR_COST + near.data.as_ref().map_or(0, Bytes::len));
            if !self.index.claim(near.hash, near.place) {
                continue;
            }
            lane.near_count = lane.near_count.saturating_sub(1);
            lane.pending = lane.pending.saturating_sub(1);
            lane.in_flight += 1;
            let token = self.flight.token();
            let peek = near.data.as_deref().and_then(|data| Peek::framed(data).ok());
            held.push((
                token,
                Held {
                    id: key.id,
                    hash: near.hash,
                    place: near.place,
                    lane: number,
                    ready: key.ready,
                    version: peek.map_or(0, Peek::version),
                    holder: claim.holder,
                    alone,
                    lease_end: end,
                    head: peek.map_or_else(Box::default, |peek| peek.head().into()),
                    bytes: peek.map_or(0, |peek| peek.len() as u32),
                    rank: key.rank,
                },
            ));
            popped.push(Popped { token, near, ready: key.ready });
            if alone {
                break;
            }
        }
        self.flight.hold(end, held);
        Ok(popped)
    }

    /// Brings the head of the lane's backlog into memory, if it goes before what is there. Says what is unread first.
    fn refill(&mut self, number: u32, now: Timestamp) -> Result<Option<NearKey>, StoreError> {
        loop {
            let Some(lane) = self.lanes.get_mut(number) else { return Ok(None) };
            let Some((at, extent)) = lane.extents.iter().enumerate().min_by(|a, b| a.1.key.cmp(&b.1.key))
            else {
                return Ok(None);
            };
            let memory = lane.near.first_key_value().map(|(key, _)| key);
            if extent.key.ready > now || memory.is_some_and(|memory| *memory < extent.key) {
                return Ok(Some(extent.key.clone()));
            }
            let (table, from, end) = (extent.table, extent.next, extent.end);
            let Some(file) = self.tables.get(&table).map(|table| table.data.clone()) else {
                lane.extents.swap_remove(at);
                continue;
            };
            let damaged = || damaged(Place::new(table, from));
            let mut len = BLOCK_BYTES.min(end - from);
            let mut block = read_all(&*file, from, len).map_err(|e| unavailable(&e))?;
            let first = Peek::length(&block).map_err(|_| damaged())? as u64;
            // The block must hold one whole entry and the key of the next.
            let need = first + 2048;
            if need > len && len < end - from {
                len = need.min(end - from);
                block = read_all(&*file, from, len).map_err(|e| unavailable(&e))?;
            }
            let (arrivals, used, next) =
                split_block(&Bytes::from(block), from, end, table).map_err(|_| damaged())?;
            match next {
                Some(key) => {
                    lane.extents[at].next = from + used;
                    lane.extents[at].key = key;
                }
                None => {
                    lane.extents.swap_remove(at);
                }
            }
            for (key, near) in arrivals {
                if self.index.marks(near.hash, near.place).is_some_and(|marks| !marks.claimed) {
                    self.add_near(number, key, near);
                }
            }
        }
    }
}

type Arrivals = (Vec<(NearKey, Near)>, u64, Option<NearKey>);

/// The entries of a block of a run. Unless it reaches the end, the last whole one only gives its key.
fn split_block(block: &Bytes, from: u64, end: u64, table: u32) -> Result<Arrivals, entry::Garbled> {
    let mut arrivals = Vec::new();
    let mut at = 0;
    while at < block.len() {
        let Ok(peek) = Peek::checked(&block[at..]) else {
            // Cut by the end of the block, or bad: the next read tells which.
            break;
        };
        let key = NearKey::of(peek)?;
        let near = Near {
            hash: key.id.hash64(),
            place: Place::new(table, from + at as u64),
            data: Some(block.slice(at..at + peek.len())),
            suspect: peek.is_lost(),
        };
        arrivals.push((key, near));
        at += peek.len();
    }
    if from + at as u64 >= end {
        return Ok((arrivals, at as u64, None));
    }
    if arrivals.len() == 1 && at < block.len() {
        // One large entry: the fixed part of the next was read along, and says its key.
        let key = NearKey::of(Peek::start(&block[at..])?)?;
        return Ok((arrivals, at as u64, Some(key)));
    }
    let Some((key, last)) = arrivals.pop() else { return Err(entry::Garbled) };
    let used = last.place.offset() - from;
    if arrivals.is_empty() { Err(entry::Garbled) } else { Ok((arrivals, used, Some(key))) }
}

pub(super) fn damaged(place: Place) -> StoreError {
    let what = format!(
        "the entry at byte {} of file {} does not match its checksum; restore the data folder from a backup",
        place.offset(),
        place.file
    );
    StoreError::new(StoreErrorKind::Damaged, what)
}

fn unavailable(error: &std::io::Error) -> StoreError {
    StoreError::new(StoreErrorKind::Unavailable, format!("reading the data folder failed: {error}"))
}

impl Shared {
    pub(super) async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        self.end_leases(now).await?;
        let Some((popped, next, files)) = self.pop(now, &claim).await? else { return Ok(Claimed::default()) };
        let mut messages = Vec::with_capacity(popped.len());
        let mut notes = Vec::with_capacity(popped.len());
        let mut late = Vec::new();
        let lease_ms = u32::try_from(claim.lease.as_millis()).unwrap_or(u32::MAX);
        for (one, file) in popped.into_iter().zip(files) {
            let read = one.near.data.is_none();
            let data = match one.near.data {
                Some(data) => data,
                None => match self.read_back(one.near.place, one.near.hash, file).await? {
                    Some(data) => data,
                    None => continue,
                },
            };
            let stored = entry::decode(&data, &claim.lane).map_err(|_| damaged(one.near.place))?;
            if read {
                late.push((one.token, stored.version, data.clone()));
            }
            notes.push(Note {
                hash: one.near.hash,
                token: one.token,
                version: stored.version,
                lease_ms,
                client: claim.holder == Holder::Client,
                alone: one.near.suspect,
                released: false,
            });
            messages.push(Leased {
                receipt: Receipt { shard: 0, token: one.token, id: stored.message.id.clone() },
                ready: one.ready,
                attempt: stored.attempts + 1,
                lost: stored.lost,
                fence: None,
                message: stored.message,
            });
        }
        if !late.is_empty() {
            self.complete(late);
        }
        if let Err(error) = self.claims.write(notes) {
            let receipts: Vec<Receipt> = messages.into_iter().map(|leased| leased.receipt).collect();
            self.undo(&receipts);
            let full = super::keeper::is_full(&error);
            let kind = if full { StoreErrorKind::Full } else { StoreErrorKind::Unavailable };
            return Err(StoreError::new(kind, format!("the claim could not be recorded: {error}")));
        }
        Ok(Claimed { messages, next })
    }

    /// Takes what is due out of its lane. If the keeper is still bringing it in, waits for it a little.
    async fn pop(&self, now: Now, claim: &Claim) -> Result<Option<Taken>, StoreError> {
        for round in 0.. {
            let moved = self.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            {
                let mut engine = self.engine();
                engine.check_open()?;
                let behind = engine.tick(now);
                if behind {
                    self.keeper.notify_one();
                }
                let Some(number) = engine.lanes.number(&claim.lane) else { return Ok(None) };
                if engine.lanes.get(number).is_none_or(|lane| lane.paused) {
                    return Ok(None);
                }
                if !engine.may_claim() {
                    let what = "the disk is full and so is its reserve: delivery waits until there is room";
                    return Err(StoreError::new(StoreErrorKind::Full, what));
                }
                let popped = engine.pop_due(number, claim, round < ROUNDS_MAX)?;
                let next = engine.next_due(number).filter(|_| engine.flight.len() < IN_FLIGHT_MAX);
                let coming = next.is_some_and(|next| next <= now.wall()) && claim.limit > 0;
                if !popped.is_empty() || !coming || round == ROUNDS_MAX {
                    let unread = |one: &Popped| {
                        if one.near.data.is_some() { None } else { engine.file(one.near.place) }
                    };
                    let files = popped.iter().map(unread).collect();
                    return Ok(Some((popped, next, files)));
                }
            }
            moved.await;
        }
        Ok(None)
    }

    /// Reads the entry of a claimed message that was not in memory; `None` if it is not claimed any more. Its journal frame may still be on its way.
    pub(super) async fn read_back(
        &self,
        place: Place,
        hash: u64,
        file: Option<Arc<dyn DiskFile>>,
    ) -> Result<Option<Bytes>, StoreError> {
        let mut file = file;
        let mut place = place;
        loop {
            self.written(place).await?;
            let read = file.as_ref().and_then(|file| read_entry(&**file, place).ok());
            let read = read.filter(|bytes| {
                Peek::framed(bytes).and_then(NearKey::of).is_ok_and(|key| key.id.hash64() == hash)
            });
            let engine = self.engine();
            // Only if it is still there was it this message that was read: the keeper moves messages, and uses old
            // journal segments again.
            if engine.index.marks(hash, place).is_some() {
                return read.map(|bytes| Some(Bytes::from(bytes))).ok_or_else(|| damaged(place));
            }
            // A claimed message has exactly one place. If it has none, its claim ended meanwhile.
            let Some((moved, _)) = engine.index.candidates(hash).find(|(_, marks)| marks.claimed) else {
                return Ok(None);
            };
            place = moved;
            file = engine.file(place);
        }
    }

    /// Fills in what was only known once the entry was read.
    fn complete(&self, late: Vec<(u64, u64, Bytes)>) {
        let mut engine = self.engine();
        for (token, version, data) in late {
            if let Some(held) = engine.flight.get_mut(token)
                && let Ok(peek) = Peek::framed(&data)
            {
                held.version = version;
                held.head = peek.head().into();
                held.bytes = peek.len() as u32;
            }
        }
    }

    /// Takes claims back that were never given out.
    fn undo(&self, receipts: &[Receipt]) {
        let mut engine = self.engine();
        for receipt in receipts {
            if let Some(held) = engine.let_go(receipt.token) {
                engine.hand_back(&held);
            }
        }
    }
}
