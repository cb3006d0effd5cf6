//! Parts of a backlog that the disk cannot read: they wait, are reported, and hold up nothing.

use std::{
    collections::BTreeSet,
    ops::Range,
    path::Path,
    sync::{Arc, atomic::Ordering::SeqCst},
};

use duly_core::{
    MessageId,
    store::{Changed, Settle, Settlement},
};

use super::{
    Options,
    damage_tests::ReadWatch,
    disk::RealDisk,
    hooked::HookedDisk,
    locked,
    table::Table,
    test_bed::{Bed, id, message, now, tiny},
};

const COUNT: u64 = 2_000;
/// Of the lane whose backlog has a bad part. The rest is of another lane, and in the same files.
const OF_WORK: u64 = COUNT / 4 * 3;
/// How much the disk cannot read.
const BAD_BYTES: u64 = 2 << 10;
/// When a part is read again that could not be read at `CLAIMED_MS`.
const CLAIMED_MS: u64 = 1_000;
const AGAIN_MS: u64 = CLAIMED_MS + 10_000;

fn open(dir: &Path, disk: &Arc<ReadWatch>) -> Bed {
    Bed::open(dir, Options { disk: HookedDisk::on(RealDisk, disk.clone()), chunk_bytes: 128 << 10, ..tiny() })
}

/// A store with more than one run, in each of which both lanes have messages.
async fn with_runs(dir: &Path, disk: &Arc<ReadWatch>) -> Bed {
    let mut bed = open(dir, disk);
    for first in (0..COUNT).step_by(1_000) {
        let topic = |number: u64| if number.is_multiple_of(4) { "other" } else { "work" };
        bed.insert(0, (first..first + 1_000).map(|number| message(topic(number), number, 0, 100))).await;
        bed.rounds_until_rest();
    }
    bed
}

/// The first extent of the lane: its table, and the bytes.
fn first_extent(bed: &Bed) -> (u32, Range<u64>) {
    let engine = bed.shared.engine();
    let lane = engine.lanes.iter().find(|lane| lane.lane().to_string().contains("work")).unwrap();
    let extent = lane.first_extent().unwrap();
    (extent.table, extent.next..extent.end)
}

fn fail_reads(disk: &ReadWatch, table: u32, bytes: Range<u64>) {
    *locked(&disk.bad) = Some((format!("table-{table}.data"), bytes));
}

async fn claim_all(bed: &Bed, at: u64, topic: &str) -> BTreeSet<MessageId> {
    let mut came = BTreeSet::new();
    loop {
        let messages = bed.claim(at, topic, 100).await.messages;
        if messages.is_empty() {
            return came;
        }
        for leased in messages {
            assert!(came.insert(leased.message.id.clone()), "{} came twice", leased.message.id);
        }
    }
}

/// Those of the lane that have not come.
fn missing(came: &BTreeSet<MessageId>) -> Vec<MessageId> {
    let all = (0..COUNT).filter(|number| !number.is_multiple_of(4)).map(id);
    all.filter(|id| !came.contains(id)).collect()
}

/// What health says, and how many messages wait for the disk.
fn reported(bed: &Bed) -> (Option<String>, u64) {
    let degraded = bed.shared.engine().health().degraded;
    (degraded.map(|error| error.what), bed.shared.metrics().unread)
}

#[test]
fn what_the_disk_cannot_read_of_a_backlog_waits_and_is_told_and_all_else_goes_out() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(ReadWatch::default());
        let bed = with_runs(dir.path(), &disk).await;
        *locked(&disk.shared) = Arc::downgrade(&bed.shared);
        let (table, bytes) = first_extent(&bed);
        let middle = (bytes.start + bytes.end) / 2;
        fail_reads(&disk, table, middle..middle + BAD_BYTES);

        let came = claim_all(&bed, CLAIMED_MS, "work").await;
        let waiting = missing(&came);
        assert!(!waiting.is_empty() && waiting.len() < 100, "{} of {OF_WORK} wait", waiting.len());
        let other = claim_all(&bed, CLAIMED_MS, "other").await;
        assert_eq!(other.len() as u64, COUNT - OF_WORK, "whatever is beside them");
        let (degraded, unread) = reported(&bed);
        let degraded = degraded.unwrap();
        assert_eq!(unread, waiting.len() as u64);
        for word in [format!("table-{table}.data"), "a bad sector".into(), format!("{unread} messages")] {
            assert!(degraded.contains(&word), "{word}: {degraded}");
        }
        assert_eq!(bed.shared.engine().health().whole(), Ok(()), "messages are accepted and delivered");
        let statuses = bed.shared.lane_statuses(now(CLAIMED_MS)).unwrap();
        let overdue = statuses.iter().find(|status| status.pending > 0).unwrap();
        assert_eq!((overdue.pending, overdue.oldest_ready), (unread, Some(now(0).wall())));

        // They are read again after a while, and not with each claim.
        let reads = || disk.reads.load(SeqCst);
        let before = reads();
        for at in CLAIMED_MS..CLAIMED_MS + 50 {
            let claimed = bed.claim(at, "work", 100).await;
            assert!(claimed.messages.is_empty() && claimed.next.is_none(), "{claimed:?}");
        }
        assert_eq!(reads(), before);
        assert!(bed.claim(AGAIN_MS, "work", 100).await.messages.is_empty());
        assert!(reads() > before, "the disk still cannot");
        assert_eq!(reported(&bed).1, unread);

        *locked(&disk.bad) = None;
        assert!(bed.claim(AGAIN_MS, "work", 100).await.messages.is_empty(), "it was read a moment ago");
        let later = now(AGAIN_MS + 10_000);
        let swept = bed.shared.sweep(later, &[waiting_lane(&bed)]).await.unwrap();
        assert_eq!(swept.next[0].1, now(0).wall(), "a sweep says that it is time");
        let rest = claim_all(&bed, AGAIN_MS + 10_000, "work").await;
        assert_eq!(rest.into_iter().collect::<Vec<_>>().len(), waiting.len());
        assert_eq!(reported(&bed), (None, 0));
        assert_eq!(bed.shared.engine().damaged.total(), 0, "nothing was damaged");
    });
}

