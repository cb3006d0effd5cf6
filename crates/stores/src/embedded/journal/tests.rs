use super::{
    super::disk::{Disk, RealDisk},
    *,
};

#[test]
fn the_numbers_of_records_on_disk_never_change() {
    let kinds =
        [RecordKind::Accepted, RecordKind::Changed, RecordKind::Ended, RecordKind::Lane, RecordKind::Paused];
    for (number, kind) in (0..).zip(kinds) {
        assert_eq!((kind as u8, RecordKind::of(number)), (number, Some(kind)));
    }
    assert_eq!(RecordKind::of(5), None);
}

#[test]
fn a_segment_stays_while_something_in_it_is_alive_and_no_manifest_starts_behind_it() {
    let dir = tempfile::tempdir().unwrap();
    let segment = |number: u32| {
        let file = RealDisk.open(&dir.path().join(format!("journal-{number}"))).unwrap();
        Segment { number, file, salt: 0, live: 0, first: 1 }
    };
    let mut journal = Journal::new(segment(9), VecDeque::new(), 5, 1 << 20, 0);
    journal.add_replayed(segment(3));
    journal.add_replayed(Segment { first: 2, ..segment(4) });
    assert!(journal.count(4, true));
    assert_eq!(journal.first_needed(9), Some((4, 2)));
    assert!(journal.count(4, false) && !journal.count(5, true));
    assert_eq!(journal.first_needed(9), Some((9, 5)));
    journal.add(RecordKind::Lane, |out| out.extend_from_slice(b"a lane"));
    assert!(journal.uncheckpointed() > 0);
    assert_eq!(journal.checkpointed(9), [3, 4]);
    assert_eq!((journal.segment_count(), journal.uncheckpointed()), (1, 0));
    assert_eq!(journal.checkpointed(10), [0; 0], "the current one always stays");
}

#[test]
fn segments_without_a_frame_are_taken_out() {
    let dir = tempfile::tempdir().unwrap();
    let segment = |number: u32, first: u64| {
        let file = RealDisk.open(&dir.path().join(format!("journal-{number}"))).unwrap();
        Segment { number, file, salt: 0, live: 0, first }
    };
    let mut journal = Journal::new(segment(9, 0), VecDeque::new(), 7, 1 << 20, 0);
    [segment(3, 1), segment(4, 7), segment(5, 7)].into_iter().for_each(|one| journal.add_replayed(one));
    assert_eq!(journal.remove_empty(), [4, 5]);
    assert_eq!((journal.has(3), journal.has(4), journal.current()), (true, false, 9));
}
