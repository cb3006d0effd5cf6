use std::path::Path;

use duly_core::{Lane, SinkName, Timestamp, Topic, store::Changed};

use super::super::{
    Options,
    engine::{Admission, Class},
    test_bed::{Bed, id, message, now, tiny},
};

const DAY_MS: u64 = 24 * 3_600_000;

#[test]
fn background_work_comes_to_rest_whatever_the_size_of_what_nobody_takes() {
    testkit::block_on(async {
        for (count, body) in [(400, 10), (200, 479), (100, 1_000), (40, 5_000), (3, 40_000)] {
            let dir = tempfile::tempdir().unwrap();
            let mut bed = Bed::open(dir.path(), tiny());
            bed.insert(0, (0..count).map(|number| message("idle", number, 0, body))).await;
            bed.rounds_until_rest();
            let moved = bed.shared.progress();
            (0..3).for_each(|_| bed.round());
            assert_eq!(bed.shared.progress(), moved, "{body} bytes: a store at rest moves nothing");
            assert!(bed.shared.engine().lanes.hot_bytes() <= tiny().window_bytes, "{body} bytes");
            let mut claimed = Vec::new();
            while claimed.len() < count as usize {
                let some = bed.claim(1, "idle", 7).await.messages;
                assert!(!some.is_empty(), "{body} bytes: {} of {count} came", claimed.len());
                claimed.extend(some.into_iter().map(|leased| leased.message.id));
                bed.rounds_until_rest();
            }
            assert!(claimed.iter().all(|id| claimed.iter().filter(|other| *other == id).count() == 1));
        }
    });
}

#[test]
fn a_body_larger_than_the_window_holds_no_insert_up() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = Bed::open(dir.path(), tiny());
        bed.insert(0, [message("idle", 1, 0, 3 * tiny().window_bytes)]).await;
        bed.rounds_until_rest();
        let admitted = bed.shared.engine().admit(100, Class::Insert).unwrap();
        assert!(matches!(admitted, Admission::Granted));
        assert_eq!(bed.claim(1, "idle", 1).await.messages.len(), 1);
    });
}

#[test]
fn a_lane_whose_backlog_on_disk_was_cancelled_is_not_due() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = Bed::open(dir.path(), tiny());
        bed.insert(0, (0..100).map(|number| message("idle", number, 0, 1_000))).await;
        bed.rounds_until_rest();
        let lane = Lane::of(&SinkName::queue(), &Topic::parse("idle").unwrap());
        let due = bed.shared.sweep(now(1), std::slice::from_ref(&lane)).await.unwrap().next;
        assert_eq!(due, [(lane.clone(), now(0).wall())]);
        let ids: Vec<_> = (0..100).map(id).collect();
        let cancelled = bed.shared.cancel(now(1), &ids).await.unwrap();
        assert!(cancelled.iter().all(|one| matches!(one, Changed::Done { .. })));
        // What lies in runs is still there. A scheduler that believed it would claim again and again.
        let due = bed.shared.sweep(now(1), &[lane]).await.unwrap().next;
        assert_eq!(due, []);
    });
}

#[test]
fn a_message_that_waits_keeps_no_chunk_in_memory() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = Bed::open(dir.path(), tiny());
        bed.insert(0, (0..10).map(|number| message("idle", number, 5_000, 100))).await;
        bed.shared.flush(true).unwrap();
        bed.insert(0, (10..20).map(|number| message("idle", number, 5_000, 100))).await;
        // Ten come from a table, ten from the buffer of their bucket.
        bed.shared.engine().tick(now(5_000));
        bed.round();
        assert_eq!(bed.near_in_memory(), 20);
        assert!(bed.near_stands_alone(), "what a bucket brought in shares memory");
        // From a run: a claim reads a block of it.
        bed.shared.engine().options.window_bytes = 0;
        bed.round();
        assert_eq!(bed.near_in_memory(), 0);
        assert_eq!(bed.claim(5_000, "idle", 2).await.messages.len(), 2);
        assert_eq!(bed.near_in_memory(), 18);
        assert!(bed.near_stands_alone(), "what a run brought in shares memory");
    });
}

