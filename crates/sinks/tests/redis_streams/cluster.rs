//! A cluster: every stream has its markers beside it, also while slots move.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use duly_core::SinkErrorKind;
use testkit::servers::redis::{Cluster, installed};

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
    let mover = {
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
    mover.await.unwrap();
    let mut there = ids(&cluster.nodes()[to_node], "orders");
    there.sort_unstable();
    sent.sort_unstable();
    assert_eq!(there, sent);
}
