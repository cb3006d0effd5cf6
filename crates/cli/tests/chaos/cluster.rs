//! Slots of a Redis Cluster that move while messages do.

use ::redis::cluster::ClusterClient;
use testkit::servers::redis::{self, Cluster, Redis};

use crate::{bed::Bed, node::IN_FLIGHT, targets::STREAMS};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_that_move_in_mid_flight_lose_nothing_and_repeat_nothing_in_a_stream() {
    if !redis::installed() {
        return;
    }
    let cluster = Cluster::of_three();
    for node in cluster.nodes() {
        node.run::<()>(&["CONFIG", "SET", "appendfsync", "always"]);
    }
    let mut bed = Bed::on("resharding in mid-flight", &cluster.url()).await;
    // Two shards of the store, the names of its nodes, and two streams.
    let keys = ["duly:{main:0}:msg", "duly:{main:5}:msg", "duly:{main}:nodes", STREAMS[0], STREAMS[2]];
    for key in keys {
        bed.accept_more(40).await;
        let slot = cluster.slot(key);
        let mut moved = 0;
        let to = (cluster.owner(slot) + 1 + bed.draw(2) as usize) % 3;
        cluster.begin_move(slot, to);
        bed.time.pass_ms(100).await;
        // Key by key: for a while some of a shard's keys are here, and some are there.
        while cluster.move_keys(slot, to, 1) > 0 {
            moved += 1;
            bed.time.pass_ms(30).await;
        }
        cluster.finish_move(slot, to);
        assert_eq!(cluster.owner(slot), to);
        assert!(moved > 1, "{key} has company in its slot: it is the store's, or a stream with its markers");
    }
    bed.accept_more(60).await;
    let nodes: Vec<String> = cluster.nodes().iter().map(Redis::url).collect();
    let mut here = ClusterClient::new(nodes).unwrap().get_connection().unwrap();
    bed.quiet(&mut here).await.check(keys.len() * 3 * IN_FLIGHT).await;
}