#[test]
fn a_table_is_sealed_before_its_positions_end() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let options = Options { table_bytes: 4 << 10, ..tiny() };
        {
            let mut bed = Bed::open(dir.path(), options.clone());
            for first in (0..100).step_by(5) {
                bed.insert(0, (first..first + 5).map(|number| message("work", number, 50_000, 300))).await;
                bed.shared.flush(true).unwrap();
            }
            let lens: Vec<u64> = bed.shared.engine().tables.iter().map(|table| table.data_len()).collect();
            assert!(lens.len() > 5 && lens.iter().all(|len| *len <= options.table_bytes), "{lens:?}");
            bed.shared.checkpoint().unwrap();
            bed.round();
        }
        let mut bed = Bed::open(dir.path(), options);
        bed.shared.engine().tick(now(50_000));
        bed.round();
        let mut came = 0;
        while came < 100 {
            let some = bed.claim(50_000, "work", 10).await.messages.len();
            assert!(some > 0, "{came} came");
            came += some;
        }
    });
}

#[test]
fn what_changed_on_its_way_to_a_run_is_not_put_back() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let bed = Bed::open(dir.path(), tiny());
        for change in 0..2 {
            let first = 10 * change;
            bed.insert(0, [message("work", first, 0, 10)]).await;
            let taken: Vec<_> = {
                let mut engine = bed.shared.engine();
                let cut =
                    engine.lanes.get(0).and_then(|lane| lane.hot().first_key_value()).unwrap().0.clone();
                engine.take_tail(0, &cut)
            };
            assert_eq!(taken.len(), 1);
            // The same time again, so that its key stays the same.
            let due = Timestamp::from_millis(now(0).wall().as_millis());
            let done = [Changed::Done { maybe_delivered: false }];
            if change == 0 {
                assert_eq!(bed.shared.reschedule(now(0), &[(id(first), due)]).await.unwrap(), done);
            } else {
                assert_eq!(bed.shared.cancel(now(0), &[id(first)]).await.unwrap(), done);
                bed.insert(0, [message("work", first, 0, 10)]).await;
            }
            {
                let mut engine = bed.shared.engine();
                taken.into_iter().for_each(|(one, _)| engine.put_back(one));
                engine.lanes.get_mut(0).unwrap().end_spilling();
            }
            let claimed = bed.claim(1, "work", 10).await.messages;
            assert_eq!(claimed.len(), 1, "change {change}: it is there and never comes");
        }
    });
}

/// How many messages wait in buckets, and how many are near.
fn far_and_near(bed: &Bed) -> (u64, u64) {
    let engine = bed.shared.engine();
    let far = engine.buckets.iter().flat_map(|(_, bucket)| *bucket.parts()).map(u64::from).sum();
    (far, engine.lanes.iter().map(|lane| lane.near_count()).sum())
}

#[test]
fn what_a_clock_far_ahead_made_near_goes_back_to_its_buckets() {
    const DAYS: u64 = 12;
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = Bed::open(dir.path(), tiny());
        bed.insert(0, (0..DAYS).map(|number| message("work", number, (number + 1) * DAY_MS, 300))).await;
        bed.shared.engine().tick(now(365 * DAY_MS));
        bed.round();
        bed.insert(365 * DAY_MS, (20..30).map(|number| message("work", number, DAY_MS, 300))).await;
        bed.rounds_until_rest();
        assert_eq!(far_and_near(&bed), (0, DAYS + 10), "a year ahead all are near");
        bed.shared.engine().tick(now(1_000));
        bed.round();
        bed.rounds_until_rest();
        assert_eq!(far_and_near(&bed), (DAYS + 10, 0), "none is due for a day");
        assert_eq!(bed.shared.engine().lanes.hot_bytes(), 0);
        bed.shared.retreat().unwrap();
        assert_eq!(far_and_near(&bed), (DAYS + 10, 0), "what is on its way goes once");
        bed.insert(1_000, [message("work", 30, DAY_MS, 300)]).await;
        assert_eq!(far_and_near(&bed), (DAYS + 11, 0), "nor is what comes now");
        let done = [Changed::Done { maybe_delivered: false }; 2];
        assert_eq!(bed.shared.cancel(now(1_000), &[id(0), id(30)]).await.unwrap(), done);
        assert_eq!(far_and_near(&bed), (DAYS + 9, 0));
        bed.shared.checkpoint().unwrap();
        drop(bed);
        let mut bed = Bed::open(dir.path(), tiny());
        assert_eq!(far_and_near(&bed), (DAYS + 9, 0), "also after a restart");
        let mut came = 0;
        for day in 1..=DAYS {
            bed.shared.engine().tick(now(day * DAY_MS));
            bed.round();
            came += bed.claim(day * DAY_MS, "work", 100).await.messages.len();
            assert_eq!(came as u64, day + 9, "on day {day}");
        }
    });
}

