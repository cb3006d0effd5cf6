//! A data folder as the tests of damage see it: its messages, its frames, and how to break them.

use std::{path::Path, time::Duration};

use duly_core::{
    Attempt, Body, DeadReason, Lane, MessageId, Monotonic, Now, Outcome, Record, SinkName, Store,
    StoredMessage, Timestamp, Topic,
    store::{Claim, Holder, Insert, Inserted, Settle, Settlement, StoreError, StoreErrorKind},
};
use duly_stores::{EmbeddedStore, embedded::Options};

const START_MS: u64 = 1_800_000_000_000;

/// Small files; everything that is over can still be asked for.
pub(crate) fn small() -> Options {
    Options {
        retention: Duration::from_secs(365 * 24 * 3600),
        segment_bytes: 4 << 10,
        checkpoint_bytes: 16 << 10,
        window_bytes: 16 << 10,
        buffer_bytes: 8 << 10,
        chunk_bytes: 8 << 10,
        ..Options::default()
    }
}

pub(crate) fn now(seconds: u64) -> Now {
    Now::new((START_MS + seconds * 1000) * 1000, Monotonic::from_micros((seconds + 1) * 1_000_000))
}

pub(crate) async fn open(folder: &Path) -> Result<EmbeddedStore, StoreError> {
    EmbeddedStore::open(folder, small(), now(0)).await
}

pub(crate) fn id(number: u64) -> MessageId {
    MessageId::parse(&format!("m{number}")).unwrap()
}

/// A message due `due` milliseconds after the start, with so many bytes of body.
pub(crate) fn message(number: u64, due: u64, body: usize) -> StoredMessage {
    let sink = SinkName::parse("queue").unwrap();
    let topic = Topic::parse("work").unwrap();
    let mut message = StoredMessage::new(id(number), sink, topic, Timestamp::from_millis(START_MS + due));
    message.body = Body::text("abcdefgh".repeat(body / 8 + 1)[..body].to_owned());
    message
}

pub(crate) async fn insert(store: &EmbeddedStore, message: StoredMessage) {
    let answer = store.insert(now(0), vec![Insert::new(message)]).await.unwrap();
    assert_eq!(answer, [Inserted::Accepted]);
}

/// Claims what is due, delivers half of it and gives the rest up.
pub(crate) async fn settle_all(store: &EmbeddedStore, now: Now) {
    loop {
        let lane = Lane::Queue(Topic::parse("work").unwrap());
        let claim = Claim { lane, limit: 100, lease: Duration::from_secs(60), holder: Holder::Process };
        let claimed = store.claim(now, claim).await.unwrap();
        if claimed.messages.is_empty() {
            return;
        }
        let batch = claimed.messages.iter().enumerate().map(|(at, leased)| {
            let settlement = match at % 2 {
                0 => Settlement::Delivered { receipt: Some("proof".into()) },
                _ => Settlement::Dead {
                    reason: DeadReason::Refused,
                    attempt: Some(Attempt::new(now.wall(), Outcome::Refused, "no such order")),
                },
            };
            Settle { receipt: leased.receipt.clone(), settlement }
        });
        store.settle(now, batch.collect()).await.unwrap();
    }
}

/// Whether the folder opens and says of every message what is expected. If not, it must say that it is damaged.
pub(crate) async fn reads_as(folder: &Path, expected: &[Option<Record>], what: &str) -> bool {
    let store = match open(folder).await {
        Ok(store) => store,
        Err(error) => {
            assert_eq!(error.kind, StoreErrorKind::Damaged, "{what}: {error}");
            return false;
        }
    };
    for (number, expected) in (0..).zip(expected) {
        match store.get(&[id(number)]).await {
            Ok(found) => assert_eq!(found[0], *expected, "{what}: message {number}"),
            Err(error) => {
                let kinds = [StoreErrorKind::Damaged, StoreErrorKind::Closed];
                assert!(kinds.contains(&error.kind), "{what}: {error}");
                return false;
            }
        }
    }
    true
}

pub(crate) fn names(folder: &Path) -> Vec<String> {
    let entries = std::fs::read_dir(folder).unwrap();
    let mut names: Vec<_> = entries.map(|entry| entry.unwrap().file_name().into_string().unwrap()).collect();
    names.sort();
    names
}

pub(crate) fn copy(folder: &Path) -> tempfile::TempDir {
    let copy = tempfile::tempdir().unwrap();
    for name in names(folder) {
        std::fs::copy(folder.join(&name), copy.path().join(&name)).unwrap();
    }
    copy
}

/// Flips one bit of the byte at `at`.
pub(crate) fn flip(path: &Path, at: usize) {
    let mut bytes = std::fs::read(path).unwrap();
    bytes[at] ^= 1 << (at % 8);
    std::fs::write(path, bytes).unwrap();
}

/// One frame of the journal.
#[derive(Debug)]
pub(crate) struct Frame {
    pub(crate) file: String,
    pub(crate) number: u64,
    pub(crate) start: usize,
    pub(crate) end: usize,
}

/// All frames of the journal, in order.
pub(crate) fn frames(folder: &Path) -> Vec<Frame> {
    let mut frames = Vec::new();
    for file in names(folder).into_iter().filter(|name| name.starts_with("journal-")) {
        let segment: u32 = file["journal-".len()..].parse().unwrap();
        let bytes = std::fs::read(folder.join(&file)).unwrap();
        for start in (0..bytes.len().saturating_sub(32)).step_by(8) {
            let word = |at: usize| u32::from_le_bytes(bytes[start + at..start + at + 4].try_into().unwrap());
            if bytes[start..].starts_with(b"DLJ2") && word(4) == segment {
                let (file, end) = (file.clone(), start + 32 + word(16) as usize);
                frames.push(Frame { file, number: u64::from(word(8)), start, end });
            }
        }
    }
    frames.sort_by_key(|frame| frame.number);
    frames
}
