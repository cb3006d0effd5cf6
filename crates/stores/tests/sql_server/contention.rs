//! Others hold the same rows: whoever the server sends away comes again, and nobody is told.

use std::sync::Arc;

use duly_core::{
    MessageId, Store,
    store::{Changed, Settled, Settlement},
};
use duly_stores::SqlStore;
use sqlx::{Connection, MySqlConnection, PgConnection};

use crate::{
    bed::{claim, deliver, ids, insert, lane, messages, ms, now, settle, totals},
    server::{Bed, both},
};

const DONE: Changed = Changed::Done { maybe_delivered: false };

/// Somebody else, with a transaction of their own.
pub(crate) enum Other {
    Mysql(MySqlConnection),
    Postgres(PgConnection),
}

impl Other {
    pub(crate) async fn begin(bed: &Bed) -> Self {
        let mut other = if bed.is_mysql() {
            Self::Mysql(MySqlConnection::connect(bed.url()).await.unwrap())
        } else {
            Self::Postgres(PgConnection::connect(bed.url()).await.unwrap())
        };
        other.run("BEGIN").await;
        other
    }

    pub(crate) async fn run(&mut self, statement: &'static str) {
        match self {
            Self::Mysql(connection) => {
                sqlx::raw_sql(statement).execute(connection).await.map(|_| ()).unwrap()
            }
            Self::Postgres(connection) => {
                sqlx::raw_sql(statement).execute(connection).await.map(|_| ()).unwrap()
            }
        }
    }
}

/// How many deadlocks the server has seen, which is the test's own.
fn deadlocks(bed: &Bed) -> usize {
    if bed.is_mysql() {
        let count = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'innodb_deadlocks'";
        return bed.sql(count).parse().unwrap();
    }
    bed.log().matches("deadlock detected").count()
}

