//! Messages whose stored bytes cannot be read any more: they are quarantined, so that they delay no other message.
//!
//! Damage is found when a bucket is opened, when a message is claimed, or when its lease ends. The message cannot be claimed from
//! then on. It is counted, logged, and stays pending until the next sweep makes a dead letter of it with what could be read. If not
//! even its id can be read, its bytes stay where they are, and it stays pending.

use std::{
    collections::BTreeMap,
    ops::Bound::{Excluded, Unbounded},
};

use bytes::Bytes;
use duly_core::{
    Attempt, Body, DeadReason, Lane, LeaseLoss, MessageId, Now, Outcome, SinkName, StoredMessage, Timestamp,
    Topic,
    store::{StoreError, StoreErrorKind},
};

use super::{
    SharedEngine,
    disk::DiskFile,
    engine::{Class, Engine},
    entry::{self, Peek, Stored},
    index::{Marks, Position},
    options::{DAMAGED_MAX, STEP},
    survey::{Survey, UnreadPart, Unreadable, id_at, keys_in},
    table::{Table, live_keys, read_all, read_entry},
};

/// Bytes that are kept of an entry whose length cannot be true.
const UNSURE_BYTES: u64 = 4 << 10;
/// The most bytes that are kept of a damaged entry: more than the largest body that the server takes.
const KEPT_BYTES_MAX: u64 = 32 << 20;

/// A message that cannot be read.
#[derive(Debug, Clone)]
pub(super) struct Damaged {
    pub(super) hash: u64,
    pub(super) position: Position,
    pub(super) lane: u32,
    /// Its release time.
    pub(super) ready: Timestamp,
    /// Unknown if the damage is in the id itself and the id is not in memory.
    pub(super) id: Option<MessageId>,
}

/// All quarantined messages.
///
/// Invariants: `named` counts those of `known` that have an id; `total` counts every one that was quarantined since the store was
/// opened, also those that are dead letters by now and those that did not fit into `known`.
#[derive(Default)]
pub(super) struct DamagedMessages {
    /// Not dead letters yet: the next sweep comes to them, or their ids are not known.
    known: BTreeMap<Position, Damaged>,
    named: usize,
    total: u64,
}

impl DamagedMessages {
    /// Quarantined since the store was opened.
    pub(super) fn total(&self) -> u64 {
        self.total
    }

    fn has_room(&self) -> bool {
        self.known.len() < DAMAGED_MAX
    }

    fn add(&mut self, one: Damaged) {
        self.total += 1;
        if self.has_room() {
            self.named += usize::from(one.id.is_some());
            self.known.insert(one.position, one);
        }
    }

    fn take(&mut self, position: Position) -> Option<Damaged> {
        let one = self.known.remove(&position)?;
        self.named -= usize::from(one.id.is_some());
        Some(one)
    }

    fn has_any_in(&self, file: u32) -> bool {
        let positions = Position { file, off8: 0 }..=Position { file, off8: u32::MAX };
        self.known.range(positions).next().is_some()
    }

    /// The first behind `after` that can become a dead letter.
    fn next_named(&self, after: Option<Position>) -> Option<&Damaged> {
        if self.named == 0 {
            return None;
        }
        let behind = (after.map_or(Unbounded, Excluded), Unbounded);
        self.known.range(behind).map(|(_, one)| one).find(|one| one.id.is_some())
    }
}

impl Engine {
    /// A claimed message cannot be read. It is no longer claimed, and not claimable.
    pub(super) fn quarantine_claimed(&mut self, token: u64) {
        let Some(held) = self.end_claim(token) else { return };
        if let Some(mut lane) = self.lanes.get_mut(held.lane) {
            lane.add_pending();
        }
        self.index.set_marks(held.hash, held.position, Marks::default());
        let (hash, position, lane, ready) = (held.hash, held.position, held.lane, held.ready);
        self.note_damaged(Damaged { hash, position, lane, ready, id: Some(held.id) });
    }

    /// A pending message cannot be read. One that is claimed stays claimed: its holder may still settle it.
    pub(super) fn quarantine(&mut self, one: Damaged) {
        let Some(marks) = self.index.marks(one.hash, one.position).filter(|marks| !marks.claimed) else {
            return;
        };
        if !marks.near {
            self.uncount_far(one.position, one.ready);
        } else if let Some(mut lane) = self.lanes.get_mut(one.lane) {
            lane.remove_near();
        }
        self.note_damaged(one);
    }

