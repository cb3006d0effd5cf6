//! A master that dies before its replica has everything: what is lost is what Redis lost, and no more.

use std::time::Duration;

use testkit::servers::redis::{self, Sentinels};

use crate::{bed::Bed, node::IN_FLIGHT};

/// What Redis answered for within this before its end may not have come to its replica; a busy machine makes it long.
const WINDOW: Duration = Duration::from_secs(3);

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn after_a_failover_nothing_is_missing_but_what_redis_lost() {
    if !redis::installed() {
        return;
    }
    let servers = Sentinels::start();
    let bed = Bed::on("sentinel failover", &servers.url()).await;
    bed.accept_more(150).await;
    let died_ms = bed.time.wall_ms();
    let master = servers.fail_over();
    bed.accept_more(150).await;
    let quiet = bed.quiet(&mut servers.pair()[master].connection()).await;
    let found = quiet.look();
    quiet.tell(&found).await;
    println!(
        "  lost by Redis: {} accepted, {} cancels; {} settles or entries, which came again",
        found.lost.len() + found.missing.len(),
        found.after_cancel.len(),
        found.twice_in_streams.len() + found.twice_at_hook,
    );
    let ledger = quiet.ledger.all();
    let window = died_ms.saturating_sub(WINDOW.as_millis() as u64)..=died_ms + WINDOW.as_millis() as u64;
    for id in found.lost.iter().chain(&found.missing) {
        let accepted = ledger[id].accepted.unwrap();
        let lost_late = window.contains(&accepted.at_ms);
        // An entry of a stream in this Redis may be what was lost, and the record of its delivery with it or not.
        let entry_lost = ledger[id].sink == "here" && window.contains(&accepted.due_ms);
        assert!(lost_late || entry_lost, "{id} was lost, and not by Redis: {:?}", ledger[id]);
    }
    for id in &found.after_cancel {
        assert!(window.contains(&ledger[id].accepted.unwrap().due_ms), "{id} was delivered after its cancel");
    }
    let lost_settles = |copies: &[crate::targets::Arrival]| {
        copies.iter().all(|copy| window.contains(&copy.at_ms) || copy.at_ms > died_ms)
    };
    for (id, copies) in quiet.here.iter().chain(&quiet.there).chain(&quiet.hook) {
        assert!(copies.len() == 1 || lost_settles(copies), "{id} came more than once: {copies:?}");
    }
    assert!(found.twice_at_hook <= 3 * IN_FLIGHT);
}
