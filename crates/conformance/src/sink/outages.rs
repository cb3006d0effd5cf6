//! What a sink does when the target comes and goes, and when calls cross.

use duly_core::{Body, SinkErrorKind, StoredMessage};
use futures_util::future::join_all;

use super::{Target, assert_arrived, deliveries, id};

/// A probe of a target that is there succeeds, and nothing arrives by it.
pub async fn a_probe_delivers_nothing(target: &dyn Target) {
    let sink = target.sink();
    for _ in 0..3 {
        sink.probe().await.unwrap();
    }
    assert_eq!(target.arrived().await, []);
}

/// Away is `Unreachable`, for messages and for probes; the same sink delivers again as soon as the target is back.
pub async fn an_absent_target_is_unreachable_until_it_returns(target: &dyn Target) {
    let sink = target.sink();
    let batch = |name: &str| deliveries((0..3).map(|n| target.good(id(&format!("{name}-{n}")))));
    target.stop().await;
    for outcome in sink.deliver(&batch("away")).await {
        assert_eq!(outcome.unwrap_err().kind, SinkErrorKind::Unreachable);
    }
    assert_eq!(sink.probe().await.unwrap_err().kind, SinkErrorKind::Unreachable);

    target.start().await;
    sink.probe().await.unwrap();
    let back = batch("back");
    let outcomes = sink.deliver(&back).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_arrived(target, &back).await;

    // It goes again, with connections open: the first call may have sent before it noticed, and no more than that.
    target.stop().await;
    for outcome in sink.deliver(&batch("noticing")).await {
        let kind = outcome.unwrap_err().kind;
        assert!(matches!(kind, SinkErrorKind::Unreachable | SinkErrorKind::Unknown), "{kind:?}");
    }
    for outcome in sink.deliver(&batch("noticed")).await {
        assert_eq!(outcome.unwrap_err().kind, SinkErrorKind::Unreachable);
    }
    target.start().await;
    let again = batch("again");
    let outcomes = sink.deliver(&again).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_arrived(target, &again).await;
}

/// Eight calls at once on one sink: every outcome belongs to its own message.
pub async fn calls_at_the_same_time_do_not_mix(target: &dyn Target) {
    let sink = target.sink();
    let message = |call: usize, n: usize| {
        let id = id(&format!("call{call}-{n}"));
        let is_bad = (call + n).is_multiple_of(5);
        let message = if is_bad { target.bad(id) } else { target.good(id) };
        StoredMessage { body: Body::text(format!("{call}/{n}")), ..message }
    };
    let batches: Vec<_> = (0..8).map(|call| deliveries((0..25).map(|n| message(call, n)))).collect();
    let answers = join_all(batches.iter().map(|batch| sink.deliver(batch))).await;
    for (call, (batch, outcomes)) in batches.iter().zip(answers).enumerate() {
        let taken: Vec<_> = outcomes.iter().map(Result::is_ok).collect();
        let want: Vec<_> = (0..25).map(|n| !(call + n).is_multiple_of(5)).collect();
        assert_eq!(taken, want, "call {call}");
        let good = batch.iter().zip(taken).filter(|(_, taken)| *taken).map(|(delivery, _)| delivery.clone());
        assert_arrived(target, &good.collect::<Vec<_>>()).await;
    }
}

/// The scheduler drops a call whose time is over; the next one is none the worse for it.
pub async fn a_call_given_up_leaves_the_sink_usable(target: &dyn Target) {
    let sink = target.sink();
    for polls in 0..20 {
        let batch = deliveries((0..5).map(|n| target.good(id(&format!("dropped{polls}-{n}")))));
        let mut call = sink.deliver(&batch);
        for _ in 0..polls {
            let step = std::future::poll_fn(|context| {
                std::task::Poll::Ready(call.as_mut().poll(context).is_ready())
            });
            if step.await {
                break;
            }
            tokio::task::yield_now().await;
        }
    }
    let batch = deliveries((0..5).map(|n| target.good(id(&format!("kept-{n}")))));
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_arrived(target, &batch).await;
}
