//! Nodes that die, sleep, or are cut off.

use testkit::servers::{proxy::Proxy, redis};

use crate::{
    bed::{Bed, careful},
    node::{IN_FLIGHT, redis_at},
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
        bed.kill_for_a_while(victim, &ways[victim]).await;
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
        bed.sleep_past_the_lease(&ways).await;
    }
    bed.quiet(&mut store.connection()).await.check(SLEEPS * IN_FLIGHT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_cut_from_redis_stops_before_its_lease_ends_and_comes_back_by_itself() {
    if !redis::installed() {
        return;
    }
    let store = careful();
    let way = Proxy::to(store.port());
    let bed = Bed::with("a node cut from Redis", &store.url(), |place, node, _| {
        if place == 0 {
            (node.store, node.here) = (redis_at(&address(&way)), address(&way));
        }
    })
    .await;
    let cut = bed.cut_from_the_store(&way).await;
    let quiet = bed.quiet(&mut store.connection()).await;
    cut.check(&quiet);
    quiet.check(IN_FLIGHT).await;
}
