use super::{
    super::disk::{Disk, RealDisk},
    *,
};

#[test]
fn a_table_that_positions_cannot_name_is_refused() {
    assert!(check_len(7, POSITION_END).is_ok());
    let error = check_len(7, POSITION_END + 1).unwrap_err();
    assert!(error.to_string().contains("table 7"), "{error}");
    let mut tombstones = Vec::new();
    let last = Position::new(7, POSITION_END - 8);
    write_tombstones(&[last.off8], &mut tombstones);
    assert_eq!(word(&tombstones, 0), u32::MAX, "the last position can have a tombstone");
}

fn table() -> (tempfile::TempDir, Table) {
    let dir = tempfile::tempdir().unwrap();
    let file = |name: &str| RealDisk.open(&dir.path().join(name)).unwrap();
    let table = Table::new(7, TableKind::Run, file("data"), file("keys"));
    (dir, table)
}

#[test]
fn gone_records_that_cannot_be_written_are_written_with_the_next_ones() {
    let (_dir, mut table) = table();
    table.finish_write(64, &[]);
    (0..3).for_each(|_| table.add_live(8));
    table.forget(1, 8);
    let before = (table.keys().len(), table.keys().crc());
    let records = table.take_tombstones().unwrap();
    assert_eq!((records.at, table.keys().len()), (0, KEY_BYTES as u64));
    assert!(table.take_tombstones().is_none());
    table.forget(2, 8);
    table.restore_tombstones(records);
    assert_eq!((table.keys().len(), table.keys().crc()), before);
    let mut again = table.take_tombstones().unwrap().entries;
    again.sort_unstable();
    assert_eq!((again, table.live(), table.live_bytes()), (vec![1, 2], 1, 8));
}

#[test]
fn a_table_is_quiet_once_nothing_has_gone_since_the_last_check() {
    let (_dir, mut table) = table();
    assert!(table.is_quiet());
    table.add_tombstone(1);
    assert!(!table.is_quiet());
    assert!(table.is_quiet());
}
