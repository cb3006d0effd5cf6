//! Nodes that start together on a slow server wait for each other, for longer than the server lets anybody wait for a lock.

use duly_stores::{SqlStore, sql::Options};

use crate::{
    bed::{now, totals},
    contention::Other,
    server::{Bed, both, until},
};

/// How often the server sends somebody away or lets somebody wait before the lock is let go. Each takes five seconds, and a piece of
/// work lasts for ten at most.
const TIMES: usize = 3;

async fn start(bed: &Bed) -> SqlStore {
    let options = Options { node: "late".into(), ..Options::new(7) };
    SqlStore::open(bed.url(), options, now(0)).await.unwrap()
}

/// Waits until somebody was sent away or let wait so often in this server, which is the test's own.
async fn were_sent_away(bed: &Bed) {
    let waits = "SELECT variable_value FROM information_schema.global_status WHERE variable_name = 'innodb_row_lock_waits'";
    until("somebody waits in vain", || {
        let count = if bed.is_mysql() {
            bed.sql(waits).parse().unwrap()
        } else {
            bed.log().matches("canceling statement due to lock timeout").count()
        };
        count >= TIMES
    })
    .await;
}

both! {
    fn a_node_that_others_keep_from_signing_in_starts_once_they_let_it(bed: own) {
        drop(bed.store(1).await);
        let mut other = Other::begin(&bed).await;
        other.run("SELECT value FROM duly_store WHERE name = 'generation' FOR UPDATE").await;
        let (late, ()) = tokio::join!(start(&bed), async {
            were_sent_away(&bed).await;
            other.run("COMMIT").await;
        });
        totals(&late).await;
    }

    fn a_node_waits_while_another_makes_the_tables(bed: own) {
        drop(bed.store(1).await);
        let mut other = Other::begin(&bed).await;
        other.run(bed.words(
            "SELECT GET_LOCK(CONCAT('duly:', DATABASE()), 0)",
            "SELECT pg_advisory_xact_lock(1685417081)",
        )).await;
        let (late, ()) = tokio::join!(start(&bed), async {
            if bed.is_mysql() {
                // Its own limit is a minute.
                let waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE state = 'User lock'";
                until("it waits", || bed.sql(waiting) == "1").await;
                other.run("SELECT RELEASE_LOCK(CONCAT('duly:', DATABASE()))").await;
            } else {
                were_sent_away(&bed).await;
            }
            other.run("COMMIT").await;
        });
        totals(&late).await;
    }
}
