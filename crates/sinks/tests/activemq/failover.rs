//! Several hosts, and some of them dead.

use std::net::{Ipv4Addr, TcpListener};

use duly_core::SinkErrorKind;

use crate::{one, scripted, sink_with};

fn receipts() -> u16 {
    scripted::start(|_, receipt| Some(format!("RECEIPT\nreceipt-id:{receipt}\n\n\0")))
}

#[tokio::test]
async fn a_host_that_is_dead_or_silent_leaves_time_for_the_next() {
    // Whoever connects gets no answer, ever.
    let silent = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap();
    let silent = silent.local_addr().map(|at| (silent, at.port())).unwrap();
    let closed = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let url = format!(
        "stomp://duly:x,y@127.0.0.1:{},no-such-host.invalid,127.0.0.1:{closed},127.0.0.1:{}",
        silent.1,
        receipts()
    );
    let sink = sink_with(&url, "request_timeout = '12s'");
    one(&sink, "orders", "a").await.unwrap();
    // The one that worked is asked first from now on.
    one(&sink, "orders", "b").await.unwrap();
}

#[tokio::test]
async fn if_no_host_is_there_the_failure_names_each() {
    let closed = || TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).unwrap().local_addr().unwrap().port();
    let (a, b) = (closed(), closed());
    let sink = sink_with(&format!("stomp://127.0.0.1:{a},127.0.0.1:{b}"), "");
    let error = one(&sink, "orders", "a").await.unwrap_err();
    assert_eq!(error.kind, SinkErrorKind::Unreachable);
    assert!(error.detail.contains(&a.to_string()) && error.detail.contains(&b.to_string()), "{error}");
}
