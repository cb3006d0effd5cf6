//! Nodes on a relational database: MariaDB and PostgreSQL, the same cases on both.

use std::{sync::Arc, time::Duration};

use testkit::servers::proxy::Proxy;

use crate::{
    bed::Bed,
    database::{Database, Make},
    node::{IN_FLIGHT, LEASE, Ways},
    others::Others,
};

/// As many connections as a node has if nobody says anything else.
const CONNECTIONS: u32 = 16;

/// The same case on either database. Their names are sentences: see the functions that they call.
macro_rules! on_both {
    ($($case:ident,)*) => {
        on_both!(mysql, Make::Mysql, $($case,)*);
        on_both!(postgres, Make::Postgres, $($case,)*);
    };
    ($module:ident, $make:expr, $($case:ident,)*) => {
        mod $module {
            use super::Make;
            $(
                #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
                async fn $case() {
                    if $make.installed() {
                        super::$case($make).await;
                    }
                }
            )*
        }
    };
}

on_both! {
    nodes_killed_at_random_lose_nothing_and_repeat_nothing_in_a_stream,
    a_database_killed_or_asleep_loses_nothing_and_repeats_nothing_in_a_stream,
    a_node_that_slept_past_its_lease_with_sends_on_the_wire_repeats_nothing_in_a_stream,
    a_node_cut_from_the_database_stops_before_its_lease_ends_and_comes_back_by_itself,
    commits_whose_answers_get_lost_again_and_again_are_done_once,
    deadlocks_with_others_are_outlived,
    one_connection_is_enough_and_rows_of_others_arrive,
}

/// Every node by a way of its own; gives the ways.
fn by_proxies(database: &Database, node: &mut Ways, ways: &mut Vec<Proxy>) {
    let way = Proxy::to(database.port());
    node.store = database.store(way.port(), CONNECTIONS);
    ways.push(way);
}

async fn nodes_killed_at_random_lose_nothing_and_repeat_nothing_in_a_stream(make: Make) {
    const KILLS: usize = 4;
    let database = make.start();
    let mut ways = Vec::new();
    let case = make.either("kill -9 of nodes on MySQL", "kill -9 of nodes on PostgreSQL");
    let mut bed = Bed::beside(case, |_, node, _| by_proxies(&database, node, &mut ways)).await;
    for kill in 0..KILLS {
        bed.accept_more(60).await;
        let victim = bed.draw(3) as usize;
        // What it says last is on the wire when it dies, and arrives when others may have taken its place.
        if kill % 2 == 0 {
            ways[victim].hold();
            bed.time.pass_ms(150).await;
        }
        bed.kill_for_a_while(victim, [&ways[victim]]).await;
    }
    bed.quiet_beside().await.check(KILLS * IN_FLIGHT).await;
}

async fn a_database_killed_or_asleep_loses_nothing_and_repeats_nothing_in_a_stream(make: Make) {
    let database = make.start();
    let case = make.either("kill -9 and SIGSTOP of MariaDB", "kill -9 and SIGSTOP of PostgreSQL");
    let mut bed = Bed::beside(case, |_, node, _| {
        node.store = database.store(database.port(), CONNECTIONS);
    })
    .await;
    let spans = [0, 1500, 0, LEASE.as_millis() as u64 * 3 / 2];
    for (fault, ms) in spans.into_iter().enumerate() {
        bed.accept_more(60).await;
        let wait = bed.draw(300);
        bed.time.pass_ms(wait).await;
        if fault < 2 {
            database.kill();
            bed.time.pass_ms(ms).await;
            database.start();
        } else {
            database.pause();
            bed.time.pass_ms(ms.max(300)).await;
            database.cont();
        }
    }
    bed.accept_more(60).await;
    bed.quiet_beside().await.check(spans.len() * 3 * IN_FLIGHT).await;
}

async fn a_node_that_slept_past_its_lease_with_sends_on_the_wire_repeats_nothing_in_a_stream(make: Make) {
    let database = make.start();
    let mut ways = Vec::new();
    let case = make.either("SIGSTOP of a node on MySQL", "SIGSTOP of a node on PostgreSQL");
    // The first node's ways to its targets; what it sends can be kept on them.
    let bed = Bed::beside(case, |place, node, there| {
        node.store = database.store(database.port(), CONNECTIONS);
        if place == 0 {
            for target in [&mut node.here, &mut node.there] {
                let way = Proxy::to(there.port());
                *target = target.replace(&there.port().to_string(), &way.port().to_string());
                ways.push(way);
            }
        }
    })
    .await;
    bed.sleep_past_the_lease(&ways).await;
    bed.accept_more(60).await;
    bed.quiet_beside().await.check(IN_FLIGHT).await;
}

