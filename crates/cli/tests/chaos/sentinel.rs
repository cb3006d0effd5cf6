//! A master that dies before its replica has everything: what is missing then is what Redis lost, counted, and no more.

use std::time::Duration;

use testkit::servers::redis::{self, Sentinels};

use crate::{bed::Bed, ledger::Cancel, node::IN_FLIGHT};

/// How far the replica may be behind before it is kept from its master.
const BEHIND: Duration = Duration::from_secs(1);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_nothing_is_missing_but_what_redis_lost() {
    if !redis::installed() {
        return;
    }
    let servers = Sentinels::start();
    let bed = Bed::on("sentinel failover", &servers.url()).await;
    bed.accept_more(150).await;
    // The replica hears nothing any more, and the master goes on for a while before it dies.
    let apart_ms = bed.time.wall_ms() - BEHIND.as_millis() as u64;
    servers.pair()[1].run::<()>(&["REPLICAOF", "127.0.0.1", "1"]);
    bed.accept_more(60).await;
    let master = servers.fail_over();
    let over_ms = bed.time.wall_ms();
    bed.accept_more(150).await;
    let quiet = bed.quiet(&mut servers.pair()[master].connection()).await;
    let found = quiet.query();
    quiet.report(&found).await;
    println!(
        "  lost by Redis: {} accepted messages or their entries, {} cancels; {} came again since Redis lost their settles",
        found.lost.len() + found.missing.len(),
        found.after_cancel.len(),
        found.twice_in_streams.len() + found.twice_at_hook,
    );

    let ledger = quiet.ledger.all();
    // Between what must have come to the replica, and the time when it was the master.
    let is_lost = |at_ms: u64| (apart_ms..over_ms).contains(&at_ms);
    assert!(!found.lost.is_empty(), "Redis lost what it accepted while they were apart");
    for id in found.lost.iter().chain(&found.missing) {
        let entry = &ledger[id];
        let accepted = entry.accepted.unwrap();
        // Message and entry of a stream in this Redis are lost together, or the acceptance alone.
        let moved = entry.sink == "here" && is_lost(accepted.due_ms);
        assert!(is_lost(accepted.at_ms) || moved, "{id} is missing, and Redis had it: {entry:?}");
    }
    for id in &found.after_cancel {
        let entry = &ledger[id];
        assert!(is_lost(entry.cancelled_ms), "{id} was delivered after its cancel: {entry:?}");
        assert_eq!(entry.cancel, Cancel::Done);
    }
    // One script takes and appends: what is lost of that is lost whole, and comes again as one.
    assert!(quiet.here.values().all(|copies| copies.len() == 1), "{:?}", found.twice_in_streams);
    for (id, copies) in quiet.there.iter().chain(&quiet.hook).filter(|(_, copies)| copies.len() > 1) {
        assert!(is_lost(copies[0].at_ms), "{id} came again, and Redis had its settle: {copies:?}");
    }
    assert!(found.twice_at_hook <= 3 * IN_FLIGHT);
}