/// A run with two messages that are overdue and two that are far.
async fn with_mixed_run(dir: &Path) -> Bed {
    let mut bed = Bed::open(dir, Options { window_bytes: 0, ..tiny() });
    bed.shared.engine().tick(now(2 * DAY_MS));
    bed.round();
    let due = [0, 0, DAY_MS, DAY_MS];
    let batch = (0..4).map(|number| message("work", number, due[number as usize], 10));
    bed.insert(2 * DAY_MS, batch).await;
    bed.rounds_until_rest();
    bed
}

#[test]
fn what_is_on_its_way_back_to_its_bucket_is_not_brought_in_with_its_neighbours() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = with_mixed_run(dir.path()).await;
        assert_eq!(far_and_near(&bed), (0, 4));
        bed.shared.engine().tick(now(1_000));
        bed.round();
        assert_eq!(far_and_near(&bed), (2, 2));
        assert_eq!(bed.claim(1_000, "work", 1).await.messages.len(), 1);
        assert_eq!(bed.near_in_memory(), 1, "the other one that is due, and no more");
        assert_eq!(far_and_near(&bed), (2, 1));
    });
}

#[test]
fn what_is_on_its_way_back_to_its_bucket_is_not_merged_with_runs() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = with_mixed_run(dir.path()).await;
        bed.shared.engine().tick(now(1_000));
        bed.round();
        bed.insert(1_000, (4..6).map(|number| message("work", number, 0, 10))).await;
        bed.rounds_until_rest();
        assert_eq!(far_and_near(&bed), (2, 4));
        bed.shared.merge_runs(1).unwrap();
        assert_eq!(far_and_near(&bed), (2, 4), "each is counted once");
        bed.shared.engine().tick(now(DAY_MS));
        bed.round();
        assert_eq!(far_and_near(&bed), (0, 6));
        let mut came = bed.claim(DAY_MS, "work", 10).await.messages.len();
        came += bed.claim(DAY_MS, "work", 10).await.messages.len();
        assert_eq!(came, 6);
    });
}

#[test]
fn a_table_is_tidied_again_once_its_damaged_message_is_a_dead_letter() {
    testkit::block_on(async {
        let dir = tempfile::tempdir().unwrap();
        let mut bed = Bed::open(dir.path(), tiny());
        bed.insert(0, (0..5).map(|number| message("work", number, 5_000, 100))).await;
        bed.shared.flush(true).unwrap();
        let (number, data, len) = {
            let engine = bed.shared.engine();
            let table = engine.tables.iter().find(|table| table.live() == 5).unwrap();
            (table.number(), table.data().clone(), table.data_len())
        };
        data.write_at(b"?", len - 20).unwrap();
        bed.shared.engine().tick(now(5_000));
        bed.round();
        let has_damage = |bed: &Bed| bed.shared.engine().tables.get(number).unwrap().has_damage();
        assert!(has_damage(&bed));
        bed.shared.dead_letter_damaged(now(5_000)).await.unwrap();
        assert_eq!(bed.shared.engine().lanes.dead(), 1);
        assert!(!has_damage(&bed), "it is left out of tidying for ever");
    });
}
