//! Back to buckets what is not near after all: the clock was ahead, and is right again.

use std::{io, sync::Arc};

use duly_core::Timestamp;

use super::{
    super::{
        Shared,
        disk::DiskFile,
        engine::Engine,
        entry::Peek,
        index::{Marks, Place},
        lanes::NearKey,
        table::{TableKind, live_keys, read_all},
        wheel::{Route, Slot},
    },
    blocked::{is_unread, unread},
};

impl Shared {
    /// Moves near messages that are due in buckets not opened yet back to these.
    pub(in crate::embedded) fn retreat(&self) -> io::Result<()> {
        let (lanes, start) = {
            let engine = self.engine();
            (engine.crowded(), Slot { level: 0, number: engine.opened.0[0] }.start())
        };
        // From memory to runs, and from there to buckets: one way for all.
        self.spill_tails(lanes, |_| Some(NearKey::from(start)))?;
        let runs: Vec<(u32, Arc<dyn DiskFile>, u64)> = {
            let engine = self.engine();
            let runs = engine.tables.values().filter(|table| table.kind == TableKind::Run && table.live > 0);
            runs.map(|table| (table.number, table.keys.clone(), table.keys_len)).collect()
        };
        for (number, keys, len) in runs {
            let split = match read_all(&*keys, 0, len) {
                Ok(bytes) if live_keys(&bytes).any(|key| key.ready >= start) => {
                    drop(bytes);
                    self.split(number)
                }
                Ok(_) => Ok(()),
                Err(error) => Err(unread(number, &error)),
            };
            match split {
                Err(error) if is_unread(&error) => self.block(number, &error)?,
                split => split?,
            }
        }
        Ok(())
    }
}

impl Engine {
    /// A message is not near any more; its bucket counts it from now on.
    pub(super) fn withdraw(&mut self, hash: u64, place: Place, peek: Peek<'_>) {
        self.index.set_marks(hash, place, Marks::default());
        let Some(lane) = self.lanes.get_mut(peek.lane()) else { return };
        lane.near_count = lane.near_count.saturating_sub(1);
        if let Ok(key) = NearKey::of(peek)
            && let Some(near) = lane.near.remove(&key)
        {
            self.window = self.window.saturating_sub(near.cost());
        }
    }

    /// The bucket that counts a message that is not near: that of its table, or the one that it is on its way to.
    pub(in crate::embedded) fn counted_in(&self, place: Place, ready: Timestamp) -> Option<Slot> {
        if let Some(slot) = self.tables.get(&place.file).and_then(|table| table.kind.slot()) {
            return Some(slot);
        }
        let Route::Bucket(routed) = self.opened.route(ready) else { return None };
        // Before the clock stepped back, its way may have led to a narrower one.
        let counts =
            |slot: &Slot| self.buckets.get(slot).is_some_and(|bucket| bucket.parts[slot.part(ready)] > 0);
        let narrower = (0..routed.level).map(|level| Slot::at(level, ready));
        std::iter::once(routed).chain(narrower).find(counts)
    }
}
