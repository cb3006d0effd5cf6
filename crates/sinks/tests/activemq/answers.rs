//! Each row of the table of answers in `docs.md` that no broker of the test kit gives by itself.

use duly_core::{ErrorScope, SinkErrorKind};

use crate::{one, scripted, sink_with, to};

fn url(port: u16) -> String {
    format!("stomp://127.0.0.1:{port}")
}

#[tokio::test]
async fn each_answer_of_a_broker_is_what_the_table_says() {
    use ErrorScope::{Destination, Target};
    use SinkErrorKind::{Denied, Refused, Throttled, Unknown};
    let rows = [
        ("User duly is not authorized to write to: queue://q", Denied, Destination),
        ("javax.jms.InvalidDestinationException: no such queue", Denied, Destination),
        ("AMQ229032 User duly does not have permission='SEND' on address q", Denied, Destination),
        ("AMQ339001 Destination does not exist q", Denied, Destination),
        ("AMQ339041 Not allowed to specify ANYCAST semantics on MULTICAST address.", Denied, Destination),
        ("javax.jms.ResourceAllocationException: Usage Manager Memory Limit reached", Throttled, Destination),
        ("AMQ229102 Address \"q\" is full.", Throttled, Destination),
        ("AMQ339011 Error sending message CoreMessage[x=not authorized]", Throttled, Destination),
        ("javax.jms.ResourceAllocationException: Persistent store is Full, 100% of 1024", Throttled, Target),
        ("The maximum data length was exceeded", Refused, Target),
        ("AMQ339028 Message header too big, increase minLargeMessageSize please.", Refused, Target),
        ("java.lang.NullPointerException", Unknown, Target),
    ];
    for (words, kind, scope) in rows {
        for names_it in [true, false] {
            let port = scripted::start(move |_, receipt| {
                let receipt = if names_it { format!("receipt-id:{receipt}\n") } else { String::new() };
                Some(format!("ERROR\nmessage:{}\n{receipt}\n\0", words.replace(':', "\\c")))
            });
            let error = one(&sink_with(&url(port), ""), "q", "a").await.unwrap_err();
            assert_eq!((error.kind, error.scope), (kind, scope), "{words}");
            assert!(error.detail.contains(words), "{}", error.detail);
        }
    }
}

#[tokio::test]
async fn a_broker_that_closes_its_connection_over_one_queue_takes_what_goes_to_the_others() {
    // It closes at once, and what it would have said is lost.
    let port = scripted::start(|frame, receipt| {
        (!frame.contains("/queue/bad\n")).then(|| format!("RECEIPT\nreceipt-id:{receipt}\n\n\0"))
    });
    let sink = sink_with(&url(port), "request_timeout = '60s'");
    let batch = [to("good", "a"), to("bad", "b"), to("good", "c"), to("better", "d")];
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes[1].is_err(), "{outcomes:?}");
    // Careful now, it finds which queue it was.
    let outcomes = sink.deliver(&batch).await;
    let good = |outcomes: &[Result<String, duly_core::SinkError>]| {
        outcomes[0].is_ok() && outcomes[1].is_err() && outcomes[2].is_ok() && outcomes[3].is_ok()
    };
    assert!(good(&outcomes), "{outcomes:?}");
    // From now on that queue has a connection of its own.
    for _ in 0..3 {
        let outcomes = sink.deliver(&batch).await;
        assert!(good(&outcomes), "{outcomes:?}");
        assert_eq!(outcomes[1].as_ref().unwrap_err().kind, SinkErrorKind::Unknown);
    }
}