    fn note_damaged(&mut self, one: Damaged) {
        // It is marked as claimed, so that nobody claims, moves or counts it again.
        self.index.set_marks(one.hash, one.position, Marks { claimed: true, near: false });
        if let Some(table) = self.tables.get_mut(one.position.file) {
            table.set_damage(true);
        }
        if self.damaged.has_room() {
            let id = one.id.as_ref().map_or("unknown", MessageId::as_str);
            let lane = self.lanes.get(one.lane).map(|state| state.lane().to_string());
            let (file, offset) = (one.position.file, one.position.offset());
            tracing::error!(id, lane, file, offset, "message damaged; quarantined");
        }
        self.damaged.add(one);
    }
}

impl SharedEngine {
    /// Quarantines what cannot be read in a table from `from` on. Returns where to go on.
    pub(super) fn pass_over(&self, table: u32, from: u64) -> std::io::Result<u64> {
        let known = self.engine().tables.get(table).map(|known| {
            let (data, keys) = (known.data().clone(), known.keys().file().clone());
            (data, keys, known.keys().len(), known.data_len())
        });
        let Some((data, keys, keys_len, end)) = known else { return Ok(u64::MAX) };
        let bytes = read_all(&*keys, 0, keys_len)?;
        let mut found = Survey::of(&UnreadPart::damaged(table, from..end));
        for some in keys_in(&bytes, table, from..end).chunks(STEP) {
            found.check(&*data, some);
            self.quarantine_all(std::mem::take(&mut found.damaged));
            self.steps.finish_step();
            if let Some(unreadable) = found.unreadable {
                return Err(unreadable.error);
            }
            if let Some((at, _)) = found.head {
                return Ok(at);
            }
        }
        Ok(end)
    }

    /// Passes over what cannot be read in a lane's backlog: quarantines what is damaged, and sets aside what the disk cannot read. The files
    /// are read without the engine's lock: there may be very many entries, and no other lane waits for them.
    pub(super) async fn pass_over_backlog(&self, lane: u32, part: &UnreadPart) {
        // Others that met the same part go on after it once this one is done.
        let _surveying = self.surveying.lock().await;
        let Some((data, keys, keys_len)) = self.engine().files_of_unread(lane, part) else { return };
        let keys = match read_all(&*keys, 0, keys_len) {
            Ok(bytes) => keys_in(&bytes, part.table, part.from..part.end),
            Err(error) => {
                return self.engine().go_on_behind(lane, part, Survey::without_keys(part, error), 1);
            }
        };
        let mut found = Survey::of(part);
        for some in keys.chunks(STEP) {
            let is_enough = found.check(&*data, some);
            self.quarantine_all(std::mem::take(&mut found.damaged));
            if is_enough {
                break;
            }
            tokio::task::yield_now().await;
        }
        let mut waiting = 0;
        if let Some(Unreadable { range, .. }) = &found.unreadable {
            let from = keys.partition_point(|key| key.position(part.table).offset() < range.start);
            let to = keys.partition_point(|key| key.position(part.table).offset() < range.end);
            for some in keys[from..to].chunks(STEP) {
                waiting += self.engine().count_waiting(part.table, some);
            }
        }
        self.engine().go_on_behind(lane, part, found, waiting);
    }

    fn quarantine_all(&self, damaged: Vec<Damaged>) {
        if !damaged.is_empty() {
            let mut engine = self.engine();
            damaged.into_iter().for_each(|one| engine.quarantine(one));
        }
    }

    /// The ids of up to `max` messages in tables that cannot be read, as far as the ids themselves can be. Reads every table.
    pub(super) fn damaged_ids(&self, max: usize) -> std::io::Result<Vec<MessageId>> {
        let tables: Vec<_> = {
            let engine = self.engine();
            let parts = |table: &Table| (table.number(), table.data().clone(), table.keys().file().clone());
            engine.tables.iter().map(|table| (parts(table), table.keys().len())).collect()
        };
        let mut ids = Vec::new();
        for ((number, data, keys), keys_len) in tables {
            for key in live_keys(&read_all(&*keys, 0, keys_len)?) {
                let position = Position { file: number, off8: key.off8 };
                // Other errors are those of the disk, which may read it the next time.
                if !read_entry(&*data, position).is_err_and(|e| e.kind() == std::io::ErrorKind::InvalidData) {
                    continue;
                }
                // One that has ended since is not missed.
                if self.engine().index.marks(key.hash, position).is_none() {
                    continue;
                }
                ids.extend(id_at(&*data, position)?.filter(|id| id.hash64() == key.hash));
                if ids.len() >= max {
                    return Ok(ids);
                }
            }
        }
        Ok(ids)
    }

