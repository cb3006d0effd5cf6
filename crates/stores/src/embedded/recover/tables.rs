//! The files that the manifest names: tables and slices.

use std::io;

use duly_core::store::StoreError;

use super::{
    super::{
        damage::survey,
        disk::DiskFile,
        ended::Slice,
        entry::{self, Peek},
        index::{Marks, Position},
        lanes::{Extent, ReleaseKey},
        manifest::TableLine,
        table::{KEY_BYTES, KeyRecord, Table, TableKind, check_len, live_keys, read_all, read_entry},
    },
    Opening, damaged, io_error,
};

/// Keys that are gathered before they go into the index, so that neighbours in its memory go in together.
const STAGED_MAX: usize = 1 << 20;

impl Opening<'_> {
    pub(super) fn load_tables(&mut self) -> Result<(), StoreError> {
        let lines = std::mem::take(&mut self.manifest.tables);
        let keys: u64 = lines.iter().map(|line| line.keys_len / KEY_BYTES as u64).sum();
        self.engine.index.reserve(keys as usize);
        for line in lines {
            self.load_table(&line)?;
        }
        self.engine.index.insert_many(&mut self.staged);
        self.staged = Vec::new();
        std::mem::take(&mut self.damaged).into_iter().for_each(|one| self.engine.quarantine(one));
        Ok(())
    }

    fn load_table(&mut self, line: &TableLine) -> Result<(), StoreError> {
        let number = line.number;
        let data = self.file(&format!("table-{number}.data"))?;
        let keys = self.file(&format!("table-{number}.keys"))?;
        let bytes = read_all(&*keys, 0, line.keys_len)
            .map_err(|error| io_error(&format!("reading table-{number}.keys"), error))?;
        let len = data.len().map_err(|error| io_error(&format!("reading table-{number}.data"), error))?;
        if bytes.len() as u64 != line.keys_len || len < line.data_len {
            return Err(damaged(format!(
                "table-{number} is shorter than the manifest says; restore the folder from a backup"
            )));
        }
        check_len(number, line.data_len).map_err(|error| {
            damaged(format!("{error}; it was written by an older version; restore the folder from a backup"))
        })?;
        let live: Vec<KeyRecord> = live_keys(&bytes).collect();
        let table = Table::load(number, line.kind, (data, line.data_len), (keys, &bytes), live.len() as u64);
        if table.keys().crc() != line.keys_crc {
            return Err(damaged(format!(
                "table-{number}.keys does not match its checksum in the manifest; restore the folder from a backup"
            )));
        }
        self.count_keys(line, &live)?;
        if line.kind == TableKind::Run {
            self.add_extents(number, &live, line.data_len, &**table.data(), &bytes)?;
        }
        self.engine.tables.insert(table);
        self.engine.retire_if_empty(number);
        Ok(())
    }

    /// Counts the live keys of a table, and stages them for the index.
    fn count_keys(&mut self, line: &TableLine, live: &[KeyRecord]) -> Result<(), StoreError> {
        let number = line.number;
        let near = line.kind == TableKind::Run;
        for key in live {
            let Some(mut lane) = self.engine.lanes.get_mut(key.lane) else {
                return Err(damaged(format!("table-{number} names lane {}, which is not known", key.lane)));
            };
            match line.kind {
                TableKind::Dead => lane.add_dead(),
                TableKind::Bucket { .. } | TableKind::Run => lane.add_pending(),
            }
            if near {
                lane.add_near();
            }
        }
        if let Some(slot) = line.kind.slot() {
            self.engine.buckets.load_table(slot, number, live.iter().map(|key| key.ready));
        }
        let marks = Marks { claimed: false, near };
        self.staged
            .extend(live.iter().map(|key| (key.hash, Position { file: number, off8: key.off8 }, marks)));
        if self.staged.len() >= STAGED_MAX {
            self.engine.index.insert_many(&mut self.staged);
        }
        Ok(())
    }

    /// Gives each lane its extent of a run.
    fn add_extents(
        &mut self,
        number: u32,
        live: &[KeyRecord],
        len: u64,
        data: &dyn DiskFile,
        keys: &[u8],
    ) -> Result<(), StoreError> {
        let mut stretches: Vec<(u32, u64)> = Vec::new();
        for key in live {
            if stretches.last().is_none_or(|(lane, _)| *lane != key.lane) {
                stretches.push((key.lane, u64::from(key.off8) * entry::ALIGN as u64));
            }
        }
        for (at, (lane, start)) in stretches.iter().enumerate() {
            let end = stretches.get(at + 1).map_or(len, |(_, start)| *start);
            let key = read_entry(data, Position::new(number, *start)).and_then(|bytes| {
                let key = Peek::framed(&bytes).and_then(ReleaseKey::of);
                key.map_err(|_| io::ErrorKind::InvalidData.into())
            });
            let surveyed = match key {
                Ok(key) => Ok((Vec::new(), Some((*start, key)))),
                Err(error) if error.kind() != io::ErrorKind::InvalidData => Err(error),
                Err(_) => survey(data, number, keys, *start, end),
            };
            let (damaged, first) = surveyed
                .map_err(|error| io_error(&format!("reading byte {start} of table-{number}.data"), error))?;
            // They are quarantined once the index has them.
            self.damaged.extend(damaged);
            if let (Some((next, key)), Some(mut state)) = (first, self.engine.lanes.get_mut(*lane)) {
                state.add_extent(Extent { table: number, next, end, key });
            }
        }
        Ok(())
    }

    pub(super) fn load_slices(&mut self) -> Result<(), StoreError> {
        for line in std::mem::take(&mut self.manifest.slices) {
            let name = format!("ended-{}", line.number);
            let slice = Slice::load(line.number, self.file(&name)?, line.len)
                .map_err(|error| io_error(&format!("reading {name}"), error))?;
            if slice.file_state() != (line.len, line.crc) {
                return Err(damaged(format!(
                    "{name} does not match its checksum in the manifest; restore the folder from a backup"
                )));
            }
            self.engine.ended.load(slice);
        }
        let number = self.engine.sequences.file_number();
        let file = self.file(&format!("ended-{number}"))?;
        self.engine.ended.add_file(number, file);
        Ok(())
    }
}
