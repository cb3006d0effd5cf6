//! Segments of the journal whose beginning is damaged, and segments used again in which somebody left a trap.

use duly_core::{
    Body, Store,
    store::{Insert, Inserted, StoreErrorKind},
};

use crate::{
    folder::{copy, frames, message, names, now, open},
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
fn a_body_cannot_forge_a_frame_in_a_segment_used_again() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let mut sent = 0;
        for round in 0..8 {
            let store = match open(folder.path()).await {
                Ok(store) => store,
                Err(error) => panic!("round {round}: {error}"),
            };
            assert_eq!(store.books().await.unwrap().pending, sent);
            for _ in 0..40 {
                let last = names(folder.path())
                    .iter()
                    .filter_map(|name| name.rsplit('-').next()?.split('.').next()?.parse::<u32>().ok())
                    .max()
                    .unwrap();
                // Bodies begin anywhere, frames at every eighth byte.
                let mut body = vec![b' '; sent as usize % 8];
                let many = [40, 4, 16, 2, 24][sent as usize % 5];
                for segment in last..last + many {
                    body.extend_from_slice(&forged(b"DLJ1", segment));
                    body.extend_from_slice(&forged(b"DLJ2", segment));
                }
                let mut message = message(sent, 86_400_000, 0);
                message.body = Body::bytes(body);
                let answer = store.insert(now(0), vec![Insert { message, made_id: false }]).await.unwrap();
                assert_eq!(answer, [Inserted::Accepted]);
                sent += 1;
            }
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