    /// Makes dead letters of the quarantined messages whose ids are known. Those that the disk cannot read now stay for the next sweep,
    /// and the first of their errors is returned.
    pub(super) async fn dead_letter_damaged(&self, now: Now) -> Result<(), StoreError> {
        let (mut last, mut failed, mut after) = (None, None, None);
        loop {
            let found = {
                let engine = self.engine();
                let Some(one) = engine.damaged.next_named(after) else { break };
                let lane = engine.lanes.get(one.lane).map(|state| state.lane().clone());
                (one.clone(), lane, engine.file(one.position))
            };
            let (one, lane, file) = found;
            after = Some(one.position);
            let bytes = match file.map_or(Ok(Bytes::new()), |file| read_damaged(&*file, one.position)) {
                Ok(bytes) => bytes,
                Err(error) => {
                    failed.get_or_insert_with(|| {
                        let what = format!("reading a damaged message failed: {error}");
                        StoreError::new(StoreErrorKind::Unavailable, what).with_source(error)
                    });
                    continue;
                }
            };
            let entry = lane.and_then(|lane| dead_letter(&one, &lane, &bytes, now.wall()));
            self.admitted(entry.as_ref().map_or(0, Vec::len) + 64, Class::Change).await?;
            let mut engine = self.engine();
            engine.check_open()?;
            let known = engine.damaged.take(one.position).is_some();
            let alive = engine.index.marks(one.hash, one.position).is_some();
            if let Some(mut entry) = entry.filter(|_| known && alive) {
                if let Some(mut lane) = engine.lanes.get_mut(one.lane) {
                    lane.remove_pending();
                }
                engine.change(one.hash, one.position, bytes.len() as u64, &mut entry);
                self.wake(&mut engine);
                last = Some(engine.journal.commit());
            }
            if !engine.damaged.has_any_in(one.position.file)
                && let Some(table) = engine.tables.get_mut(one.position.file)
            {
                // The rest of the table can be moved again.
                table.set_damage(false);
            }
        }
        if let Some(commit) = last {
            self.committed(&commit).await?;
        }
        failed.map_or(Ok(()), Err)
    }
}

/// The bytes of a damaged entry: as many as its length says if that can be true, else the first few.
fn read_damaged(file: &dyn DiskFile, position: Position) -> std::io::Result<Bytes> {
    let first = read_all(file, position.offset(), UNSURE_BYTES)?;
    let len = Peek::length(&first).map_or(UNSURE_BYTES, |len| len as u64);
    let believed = len <= KEPT_BYTES_MAX && position.offset() + len <= file.len()?;
    let bytes = if believed && len > UNSURE_BYTES { read_all(file, position.offset(), len)? } else { first };
    let len = if believed { len as usize } else { bytes.len() };
    Ok(Bytes::from(bytes).slice(..len))
}

/// The dead letter of a damaged message: with what can be read of it, or else with its raw bytes as the body.
fn dead_letter(one: &Damaged, lane: &Lane, bytes: &Bytes, now: Timestamp) -> Option<Vec<u8>> {
    let id = one.id.clone()?;
    let read = entry::decode(bytes, lane).ok().filter(|stored| stored.message.id == id);
    let mut stored = read.or_else(|| unread(id, lane, bytes, one.ready))?;
    let (file, offset) = (one.position.file, one.position.offset());
    let why = format!("the entry at byte {offset} of file {file} cannot be read; its content may be wrong");
    stored.remember(Attempt::new(now, Outcome::Failed, why));
    stored.ready = one.ready;
    stored.lost = LeaseLoss::None;
    stored.dead = Some((DeadReason::Damaged, now));
    let mut out = Vec::with_capacity(512 + stored.message.body.len());
    entry::encode(&stored, one.lane, &mut out);
    Some(out)
}

/// A message of which only the id and the lane are known.
fn unread(id: MessageId, lane: &Lane, bytes: &Bytes, ready: Timestamp) -> Option<Stored> {
    let (sink, topic) = match lane {
        Lane::Queue(topic) => (SinkName::queue(), topic.clone()),
        Lane::Sink(sink) => (sink.clone(), Topic::parse("unknown").ok()?),
        _ => return None,
    };
    let mut message = StoredMessage::new(id, sink, topic, ready);
    message.body = Body::bytes(bytes.clone());
    Some(Stored {
        content_hash: Peek::start(bytes).map_or(0, Peek::content_hash),
        message,
        version: 0,
        accepted: None,
        ready,
        attempts: 0,
        lost: LeaseLoss::None,
        maybe_delivered: false,
        history: Vec::new(),
        dead: None,
    })
}
