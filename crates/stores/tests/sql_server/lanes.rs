//! Lanes by their numbers: what a failover loses of them, and what ten thousand of them cost.

use duly_core::{
    DeadReason, Lane, SinkName, Store, StoredMessage, Topic,
    store::{Claim, Holder, Insert, Settle, Settlement},
};
use duly_stores::SqlStore;

use crate::{
    bed::{LEASE, id, lane, ms, now, totals},
    contention::Other,
    server::{Bed, both},
};

/// How often a node says that it is there.
const HEARTBEAT_MS: u64 = 10_000;
/// How often lanes without messages are looked for, and counters.
const FORGET_MS: u64 = 300_000;
const TIDY_MS: u64 = 60_000;
/// Lanes of one node.
const LANES: usize = 10_000;
/// Statements of a sweep of all of them; looking at each of their queues would take hundreds.
const STATEMENTS_MAX: usize = 30;

async fn put(store: &SqlStore, topic: &str, name: &str) {
    let message = StoredMessage::new(id(name), SinkName::queue(), Topic::parse(topic).unwrap(), ms(0));
    store.insert(now(0), vec![Insert::new(message)]).await.unwrap();
}

/// The ids that a claim gives, which are all of this topic.
async fn claimed(store: &SqlStore, at: u64, topic: &str) -> Vec<String> {
    let claim = Claim { lane: lane(topic), limit: 10, lease: LEASE, holder: Holder::Process };
    let claimed = store.claim(now(at), claim).await.unwrap().messages;
    assert!(claimed.iter().all(|leased| leased.message.topic.as_str() == topic), "{claimed:?}");
    claimed.iter().map(|leased| leased.message.id.to_string()).collect()
}

/// What a failover to a replica does that lacks what was written since the lane was made.
fn fail_over(bed: &Bed, lane: &str, node: u64) {
    bed.sql(&format!("DELETE FROM duly_lane WHERE name = '{lane}'"));
    bed.sql(&format!("UPDATE duly_node SET alive_until = alive_until - 1 WHERE instance = {node}"));
    bed.sql(bed.words(
        "ALTER TABLE duly_lane AUTO_INCREMENT = 1",
        "SELECT setval(pg_get_serial_sequence('duly_lane', 'lane_no'), GREATEST((SELECT MAX(lane_no) FROM duly_lane), 1))",
    ));
}

