//! Disks that have no room, or cannot read a part of a table.

use std::{
    io,
    ops::Range,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
};

use duly_core::{
    Attempt, DeadReason, Outcome, Timestamp,
    store::{Settle, Settlement},
};

use super::super::{
    Options,
    disk::RealDisk,
    hooked::{HookedDisk, Hooks},
    locked,
    table::Table,
    test_bed::{Bed, id, message, now, tiny},
};

/// A disk that has no room for tables, or cannot read a part of one, once a test sets that.
#[derive(Clone, Default)]
struct FaultyDisk(Arc<Faults>);

#[derive(Default)]
struct Faults {
    full: AtomicBool,
    bad: Mutex<Option<(String, Range<u64>)>>,
}

impl FaultyDisk {
    fn disk(&self) -> Arc<HookedDisk> {
        HookedDisk::on(RealDisk, self.0.clone())
    }
}

impl Hooks for Faults {
    fn write(&self, name: &str) -> io::Result<()> {
        if self.full.load(SeqCst) && name.starts_with("table-") {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }

    fn read(&self, name: &str, read: Range<u64>) -> io::Result<()> {
        let is_bad = |(bad, bytes): &(String, Range<u64>)| {
            bad == name && bytes.start < read.end && read.start < bytes.end
        };
        if locked(&self.bad).as_ref().is_some_and(is_bad) {
            return Err(io::Error::other("a bad sector"));
        }
        Ok(())
    }
}

/// Many messages in a wide bucket, 150 ms apart from each other.
const COUNT: u64 = 400;
const FIRST_MS: u64 = 200_000;
/// When their bucket has come near, and none of them.
const OPEN_MS: u64 = FIRST_MS - 5_000;

/// A store with more in a wide bucket than its buffers hold, and a disk that is full when it comes near.
async fn full_bed(dir: &Path) -> (FaultyDisk, Bed) {
    let disk = FaultyDisk::default();
    let mut bed = Bed::open(dir, Options { disk: disk.disk(), ..tiny() });
    for first in (0..COUNT).step_by(20) {
        let some = first..first + 20;
        bed.insert(0, some.map(|number| message("work", number, FIRST_MS + 150 * number, 300))).await;
        bed.shared.flush(true).unwrap();
        bed.round();
    }
    // Nothing of it is in memory or in the journal.
    bed.shared.checkpoint().unwrap();
    (disk, bed)
}

fn buffered(bed: &Bed) -> usize {
    let engine = bed.shared.engine();
    let held: usize = engine.buckets.iter().map(|(_, bucket)| bucket.buffer().len()).sum();
    assert_eq!(engine.buckets.buffered(), held);
    held
}

fn assert_full(bed: &mut Bed) {
    let error = bed.try_round().unwrap_err();
    assert_eq!(error.kind(), io::ErrorKind::StorageFull, "{error}");
}

#[test]
fn a_full_disk_takes_no_more_memory_with_each_try_and_what_is_due_comes() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (disk, mut bed) = full_bed(dir.path()).await;
        disk.0.full.store(true, SeqCst);
        bed.shared.engine().tick(now(OPEN_MS));
        assert_full(&mut bed);
        let first = buffered(&bed);
        let most = 4 * tiny().buffer_bytes + tiny().chunk_bytes as usize;
        for round in 0..20 {
            assert_full(&mut bed);
            assert_eq!(buffered(&bed), first, "after round {round}");
        }
        assert!(first > tiny().buffer_bytes && first <= most, "{first} of {most} bytes");
        let mut came = 0;
        for at in (OPEN_MS..FIRST_MS + 150 * COUNT).step_by(1_000) {
            bed.shared.engine().tick(now(at));
            // There may be room enough again once some have come.
            let _ = bed.try_round();
            assert!(buffered(&bed) <= most);
            loop {
                let some = bed.claim(at, "work", 50).await.messages.len() as u64;
                came += some;
                if some == 0 {
                    break;
                }
            }
            let due = (at + 150).saturating_sub(FIRST_MS) / 150;
            assert_eq!(came, due.min(COUNT), "after {at} ms");
        }
    });
}

#[test]
fn once_there_is_room_a_wide_bucket_is_moved_on_and_nothing_comes_twice() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (disk, mut bed) = full_bed(dir.path()).await;
        disk.0.full.store(true, SeqCst);
        bed.shared.engine().tick(now(OPEN_MS));
        (0..5).for_each(|_| assert_full(&mut bed));
        disk.0.full.store(false, SeqCst);
        bed.round();
        {
            let engine = bed.shared.engine();
            let far: u32 = engine.buckets.iter().flat_map(|(_, bucket)| *bucket.parts()).sum();
            assert_eq!((u64::from(far), engine.tables.blocked().next()), (COUNT, None));
        }
        let end = FIRST_MS + 150 * COUNT;
        bed.shared.engine().tick(now(end));
        bed.round();
        let mut came = std::collections::HashSet::new();
        while came.len() < COUNT as usize {
            let some = bed.claim(end, "work", 50).await.messages;
            assert!(!some.is_empty(), "{} came", came.len());
            assert!(some.into_iter().all(|leased| came.insert(leased.message.id)));
        }
    });
}

