//! Lanes without messages are forgotten, and no number is used for another lane.

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use duly_core::{
    Lane, Topic,
    store::{Changed, Settle, Settlement},
};

use super::{
    Options,
    disk::RealDisk,
    hooked::{HookedDisk, Hooks},
    test_bed::{Bed, id, message, now, tiny},
};

fn lane(topic: &str) -> Lane {
    Lane::Queue(Topic::parse(topic).unwrap())
}

/// Nothing is kept of what is finished.
fn options() -> Options {
    Options { retention: Duration::ZERO, retention_max: 1, ..tiny() }
}

fn number(bed: &Bed, topic: &str) -> Option<u32> {
    bed.shared.engine().lanes.number(&lane(topic))
}

/// Fills a journal segment with messages of another lane, so that the next checkpoint lets the segments before it go.
async fn fill_segment(bed: &Bed, first: u64) {
    let before = bed.shared.engine().journal.current();
    for number in first.. {
        bed.insert(0, [message("filler", number, 900_000, 60_000)]).await;
        bed.shared.cancel(now(0), &[id(number)]).await.unwrap();
        if bed.shared.engine().journal.current() != before {
            return;
        }
        bed.shared.flush(true).unwrap();
    }
}

/// Inserts a message into `topic` and cancels it.
async fn use_once(bed: &Bed, topic: &str, number: u64) {
    bed.insert(0, [message(topic, number, 900_000, 10)]).await;
    let changed = bed.shared.cancel(now(0), &[id(number)]).await.unwrap();
    assert_eq!(changed, [Changed::Done { maybe_delivered: false }]);
}

#[test]
fn a_topic_that_holds_nothing_is_forgotten_and_comes_back_under_another_number() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = Bed::open(dir.path(), options());
        use_once(&bed, "once", 1).await;
        bed.insert(0, [message("waits", 2, 0, 10)]).await;
        let (first, waits) = (number(&bed, "once").unwrap(), number(&bed, "waits"));
        // The journal still names it.
        bed.shared.checkpoint().unwrap();
        assert_eq!(number(&bed, "once"), Some(first));
        fill_segment(&bed, 100).await;
        bed.shared.engine().tick(now(10_000));
        bed.round();
        bed.shared.checkpoint().unwrap();
        assert_eq!((number(&bed, "once"), number(&bed, "waits")), (None, waits));
        for again in 0..2 {
            bed.insert(10_000, [message("once", 10 + again, 0, 10)]).await;
            let second = number(&bed, "once").unwrap();
            assert!(second > first, "{second} after {first}");
            drop(bed);
            bed = Bed::open(dir.path(), options());
            assert_eq!((number(&bed, "once"), number(&bed, "waits")), (Some(second), waits));
        }
        let came = bed.claim(20_000, "once", 9).await.messages;
        assert_eq!(came.iter().map(|leased| &leased.message.id).collect::<Vec<_>>(), [&id(10), &id(11)]);
        assert_eq!(bed.claim(20_000, "waits", 9).await.messages.len(), 1);
    });
}

#[test]
fn an_insert_that_saw_a_number_before_it_was_forgotten_is_not_lost() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = Bed::open(dir.path(), options());
        use_once(&bed, "once", 1).await;
        let first = number(&bed, "once").unwrap();
        fill_segment(&bed, 100).await;
        bed.shared.engine().tick(now(10_000));
        bed.round();
        bed.shared.checkpoint().unwrap();
        assert_eq!(number(&bed, "once"), None);
        // As if its caller had waited for room ever since.
        bed.shared.lanes.write().unwrap().insert(lane("once"), first);
        bed.insert(10_000, [message("once", 2, 0, 10), message("once", 3, 0, 10)]).await;
        // Known by its hash, so that it is looked for first.
        bed.shared.cancel(now(10_000), &[id(3)]).await.unwrap();
        bed.shared.lanes.write().unwrap().insert(lane("once"), first);
        bed.insert(10_000, [message("once", 3, 0, 10)]).await;
        drop(bed);
        bed = Bed::open(dir.path(), options());
        let came = bed.claim(20_000, "once", 9).await.messages;
        assert_eq!(came.iter().map(|leased| &leased.message.id).collect::<Vec<_>>(), [&id(2), &id(3)]);
    });
}

#[test]
fn a_topic_is_known_for_as_long_as_one_of_its_finished_messages_is_kept() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = Bed::open(dir.path(), tiny());
        bed.insert(0, [message("once", 1, 0, 10)]).await;
        let leased = bed.claim(0, "once", 1).await.messages.remove(0);
        let settlement = Settlement::Delivered { receipt: None };
        bed.shared.settle(now(0), vec![Settle { receipt: leased.receipt, settlement }]).await.unwrap();
        fill_segment(&bed, 100).await;
        for _ in 0..2 {
            bed.shared.checkpoint().unwrap();
            let record = bed.shared.get(&[id(1)]).await.unwrap().remove(0).unwrap();
            assert_eq!(record.message.topic.as_str(), "once");
            drop(bed);
            bed = Bed::open(dir.path(), tiny());
        }
    });
}

/// A disk that has no room for a manifest once a test sets this.
#[derive(Default)]
struct NoManifest(AtomicBool);

impl Hooks for NoManifest {
    fn write(&self, name: &str) -> io::Result<()> {
        if self.0.load(SeqCst) && name == "manifest.new" {
            return Err(io::ErrorKind::StorageFull.into());
        }
        Ok(())
    }
}

#[test]
fn a_topic_forgotten_by_a_checkpoint_that_fails_loses_nothing() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let hooks = Arc::new(NoManifest::default());
        let options = || Options { disk: HookedDisk::on(RealDisk, hooks.clone()), ..options() };
        let mut bed = Bed::open(dir.path(), options());
        use_once(&bed, "once", 1).await;
        let first = number(&bed, "once").unwrap();
        bed.shared.checkpoint().unwrap();
        fill_segment(&bed, 100).await;
        bed.shared.engine().tick(now(10_000));
        bed.round();
        hooks.0.store(true, SeqCst);
        assert!(bed.shared.checkpoint().is_err());
        assert_eq!(number(&bed, "once"), None);
        bed.insert(10_000, [message("once", 2, 0, 10)]).await;
        hooks.0.store(false, SeqCst);
        for _ in 0..2 {
            // The manifest on disk names the first number, the journal the second.
            drop(bed);
            bed = Bed::open(dir.path(), options());
            assert!(number(&bed, "once").unwrap() > first);
            bed.shared.checkpoint().unwrap();
        }
        assert_eq!(bed.claim(20_000, "once", 9).await.messages[0].message.id, id(2));
        let known = bed.shared.engine().lanes.iter().filter(|state| *state.lane() == lane("once")).count();
        assert_eq!(known, 1);
    });
}

#[test]
fn a_slice_past_retention_stays_until_no_manifest_names_it_however_often_the_store_crashes() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let options = || Options { retention: Duration::from_secs(60), ..tiny() };
        let bed = Bed::open(dir.path(), options());
        use_once(&bed, "early", 1).await;
        bed.shared.checkpoint().unwrap();
        // Ends after the retention of the other, in the journal alone.
        bed.insert(120_000, [message("late", 2, 900_000, 10)]).await;
        bed.shared.cancel(now(120_000), &[id(2)]).await.unwrap();
        drop(bed);
        for _ in 0..3 {
            drop(Bed::open(dir.path(), options()));
        }
    });
}