both! {
    fn a_lane_that_a_failover_lost_never_shares_its_number_with_another(bed: shared) {
        let (one, two) = (bed.store(1).await, bed.store(2).await);
        put(&one, "kept", "a").await;
        put(&one, "lost", "b").await;
        assert_eq!(claimed(&one, 1, "lost").await, ["b"]);
        fail_over(&bed, "qlost", 1);
        // The other node makes a lane; this one goes on by what it knows.
        put(&two, "new", "c").await;
        put(&one, "lost", "d").await;
        assert_eq!(claimed(&two, 2, "new").await, ["c"]);
        assert_eq!(claimed(&two, 2, "new").await, [""; 0]);
        put(&two, "new", "e").await;
        assert_eq!(claimed(&one, 3, "lost").await, ["d"]);
        assert_eq!(claimed(&two, 3, "new").await, ["e"]);
        totals(&one).await;
    }

    fn a_lane_that_a_failover_lost_is_put_back_by_the_next_heartbeat(bed: shared) {
        let one = bed.store(1).await;
        put(&one, "lost", "a").await;
        for at in [HEARTBEAT_MS, 2 * HEARTBEAT_MS] {
            one.sweep(now(at), &[lane("lost")]).await.unwrap();
            fail_over(&bed, "qlost", 1);
        }
        one.sweep(now(3 * HEARTBEAT_MS), &[lane("lost")]).await.unwrap();
        assert_eq!(bed.sql("SELECT COUNT(*) FROM duly_lane"), "1");
        let two = bed.store(2).await;
        assert_eq!(claimed(&two, 3 * HEARTBEAT_MS, "lost").await, ["a"], "under the number that it had");
        // Lost again before any heartbeat: that the lane is new is reason enough to ask for it.
        put(&one, "newer", "b").await;
        bed.sql("DELETE FROM duly_lane WHERE name = 'qnewer'");
        one.sweep(now(4 * HEARTBEAT_MS), &[lane("lost")]).await.unwrap();
        assert_eq!(bed.sql("SELECT COUNT(*) FROM duly_lane"), "2");
    }

    fn messages_come_in_while_the_numbers_of_lanes_are_asked_for_again(bed: own) {
        let one = bed.store(1).await;
        put(&one, "lost", "a").await;
        // The lane is gone and its number another's; somebody is about to make it again, so that its new number is waited for.
        let number = bed.sql("SELECT lane_no FROM duly_lane WHERE name = 'qlost'");
        fail_over(&bed, "qlost", 1);
        bed.sql(&format!("INSERT INTO duly_lane (lane_no, name) VALUES ({number}, 'qother')"));
        let mut other = Other::begin(&bed).await;
        other.run("INSERT INTO duly_lane (lane_no, name) VALUES (77, 'qlost')").await;
        let lanes = [lane("lost")];
        let (swept, ()) = tokio::join!(one.sweep(now(HEARTBEAT_MS), &lanes), async {
            bed.are_waiting(1).await;
            put(&one, "lost", "b").await;
            other.run("COMMIT").await;
        });
        swept.unwrap();
        put(&one, "lost", "c").await;
        let (mut there, at) = (Vec::new(), HEARTBEAT_MS);
        for turn in 1..10 {
            // What came in meanwhile is under the number of the other lane, and finds its way back.
            assert_eq!(claimed(&one, at + turn, "other").await, [""; 0]);
            there.extend(claimed(&one, at + turn, "lost").await);
        }
        there.sort();
        assert_eq!(there, ["a", "b", "c"]);
    }

    fn a_pause_after_a_failover_stops_the_lane_it_names_and_no_other(bed: shared) {
        let one = bed.store(1).await;
        put(&one, "lost", "a").await;
        put(&one, "gone", "b").await;
        // One lane's number is another's by now; one lane is only gone.
        let number = bed.sql("SELECT lane_no FROM duly_lane WHERE name = 'qlost'");
        bed.sql("DELETE FROM duly_lane");
        bed.sql(&format!("INSERT INTO duly_lane (lane_no, name) VALUES ({number}, 'qother')"));
        for topic in ["lost", "gone"] {
            one.set_paused(&lane(topic), true).await.unwrap();
        }
        let paused = |is: &str| bed.sql(&format!("SELECT COUNT(*) FROM duly_lane WHERE paused <> 0 AND name {is}"));
        assert_eq!((paused("= 'qother'").as_str(), paused("IN ('qlost', 'qgone')").as_str()), ("0", "2"));
        assert_eq!(claimed(&one, 1, "gone").await, [""; 0]);
        one.set_paused(&lane("gone"), false).await.unwrap();
        assert_eq!(claimed(&one, 2, "gone").await, ["b"], "under the number that it had");
    }

    fn messages_under_the_number_of_another_lane_find_their_way_back(bed: shared) {
        let one = bed.store(1).await;
        put(&one, "here", "here").await;
        for n in 0..20 {
            put(&one, "there", &format!("t{n:02}")).await;
        }
        // As a node that went by a number from before a failover would have put them.
        let number = bed.sql("SELECT lane_no FROM duly_lane WHERE name = 'qhere'");
        bed.sql(&format!(
            "UPDATE delay_message SET queue_no = queue_no - lane_no * 256 + {number} * 256, lane_no = {number} WHERE topic = 'there'"
        ));
        let mut here = Vec::new();
        for at in 1..10 {
            here.extend(claimed(&one, at, "here").await);
        }
        assert_eq!(here, ["here"]);
        let mut there = Vec::new();
        for at in 10..15 {
            there.extend(claimed(&one, at, "there").await);
        }
        assert_eq!(there.len(), 20, "{there:?}");
        assert_eq!(totals(&one).await.in_flight, 21);
    }

    fn messages_under_the_number_of_another_lane_take_no_place_in_claims_that_get_others(bed: shared) {
        let one = bed.store(1).await;
        put(&one, "there", "a").await;
        // As a node that went by a number from before a failover would have put it.
        for n in 0..30 {
            put(&one, "here", &format!("h{n:02}")).await;
        }
        let number = bed.sql("SELECT lane_no FROM duly_lane WHERE name = 'qhere'");
        bed.sql(&format!(
            "UPDATE delay_message SET queue_no = queue_no - lane_no * 256 + {number} * 256, lane_no = {number} WHERE topic = 'there'"
        ));
        // It is the first of all, and some of the others are left.
        let here = claimed(&one, 1, "here").await;
        assert!((1..10).contains(&here.len()), "{here:?}");
        assert_eq!(claimed(&one, 2, "there").await, ["a"]);
    }

    fn topics_without_messages_are_forgotten_with_their_counters(bed: shared) {
        let store = bed.store(1).await;
        for n in 0..150 {
            put(&store, &format!("once{n}"), &format!("o{n}")).await;
            store.cancel(now(1), &[id(&format!("o{n}"))]).await.unwrap();
        }
        for topic in ["waits", "flies", "dies", "served"] {
            put(&store, topic, topic).await;
        }
        let claim = |topic| Claim { lane: lane(topic), limit: 1, lease: 1000 * LEASE, holder: Holder::Client };
        store.claim(now(1), claim("flies")).await.unwrap();
        for (topic, settlement) in [
            ("dies", Settlement::Dead { reason: DeadReason::Refused, attempt: None }),
            ("served", Settlement::Delivered { receipt: None }),
        ] {
            let receipt = store.claim(now(1), claim(topic)).await.unwrap().messages.remove(0).receipt;
            store.settle(now(1), vec![Settle { receipt, settlement }]).await.unwrap();
        }
        store.set_paused(&lane("asleep"), true).await.unwrap();
        // In each round the counters go, and in the next but one the lane.
        for round in 1..5 {
            for at in [0, HEARTBEAT_MS] {
                store.sweep(now(round * FORGET_MS + at), &[lane("served")]).await.unwrap();
            }
        }
        let names = bed.sql(bed.words(
            "SELECT CONVERT(name USING utf8mb4) FROM duly_lane ORDER BY name",
            "SELECT convert_from(name, 'UTF8') FROM duly_lane ORDER BY name",
        ));
        assert_eq!(names.lines().collect::<Vec<_>>(), ["qasleep", "qdies", "qflies", "qserved", "qwaits"]);
        let counted = bed.sql("SELECT COUNT(DISTINCT what) FROM duly_count WHERE kind IN (1, 2)");
        assert_eq!(counted, "4", "of those that hold something, and of the one that is served");
        assert!(store.metrics().lanes < 10, "{}", store.metrics().lanes);
        put(&store, "once7", "again").await;
        assert_eq!(claimed(&store, 5 * FORGET_MS, "once7").await, ["again"]);
        totals(&store).await;
    }

    fn a_counter_that_is_written_while_a_topic_is_forgotten_stays(bed: own) {
        let store = bed.store(1).await;
        put(&store, "once", "o").await;
        store.cancel(now(1), &[id("o")]).await.unwrap();
        let lane = bed.sql("SELECT lane_no FROM duly_lane");
        // A counter of dead letters, so that the node waits between what it reads and what it removes.
        bed.sql(&format!("INSERT INTO duly_count (kind, what, slot, n) VALUES (2, {lane}, 0, 0)"));
        let mut other = Other::begin(&bed).await;
        if bed.is_mysql() {
            // Else the gaps beside the row would be locked, too.
            other.run("COMMIT").await;
            other.run("SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED").await;
            other.run("BEGIN").await;
        }
        other.run("SELECT n FROM duly_count WHERE kind = 2 FOR UPDATE").await;
        let (swept, ()) = tokio::join!(store.sweep(now(FORGET_MS), &[]), async {
            bed.are_waiting(1).await;
            bed.sql(&format!("INSERT INTO duly_count (kind, what, slot, n) VALUES (1, {lane}, 999, 1)"));
            other.run("COMMIT").await;
        });
        swept.unwrap();
        let left = bed.sql("SELECT slot FROM duly_count WHERE kind IN (1, 2)");
        assert_eq!(left, "999", "what was not read is not removed");
    }

    fn a_topic_that_is_in_use_stays_although_it_is_empty_at_every_look(bed: shared) {
        let store = bed.store(1).await;
        for round in 0..5 {
            put(&store, "busy", &format!("m{round}")).await;
            store.cancel(now(round * FORGET_MS), &[id(&format!("m{round}"))]).await.unwrap();
            store.sweep(now(round * FORGET_MS), &[]).await.unwrap();
            assert_eq!(bed.sql("SELECT COUNT(*) FROM duly_lane"), "1", "round {round}");
        }
    }

    fn a_message_put_into_a_topic_that_was_forgotten_is_delivered_and_its_topic_comes_back(bed: shared) {
        let (one, two) = (bed.store(1).await, bed.store(2).await);
        put(&two, "sparse", "a").await;
        assert_eq!(claimed(&two, 1, "sparse").await, ["a"]);
        // The other node goes by what it knows.
        bed.sql("DELETE FROM duly_lane");
        put(&two, "sparse", "b").await;
        put(&two, "sparse", "c").await;
        assert_eq!(bed.sql("SELECT COUNT(*) FROM duly_lane"), "0");
        let claim = Claim { lane: lane("sparse"), limit: 1, lease: LEASE, holder: Holder::Client };
        assert_eq!(one.claim(now(1), claim).await.unwrap().messages.len(), 1);
        one.sweep(now(TIDY_MS), &[]).await.unwrap();
        one.sweep(now(2 * TIDY_MS), &[]).await.unwrap();
        let lanes = one.lanes(now(2 * TIDY_MS)).await.unwrap();
        assert_eq!(lanes.iter().map(|status| &status.lane).collect::<Vec<_>>(), [&lane("sparse")]);
        totals(&one).await;
    }

    fn a_sweep_of_ten_thousand_lanes_takes_few_statements(bed: own) {
        let statements = Statements::counted(&bed);
        let store = bed.store(1).await;
        let lanes: Vec<_> = (0..LANES).map(|n| lane(&format!("t{n}"))).collect();
        for topic in ["t7", "t5000", "t9999"] {
            put(&store, topic, topic).await;
        }
        for at in [1, HEARTBEAT_MS] {
            store.sweep(now(at), &lanes).await.unwrap();
        }
        let before = statements.count();
        let sweep = store.sweep(now(HEARTBEAT_MS + 1), &lanes).await.unwrap();
        let taken = statements.count() - before;
        let mut due: Vec<_> = sweep.next.into_iter().collect();
        due.sort();
        let expected: Vec<(Lane, _)> = ["t5000", "t7", "t9999"].map(|topic| (lane(topic), ms(0))).into();
        assert_eq!(due, expected);
        assert!(taken <= STATEMENTS_MAX, "{taken} statements");
        let before = statements.count();
        assert_eq!(store.lanes(now(1)).await.unwrap().len(), 3);
        assert!(statements.count() - before <= STATEMENTS_MAX);
    }
}

/// How many statements a server, which is the test's own, was given.
struct Statements<'b>(&'b Bed);

impl<'b> Statements<'b> {
    /// From connections that are made from now on.
    fn counted(bed: &'b Bed) -> Self {
        if !bed.is_mysql() {
            bed.sql("ALTER SYSTEM SET log_statement = 'all'");
            bed.sql("SELECT pg_reload_conf()");
        }
        Self(bed)
    }

    fn count(&self) -> usize {
        if self.0.is_mysql() {
            let count = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'questions'";
            return self.0.sql(count).parse().unwrap();
        }
        let log = self.0.log();
        log.matches("statement: ").count() + log.matches("execute ").count()
    }
}