#[test]
fn a_retry_that_is_due_comes_while_a_wide_bucket_finds_no_room() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let (disk, mut bed) = full_bed(dir.path()).await;
        bed.insert(0, [message("other", 9_000, 0, 10)]).await;
        let claimed = bed.claim(OPEN_MS - 1, "other", 1).await.messages.remove(0);
        disk.0.full.store(true, SeqCst);
        bed.shared.engine().tick(now(OPEN_MS));
        (0..3).for_each(|_| assert_full(&mut bed));
        let at = Timestamp::from_millis(now(OPEN_MS + 2_500).wall().as_millis());
        let attempt = Attempt::new(now(OPEN_MS).wall(), Outcome::Again, "no");
        let settle = Settle { receipt: claimed.receipt, settlement: Settlement::Retry { at, attempt } };
        bed.shared.settle(now(OPEN_MS), vec![settle]).await.unwrap();
        bed.shared.engine().tick(now(OPEN_MS + 2_500));
        assert_full(&mut bed);
        let near: u64 = bed.shared.engine().lanes.iter().map(|lane| lane.near_count()).sum();
        assert_eq!(near, 1, "its bucket is not opened");
        assert_eq!(bed.claim(OPEN_MS + 2_500, "other", 1).await.messages.len(), 1);
    });
}

#[test]
fn tidying_on_a_full_disk_takes_no_more_memory_with_each_try() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::default();
        let bed = Bed::open(dir.path(), Options { disk: disk.disk(), ..tiny() });
        bed.insert(0, (0..20).map(|number| message("work", number, 0, 100))).await;
        let claimed = bed.claim(1, "work", 20).await.messages;
        let settlement = Settlement::Dead { reason: DeadReason::Refused, attempt: None };
        let dead = claimed
            .into_iter()
            .map(|leased| Settle { receipt: leased.receipt, settlement: settlement.clone() });
        bed.shared.settle(now(1), dead.collect()).await.unwrap();
        bed.shared.checkpoint().unwrap();
        let most: Vec<_> = (0..15).map(id).collect();
        bed.shared.purge(now(1), &most).await.unwrap();
        disk.0.full.store(true, SeqCst);
        for _ in 0..3 {
            bed.shared.tidy().unwrap();
            bed.shared.checkpoint().unwrap_err();
            assert_eq!(bed.shared.engine().dead_buffer.from().len(), 5);
        }
        disk.0.full.store(false, SeqCst);
        bed.shared.checkpoint().unwrap();
        let engine = bed.shared.engine();
        assert_eq!((engine.dead_buffer.from().len(), engine.lanes.dead()), (0, 5));
    });
}

#[test]
fn a_bad_sector_stops_only_the_message_that_lies_on_it() {
    testkit::block_on(async {
        // In a narrow bucket and in a wide one.
        for due in [5_000, FIRST_MS] {
            let dir = tempfile::tempdir().unwrap();
            let disk = FaultyDisk::default();
            let mut bed = Bed::open(dir.path(), Options { disk: disk.disk(), ..tiny() });
            bed.insert(0, (0..10).map(|number| message("work", number, due, 1_500))).await;
            bed.shared.flush(true).unwrap();
            let (number, len) = {
                let engine = bed.shared.engine();
                let table = engine.tables.iter().find(|table| table.live() == 10).unwrap();
                (table.number(), table.data_len())
            };
            bed.insert(0, (20..25).map(|number| message("work", number, due + 3_000, 10))).await;
            let sector = len / 10 * 6 - 100;
            *locked(&disk.0.bad) = Some((format!("table-{number}.data"), sector..sector + 8));
            bed.shared.engine().tick(now(due - 1_400));
            bed.round();
            bed.shared.engine().tick(now(due));
            bed.round();
            assert_eq!(bed.claim(due, "work", 50).await.messages.len(), 9, "due after {due} ms");
            let health = bed.shared.engine().health();
            assert_eq!(health.whole(), Ok(()), "all others go on");
            let said = health.degraded.unwrap();
            assert!(said.what.contains(&format!("table-{number}")), "{said}");
            bed.shared.engine().tick(now(due + 3_000));
            bed.round();
            assert_eq!(bed.claim(due + 3_000, "work", 50).await.messages.len(), 5, "those of later buckets");
            // The disk reads it after all.
            *locked(&disk.0.bad) = None;
            bed.shared.engine().tick(now(due + 15_000));
            bed.round();
            assert_eq!(bed.claim(due + 15_000, "work", 50).await.messages.len(), 1);
            assert_eq!(bed.shared.engine().health().degraded, None);
        }
    });
}

#[test]
fn a_run_that_cannot_be_read_does_not_stop_the_store() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = FaultyDisk::default();
        let options = Options { disk: disk.disk(), window_bytes: 0, ..tiny() };
        let mut bed = Bed::open(dir.path(), options);
        for first in [0, 10, 20] {
            bed.insert(0, (first..first + 5).map(|number| message("work", number, 0, 10))).await;
            bed.rounds_until_rest();
        }
        let number = bed.shared.engine().tables.iter().map(Table::number).min().unwrap();
        *locked(&disk.0.bad) = Some((format!("table-{number}.data"), 0..8));
        bed.shared.merge_runs(1).unwrap();
        assert!(bed.shared.engine().health().degraded.is_some());
        assert_eq!(bed.shared.engine().tables.iter().filter(|table| table.live() > 0).count(), 2);
    });
}
