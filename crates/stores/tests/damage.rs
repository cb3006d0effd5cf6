//! Damaged folders: a torn end is cut, and nothing that was answered is ever lost without a word.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod claims;
mod folder;
#[path = "damage/segments.rs"]
mod segments;

use std::{path::Path, sync::Arc};

use duly_core::{State, Store, store::StoreErrorKind};
use duly_stores::{
    EmbeddedStore,
    embedded::{self, Options},
};
use folder::{Frame, copy, flip, frames, id, insert, message, names, now, open, small};
use testkit::disk::{PowerDisk, Traffic};

/// A folder whose journal has one frame per message, and nothing else.
async fn journal_of(messages: u64, body: usize) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await.unwrap();
    for number in 0..messages {
        insert(&store, message(number, 60_000, body)).await;
    }
    store.abandon();
    folder
}

/// How many of the first `count` messages are there; all before the last one that is must be there too.
async fn there(store: &EmbeddedStore, count: u64) -> u64 {
    let mut found = 0;
    for number in 0..count {
        if let Some(record) = store.get(&[id(number)]).await.unwrap().remove(0) {
            assert_eq!(found, number, "message {number} is there, an earlier one is not");
            assert_eq!(record.message, message(number, 60_000, record.message.body.len()));
            found += 1;
        }
    }
    found
}

/// Opens a damaged copy, which must be refused with words about the frame, twice the same: refusing changes nothing.
async fn refused(folder: &Path, frame: &Frame, what: &str) {
    let mut words = String::new();
    for _ in 0..2 {
        let Err(error) = open(folder).await else { panic!("{what}: opened without a word") };
        assert_eq!(error.kind, StoreErrorKind::Damaged, "{what}: {error}");
        let place = format!("{} has a bad frame at byte {}", frame.file, frame.start);
        let missing = format!("{} has no frame {} at byte {}", frame.file, frame.number, frame.start);
        // The first frame of a segment is told from none.
        let header = format!("reading {} failed: it has a bad header at byte {}", frame.file, frame.start);
        let named = [place, missing, header].iter().any(|words| error.what.contains(words));
        assert!(named, "{what}: {error}");
        assert!(words.is_empty() || words == error.what, "{what}: {error}, and before: {words}");
        words = error.what;
    }
}

#[test]
fn a_last_frame_cut_anywhere_is_dropped_whole() {
    testkit::block_on(async {
        let whole = journal_of(4, 40).await;
        let last = frames(whole.path()).pop().unwrap();
        for end in last.start..last.end {
            let folder = copy(whole.path());
            let file = std::fs::OpenOptions::new().write(true).open(folder.path().join(&last.file)).unwrap();
            file.set_len(end as u64).unwrap();
            let store = open(folder.path()).await.unwrap();
            assert_eq!(there(&store, 4).await, 3, "cut at byte {end}");
            // What comes after the cut is as good as ever.
            insert(&store, message(3, 60_000, 10)).await;
            store.abandon();
            let store = open(folder.path()).await.unwrap();
            assert_eq!(there(&store, 4).await, 4, "cut at byte {end}, and gone on");
        }
    });
}

#[test]
fn a_last_frame_with_a_flipped_bit_is_dropped_whole() {
    testkit::block_on(async {
        let whole = journal_of(4, 40).await;
        let last = frames(whole.path()).pop().unwrap();
        for at in last.start..last.end {
            let folder = copy(whole.path());
            flip(&folder.path().join(&last.file), at);
            let store = open(folder.path()).await.unwrap();
            let left = there(&store, 4).await;
            assert_eq!(left, 3, "left after a flip at {at}");
        }
    });
}

#[test]
fn a_flipped_bit_before_the_last_frame_is_refused_with_its_place() {
    testkit::block_on(async {
        let whole = journal_of(4, 40).await;
        let mut all = frames(whole.path());
        all.pop();
        for frame in &all {
            for at in frame.start..frame.end {
                let folder = copy(whole.path());
                flip(&folder.path().join(&frame.file), at);
                refused(folder.path(), frame, &format!("a flip at byte {at} of {}", frame.file)).await;
            }
        }
    });
}

