//! Accepted messages whose rows somebody changed so that they are no messages any more: each is a dead letter, and its neighbours
//! are delivered.

use duly_core::{DeadReason, State, Store, StoredMessage, store::Query};
use duly_stores::{SqlStore, sql::Options};

use crate::{
    bed::{LEASE, claim, deliver, id, insert, lane, message, messages, now, totals},
    server::both,
};

/// What makes a row unreadable that still has its id. Of an accepted message, no other column is checked when it is read.
const DAMAGES: [&str; 8] = [
    "history = 'x'",
    "properties = 'x'",
    "retry = 'x'",
    "content_kind = 'x'",
    "priority = 12",
    "deliver_time_ms = -1",
    "topic = ''",
    "status = 'LOST'",
];

/// Of each kind of damage three messages, the one in the middle to be damaged; and what damages it.
fn damaged_messages() -> (Vec<StoredMessage>, String) {
    let (mut messages, mut statements) = (Vec::new(), String::new());
    for (n, change) in DAMAGES.into_iter().enumerate() {
        messages.extend(["a", "b", "c"].map(|part| message(&format!("m{n}-{part}"), 0)));
        statements += &format!("UPDATE delay_message SET {change} WHERE message_id = 'm{n}-b'; ");
    }
    (messages, statements)
}

fn ids_of(part: &str) -> Vec<String> {
    (0..DAMAGES.len()).map(|n| format!("m{n}-{part}")).collect()
}

/// Claims and delivers one message after the other, those that are good: each is given, and no other.
async fn drain(store: &SqlStore, from: u64) {
    let (mut got, mut good) = (Vec::new(), [ids_of("a"), ids_of("c")].concat());
    for at in (from..).step_by(20).take(4 * DAMAGES.len()) {
        let claimed = claim(store, at, 1).await.unwrap().messages;
        got.extend(claimed.iter().map(|leased| leased.message.id.to_string()));
        deliver(store, at, &claimed).await.unwrap();
    }
    got.sort_unstable();
    good.sort_unstable();
    assert_eq!(got, good);
}

/// The damaged ones are dead letters, counted and told of.
async fn the_others_are_dead_letters(store: &SqlStore) {
    let (all, count) = (totals(store).await, DAMAGES.len() as u64);
    let numbers = (all.accepted, all.delivered, all.dead, all.pending, all.in_flight);
    assert_eq!(numbers, (3 * count, 2 * count, count, 0, 0));
    assert_eq!(store.metrics().damaged, count);
    let dead = store.list(&Query::all(State::Dead)).await.unwrap().records;
    let mut names: Vec<_> = dead.iter().map(|record| record.message.id.to_string()).collect();
    names.sort_unstable();
    assert_eq!(names, ids_of("b"));
    for record in dead {
        assert_eq!(record.reason, Some(DeadReason::Invalid), "{record:?}");
        assert!(record.history.last().is_some_and(|last| !last.detail.is_empty()), "{record:?}");
    }
    store.purge(now(1), &ids_of("b").iter().map(|name| id(name)).collect::<Vec<_>>()).await.unwrap();
    assert_eq!(totals(store).await.purged, count);
}

