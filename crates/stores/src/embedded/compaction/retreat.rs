//! Moves messages back to buckets that are not near after all: the clock was ahead, and is right again.

use std::{io, sync::Arc};

use super::{
    super::{
        SharedEngine,
        disk::DiskFile,
        engine::Engine,
        entry::Peek,
        index::{Marks, Position},
        lanes::ReleaseKey,
        table::{TableKind, live_keys, read_all},
        wheel::Slot,
    },
    blocked::{is_unread, unread},
};

impl SharedEngine {
    /// Moves near messages that are due in buckets not opened yet back to these.
    pub(in crate::embedded) fn retreat(&self) -> io::Result<()> {
        let (lanes, start) = {
            let engine = self.engine();
            (engine.lanes.with_hot(), Slot { level: 0, number: engine.buckets.opened().0[0] }.start())
        };
        // First from memory to runs, then all from runs to buckets.
        self.spill_tails(lanes, |_| Some(ReleaseKey::from(start)))?;
        let runs: Vec<(u32, Arc<dyn DiskFile>, u64)> = {
            let engine = self.engine();
            let runs =
                engine.tables.iter().filter(|table| table.kind() == TableKind::Run && table.live() > 0);
            runs.map(|table| (table.number(), table.keys().file().clone(), table.keys().len())).collect()
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
    pub(super) fn withdraw(&mut self, hash: u64, position: Position, peek: Peek<'_>) {
        self.index.set_marks(hash, position, Marks::default());
        let Some(mut lane) = self.lanes.get_mut(peek.lane()) else { return };
        lane.remove_near();
        if let Ok(key) = ReleaseKey::of(peek) {
            lane.remove_hot(&key);
        }
    }
}
