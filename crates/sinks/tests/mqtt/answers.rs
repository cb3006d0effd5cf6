//! Each row of the table of answers in `docs.md`, said by a scripted peer.

use std::sync::{
    Arc, Mutex,
    atomic::{AtomicBool, Ordering},
};

use duly_core::{ErrorScope, Outcomes, SinkErrorKind};

use crate::{
    one,
    scripted::{self, ClientPacket, taken, welcome},
    sink_with, to,
};

fn url(port: u16) -> String {
    format!("mqtt://127.0.0.1:{port}")
}

#[tokio::test]
async fn each_reason_of_a_broker_is_what_the_table_says() {
    use ErrorScope::{Destination, Target};
    use SinkErrorKind::{Denied, Refused, Throttled, Unknown};
    let rows = [
        (0x87, Denied, Destination),
        (0x97, Throttled, Destination),
        (0x89, Throttled, Target),
        (0x93, Throttled, Target),
        (0x96, Throttled, Target),
        (0x90, Refused, Target),
        (0x95, Refused, Target),
        (0x99, Refused, Target),
        (0x9a, Refused, Target),
        (0x9b, Refused, Target),
        (0x80, Unknown, Target),
        (0x83, Unknown, Target),
        (0x8e, Unknown, Target),
        (0x98, Unknown, Target),
    ];
    for (code, kind, scope) in rows {
        // As an acknowledgement, and as a goodbye.
        for is_goodbye in [false, true] {
            let (port, _) = scripted::start(move |packet| match packet {
                ClientPacket::Connect { .. } => Some(welcome(&[])),
                ClientPacket::Publish { id, .. } if !is_goodbye => Some(taken(*id, code)),
                _ => Some(vec![0xe0, 2, code, 0]),
            });
            let error = one(&sink_with(&url(port), ""), "t", "a").await.unwrap_err();
            assert_eq!((error.kind, error.scope), (kind, scope), "{code:x}: {error}");
            assert!(error.detail.contains(&format!("(0x{code:02x})")), "{error}");
        }
    }
}

#[tokio::test]
async fn what_nobody_listens_to_is_taken_and_the_receipt_says_so() {
    let (port, _) = scripted::start(|packet| match packet {
        ClientPacket::Publish { id, .. } => Some(taken(*id, 0x10)),
        _ => Some(welcome(&[])),
    });
    let receipt = one(&sink_with(&url(port), ""), "t", "a").await.unwrap();
    assert_eq!(receipt, "PUBACK 1, no matching subscribers");
}

#[tokio::test]
async fn reasons_not_to_let_in_are_what_the_table_says() {
    use SinkErrorKind::{Misconfigured, Throttled, Unreachable};
    for (code, kind) in [
        (0x84, Misconfigured),
        (0x85, Misconfigured),
        (0x86, Misconfigured),
        (0x87, Misconfigured),
        (0x8a, Misconfigured),
        (0x8c, Misconfigured),
        (0x9c, Misconfigured),
        (0x9d, Misconfigured),
        (0x88, Unreachable),
        (0x8b, Unreachable),
        (0x89, Throttled),
        (0x97, Throttled),
        (0x9f, Throttled),
    ] {
        let (port, _) = scripted::start(move |_| Some(vec![0x20, 3, 0, code, 0]));
        let error = sink_with(&url(port), "").probe().await.unwrap_err();
        assert_eq!((error.kind, error.scope), (kind, ErrorScope::Target), "{code:x}: {error}");
    }
}

