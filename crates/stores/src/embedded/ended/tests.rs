use super::{
    super::disk::{Disk, RealDisk},
    *,
};

#[test]
fn a_slice_ends_by_its_bytes_also_where_one_id_ends_again_and_again() {
    let dir = tempfile::tempdir().unwrap();
    let file = RealDisk.open(&dir.path().join("ended-1")).unwrap();
    let (at, mut ended) = (Timestamp::from_millis(1), Ended::new(std::time::Duration::from_secs(60), 100));
    ended.slices.push_back(Slice::new(1, file, at));
    (0..3).for_each(|_| ended.add(7, at, &[0; 64]));
    assert!(!ended.wants_slice(at));
    ended.slices[0].file_len = SLICE_BYTES_MAX;
    assert!(ended.wants_slice(at));
}

#[test]
fn the_numbers_of_ends_on_disk_never_change() {
    for (number, kind) in (0..).zip([EndKind::Delivered, EndKind::Cancelled, EndKind::Purged]) {
        assert_eq!((kind as u8, EndKind::of(number)), (number, kind));
    }
}

#[test]
fn a_slice_past_retention_is_named_until_a_manifest_leaves_it_out() {
    let dir = tempfile::tempdir().unwrap();
    let mut ended = Ended::new(std::time::Duration::from_secs(16), 100);
    let at = |seconds: u64| Timestamp::from_millis(seconds * 1_000);
    for number in 1..4 {
        assert!(ended.wants_file());
        let file = RealDisk.open(&dir.path().join(format!("ended-{number}"))).unwrap();
        ended.add_file(number, file);
        ended.keep(u64::from(number), at(u64::from(number) * 10), &[0; 64]);
    }
    // The third ended 20 s after the first.
    assert_eq!((ended.numbers(), ended.has_slice(1)), (vec![2, 3], true));
    let expired = ended.take_expired();
    assert!(!ended.has_slice(1));
    ended.put_expired_back(expired);
    assert_eq!(ended.take_expired().iter().map(Slice::number).collect::<Vec<_>>(), [1]);
}

#[test]
fn ends_are_readable_before_and_after_they_are_written() {
    let dir = tempfile::tempdir().unwrap();
    let mut ended = Ended::new(std::time::Duration::from_secs(60), 100);
    ended.add_file(1, RealDisk.open(&dir.path().join("ended-1")).unwrap());
    ended.keep(7, Timestamp::from_millis(1), &[1; 64]);
    assert!(ended.knows(7, &[1; 64]));
    let unwritten = ended.unwritten().unwrap();
    // Another one comes while the first is written.
    ended.keep(8, Timestamp::from_millis(2), &[2; 64]);
    unwritten.file.write_at(&unwritten.bytes, unwritten.at).unwrap();
    assert!(ended.wrote(&unwritten));
    assert!(ended.knows(7, &[1; 64]) && ended.knows(8, &[2; 64]));
    assert_eq!((ended.file_bytes(), ended.waiting(), ended.take_dirty().count()), (64, 64, 1));
}
