//! What a connection is called, how long it may be silent, and where it goes.

use std::{
    net::{Ipv4Addr, TcpListener},
    sync::{Arc, Mutex},
};

use testkit::servers::artemis;

use crate::{
    one,
    scripted::{self, ClientPacket, taken, welcome},
    sink_with, to,
};

fn url(port: u16) -> String {
    format!("mqtt://127.0.0.1:{port}")
}

fn acknowledges(packet: &ClientPacket) -> Option<Vec<u8>> {
    match packet {
        ClientPacket::Connect { .. } => Some(welcome(&[])),
        ClientPacket::Publish { id, .. } => Some(taken(*id, 0)),
        _ => Some(Vec::new()),
    }
}

#[tokio::test]
async fn the_keep_alive_of_the_server_is_followed_while_an_answer_is_waited_for() {
    // One second; the acknowledgement comes after two signs of life.
    let waiting = Arc::new(Mutex::new((0, 0)));
    let (port, _) = scripted::start(move |packet| {
        let mut waiting = waiting.lock().unwrap();
        match packet {
            ClientPacket::Connect { .. } => return Some(welcome(&[0x13, 0, 1])),
            ClientPacket::Publish { id, .. } => *waiting = (*id, 0),
            ClientPacket::Ping => waiting.1 += 1,
            ClientPacket::Other(_) => {}
        }
        Some(if waiting.1 == 2 { taken(waiting.0, 0) } else { Vec::new() })
    });
    one(&sink_with(&url(port), "request_timeout = '60s'"), "t", "a").await.unwrap();
}

#[tokio::test]
async fn a_connection_is_left_before_the_server_would_close_it() {
    let (port, all) = scripted::start(|packet| match packet {
        ClientPacket::Connect { .. } => Some(welcome(&[0x13, 0, 1])),
        other => acknowledges(other),
    });
    let sink = sink_with(&url(port), "request_timeout = '60s'");
    one(&sink, "t", "a").await.unwrap();
    let is_goodbye = |packet: ClientPacket| packet == ClientPacket::Other(14);
    tokio::task::spawn_blocking(move || while !is_goodbye(all.recv().unwrap()) {}).await.unwrap();
}

#[tokio::test]
async fn connections_have_the_client_id_of_the_configuration_and_numbers_where_there_are_several() {
    let (port, all) = scripted::start(acknowledges);
    let sink = sink_with(&url(port), "client_id = 'duly-a'\nclean_start = false");
    let batch = [to("t", "a")];
    let (one, other) = tokio::join!(sink.deliver(&batch), sink.deliver(&batch));
    assert!(one[0].is_ok() && other[0].is_ok());
    let mut names: Vec<_> = all
        .try_iter()
        .filter_map(|packet| match packet {
            ClientPacket::Connect { flags, client_id } => Some((client_id, flags & 2)),
            _ => None,
        })
        .collect();
    names.sort();
    assert_eq!(names, [("duly-a".to_owned(), 0), ("duly-a-1".to_owned(), 0)]);
    let (port, all) = scripted::start(acknowledges);
    crate::one(&sink_with(&url(port), ""), "t", "a").await.unwrap();
    assert_eq!(all.recv().unwrap(), ClientPacket::Connect { flags: 2, client_id: String::new() });
}

#[tokio::test]
async fn a_host_that_is_dead_or_silent_leaves_time_for_the_next() {
    // Whoever connects gets no answer, ever.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let away = scripted::start(|_| Some(vec![0x20, 3, 0, 0x88, 0])).0;
    let (good, all) = scripted::start(acknowledges);
    let first = silent.local_addr().unwrap().port();
    let hosts = [first, closed, away, good].map(|port| format!("127.0.0.1:{port}")).join(",");
    let sink = sink_with(&format!("mqtt://{hosts}"), "request_timeout = '8s'");
    one(&sink, "t", "a").await.unwrap();
    let batch = [to("t", "b")];
    let (b, c) = tokio::join!(sink.deliver(&batch), sink.deliver(&batch));
    assert!(b[0].is_ok() && c[0].is_ok());
    let connects = all.try_iter().filter(|packet| matches!(packet, ClientPacket::Connect { .. })).count();
    assert_eq!(connects, 2, "the second connection began with the host that works");
}

#[tokio::test]
async fn the_essential_cases_hold_at_another_broker() {
    if !artemis::installed() {
        return;
    }
    let broker = artemis::shared();
    let mut reader = crate::reader::Reader::at_artemis("reader", broker.mqtt_port(), "orders/mqtt/#");
    for qos in [1, 2] {
        let sink = sink_with(&broker.mqtt_url(), &format!("qos = {qos}\nrequest_timeout = '60s'"));
        sink.probe().await.unwrap();
        let batch: Vec<_> = (0..200).map(|n| to("orders/mqtt/x", &format!("q{qos}-{n}"))).collect();
        assert!(sink.deliver(&batch).await.iter().all(Result::is_ok));
        let mut batch = [to("orders/mqtt/a", "a"), to("closed/x", "b"), to("orders/mqtt/b", "c")];
        batch[2].message.properties.put("tenant", "阿");
        let outcomes = sink.deliver(&batch).await;
        assert!(outcomes[0].is_ok() && outcomes[2].is_ok(), "{outcomes:?}");
        let error = outcomes[1].as_ref().unwrap_err();
        assert_eq!(error.kind, duly_core::SinkErrorKind::Denied, "{error}");
    }
    let wrong = sink_with(&format!("mqtt://duly:no@127.0.0.1:{}", broker.mqtt_port()), "");
    assert_eq!(wrong.probe().await.unwrap_err().kind, duly_core::SinkErrorKind::Misconfigured);
    let read = tokio::task::spawn_blocking(move || reader.read()).await.unwrap();
    assert_eq!(read.len(), 2 * 202);
    assert_eq!(read.iter().filter(|each| each.user.get("tenant").is_some_and(|own| own == "阿")).count(), 2);
}
