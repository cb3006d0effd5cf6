//! Folders written by earlier versions open as they always did.
//!
//! `golden/format-1` and those after it were written by [`write`], each by the version of its time. If a format is ever
//! changed, its folder stays, and the new one gets a folder of its own: remove the folder that is to be written again and run
//! this test once.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]
#![expect(dead_code, reason = "what the tests of damage need of a folder is more than is needed here")]

mod folder;

use std::{
    path::{Path, PathBuf},
    sync::Arc,
};

use duly_core::{
    Body, DeadReason, Lane, Outcome, State, Store, Topic,
    store::{Claim, Holder, Insert, Settle, Settled, Settlement, StoreErrorKind},
};
use duly_stores::{
    EmbeddedStore,
    embedded::{Options, disk::Disk},
};
use folder::{copy, id, insert, message, now, open, settle_all};
use testkit::disk::PowerDisk;

fn golden(format: u32) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("tests/golden/format-{format}"))
}

/// A copy of the folder, and the receipt of the message that is in flight there.
fn golden_copy(format: u32) -> (tempfile::TempDir, String) {
    let receipt = std::fs::read_to_string(golden(format).with_extension("receipt")).unwrap();
    (copy(&golden(format)), receipt)
}

fn work() -> Lane {
    Lane::Queue(Topic::parse("work").unwrap())
}

fn other() -> Lane {
    Lane::Queue(Topic::parse("other").unwrap())
}

fn forgotten() -> Lane {
    Lane::Queue(Topic::parse("forgotten").unwrap())
}

async fn claim(store: &EmbeddedStore, lane: Lane) -> Vec<duly_core::store::LeasedMessage> {
    let lease = std::time::Duration::from_secs(3600);
    let claim = Claim { lane, limit: 1, lease, holder: Holder::Client };
    store.claim(now(10), claim).await.unwrap().messages
}

/// Writes a folder with a message in every state, some of it in tables and some in the journal only. Returns the receipt
/// of the one that is in flight.
async fn write(folder: &Path) -> String {
    let store = open(folder).await.unwrap();
    // A lane that is forgotten when the folder is opened again: from format 3 on, the others keep their numbers.
    store.set_paused(&forgotten(), true).await.unwrap();
    store.set_paused(&forgotten(), false).await.unwrap();
    // Delivered: m0. Dead: m1.
    insert(&store, message(0, 0, 30)).await;
    insert(&store, message(1, 5, 30)).await;
    settle_all(&store, now(10)).await;
    // Pending at all distances: m2 to m9, m9 large. Cancelled: m5.
    for number in 2..10 {
        let due = 10_000 << (3 * (number - 2));
        insert(&store, message(number, due, if number == 9 { 3_000 } else { 30 })).await;
    }
    store.cancel(now(10), &[id(5)]).await.unwrap();
    // In flight: m10.
    insert(&store, message(10, 7, 30)).await;
    let claimed = claim(&store, work()).await.remove(0);
    assert_eq!(claimed.message.id, id(10));
    store.close().await.unwrap();
    let store = open(folder).await.unwrap();
    // In the journal only: m11 pending, m3 cancelled, m4 rescheduled, a lane paused.
    insert(&store, message(11, 99_000, 30)).await;
    store.cancel(now(10), &[id(3)]).await.unwrap();
    store.reschedule(now(10), &[(id(4), now(500).wall())]).await.unwrap();
    store.set_paused(&other(), true).await.unwrap();
    let mut paused = message(12, 0, 30);
    paused.topic = Topic::parse("other").unwrap();
    insert(&store, paused).await;
    store.abandon();
    claimed.receipt.to_string()
}