both! {
    fn a_row_that_is_damaged_before_its_claim_is_a_dead_letter_and_holds_up_no_other(bed: shared) {
        let store = bed.store(1).await;
        let (messages, damage) = damaged_messages();
        insert(&store, messages).await.unwrap();
        bed.sql(&damage);
        drain(&store, 1).await;
        store.sweep(now(1000), &[lane("work")]).await.unwrap();
        the_others_are_dead_letters(&store).await;
    }

    fn a_row_whose_topic_is_damaged_takes_no_place_in_claims_that_get_others(bed: shared) {
        // Two, so that every claim sees more of each than it gives.
        let store = bed.store_with(Options { shards: 2, ..Options::new(1) }).await;
        let damaged = (0..5).map(|n| message(&format!("damaged{n}"), 0));
        insert(&store, damaged.chain(messages(64)).collect()).await.unwrap();
        bed.sql("UPDATE delay_message SET topic = '' WHERE message_id LIKE 'damaged%'");
        // All of them are before the first that is good.
        assert_eq!(claim(&store, 1, 16).await.unwrap().messages.len(), 16 - 5);
        assert_eq!(claim(&store, 2, 16).await.unwrap().messages.len(), 16);
        assert_eq!(store.metrics().damaged, 5);
        let all = totals(&store).await;
        assert_eq!((all.dead, all.in_flight, all.pending), (5, 27, 64 - 27));
    }

    fn a_row_that_is_damaged_while_it_is_claimed_keeps_no_lease_from_ending(bed: shared) {
        let store = bed.store(1).await;
        let (messages, damage) = damaged_messages();
        let count = messages.len();
        insert(&store, messages).await.unwrap();
        assert_eq!(claim(&store, 1, count).await.unwrap().messages.len(), count);
        bed.sql(&damage);
        let over = 1 + LEASE.as_millis() as u64;
        let swept = store.sweep(now(over), &[lane("work")]).await.unwrap();
        assert_eq!(swept.leases_ended, 2 * DAMAGES.len());
        drain(&store, over + 1).await;
        the_others_are_dead_letters(&store).await;
    }

    fn a_row_whose_id_is_none_is_taken_out_of_its_queue_and_holds_up_no_other(bed: shared) {
        let store = bed.store_with(Options { shards: 2, ..Options::new(1) }).await;
        // More than a claim reads of a queue are before the first that is good.
        let damaged = (0..40).map(|n| message(&format!("damaged{n}"), 0));
        insert(&store, damaged.chain((0..8).map(|n| message(&format!("m{n}"), 1))).collect()).await.unwrap();
        bed.sql("UPDATE delay_message SET message_id = CONCAT(' ', message_id) WHERE message_id LIKE 'damaged%'");
        let mut got = Vec::new();
        for at in 2..20 {
            let claimed = claim(&store, at, 4).await.unwrap().messages;
            deliver(&store, at, &claimed).await.unwrap();
            got.extend(claimed);
        }
        assert_eq!((got.len(), store.metrics().damaged), (8, 40));
        store.sweep(now(100), &[lane("work")]).await.unwrap();
        let all = totals(&store).await;
        // Nobody can ask for them, so they are not counted.
        assert_eq!((all.accepted, all.delivered, all.pending, all.dead, all.in_flight), (8, 8, 0, 0, 0));
        assert_eq!(bed.sql("SELECT COUNT(*) FROM delay_message WHERE status = 'FAILED'"), "40");
    }

    fn a_row_that_loses_its_id_while_it_is_claimed_is_no_longer_in_flight(bed: shared) {
        let store = bed.store(1).await;
        insert(&store, messages(3)).await.unwrap();
        assert_eq!(claim(&store, 1, 3).await.unwrap().messages.len(), 3);
        bed.sql("UPDATE delay_message SET message_id = ' ' WHERE message_id = 'm001'");
        let over = 1 + LEASE.as_millis() as u64;
        assert_eq!(store.sweep(now(over), &[lane("work")]).await.unwrap().leases_ended, 2);
        store.sweep(now(over), &[lane("work")]).await.unwrap();
        let all = totals(&store).await;
        assert_eq!((all.accepted, all.pending, all.in_flight, store.metrics().damaged), (2, 2, 0, 1));
    }

    fn a_row_of_a_lane_whose_name_is_none_keeps_no_other_lane_from_anything(bed: shared) {
        let store = bed.store(1).await;
        insert(&store, vec![message("a", 0)]).await.unwrap();
        bed.sql("INSERT INTO duly_lane (lane_no, name) VALUES (7, 'x'), (8, '')");
        // More lanes than are asked for by name: their rows are all read with the heartbeat.
        let many: Vec<_> = (0..150).map(|n| lane(&format!("topic{n}"))).collect();
        let lanes: Vec<_> = many.into_iter().chain([lane("work")]).collect();
        for at in [1, 20_000, 40_000] {
            let swept = store.sweep(now(at), &lanes).await.unwrap();
            assert_eq!(swept.next.len(), 1, "{at}");
        }
        let statuses = store.lanes(now(40_000)).await.unwrap();
        assert_eq!(statuses.iter().map(|status| &status.lane).collect::<Vec<_>>(), [&lane("work")]);
        store.shards(now(40_000)).await.unwrap();
        assert_eq!(store.metrics().damaged, 2, "each is counted once");
    }

    fn a_chore_of_the_sweep_that_fails_keeps_no_lease_from_ending(bed: shared) {
        let store = bed.store(1).await;
        insert(&store, messages(3)).await.unwrap();
        assert_eq!(claim(&store, 1, 3).await.unwrap().messages.len(), 3);
        // Rows of others cannot be taken in, counters not be tidied, lanes not be numbered.
        bed.sql("INSERT INTO delay_message (message_id, topic, deliver_time_ms) VALUES ('raw', 'work', 0)");
        bed.sql("ALTER TABLE duly_lane RENAME TO duly_lane_away");
        bed.sql("CREATE TABLE duly_lane (lane_no BIGINT NOT NULL, paused SMALLINT NOT NULL)");
        let over = 1 + LEASE.as_millis() as u64;
        let swept = store.sweep(now(over), &[lane("work"), lane("new")]).await.unwrap();
        assert_eq!(swept.leases_ended, 3);
        assert!(swept.next.iter().any(|(of, _)| *of == lane("work")), "what is due is told: {swept:?}");
        bed.sql("DROP TABLE duly_lane");
        bed.sql("ALTER TABLE duly_lane_away RENAME TO duly_lane");
        assert_eq!(totals(&store).await.in_flight, 0);
    }
}