both! {
    fn whoever_loses_a_deadlock_does_it_again(bed: own) {
        let store = bed.store(1).await;
        insert(&store, messages(10)).await.unwrap();
        bed.sql("CREATE TABLE work (id INT)");
        let mut other = Other::begin(&bed).await;
        // Whoever has done more is not sent away, if it is MariaDB that decides.
        other.run("INSERT INTO work VALUES (1), (2), (3), (4), (5), (6), (7), (8), (9), (10), (11), (12), (13), (14)").await;
        other.run("UPDATE work SET id = id + 1").await;
        other.run("UPDATE delay_message SET tag = 'x' WHERE message_id = 'm009'").await;
        let all = ids(10);
        let (cancelled, ()) = tokio::join!(store.cancel(now(1), &all), async {
            bed.are_waiting(1).await;
            other.run("UPDATE delay_message SET tag = 'x' WHERE message_id = 'm000'").await;
            other.run("COMMIT").await;
        });
        assert_eq!(cancelled.unwrap(), [DONE; 10]);
        assert_eq!(deadlocks(&bed), 1);
        assert_eq!(totals(&store).await.cancelled, 10);
    }

    fn a_lock_that_comes_free_late_is_waited_for_more_than_once(bed: own) {
        let store = bed.store(1).await;
        insert(&store, messages(3)).await.unwrap();
        let held = claim(&store, 1, 3).await.unwrap().messages;
        let mut other = Other::begin(&bed).await;
        other.run("UPDATE delay_message SET tag = 'x' WHERE message_id = 'm001'").await;
        let (settled, ()) = tokio::join!(deliver(&store, 1, &held), async {
            bed.are_waiting(1).await;
            bed.are_waiting(0).await;
            bed.are_waiting(1).await;
            other.run("COMMIT").await;
        });
        assert_eq!(settled.unwrap(), [Settled::Done; 3]);
        assert_eq!(totals(&store).await.delivered, 3);
    }

    fn a_row_that_somebody_holds_is_in_the_way_of_no_other(bed: own) {
        let store = bed.store_with(duly_stores::sql::Options {
            retention: std::time::Duration::from_secs(1),
            ..duly_stores::sql::Options::new(1)
        }).await;
        insert(&store, messages(30)).await.unwrap();
        let mut other = Other::begin(&bed).await;
        other.run("UPDATE delay_message SET tag = 'x' WHERE message_id = 'm005'").await;
        other.run("INSERT INTO delay_message (message_id, topic, deliver_time_ms) VALUES ('m00', 'work', 0), ('m0115', 'work', 0), ('z', 'work', 0)").await;
        let all = ids(30);
        let claimed = claim(&store, 1, 21).await.unwrap().messages;
        assert_eq!(claimed.len(), 20, "all but the one");
        assert_eq!(deliver(&store, 1, &claimed[..10]).await.unwrap(), [Settled::Done; 10]);
        assert_eq!(settle(&store, 1, &claimed[10..], Settlement::Release).await.unwrap(), [Settled::Done; 10]);
        assert_eq!(store.cancel(now(1), &all[21..25]).await.unwrap(), [DONE; 4]);
        assert_eq!(store.reschedule(now(1), &[(all[25].clone(), ms(1))]).await.unwrap(), [DONE]);
        // An id that is over is taken afresh, and what is past retention goes.
        insert(&store, messages(30).split_off(21)).await.unwrap();
        store.sweep(now(5000), &[lane("work")]).await.unwrap();
        let totals = totals(&store).await;
        assert_eq!((totals.accepted, totals.delivered, totals.cancelled), (34, 10, 4));
        assert_eq!(bed.sql("SELECT COUNT(*) FROM delay_message"), "20", "ten are forgotten");
        other.run("ROLLBACK").await;
    }

    fn many_who_want_the_same_in_different_orders_all_get_answers(bed: own) {
        let stores = [bed.store(1).await, bed.store(2).await, bed.store(3).await].map(Arc::new);
        let work: Vec<_> = (0..9)
            .map(|who| tokio::spawn(quarrel(stores[who % 3].clone(), who as u64)))
            .collect();
        for work in work {
            work.await.unwrap();
        }
        let (all, mut seen) = (ids(IDS), 0);
        for record in stores[0].get(&all).await.unwrap().into_iter().flatten() {
            seen += 1;
            assert!(record.attempts <= 1, "{record:?}");
        }
        assert_eq!(seen, IDS);
        let totals = totals(&stores[0]).await;
        let rows = bed.sql("SELECT COUNT(*) FROM delay_message WHERE queue_no > 0");
        assert_eq!(totals.pending.to_string(), rows, "{totals:?}");
        let lanes = stores[0].lanes(now(2)).await.unwrap();
        assert_eq!(lanes.iter().map(|lane| lane.pending).sum::<u64>(), totals.pending);
        println!("{} deadlocks", deadlocks(&bed));
    }
}

const IDS: usize = 40;

/// Does everything to the same messages, each time in another order.
async fn quarrel(store: Arc<SqlStore>, who: u64) {
    let mut seed = who * 7919 + 1;
    let mut shuffled = || -> Vec<MessageId> {
        let mut all = ids(IDS);
        for place in (1..all.len()).rev() {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
            all.swap(place, (seed >> 33) as usize % (place + 1));
        }
        all
    };
    for _ in 0..6 {
        let new = shuffled().into_iter().map(|id| crate::bed::message(id.as_str(), 0)).collect();
        insert(&store, new).await.unwrap();
        match who % 3 {
            0 => drop(store.cancel(now(1), &shuffled()[..10]).await.unwrap()),
            1 => {
                let moved: Vec<_> = shuffled().into_iter().take(10).map(|id| (id, ms(0))).collect();
                store.reschedule(now(1), &moved).await.unwrap();
            }
            _ => {
                let held = claim(&store, 1, 20).await.unwrap().messages;
                assert!(
                    deliver(&store, 1, &held[..held.len() / 2])
                        .await
                        .unwrap()
                        .iter()
                        .all(|s| *s == Settled::Done)
                );
                let back = settle(&store, 1, &held[held.len() / 2..], Settlement::Release).await.unwrap();
                assert!(back.iter().all(|settled| *settled == Settled::Done));
            }
        }
        store.sweep(now(1), &[lane("work")]).await.unwrap();
    }
}
