//! Messages that cannot be read, on a disk that a test can make fail: they hold up no other.

use std::{
    io,
    ops::Range,
    path::Path,
    sync::{
        Arc, Mutex, Weak,
        atomic::{AtomicUsize, Ordering::SeqCst},
    },
};

use super::{
    Options, SharedEngine,
    disk::RealDisk,
    hooked::{HookedDisk, Hooks},
    locked,
    test_bed::{Bed, id, message, now, tiny},
};

/// Counts the reads of runs, and those of them with the engine's lock held. Cannot read a part of a file once a test sets that.
#[derive(Default)]
pub(super) struct ReadWatch {
    pub(super) shared: Mutex<Weak<SharedEngine>>,
    pub(super) bad: Mutex<Option<(String, Range<u64>)>>,
    pub(super) reads: AtomicUsize,
    under_lock: AtomicUsize,
}

impl Hooks for ReadWatch {
    fn read(&self, name: &str, read: Range<u64>) -> io::Result<()> {
        let is_bad = |(bad, bytes): &(String, Range<u64>)| {
            bad == name && bytes.start < read.end && read.start < bytes.end
        };
        if locked(&self.bad).as_ref().is_some_and(is_bad) {
            return Err(io::Error::other("a bad sector"));
        }
        if let Some(shared) = locked(&self.shared).upgrade() {
            self.reads.fetch_add(1, SeqCst);
            self.under_lock.fetch_add(usize::from(shared.engine.try_lock().is_err()), SeqCst);
        }
        Ok(())
    }
}

fn open(dir: &Path, disk: &Arc<ReadWatch>) -> Bed {
    Bed::open(dir, Options { disk: HookedDisk::on(RealDisk, disk.clone()), ..tiny() })
}

#[test]
fn a_damaged_stretch_of_a_backlog_is_passed_over_without_holding_up_other_lanes() {
    testkit::block_on(async {
        const COUNT: u64 = 3_000;
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(ReadWatch::default());
        let mut bed = open(dir.path(), &disk);
        for first in (0..COUNT).step_by(100) {
            bed.insert(0, (first..first + 100).map(|number| message("work", number, 0, 100))).await;
            bed.rounds_until_rest();
        }
        // All but the first and the last entries of each run are zeroed.
        let mut zeroed = 0;
        for table in bed.shared.engine().tables.iter().filter(|table| table.live() > 0) {
            let len = table.data_len() as usize;
            table.data().write_at(&vec![0; len / 2], len as u64 / 4).unwrap();
            zeroed += table.live() / 2;
        }
        assert!(zeroed > 1_000, "{zeroed}");
        *locked(&disk.shared) = Arc::downgrade(&bed.shared);
        let mut came = 0;
        while bed.shared.engine().lanes.iter().any(|lane| lane.first_extent().is_some()) {
            came += bed.claim(1, "work", 100).await.messages.len() as u64;
        }
        loop {
            let some = bed.claim(1, "work", 100).await.messages.len() as u64;
            if some == 0 {
                break;
            }
            came += some;
        }
        let (reads, under_lock) = (disk.reads.load(SeqCst), disk.under_lock.load(SeqCst));
        let damaged = bed.shared.engine().damaged.total();
        assert_eq!(came + damaged, COUNT);
        assert!(damaged > 1_000 && reads as u64 > damaged, "{damaged} of {reads} reads");
        assert!(under_lock < 200, "{under_lock} of {reads} reads with the lock held");
    });
}

#[test]
fn a_damaged_message_that_the_disk_cannot_read_keeps_no_other_from_becoming_a_dead_letter() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let disk = Arc::new(ReadWatch::default());
        let mut bed = open(dir.path(), &disk);
        bed.insert(0, (0..5).map(|number| message("work", number, 5_000, 100))).await;
        bed.shared.flush(true).unwrap();
        let (name, data, len) = {
            let engine = bed.shared.engine();
            let table = engine.tables.iter().find(|table| table.live() == 5).unwrap();
            (format!("table-{}.data", table.number()), table.data().clone(), table.data_len())
        };
        // Bodies, so that the ids are known.
        let entry = len / 5;
        (0..5).for_each(|number| data.write_at(b"?", entry * number + entry - 20).unwrap());
        bed.shared.engine().tick(now(5_000));
        bed.round();
        assert_eq!(bed.shared.engine().damaged.total(), 5);
        *locked(&disk.bad) = Some((name, 0..8));
        let error = bed.shared.dead_letter_damaged(now(5_000)).await.unwrap_err();
        assert!(error.what.contains("a bad sector"), "{error}");
        assert_eq!(bed.shared.engine().lanes.dead(), 4);
        *locked(&disk.bad) = None;
        bed.shared.dead_letter_damaged(now(6_000)).await.unwrap();
        assert_eq!(bed.shared.engine().lanes.dead(), 5);
        assert!(bed.shared.get(&[id(0)]).await.unwrap()[0].is_some());
    });
}

/// The disk fails to read the rest of the run behind its damaged head, or the keys of the run.
#[test]
fn a_backlog_that_cannot_be_read_behind_a_damaged_entry_keeps_nothing_in_memory_from_going_out() {
    const COUNT: u64 = 1_000;
    const ZEROED: u64 = 80 << 10;
    for in_keys in [false, true] {
        testkit::block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let disk = Arc::new(ReadWatch::default());
            // All in one run.
            let options = Options { chunk_bytes: 128 << 10, ..tiny() };
            let mut bed =
                Bed::open(dir.path(), Options { disk: HookedDisk::on(RealDisk, disk.clone()), ..options });
            bed.insert(0, (0..COUNT).map(|number| message("work", number, 0, 100))).await;
            bed.rounds_until_rest();
            let (table, from, end, data) = {
                let engine = bed.shared.engine();
                let lane = engine.lanes.iter().find(|lane| lane.first_extent().is_some()).unwrap();
                let extent = lane.first_extent().unwrap();
                let data = engine.tables.get(extent.table).unwrap().data().clone();
                (extent.table, extent.next, extent.end, data)
            };
            assert!(from + ZEROED < end, "more than one read");
            data.write_at(&[0; ZEROED as usize], from).unwrap();
            let bad = match in_keys {
                true => (format!("table-{table}.keys"), 0..u64::MAX),
                false => (format!("table-{table}.data"), from + ZEROED..u64::MAX),
            };
            *locked(&disk.bad) = Some(bad);
            bed.insert(600, (COUNT..COUNT + 5).map(|number| message("work", number, 500, 100))).await;
            let before = bed.claim(1_000, "work", 2_000).await.messages.len() as u64;
            let behind = bed.claim(1_000, "work", 2_000).await.messages;
            let ids: Vec<_> = behind.into_iter().map(|leased| leased.message.id).collect();
            assert_eq!(ids, (COUNT..COUNT + 5).map(id).collect::<Vec<_>>());
            assert!(bed.claim(1_000, "work", 2_000).await.messages.is_empty());
            let degraded = bed.shared.engine().health().degraded.unwrap();
            assert!(degraded.what.contains("a bad sector"), "{degraded}");
            *locked(&disk.bad) = None;
            let rest = bed.claim(11_000, "work", 2_000).await.messages.len() as u64;
            assert_eq!(before + rest + bed.shared.engine().damaged.total(), COUNT);
        });
    }
}