fn waiting_lane(bed: &Bed) -> duly_core::Lane {
    let engine = bed.shared.engine();
    engine.lanes.iter().find(|lane| lane.pending() > 0).unwrap().lane().clone()
}

#[test]
fn a_folder_opens_although_the_disk_cannot_read_the_beginning_of_a_backlog() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(ReadWatch::default());
        let mut bed = with_runs(dir.path(), &disk).await;
        let (table, bytes) = first_extent(&bed);
        // The journal goes on until nothing of the run is in it any more.
        for first in (0..COUNT).step_by(1_000) {
            let later = (first..first + 1_000).map(|number| message("later", COUNT + number, 3_600_000, 100));
            bed.insert(0, later).await;
            bed.rounds_until_rest();
        }
        bed.shared.checkpoint().unwrap();
        drop(bed);
        fail_reads(&disk, table, bytes.start..bytes.start + BAD_BYTES);
        let bed = open(dir.path(), &disk);
        let (degraded, unread) = reported(&bed);
        assert!(degraded.unwrap().contains("a bad sector") && unread > 0);
        let mut came = claim_all(&bed, CLAIMED_MS, "work").await;
        assert_eq!((missing(&came).len() as u64, reported(&bed).1), (unread, unread));
        assert_eq!(claim_all(&bed, CLAIMED_MS, "other").await.len() as u64, COUNT - OF_WORK);
        *locked(&disk.bad) = None;
        came.append(&mut claim_all(&bed, AGAIN_MS, "work").await);
        assert_eq!((missing(&came), reported(&bed)), (Vec::new(), (None, 0)));
    });
}

#[test]
fn what_is_merged_out_of_an_unread_part_comes_once_and_degrades_nothing() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(ReadWatch::default());
        let bed = with_runs(dir.path(), &disk).await;
        let (table, bytes) = first_extent(&bed);
        fail_reads(&disk, table, bytes.start..bytes.start + BAD_BYTES);
        let mut came = BTreeSet::new();
        while reported(&bed).1 == 0 {
            let messages = bed.claim(CLAIMED_MS, "work", 10).await.messages;
            let settlement = Settlement::Delivered { receipt: None };
            let done = messages
                .iter()
                .map(|leased| Settle { receipt: leased.receipt.clone(), settlement: settlement.clone() });
            bed.shared.settle(now(CLAIMED_MS), done.collect()).await.unwrap();
            came.extend(messages.into_iter().map(|leased| leased.message.id));
        }
        *locked(&disk.bad) = None;
        bed.shared.engine().options.chunk_bytes = 1 << 20;
        bed.shared.merge_runs(0).unwrap();
        assert_eq!(bed.shared.engine().tables.get(table).map_or(0, Table::live), 0, "all of it was merged");
        assert_eq!(reported(&bed), (None, 0));
        came.append(&mut claim_all(&bed, CLAIMED_MS, "work").await);
        assert_eq!(missing(&came), []);
    });
}

#[test]
fn an_unread_part_in_whose_lane_nothing_waits_any_more_degrades_nothing() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(ReadWatch::default());
        let bed = with_runs(dir.path(), &disk).await;
        let (table, bytes) = first_extent(&bed);
        fail_reads(&disk, table, bytes.start..bytes.start + BAD_BYTES);
        let waiting = missing(&claim_all(&bed, CLAIMED_MS, "work").await);
        *locked(&disk.bad) = None;
        let cancelled = bed.shared.cancel(now(CLAIMED_MS), &waiting).await.unwrap();
        assert!(cancelled.iter().all(|one| *one == Changed::Done { maybe_delivered: false }));
        bed.shared.sweep(now(CLAIMED_MS), &[]).await.unwrap();
        assert_eq!(reported(&bed), (None, 0));
    });
}
