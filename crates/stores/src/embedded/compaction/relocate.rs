//! Moves near and claimed messages out of old journal segments, so that a checkpoint can drop these.

use std::{io, sync::Arc};

use bytes::Bytes;

use super::{
    super::{
        SharedEngine, damage::Damaged, disk::DiskFile, engine::Engine, entry::Peek, index::Position,
        lanes::ReleaseKey, options::STEP, table::read_entry,
    },
    RunEntry,
    runs::Source,
};

impl SharedEngine {
    /// Moves near and claimed messages in journal segments before `segment` to runs, so that the segments can be dropped.
    pub(in crate::embedded) fn relocate(&self, segment: u32) -> io::Result<()> {
        let lanes = self.engine().lanes.with_hot();
        let run_bytes = self.run_bytes();
        let mut parked = Vec::new();
        let mut bytes = 0;
        for number in lanes {
            let mut after: Option<ReleaseKey> = None;
            loop {
                let (some, last) = self.engine().near_in_journal(number, segment, after.as_ref());
                for (one, file) in some {
                    let Some(one) = self.load_parked(one, file) else { continue };
                    bytes += one.data.len() as u64;
                    parked.push(one);
                    if bytes >= run_bytes {
                        self.write_parked(&mut parked)?;
                        bytes = 0;
                    }
                }
                match last {
                    Some(key) => after = Some(key),
                    None => break,
                }
            }
        }
        self.write_parked(&mut parked)?;
        let claimed = self.engine().claimed_in_journal(segment);
        let mut moving = Vec::new();
        bytes = 0;
        for (token, lane, hash, from, file) in claimed {
            self.steps.finish_step();
            if let Some(Ok(data)) = file.map(|file| read_entry(&*file, from))
                && let Ok(key) = Peek::framed(&data).and_then(ReleaseKey::of)
            {
                bytes += data.len() as u64;
                moving.push((
                    token,
                    RunEntry { lane, key, hash, from, suspect: false, data: Bytes::from(data) },
                ));
                if bytes >= run_bytes {
                    self.write_claimed(std::mem::take(&mut moving))?;
                    bytes = 0;
                }
            }
        }
        self.write_claimed(moving)
    }

    /// Reads the entry of a near message, unless it is in memory. A damaged message is quarantined: otherwise its segment and all later
    /// ones could never be dropped.
    fn load_parked(&self, one: RunEntry, file: Option<Arc<dyn DiskFile>>) -> Option<RunEntry> {
        if !one.data.is_empty() {
            return Some(one);
        }
        let read = read_entry(&*file?, one.from);
        self.steps.finish_step();
        match read {
            Ok(data) => Some(RunEntry { data: Bytes::from(data), ..one }),
            Err(error) => {
                if error.kind() == io::ErrorKind::InvalidData {
                    let RunEntry { lane, key, hash, from: position, .. } = one;
                    self.engine().quarantine(Damaged {
                        hash,
                        position,
                        lane,
                        ready: key.ready,
                        id: Some(key.id),
                    });
                }
                None
            }
        }
    }

    /// Writes near messages to a run; they stay in the hot window.
    fn write_parked(&self, parked: &mut Vec<RunEntry>) -> io::Result<()> {
        self.write_run(&self.lock_moves(), parked, Source::Memory)?;
        parked.clear();
        Ok(())
    }

    /// Writes claimed messages to a run; they stay claimed.
    pub(in crate::embedded) fn write_claimed(&self, mut moving: Vec<(u64, RunEntry)>) -> io::Result<()> {
        if moving.is_empty() {
            return Ok(());
        }
        moving.sort_unstable_by(|(_, a), (_, b)| (a.lane, &a.key).cmp(&(b.lane, &b.key)));
        let _moves = self.lock_moves();
        let (number, records) = self.new_run(moving.iter().map(|(_, one)| one))?;
        let mut offset = 0;
        for some in moving.chunks(STEP) {
            let mut engine = self.engine();
            for (token, one) in some {
                let position = Position::new(number, offset);
                let len = one.data.len() as u64;
                offset += len;
                let held = engine.in_flight.get_mut(*token).filter(|held| held.position == one.from);
                if held.map(|held| held.position = position).is_none() {
                    engine.tables.add_tombstone(position);
                    continue;
                }
                engine.index.replace(one.hash, one.from, position, None);
                engine.forget_position(one.from, len);
                engine.tables.add_live(number, len);
            }
        }
        self.finish_table(number, offset, &records);
        Ok(())
    }
}

impl Engine {
    /// Some near messages of a lane that lie in journal segments before `segment`, and where to go on.
    #[expect(clippy::type_complexity, reason = "a pair of what was found and where to go on")]
    pub(in crate::embedded) fn near_in_journal(
        &self,
        number: u32,
        segment: u32,
        after: Option<&ReleaseKey>,
    ) -> (Vec<(RunEntry, Option<Arc<dyn DiskFile>>)>, Option<ReleaseKey>) {
        use std::ops::Bound::{Excluded, Unbounded};
        let Some(lane) = self.lanes.get(number) else { return (Vec::new(), None) };
        let from = after.map_or(Unbounded, Excluded);
        let mut last = None;
        let mut found = Vec::new();
        for (seen, (key, near)) in lane.hot().range((from, Unbounded)).enumerate() {
            if seen == STEP {
                return (found, last);
            }
            last = Some(key.clone());
            if near.position.file < segment && self.journal.has(near.position.file) {
                let data = near.data.clone().unwrap_or_default();
                let file = if data.is_empty() { self.file(near.position) } else { None };
                let (key, hash, from, suspect) = (key.clone(), near.hash, near.position, near.suspect);
                found.push((RunEntry { lane: number, key, hash, from, suspect, data }, file));
            }
        }
        (found, None)
    }

    /// The claimed messages that lie in journal segments before `segment`.
    #[expect(clippy::type_complexity, reason = "a row of facts that is taken apart at once")]
    pub(in crate::embedded) fn claimed_in_journal(
        &self,
        segment: u32,
    ) -> Vec<(u64, u32, u64, Position, Option<Arc<dyn DiskFile>>)> {
        self.in_flight
            .iter()
            .filter(|(_, held)| held.position.file < segment && self.journal.has(held.position.file))
            .map(|(token, held)| (token, held.lane, held.hash, held.position, self.file(held.position)))
            .collect()
    }
}
