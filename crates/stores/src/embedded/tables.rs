//! All tables of the store.

use std::collections::HashMap;

use super::{
    compaction::blocked::BlockedTables, index::Position, number_hasher::NumberHasher, table::Table,
    unread::UnreadExtents, wheel::Slot,
};

/// All tables by number.
///
/// Invariants:
/// - An obsolete table has nothing alive, and nobody writes to it. Its files are deleted only once the manifest on disk does not name it.
/// - A table that is blocked is in no bucket.
#[derive(Default)]
pub(super) struct Tables {
    all: HashMap<u32, Table, NumberHasher>,
    /// The next manifest does not name these.
    obsolete: Vec<u32>,
    /// Tables that cannot be moved on now.
    blocked: BlockedTables,
    /// Parts of runs that the disk cannot read now.
    unread: UnreadExtents,
}

impl Tables {
    pub(super) fn insert(&mut self, table: Table) {
        self.all.insert(table.number(), table);
    }

    pub(super) fn remove(&mut self, number: u32) {
        self.all.remove(&number);
    }

    pub(super) fn get(&self, number: u32) -> Option<&Table> {
        self.all.get(&number)
    }

    pub(super) fn get_mut(&mut self, number: u32) -> Option<&mut Table> {
        self.all.get_mut(&number)
    }

    pub(super) fn has(&self, number: u32) -> bool {
        self.all.contains_key(&number)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = &Table> {
        self.all.values()
    }

    pub(super) fn iter_mut(&mut self) -> impl Iterator<Item = &mut Table> {
        self.all.values_mut()
    }

    /// The bucket that a table belongs to.
    pub(super) fn slot(&self, number: u32) -> Option<Slot> {
        self.all.get(&number)?.kind().slot()
    }

    /// The entry at `position` is no longer alive. Returns whether that was the last one of its table.
    pub(super) fn forget(&mut self, position: Position, bytes: u64) -> bool {
        let Some(table) = self.all.get_mut(&position.file) else { return false };
        table.forget(position.off8, bytes);
        table.live() == 0
    }

    /// An entry was written at `position` and never came alive there.
    pub(super) fn add_tombstone(&mut self, position: Position) {
        if let Some(table) = self.all.get_mut(&position.file) {
            table.add_tombstone(position.off8);
        }
    }

    /// An entry of so many bytes is alive in a table.
    pub(super) fn add_live(&mut self, number: u32, bytes: u64) {
        if let Some(table) = self.all.get_mut(&number) {
            table.add_live(bytes);
        }
    }

    /// Leaves a table out of the next manifest, unless it has something alive or is being written to: then `false`.
    pub(super) fn retire(&mut self, number: u32) -> bool {
        let may = self.all.get(&number).is_some_and(|table| table.live() == 0 && !table.is_busy());
        if may && !self.obsolete.contains(&number) {
            self.obsolete.push(number);
            self.unread.forget_table(number);
        }
        may
    }

    pub(super) fn has_obsolete(&self) -> bool {
        !self.obsolete.is_empty()
    }

    /// Forgets the obsolete tables, for a manifest that does not name them.
    pub(super) fn take_obsolete(&mut self) -> Vec<u32> {
        let obsolete = std::mem::take(&mut self.obsolete);
        for number in &obsolete {
            self.all.remove(number);
        }
        obsolete
    }

    /// The manifest could not be written: the one on disk still names these.
    pub(super) fn put_obsolete_back(&mut self, obsolete: Vec<u32>) {
        self.obsolete.extend(obsolete);
    }

    pub(super) fn blocked(&self) -> &BlockedTables {
        &self.blocked
    }

    pub(super) fn blocked_mut(&mut self) -> &mut BlockedTables {
        &mut self.blocked
    }

    pub(super) fn unread(&self) -> &UnreadExtents {
        &self.unread
    }

    pub(super) fn unread_mut(&mut self) -> &mut UnreadExtents {
        &mut self.unread
    }

    /// All tables, and which of them are blocked.
    pub(super) fn parts_mut(&mut self) -> (impl Iterator<Item = &mut Table>, &BlockedTables) {
        (self.all.values_mut(), &self.blocked)
    }
}

#[cfg(test)]
mod tests {
    use super::{
        super::{
            disk::{Disk, RealDisk},
            table::TableKind,
        },
        *,
    };

    #[test]
    fn a_table_goes_only_when_it_is_empty_and_nobody_writes_to_it() {
        let dir = tempfile::tempdir().unwrap();
        let file = |name: &str| RealDisk.open(&dir.path().join(name)).unwrap();
        let mut tables = Tables::default();
        tables.insert(Table::new(3, TableKind::Dead, file("data"), file("keys")));
        assert!(!tables.retire(3), "it is being written");
        tables.add_live(3, 8);
        tables.get_mut(3).unwrap().finish_write(8, &[]);
        assert!(!tables.retire(3), "something is alive in it");
        assert!(tables.forget(Position { file: 3, off8: 0 }, 8));
        assert!(tables.retire(3) && tables.retire(3));
        let taken = tables.take_obsolete();
        assert_eq!(taken, [3]);
        assert!(!tables.has(3) && !tables.has_obsolete());
        tables.put_obsolete_back(taken);
        assert_eq!(tables.take_obsolete(), [3], "the next checkpoint deletes its files");
    }
}
