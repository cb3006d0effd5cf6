//! Messages that are put there in transactions of others.

use std::time::Duration;

use duly_core::{
    Body, DeadReason, Key, Outcome, Priority, RetryOverride, State, Store, StoredMessage, Tag,
    store::{Changed, Query},
};
use duly_stores::{
    SqlStore,
    sql::{Options, outbox},
};
use sqlx::{Connection, MySqlConnection, PgConnection};

use crate::{
    bed::{START, claim, id, lane, message, now, state, totals},
    server::{Bed, both},
};

async fn open(bed: &Bed) -> SqlStore {
    SqlStore::open(bed.url(), Options::new(1), now(0)).await.unwrap()
}

async fn sweep(store: &SqlStore, at: u64) {
    store.sweep(now(at), &[lane("work")]).await.unwrap();
}

fn full(text: &str) -> StoredMessage {
    let mut message = message(text, 100);
    message.tag = Some(Tag::parse("red").unwrap());
    message.key = Some(Key::parse("customer-7").unwrap());
    message.properties.set("tenant", "a").unwrap();
    message.body = Body::bytes(vec![0, 159, 146, 150]);
    message.priority = Priority::new(9).unwrap();
    message.max_lateness = Some(Duration::from_secs(60));
    message.retry = Some(Box::new(RetryOverride { attempts: Some(3), ..RetryOverride::default() }));
    message
}

/// One message in a transaction that is committed, one in a transaction that is not.
async fn enqueue(bed: &Bed, kept: &StoredMessage, dropped: &StoredMessage) {
    macro_rules! run {
        ($connection:ty, $put:path) => {{
            let mut connection = <$connection>::connect(bed.url()).await.unwrap();
            let mut transaction = connection.begin().await.unwrap();
            $put(&mut *transaction, kept).await.unwrap();
            transaction.commit().await.unwrap();
            let mut transaction = connection.begin().await.unwrap();
            $put(&mut *transaction, dropped).await.unwrap();
            transaction.rollback().await.unwrap();
            assert!($put(&mut connection, kept).await.is_err(), "the id is taken");
        }};
    }
    if bed.is_mysql() { run!(MySqlConnection, outbox::mysql) } else { run!(PgConnection, outbox::postgres) }
}

both! {
    fn large_rows_are_taken_in_as_many_as_fit_into_memory(bed: shared) {
        let store = open(&bed).await;
        bed.sql(bed.words(
            "INSERT INTO delay_message (message_id, topic, deliver_time_ms, body) SELECT CONCAT('m', seq), 'work', 0, \
             REPEAT('x', 1048576) FROM seq_1_to_20",
            "INSERT INTO delay_message (message_id, topic, deliver_time_ms, body) SELECT 'm' || n, 'work', 0, \
             CAST(REPEAT('x', 1048576) AS BYTEA) FROM generate_series(1, 20) AS n",
        ));
        let first = store.sweep(now(1), &[lane("work")]).await.unwrap();
        assert_eq!(totals(&store).await.accepted, 16);
        assert_eq!(first.again_within, Some(Duration::ZERO));
        sweep(&store, 2).await;
        assert_eq!(totals(&store).await.accepted, 20);
    }

    fn what_was_committed_with_the_callers_own_rows_is_taken_in_whole_and_what_was_not_never_was(bed: shared) {
        let store = open(&bed).await;
        enqueue(&bed, &full("kept"), &full("dropped")).await;
        assert_eq!(totals(&store).await.accepted, 0, "nobody has looked yet");
        sweep(&store, 1).await;
        assert_eq!((totals(&store).await.accepted, totals(&store).await.pending), (1, 1));
        assert!(claim(&store, 99, 10).await.unwrap().messages.is_empty());
        let leased = claim(&store, 100, 10).await.unwrap().messages;
        assert_eq!(leased.len(), 1);
        assert_eq!(leased[0].message, full("kept"));
        assert_eq!(state(&store, "dropped").await, None);
    }

    fn the_columns_of_the_sketch_are_enough(bed: shared) {
        let store = open(&bed).await;
        let due = START + 50;
        let body = bed.words("'{\"order\":42}'", "convert_to('{\"order\":42}', 'UTF8')");
        bed.sql(&format!(
            "INSERT INTO delay_message (message_id, topic, tag, body, properties, deliver_time_ms, status, create_time, update_time, sink) \
             VALUES ('order-42', 'work', NULL, {body}, '{{\"tenant\":\"a\"}}', {due}, 'PENDING', CURRENT_TIMESTAMP, CURRENT_TIMESTAMP, 'queue')"
        ));
        bed.sql(&format!("INSERT INTO delay_message (message_id, topic, deliver_time_ms) VALUES ('short', 'work', {due})"));
        sweep(&store, 1).await;
        let leased = claim(&store, 50, 10).await.unwrap().messages;
        assert_eq!(leased.len(), 2);
        let order = &leased[0].message;
        assert_eq!((order.body.as_bytes(), order.properties.get("tenant")), (&b"{\"order\":42}"[..], Some("a")));
        assert!(leased[1].message.body.is_empty());
        assert_eq!(totals(&store).await.in_flight, 2);
    }

    fn a_row_that_is_no_message_becomes_a_dead_letter_that_says_why(bed: shared) {
        let store = open(&bed).await;
        let insert = |id: &str, columns: &str, values: &str| {
            bed.sql(&format!("INSERT INTO delay_message (message_id, topic, deliver_time_ms{columns}) VALUES ('{id}', {values})"));
        };
        insert("no-topic", "", "'', 1");
        insert("negative", "", "'work', -1");
        insert("far", "", "'work', 900000000000000");
        insert("not-json", ", properties", "'work', 1, 'tenant=a'");
        insert("number", ", properties", "'work', 1, '{\"a\":1}'");
        insert("reserved", ", properties", "'work', 1, '{\"duly-id\":\"x\"}'");
        insert("priority", ", priority", "'work', 1, 12");
        insert("over", ", status", "'work', 1, 'DELIVERED'");
        insert("good", "", "'work', 1");
        insert("bad id", "", "'work', 1");
        sweep(&store, 1).await;
        sweep(&store, 2).await;
        let leased = claim(&store, 10, 100).await.unwrap().messages;
        assert_eq!(leased.iter().map(|leased| leased.message.id.as_str()).collect::<Vec<_>>(), ["good"]);
        let dead = store.list(&Query::all(State::Dead)).await.unwrap().records;
        let mut names: Vec<_> = dead.iter().map(|record| record.message.id.as_str()).collect();
        names.sort_unstable();
        assert_eq!(names, ["far", "negative", "no-topic", "not-json", "number", "over", "priority", "reserved"]);
        for record in &dead {
            assert_eq!(record.reason, Some(DeadReason::Invalid), "{record:?}");
            let last = record.history.last().unwrap();
            assert!(last.outcome == Outcome::Refused && !last.detail.is_empty(), "{record:?}");
        }
        assert_eq!(bed.sql("SELECT status, dead_reason FROM delay_message WHERE message_id = 'bad id'").trim(), "FAILED\tinvalid");
        totals(&store).await;
        let done = Changed::Done { maybe_delivered: false };
        assert_eq!(store.purge(now(11), &[id("negative")]).await.unwrap(), [done]);
        bed.sql("UPDATE delay_message SET topic = 'work' WHERE message_id = 'no-topic'");
        assert_eq!(store.replay(now(12), &[id("no-topic")]).await.unwrap(), [done]);
        sweep(&store, 13).await;
        assert_eq!(claim(&store, 20, 10).await.unwrap().messages[0].message.id, id("no-topic"));
        totals(&store).await;
    }
}