#[test]
fn a_bad_end_of_one_segment_before_another_is_no_tear() {
    testkit::block_on(async {
        // As many as it takes to begin a third segment: it has one frame, and so a bad end before it looks like a tear.
        let mut messages = 4;
        let (whole, all) = loop {
            let whole = journal_of(messages, 900).await;
            let all = frames(whole.path());
            let last = all.last().unwrap().file.clone();
            if all[0].file != last && all.iter().filter(|frame| frame.file == last).count() == 1 {
                break (whole, all);
            }
            messages += 1;
        };
        let before = &all[all.len() - 2];
        for at in (before.start..before.end).step_by(13) {
            let folder = copy(whole.path());
            flip(&folder.path().join(&before.file), at);
            refused(folder.path(), before, &format!("a flip at byte {at} of {}", before.file)).await;
        }
        let folder = copy(whole.path());
        std::fs::remove_file(folder.path().join(&before.file)).unwrap();
        let error = open(folder.path()).await.err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::Damaged, "a segment is missing: {error}");
    });
}

/// A folder with a bit of everything in its files, closed cleanly.
async fn full_folder() -> (tempfile::TempDir, u64) {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await.unwrap();
    for number in 0..30 {
        let due = [0, 3_000, 60_000, 86_400_000][number as usize % 4];
        insert(&store, message(number, due, 50)).await;
    }
    folder::settle_all(&store, now(10)).await;
    store.cancel(now(10), &[id(2), id(6), id(10)]).await.unwrap();
    store.close().await.unwrap();
    (folder, 30)
}

#[test]
fn a_flipped_bit_in_any_file_is_never_passed_over() {
    testkit::block_on(async {
        let (whole, count) = full_folder().await;
        let store = open(copy(whole.path()).path()).await.unwrap();
        let mut expected = Vec::new();
        for number in 0..count {
            expected.push(store.get(&[id(number)]).await.unwrap().remove(0));
        }
        let states: std::collections::HashSet<State> =
            expected.iter().flatten().map(|record| record.state).collect();
        assert_eq!(states.len(), 4, "pending, delivered, dead and cancelled: {states:?}");
        store.abandon();
        let mut noticed = std::collections::BTreeMap::new();
        for name in names(whole.path()) {
            let kind = if name.ends_with(".data") { "data" } else { name.split(['-', '.']).next().unwrap() };
            let kind = kind.to_owned();
            let size = std::fs::metadata(whole.path().join(&name)).unwrap().len() as usize;
            // The journal has tests of its own, and the claims log only counts tries.
            if size == 0 || ["journal", "claims", "lock"].contains(&kind.as_str()) {
                continue;
            }
            for at in (0..size).step_by(7) {
                let folder = copy(whole.path());
                flip(&folder.path().join(&name), at);
                let what = format!("byte {at} of {name}");
                let seen = folder::reads_as(folder.path(), &expected, &what).await;
                // The line break after the checksum means nothing, nor do entries that are over.
                let harmless = name == "manifest" && at == 8 || name.ends_with(".data");
                assert!(!seen || harmless, "{what} was flipped without a word");
                if !seen {
                    *noticed.entry(kind.clone()).or_insert(0) += 1;
                }
            }
        }
        assert_eq!(
            noticed.keys().map(String::as_str).collect::<Vec<_>>(),
            ["data", "ended", "manifest", "table"]
        );
    });
}

/// Every file of a folder, by its name.
fn files(folder: &Path) -> std::collections::BTreeMap<String, Vec<u8>> {
    let read = |name: String| (name.clone(), std::fs::read(folder.join(name)).unwrap());
    names(folder).into_iter().map(read).collect()
}

/// How many of the first `count` messages cannot be read; `None` if the folder does not open.
async fn unreadable(folder: &Path, count: u64) -> Option<u64> {
    let store = open(folder).await.ok()?;
    let mut unreadable = 0;
    for number in 0..count {
        unreadable += u64::from(store.get(&[id(number)]).await.is_err());
    }
    store.abandon();
    Some(unreadable)
}

