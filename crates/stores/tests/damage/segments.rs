//! Segments of the journal whose beginning is damaged, and segments used again in which somebody left a trap.

use duly_core::{Store, store::StoreErrorKind};

use crate::{
    folder::{copy, frames, open},
    journal_of,
};

/// A frame without records as somebody outside could make it: all of it but the salt can be guessed.
fn forged(magic: &[u8; 4], segment: u32) -> [u8; 32] {
    let mut frame = [0; 32];
    frame[..4].copy_from_slice(magic);
    frame[4..8].copy_from_slice(&segment.to_le_bytes());
    frame[8..16].copy_from_slice(&(u64::MAX / 2).to_le_bytes());
    let crc = crc32c::crc32c(&frame[..20]);
    let crc = if magic == b"DLJ1" { crc } else { crc32c::crc32c_append(crc, &frame[24..]) };
    frame[20..24].copy_from_slice(&crc.to_le_bytes());
    frame
}

#[test]
fn a_forged_frame_in_what_an_earlier_use_left_is_passed_over() {
    testkit::block_on(async {
        let folder = journal_of(4, 40).await;
        let last = frames(folder.path()).pop().unwrap();
        let path = folder.path().join(&last.file);
        let mut bytes = std::fs::read(&path).unwrap();
        let segment = last.file["journal-".len()..].parse().unwrap();
        let mut at = last.end.next_multiple_of(8);
        for magic in [b"DLJ1", b"DLJ2"] {
            bytes[at..at + 32].copy_from_slice(&forged(magic, segment));
            at += 64;
        }
        std::fs::write(&path, bytes).unwrap();
        for _ in 0..2 {
            let store = open(folder.path()).await.unwrap();
            assert_eq!(store.totals().await.unwrap().pending, 4);
            store.abandon();
        }
    });
}

#[test]
fn a_zeroed_beginning_of_the_newest_segment_is_refused() {
    testkit::block_on(async {
        let whole = journal_of(4, 40).await;
        let newest = frames(whole.path()).pop().unwrap().file;
        for range in [0..32, 32..64, 0..64, 0..8, 32..36, 0..512] {
            let folder = copy(whole.path());
            let path = folder.path().join(&newest);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[range.clone()].fill(0);
            std::fs::write(&path, bytes).unwrap();
            for _ in 0..2 {
                let Err(error) = open(folder.path()).await else {
                    panic!("bytes {range:?} are zero, and what was accepted is gone without a word");
                };
                assert_eq!(error.kind, StoreErrorKind::Damaged, "{range:?}: {error}");
                assert!(error.what.contains(&newest), "{range:?}: {error}");
                assert!(error.what.contains("at byte "), "{range:?}: {error}");
            }
        }
    });
}

#[test]
fn a_copy_that_somebody_left_beside_a_file_is_left_alone() {
    testkit::block_on(async {
        let folder = journal_of(4, 40).await;
        let newest = frames(folder.path()).pop().unwrap().file;
        let copies = [format!("{newest}.bak"), "journal-1.old".into(), "journal-9999.bak".into()];
        for copy in &copies {
            std::fs::copy(folder.path().join(&newest), folder.path().join(copy)).unwrap();
        }
        for _ in 0..2 {
            let store = open(folder.path()).await.unwrap();
            assert_eq!(store.totals().await.unwrap().pending, 4);
            store.close().await.unwrap();
        }
        for copy in &copies {
            assert!(folder.path().join(copy).exists(), "{copy} is not ours to remove");
        }
    });
}

#[test]
fn a_zeroed_beginning_is_refused_also_if_there_is_one_frame() {
    testkit::block_on(async {
        let whole = journal_of(1, 40).await;
        let frame = frames(whole.path()).pop().unwrap();
        for range in [0..32, 32..64, 0..512] {
            let folder = copy(whole.path());
            let path = folder.path().join(&frame.file);
            let mut bytes = std::fs::read(&path).unwrap();
            bytes[range.clone()].fill(0);
            std::fs::write(&path, bytes).unwrap();
            let Err(error) = open(folder.path()).await else { panic!("{range:?}: opened without a word") };
            assert_eq!(error.kind, StoreErrorKind::Damaged, "{range:?}: {error}");
            assert!(error.what.contains(&frame.file), "{range:?}: {error}");
        }
    });
}
