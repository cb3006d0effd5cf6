//! Nodes that die, sleep, or are cut off.

use std::sync::Arc;

use testkit::servers::{proxy::Proxy, redis};

use crate::{
    bed::{Bed, careful},
    node::{IN_FLIGHT, LEASE, redis_at},
};

fn address(way: &Proxy) -> String {
    format!("redis://127.0.0.1:{}", way.port())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nodes_killed_at_random_lose_nothing_and_repeat_nothing_in_a_stream() {
    if !redis::installed() {
        return;
    }
    const KILLS: usize = 7;
    let store = careful();
    let mut ways = Vec::new();
    // Each node has ways of its own. With one address for store and streams, one script moves messages between them.
    let mut bed = Bed::with("kill -9 of nodes", &store.url(), |_, node, there| {
        let (to_store, to_there) = (Proxy::to(store.port()), Proxy::to(there.port()));
        (node.store, node.here) = (redis_at(&address(&to_store)), address(&to_store));
        node.there = address(&to_there);
        ways.push([to_store, to_there]);
    })
    .await;
    for _ in 0..KILLS {
        bed.accept_more(60).await;
        let victim = bed.draw(3) as usize;
        // What it says last, to one or both of them, is on the wire when it dies, and arrives when others may have taken its place.
        let held = bed.draw(3) as usize;
        ways[victim].iter().enumerate().filter(|(way, _)| *way != held).for_each(|(_, way)| way.hold());
        bed.time.pass_ms(150).await;
        bed.nodes[victim].kill();
        let away = [0, 200, LEASE.as_millis() as u64 + 500][bed.draw(3) as usize];
        bed.time.pass_ms(away).await;
        ways[victim].iter().for_each(Proxy::release);
        bed.nodes[victim].start();
    }
    bed.quiet(&mut store.connection()).await.check(KILLS * IN_FLIGHT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_slept_past_its_lease_with_sends_on_the_wire_repeats_nothing_in_a_stream() {
    if !redis::installed() {
        return;
    }
    const SLEEPS: usize = 2;
    let store = careful();
    let mut ways = Vec::new();
    // The first node's ways to its targets; what it sends can be kept on them.
    let bed = Bed::with("SIGSTOP of a node past its lease", &store.url(), |place, node, there| {
        if place == 0 {
            let (here, there) = (Proxy::to(store.port()), Proxy::to(there.port()));
            (node.here, node.there) = (address(&here), address(&there));
            ways = vec![here, there];
        }
    })
    .await;
    for _ in 0..SLEEPS {
        bed.accept_more(150).await;
        ways.iter().for_each(Proxy::hold);
        // Messages come due meanwhile, and are sent; none of them is given up before the node sleeps.
        bed.time.pass(LEASE * 4 / 10).await;
        bed.nodes[0].pause();
        bed.time.pass(LEASE * 2).await;
        // Others have taken over. What was sent arrives only now, and the sender wakes up.
        ways.iter().for_each(Proxy::release);
        bed.nodes[0].cont();
    }
    bed.quiet(&mut store.connection()).await.check(SLEEPS * IN_FLIGHT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_cut_from_redis_stops_before_its_lease_ends_and_comes_back_by_itself() {
    if !redis::installed() {
        return;
    }
    let store = careful();
    let way = Arc::new(Proxy::to(store.port()));
    let bed = Bed::with("a node cut from Redis", &store.url(), |place, node, _| {
        if place == 0 {
            (node.store, node.here) = (redis_at(&address(&way)), address(&way));
        }
    })
    .await;
    bed.accept_more(100).await;
    way.hold();
    let cut_ms = bed.time.wall_ms();
    bed.time.pass(LEASE * 3).await;
    let released_ms = bed.time.wall_ms();
    assert!(!bed.nodes[0].is_ready().await, "a node without its store says so");
    way.release();
    bed.until("the node is there again", async || bed.nodes[0].is_ready().await).await;
    // It delivers again.
    bed.accept_more(200).await;
    let quiet = bed.quiet(&mut store.connection()).await;
    let posted: Vec<u64> =
        quiet.hook.values().flatten().filter(|copy| copy.from == "anna").map(|copy| copy.at_ms).collect();
    // Its lease began before the cut. A lease more, for a machine that is busy.
    let silent = cut_ms + 2 * LEASE.as_millis() as u64..released_ms;
    let wrong: Vec<_> = posted.iter().filter(|at| silent.contains(at)).collect();
    assert!(wrong.is_empty(), "posted without a right: {wrong:?} of {silent:?}");
    assert!(posted.iter().any(|at| *at > released_ms), "it delivers again");
    quiet.check(IN_FLIGHT).await;
}
