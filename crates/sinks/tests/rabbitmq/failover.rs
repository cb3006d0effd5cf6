//! Several nodes, some of them away.

use std::net::TcpListener;

use duly_core::SinkErrorKind;
use testkit::servers::rabbitmq::{installed, shared};

use crate::{Reader, one, sink_with};

#[tokio::test]
async fn nodes_that_refuse_or_never_answer_are_passed_over() {
    if !installed() {
        return;
    }
    let queue = Reader::shared().await.queue().await;
    // It accepts connections and says nothing; the other port is nobody's.
    let silent = TcpListener::bind("127.0.0.1:0").unwrap();
    let nobody = TcpListener::bind("127.0.0.1:0").unwrap().local_addr().unwrap().port();
    let list = |ports: &[u16]| {
        let all: Vec<_> = ports.iter().map(|port| format!("'amqp://guest:guest@127.0.0.1:{port}'")).collect();
        format!("[{}]", all.join(", "))
    };
    let silent_port = silent.local_addr().unwrap().port();
    let several = list(&[nobody, silent_port, shared().port()]);
    let config = format!("kind = 'rabbitmq'\nurl = {several}\nrequest_timeout = '6s'");
    let config: duly_sinks::SinkConfig = toml::from_str(&config).unwrap();
    let sink = config.build(std::sync::Arc::new(duly::SystemClock::new().unwrap())).unwrap();
    one(&sink, &queue, "a").await.unwrap();
    one(&sink, &queue, "b").await.unwrap();

    let config = format!("kind = 'rabbitmq'\nurl = {}\nrequest_timeout = '2s'", list(&[nobody, silent_port]));
    let config: duly_sinks::SinkConfig = toml::from_str(&config).unwrap();
    let sink = config.build(std::sync::Arc::new(duly::SystemClock::new().unwrap())).unwrap();
    let error = one(&sink, &queue, "c").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable, "{}", error.detail);
}

#[tokio::test]
async fn a_name_whose_first_address_is_dead_is_reached_by_its_second() {
    if !installed() {
        return;
    }
    // `localhost` is ::1 and 127.0.0.1 on most systems, and the broker listens on the second only.
    let sink = sink_with(&shared().url().replace("127.0.0.1", "localhost"), "");
    sink.probe().await.unwrap();
}