#[tokio::test]
async fn an_outcome_is_reported_when_it_is_known_and_waits_for_no_other() {
    // The slow one is acknowledged once the others are reported, and not before: a call that waited for all would never end.
    let may_go = Arc::new(AtomicBool::new(false));
    let gate = may_go.clone();
    let (port, _) = scripted::start(move |packet| match packet {
        ClientPacket::Connect { .. } => Some(welcome(&[])),
        ClientPacket::Publish { topic, .. } if topic == "slow" => Some(Vec::new()),
        ClientPacket::Publish { id, .. } => Some(taken(*id, 0)),
        ClientPacket::Ping if gate.load(Ordering::SeqCst) => Some(taken(1, 0)),
        _ => Some(vec![0xd0, 0]),
    });
    let sink = sink_with(&url(port), "request_timeout = '4s'");
    let reported = Mutex::new(Vec::new());
    let report = |index: usize, result: duly_core::DeliveryResult| {
        let mut reported = reported.lock().unwrap();
        reported.push((index, result.is_ok()));
        may_go.store(reported.len() == 2, Ordering::SeqCst);
    };
    let batch = [to("slow", "a"), to("fast", "b"), to("fast", "c")];
    sink.deliver_each(&batch, &Outcomes::new(&report)).await;
    assert_eq!(*reported.lock().unwrap(), [(1, true), (2, true), (0, true)]);
}

#[tokio::test]
async fn a_topic_without_answers_gets_a_connection_of_its_own() {
    // Acknowledgements come in order: behind the silent topic nothing is answered on the same connection.
    let (port, all) = scripted::start({
        let is_silent = Arc::new(Mutex::new(std::collections::HashSet::new()));
        move |packet| match packet {
            ClientPacket::Connect { .. } => Some(welcome(&[0x21, 0, 2])),
            ClientPacket::Publish { topic, .. } if topic == "silent" => {
                is_silent.lock().unwrap().insert(std::thread::current().id());
                Some(Vec::new())
            }
            ClientPacket::Publish { .. }
                if is_silent.lock().unwrap().contains(&std::thread::current().id()) =>
            {
                Some(Vec::new())
            }
            ClientPacket::Publish { id, .. } => Some(taken(*id, 0)),
            _ => Some(Vec::new()),
        }
    });
    let sink = sink_with(&url(port), "request_timeout = '4s'");
    // Two may be under way: the third and fourth are not sent yet when the connection is seen to be held up.
    let batch = [to("silent", "a"), to("b", "b"), to("c", "c"), to("d", "d")];
    let outcomes = sink.deliver(&batch).await;
    let error = outcomes[0].as_ref().unwrap_err();
    assert_eq!((error.kind, error.scope), (SinkErrorKind::Unknown, ErrorScope::Destination), "{error}");
    let behind = outcomes[1].as_ref().unwrap_err();
    assert_eq!((behind.kind, behind.scope), (SinkErrorKind::Unknown, ErrorScope::Target), "{behind}");
    assert!(outcomes[2].is_ok() && outcomes[3].is_ok(), "they went on another connection: {outcomes:?}");
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes[0].is_err() && outcomes[1..].iter().all(Result::is_ok), "{outcomes:?}");
    let connects = all.try_iter().filter(|packet| matches!(packet, ClientPacket::Connect { .. })).count();
    assert_eq!(connects, 3, "the first, one for what it held up, one for the silent topic");
}

#[tokio::test]
async fn a_topic_without_answers_leaves_connections_to_the_others_and_to_the_probe() {
    let (port, _) = scripted::start(|packet| match packet {
        ClientPacket::Connect { .. } => Some(welcome(&[])),
        ClientPacket::Publish { topic, .. } if topic == "hung" => Some(Vec::new()),
        ClientPacket::Publish { id, .. } => Some(taken(*id, 0)),
        _ => Some(vec![0xd0, 0]),
    });
    let sink = sink_with(&url(port), "request_timeout = '3s'");
    assert!(one(&sink, "hung", "a").await.is_err());
    // More calls than there are connections, all of them to the topic that is silent.
    let calls: Vec<_> = (0..12)
        .map(|n| {
            let sink = sink.clone();
            tokio::spawn(async move { one(&sink, "hung", &format!("h{n}")).await })
        })
        .collect();
    for n in 0..20 {
        one(&sink, "good", &format!("g{n}")).await.unwrap();
        sink.probe().await.unwrap();
    }
    for call in calls {
        let error = call.await.unwrap().unwrap_err();
        assert_eq!(error.scope, ErrorScope::Destination, "the lane stays open: {error}");
    }
}
