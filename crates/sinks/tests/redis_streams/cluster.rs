//! A cluster: every stream has its markers beside it, also while slots move.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use duly_core::{ErrorScope, SinkErrorKind};
use testkit::servers::redis::{Cluster, Redis, SLOTS, installed};

use crate::{ids, one, sink_with, to};

/// Names with braces of every kind; a marker that lay in another slot would be refused as `CROSSSLOT`.
const STREAMS: [&str; 9] = ["orders", "{a}b", "{a}c", "a{}b", "a}b", "}{", "{", "{{a}}", "заказы"];

#[tokio::test]
async fn streams_of_every_name_go_to_their_nodes_and_have_one_entry_of_each() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let sink = sink_with(&cluster.url(), "");
    let batch: Vec<_> =
        STREAMS.iter().flat_map(|stream| (0..20).map(|n| to(stream, &format!("m{n}")))).collect();
    for _ in 0..2 {
        let outcomes = sink.deliver(&batch).await;
        assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    }
    let node = |stream: &str| &cluster.nodes()[cluster.owner(cluster.slot(stream))];
    for stream in STREAMS {
        assert_eq!(ids(node(stream), stream).len(), 20, "{stream}");
    }
    sink.settled(&batch).await;
    assert!(cluster.nodes().iter().all(|node| crate::markers(node).is_empty()));
}

#[tokio::test]
async fn a_slot_that_moves_under_load_leaves_one_entry_of_each() {
    if !installed() {
        return;
    }
    let cluster = Arc::new(Cluster::of_three());
    let sink = sink_with(&cluster.url(), "");
    let slot = cluster.slot("orders");
    one(&sink, "orders", "first").await.unwrap();
    let to_node = (cluster.owner(slot) + 1) % 3;
    let done = Arc::new(AtomicBool::new(false));
    let slot_move = {
        let (cluster, done) = (cluster.clone(), done.clone());
        tokio::task::spawn_blocking(move || {
            cluster.begin_move(slot, to_node);
            while cluster.move_keys(slot, to_node, 1) > 0 {}
            cluster.finish_move(slot, to_node);
            done.store(true, Ordering::SeqCst);
        })
    };
    let mut sent = vec!["first".to_owned()];
    let mut rounds_after = 0;
    for round in 0.. {
        rounds_after += usize::from(done.load(Ordering::SeqCst));
        if rounds_after > 3 {
            break;
        }
        let mut left: Vec<_> = (0..10).map(|n| to("orders", &format!("m{round}-{n}"))).collect();
        sent.extend(left.iter().map(|delivery| delivery.message.id.to_string()));
        while !left.is_empty() {
            let outcomes = sink.deliver(&left).await;
            for error in outcomes.iter().filter_map(|outcome| outcome.as_ref().err()) {
                assert!(
                    !matches!(error.kind, SinkErrorKind::Refused | SinkErrorKind::Misconfigured),
                    "{error}"
                );
            }
            let both = left.into_iter().zip(outcomes);
            left = both.filter(|(_, outcome)| outcome.is_err()).map(|(delivery, _)| delivery).collect();
        }
    }
    slot_move.await.unwrap();
    let mut there = ids(&cluster.nodes()[to_node], "orders");
    there.sort_unstable();
    sent.sort_unstable();
    assert_eq!(there, sent);
}

/// A stream of each server, by its place.
pub(crate) fn stream_of_each(cluster: &Cluster) -> Vec<String> {
    let of = |place| {
        let mut names = (0..).map(|n| format!("s{n}"));
        names.find(|name| cluster.owner(cluster.slot(name)) == place).unwrap()
    };
    (0..3).map(of).collect()
}

#[tokio::test]
async fn one_server_of_a_cluster_that_is_full_or_silent_or_gone_holds_up_its_streams_alone() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    for node in cluster.nodes() {
        node.run::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", "no"]);
    }
    let streams = stream_of_each(&cluster);
    let sink = sink_with(&cluster.url(), "request_timeout = '4s'");
    let round = async |id: &str, kinds: &[SinkErrorKind]| {
        let batch: Vec<_> = streams.iter().map(|stream| to(stream, id)).collect();
        let outcomes = sink.deliver(&batch).await;
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        match &outcomes[1] {
            Ok(_) => assert!(kinds.is_empty(), "{id}: it was to fail"),
            Err(error) => {
                assert!(
                    kinds.contains(&error.kind) && error.scope == ErrorScope::Destination,
                    "{id}: {error}"
                );
            }
        }
    };
    round("first", &[]).await;
    let node = &cluster.nodes()[1];
    node.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
    round("full", &[SinkErrorKind::Throttled]).await;
    node.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
    round("again", &[]).await;
    node.pause();
    round("silent", &[SinkErrorKind::Unknown, SinkErrorKind::Unreachable]).await;
    node.cont();
    node.kill();
    // The first may find the end of a connection; after that, nobody is there.
    round("gone", &[SinkErrorKind::Unknown, SinkErrorKind::Unreachable]).await;
    round("gone-still", &[SinkErrorKind::Unreachable]).await;
    sink.probe().await.unwrap();
    cluster.nodes().iter().for_each(Redis::kill);
    let _ = one(&sink, &streams[0], "none").await;
    let error = one(&sink, &streams[0], "none").await.unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Unreachable, ErrorScope::Target), "{error}");
}

#[tokio::test]
async fn one_server_that_finds_its_cluster_down_holds_up_its_streams_alone_and_all_of_them_the_sink() {
    if !installed() {
        return;
    }
    let cluster = Cluster::of_three();
    let streams = stream_of_each(&cluster);
    let sink = sink_with(&cluster.url(), "");
    let batch = |id: &str| -> Vec<_> { streams.iter().map(|stream| to(stream, id)).collect() };
    assert!(sink.deliver(&batch("first")).await.iter().all(Result::is_ok));
    let wants_all_slots = |place: usize, value: &str| {
        cluster.nodes()[place].run::<()>(&["CONFIG", "SET", "cluster-require-full-coverage", value]);
    };
    let drop_slot = |place: usize, slot: u16| {
        cluster.nodes()[place].run::<()>(&["CLUSTER", "DELSLOTS", &slot.to_string()]);
    };
    // A slot that nobody has: for a server that wants all of them the cluster is down, and for the others it is not. Its owner
    // goes first, as the others learn from it who has which.
    [0, 2].into_iter().for_each(|place| wants_all_slots(place, "no"));
    [2, 0, 1].into_iter().for_each(|place| drop_slot(place, SLOTS - 1));
    cluster.wait_until_state(1, "fail");
    let outcomes = sink.deliver(&batch("second")).await;
    assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
    let error = outcomes[1].as_ref().unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Unreachable, ErrorScope::Destination), "{error}");
    assert!(error.detail.contains("cluster is down"), "{error}");
    sink.probe().await.unwrap();

    for place in [2, 0] {
        wants_all_slots(place, "yes");
        // It looks again when another slot goes.
        drop_slot(place, SLOTS - 2);
        cluster.wait_until_state(place, "fail");
    }
    for outcome in sink.deliver(&batch("third")).await {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind, error.scope), (SinkErrorKind::Unreachable, ErrorScope::Target), "{error}");
    }
    assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Unreachable);
}