/// `tells_acceptance`: whether it was written by a version that writes down when a message was accepted.
async fn check(folder: &Path, receipt: &str, tells_acceptance: bool) {
    let store = open(folder).await.unwrap();
    let totals = store.totals().await.unwrap();
    assert!(totals.balance(), "{totals:?}");
    let counted =
        [totals.accepted, totals.delivered, totals.dead, totals.cancelled, totals.in_flight, totals.pending];
    assert_eq!(counted, [13, 1, 1, 2, 1, 8]);
    let states = [
        (0, State::Delivered),
        (1, State::Dead),
        (2, State::Pending),
        (3, State::Cancelled),
        (5, State::Cancelled),
        (9, State::Pending),
        (10, State::InFlight),
        (11, State::Pending),
    ];
    for (number, state) in states {
        let record = store.get(&[id(number)]).await.unwrap().remove(0).unwrap();
        assert_eq!(record.state, state, "message {number}");
        assert_eq!(record.accepted.is_some(), tells_acceptance, "message {number}");
        match state {
            State::Delivered => assert_eq!(record.receipt.as_deref(), Some("proof")),
            State::Cancelled => assert_eq!(record.message.body, Body::default()),
            State::Dead => {
                assert_eq!(record.reason, Some(DeadReason::Refused));
                assert_eq!(record.history.last().unwrap().outcome, Outcome::Refused);
                assert_eq!(record.message, message(1, 5, 30));
            }
            _ => {
                let (due, body) = (record.message.due, record.message.body.len());
                let due = due.since(now(0).wall()).as_millis() as u64;
                assert_eq!(record.message, message(number, due, body), "message {number}");
            }
        }
    }
    let moved = store.get(&[id(4)]).await.unwrap().remove(0).unwrap();
    assert_eq!(moved.message.due, now(500).wall());
    // The paused lane gives nothing; the client's receipt is still good.
    assert!(store.lanes(now(10)).await.unwrap().iter().any(|lane| lane.lane == other() && lane.paused));
    assert!(claim(&store, other()).await.is_empty());
    store.set_paused(&other(), false).await.unwrap();
    assert_eq!(claim(&store, other()).await[0].message.id, id(12));
    assert_eq!(claim(&store, work()).await[0].message.id, id(2));
    let settle =
        Settle { receipt: receipt.parse().unwrap(), settlement: Settlement::Delivered { receipt: None } };
    assert_eq!(store.settle(now(10), vec![settle]).await.unwrap(), [Settled::Done]);
    store.close().await.unwrap();
}

#[test]
fn a_folder_of_format_1_opens_with_everything_in_it() {
    testkit::block_on(async {
        let (folder, receipt) = golden_copy(1);
        check(folder.path(), &receipt, false).await;
    });
}

#[test]
fn a_folder_of_format_2_opens_with_everything_in_it() {
    testkit::block_on(async {
        let (folder, receipt) = golden_copy(2);
        check(folder.path(), &receipt, true).await;
    });
}