#[test]
fn a_look_that_changes_nothing_finds_damage_in_a_message() {
    testkit::block_on(async {
        let (whole, count) = full_folder().await;
        let before = files(whole.path());
        let sound = embedded::verify(whole.path(), now(10), &mut |_| true).await.unwrap();
        assert!(sound.is_sound() && sound.messages == count && !sound.is_cut, "{sound:?}");
        assert_eq!(files(whole.path()), before, "nothing has changed on disk");
        let cut = embedded::verify(whole.path(), now(10), &mut |_| false).await.unwrap();
        assert!(cut.is_cut && cut.messages == 0);
        let mut worst = 0;
        for (name, bytes) in before.iter().filter(|(name, _)| name.ends_with(".data")) {
            for at in (0..bytes.len()).step_by(61) {
                let folder = copy(whole.path());
                flip(&folder.path().join(name), at);
                let damaged = files(folder.path());
                // On a copy of its own, as an ordinary store writes.
                let unreadable = unreadable(copy(folder.path()).path(), count).await;
                let what = format!("byte {at} of {name}");
                match embedded::verify(folder.path(), now(10), &mut |_| true).await {
                    Ok(seen) => {
                        let lost = unreadable.expect("both open it or none");
                        assert_eq!((seen.messages, seen.damaged), (count - lost, lost), "{what}: {seen:?}");
                        assert_eq!((seen.is_sound(), seen.is_cut), (lost == 0, false), "{what}: {seen:?}");
                        worst = worst.max(lost);
                    }
                    Err(error) => {
                        assert_eq!(
                            (error.kind, unreadable),
                            (StoreErrorKind::Damaged, None),
                            "{what}: {error}"
                        );
                    }
                }
                assert_eq!(files(folder.path()), damaged, "nothing is mended, either");
            }
        }
        assert!(worst > 0, "no flipped bit has made a message unreadable");
    });
}

#[test]
fn a_missing_file_is_never_passed_over() {
    testkit::block_on(async {
        let (whole, _) = full_folder().await;
        for name in names(whole.path()) {
            let size = std::fs::metadata(whole.path().join(&name)).unwrap().len();
            let used = frames(whole.path()).iter().any(|frame| frame.file == name);
            if size == 0 || name.starts_with("claims") || (name.starts_with("journal") && !used) {
                continue;
            }
            let folder = copy(whole.path());
            std::fs::remove_file(folder.path().join(&name)).unwrap();
            let Err(error) = open(folder.path()).await else { panic!("{name} is missing without a word") };
            assert_eq!(error.kind, StoreErrorKind::Damaged, "{name} is missing: {error}");
        }
    });
}

#[test]
fn a_folder_is_open_once() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let first = open(folder.path()).await.unwrap();
        let error = open(folder.path()).await.err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        assert!(error.what.contains("another process"), "{error}");
        insert(&first, message(1, 0, 10)).await;
        first.close().await.unwrap();
        drop(open(folder.path()).await.unwrap());
    });
}

#[test]
fn nothing_is_answered_after_a_failed_sync() {
    testkit::block_on(async {
        for seed in 0..60 {
            let disk = PowerDisk::default();
            let options = Options { disk: Arc::new(disk.clone()), ..small() };
            let traffic = Traffic::default();
            let store = EmbeddedStore::open("/data", options.clone(), traffic.now()).await.unwrap();
            let store = Arc::new(store);
            disk.fail_sync_after(seed);
            let port: Arc<dyn Store> = store.clone();
            let error = traffic.run(&port, seed, 1_000).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Closed, "seed {seed}: {error}");
            let error = store.get(&[id(1)]).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::Closed, "seed {seed}: {error}");
            store.abandon();
            let before = traffic.ledger().clone();
            let options = Options { disk: Arc::new(disk.cut(seed)), ..options };
            let store = EmbeddedStore::open("/data", options, traffic.now()).await.unwrap();
            let port: Arc<dyn Store> = Arc::new(store);
            traffic.judge(&port, &before).await;
            traffic.drain(&port).await;
        }
    });
}
