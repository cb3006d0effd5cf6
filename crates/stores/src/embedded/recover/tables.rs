//! The files that the manifest names: tables and slices.

use duly_core::store::StoreError;

use super::{
    super::{
        disk::DiskFile,
        ended::Slice,
        index::{Marks, Position},
        manifest::TableLine,
        survey::{Survey, UnreadPart},
        table::{KEY_BYTES, KeyRecord, Table, TableKind, check_len, live_keys, read_all},
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
            self.add_extents(number, &live, line.data_len, &**table.data());
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

    /// Gives each lane its extent of a run. What the disk cannot read at the beginning of one is set aside.
    fn add_extents(&mut self, number: u32, live: &[KeyRecord], len: u64, data: &dyn DiskFile) {
        let mut stretches = live.chunk_by(|a, b| a.lane == b.lane).peekable();
        while let Some(keys) = stretches.next() {
            let start = |keys: &[KeyRecord]| keys[0].position(number).offset();
            let end = stretches.peek().map_or(len, |next| start(next));
            let mut found = Survey::of(&UnreadPart::damaged(number, start(keys)..end));
            found.check(data, keys);
            // They are quarantined once the index has them.
            self.damaged.append(&mut found.damaged);
            self.engine.add_surveyed(keys, found, end);
        }
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