#[test]
fn a_folder_of_format_3_opens_with_everything_in_it() {
    testkit::block_on(async {
        let golden = golden(3);
        if !golden.exists() {
            std::fs::create_dir_all(&golden).unwrap();
            let receipt = write(&golden).await;
            std::fs::write(golden.with_extension("receipt"), receipt).unwrap();
            panic!("{} was written anew: look at it, check it in, and run this again", golden.display());
        }
        let manifest = std::fs::read_to_string(golden.join("manifest")).unwrap();
        assert!(!manifest.contains("forgotten") && manifest.contains(r#""number":1"#), "{manifest}");
        let (folder, receipt) = golden_copy(3);
        check(folder.path(), &receipt, true).await;
    });
}

#[test]
fn a_folder_of_format_1_becomes_one_of_today_before_anything_is_written_to_it() {
    testkit::block_on(async {
        let (folder, _) = golden_copy(1);
        let store = open(folder.path()).await.unwrap();
        let manifest = std::fs::read_to_string(folder.path().join("manifest")).unwrap();
        assert!(manifest.contains(r#""format":3,"#), "an older version must not open it: {manifest}");
        // The journal now has segments of both formats.
        insert(&store, message(20, 99_000, 30)).await;
        store.abandon();
        for _ in 0..2 {
            let store = open(folder.path()).await.unwrap();
            let totals = store.totals().await.unwrap();
            assert!(totals.balance(), "{totals:?}");
            assert_eq!((totals.accepted, totals.pending), (14, 9));
            let record = store.get(&[id(20)]).await.unwrap().remove(0).unwrap();
            assert_eq!(record.message, message(20, 99_000, 30));
            store.abandon();
        }
        open(folder.path()).await.unwrap().close().await.unwrap();
        let store = open(folder.path()).await.unwrap();
        assert_eq!(store.totals().await.unwrap().pending, 9);
        let old = folder::names(&golden(1)).into_iter().filter(|name| name.starts_with("journal-"));
        for name in old {
            assert!(!folder.path().join(&name).exists(), "{name} has no header and is not used again");
        }
    });
}

/// The folder on a disk whose power can go.
fn on_power_disk(folder: &Path) -> PowerDisk {
    let disk = PowerDisk::default();
    for name in folder::names(folder) {
        let file = disk.open(&Path::new("/data").join(&name)).unwrap();
        file.write_at(&std::fs::read(folder.join(&name)).unwrap(), 0).unwrap();
        file.sync().unwrap();
    }
    disk.sync_dir("/data".as_ref()).unwrap();
    disk
}

#[test]
fn a_power_cut_while_a_folder_of_format_1_is_taken_over_loses_nothing() {
    testkit::block_on(async {
        let golden = on_power_disk(&golden(1));
        let options = |disk: &PowerDisk| Options { disk: Arc::new(disk.clone()), ..folder::small() };
        for change in 0.. {
            let disk = golden.survive();
            disk.off_after(change);
            let mut accepted = 13;
            let opened = EmbeddedStore::open("/data", options(&disk), now(0)).await;
            let is_through = opened.is_ok();
            if let Ok(store) = opened {
                let insert = Insert::new(message(20, 99_000, 30));
                accepted += u64::from(store.insert(now(0), vec![insert]).await.is_ok());
                store.abandon();
            }
            for left in [disk.cut(change), disk.survive()] {
                let store = EmbeddedStore::open("/data", options(&left), now(0)).await.unwrap();
                let totals = store.totals().await.unwrap();
                assert!(totals.balance(), "{totals:?}");
                let kept = totals.accepted == accepted || totals.accepted == 14;
                assert!(kept && totals.pending == totals.accepted - 5, "change {change}: {totals:?}");
                store.abandon();
            }
            if is_through && accepted == 14 {
                break;
            }
        }
    });
}

#[test]
fn a_zeroed_header_in_a_segment_of_format_1_is_refused() {
    testkit::block_on(async {
        let (folder, _) = golden_copy(1);
        let path = folder.path().join("journal-19");
        let mut bytes = std::fs::read(&path).unwrap();
        assert!(bytes.starts_with(b"DLJ1"), "the newest one in use");
        bytes[..32].fill(0);
        std::fs::write(&path, bytes).unwrap();
        let error = open(folder.path()).await.err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        assert!(error.what.contains("journal-19"), "{error}");
    });
}

#[test]
fn what_is_written_today_reads_the_same() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let receipt = write(folder.path()).await;
        check(folder.path(), &receipt, true).await;
    });
}

#[test]
fn another_format_is_refused_with_words() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        // Another format has other fields; only its number is sure.
        let json = r#"{"format":99,"shelves":[]}"#;
        let manifest = format!("{:08x}\n{json}", crc32c::crc32c(json.as_bytes()));
        std::fs::write(folder.path().join("manifest"), manifest).unwrap();
        let error = open(folder.path()).await.err().unwrap();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        let words =
            "manifest has format 99, this version reads 1 to 3; open it with the version that wrote it";
        assert!(error.what.contains(words), "{error}");
    });
}