async fn a_node_cut_from_the_database_stops_before_its_lease_ends_and_comes_back_by_itself(make: Make) {
    let database = make.start();
    let way = Proxy::to(database.port());
    let case = make.either("a node cut from MariaDB", "a node cut from PostgreSQL");
    let bed = Bed::beside(case, |place, node, _| {
        let port = if place == 0 { way.port() } else { database.port() };
        node.store = database.store(port, CONNECTIONS);
    })
    .await;
    let cut = bed.cut_from_the_store(&way).await;
    let quiet = bed.quiet_beside().await;
    cut.check(&quiet);
    quiet.check(IN_FLIGHT).await;
}

async fn commits_whose_answers_get_lost_again_and_again_are_done_once(make: Make) {
    const CUTS: usize = 40;
    let database = make.start();
    let way = Proxy::to(database.port());
    let case = make.either("cut after COMMIT on MySQL", "cut after COMMIT on PostgreSQL");
    let mut bed = Bed::beside(case, |place, node, _| {
        let port = if place == 0 { way.port() } else { database.port() };
        node.store = database.store(port, CONNECTIONS);
    })
    .await;
    bed.accept_more(30).await;
    for _ in 0..CUTS {
        // Several in a row meet the second and third try of the same work, too.
        let times = 1 + bed.draw(4) as usize;
        match bed.draw(4) {
            0 => way.cut_before(b"COMMIT", times),
            1 => way.cut_on(b"COMMIT", times),
            _ => way.cut_after(b"COMMIT", times),
        }
        let wait = 50 + bed.draw(100);
        bed.time.pass_ms(wait).await;
    }
    way.cut_after(b"COMMIT", 0);
    let met = way.needles_met();
    assert!(met >= CUTS, "only {met} commits were cut");
    println!("{case}: {met} commits were cut");
    bed.quiet_beside().await.check(met * IN_FLIGHT).await;
}

async fn deadlocks_with_others_are_outlived(make: Make) {
    let database = Arc::new(make.start());
    if make == Make::Postgres {
        // It looks for deadlocks only after a while.
        database.run(
            "DO $$ BEGIN EXECUTE format('ALTER DATABASE %I SET deadlock_timeout = 20', current_database()); END $$",
        );
    }
    let case = make.either("deadlocks on MySQL", "deadlocks on PostgreSQL");
    let mut bed = Bed::beside(case, |_, node, _| {
        node.store = database.store(database.port(), CONNECTIONS);
    })
    .await;
    let others = Others::locking(&mut bed, &database);
    let begin = bed.time.wall_ms();
    bed.until("there are deadlocks", async || {
        let long = Duration::from_millis(bed.time.wall_ms() - begin) > LEASE * 2;
        long && database.deadlocks() > 5
    })
    .await;
    others.stop().await;
    println!("{case}: {} deadlocks", database.deadlocks());
    bed.quiet_beside().await.check(0).await;
}

async fn one_connection_is_enough_and_rows_of_others_arrive(make: Make) {
    const CUTS: usize = 8;
    let database = Arc::new(make.start());
    let mut ways = Vec::new();
    let case = make.either("a pool of one on MySQL", "a pool of one on PostgreSQL");
    let mut bed = Bed::beside(case, |_, node, _| {
        let way = Proxy::to(database.port());
        node.store = database.store(way.port(), 1);
        ways.push(way);
    })
    .await;
    let others = Others::ordering(&mut bed, &database);
    for _ in 0..CUTS {
        bed.accept_more(40).await;
        ways[bed.draw(3) as usize].cut();
        let wait = bed.draw(200);
        bed.time.pass_ms(wait).await;
    }
    database.kill();
    database.start();
    bed.accept_more(60).await;
    others.stop().await;
    bed.until("rows of others are taken in", async || {
        database.run("SELECT COUNT(*) FROM delay_message WHERE queue_no IS NULL") == "0"
    })
    .await;
    bed.quiet_beside().await.check((CUTS + 3) * IN_FLIGHT).await;
}
