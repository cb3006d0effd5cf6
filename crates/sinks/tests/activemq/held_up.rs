//! A queue under producer flow control: it answers nothing until somebody has read from it.

use std::sync::Mutex;

use duly_core::{ErrorScope, Outcomes, SinkErrorKind};
use testkit::servers::activemq::{installed, shared};

use crate::{ids, one, sink_with, to};

#[tokio::test]
async fn a_queue_that_gives_no_receipt_holds_up_no_other_queue() {
    if !installed() {
        return;
    }
    let sink = sink_with(&shared().url(), "request_timeout = '6s'");
    let (blocked, free) = ("orders.blocked.x", "orders.held_up.free");
    one(&sink, blocked, "first").await.unwrap();
    let batch = [to(free, "a"), to(blocked, "b"), to(free, "c"), to(blocked, "d"), to(free, "e")];
    let reported = Mutex::new(Vec::new());
    let report = |index: usize, result| {
        reported.lock().unwrap().push((batch[index].message.id.to_string(), result));
    };
    sink.deliver_each(&batch, &Outcomes::new(&report)).await;
    let reported = reported.into_inner().unwrap();
    let order: Vec<&str> = reported.iter().map(|(id, _)| id.as_str()).collect();
    assert_eq!(order, ["a", "c", "e", "b", "d"], "those that are known, then those that are given up");
    assert!(reported[..3].iter().all(|(_, result)| result.is_ok()), "{reported:?}");
    for (_, result) in &reported[3..] {
        let error = result.as_ref().unwrap_err();
        assert_eq!((error.kind, error.scope), (SinkErrorKind::Unknown, ErrorScope::Destination), "{error}");
    }
    assert_eq!(ids(shared(), free).await, ["a", "c", "e"]);
}
