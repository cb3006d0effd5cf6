//! What a sink does when one destination inside the target fails or is late.

use std::sync::Mutex;

use duly_core::{Delivery, DeliveryResult, ErrorScope, Outcomes, Sink, SinkErrorKind, StoredMessage};
use tokio::sync::watch;

use super::{CannotShow, Target, assert_arrived, deliveries, id};

/// Calls, one after the other, beside one that waits for a silent destination.
const BESIDE: usize = 10;

/// A slow message beside fast ones in one call: the fast ones are known while the slow one is not.
pub async fn outcomes_are_reported_as_they_become_known(target: &dyn Target) {
    let messages = (target.slow(id("slow-1")).await, target.slow(id("slow-2")).await);
    let Some((first, last)) = destinations(target, "slow", messages) else { return };
    let batch = around(target, first, last);
    let sink = target.sink();
    let call = WatchedCall::new(batch.len());
    let releasing = async {
        call.goods_are_known(target).await;
        target.release().await;
    };
    tokio::join!(call.run(&*sink, &batch), releasing);
    for index in 0..batch.len() {
        assert!(call.known(index).is_some_and(|result| result.is_ok()), "{index}: {:?}", call.known(index));
    }
    assert_arrived(target, &batch).await;
}

/// A destination that never answers: the others' messages of the same call are known all the same, and the next call is none
/// the worse for it.
pub async fn a_silent_destination_holds_up_no_other(target: &dyn Target) {
    let messages = (target.silent(id("mute-1")).await, target.silent(id("mute-2")).await);
    let Some((first, last)) = destinations(target, "silent", messages) else { return };
    let batch = around(target, first, last);
    let sink = target.sink();
    assert_apart(&*sink, &batch);
    let call = WatchedCall::new(batch.len());
    let others = async {
        call.goods_are_known(target).await;
        for n in 0..BESIDE {
            let name = format!("beside-{n}");
            let beside = goods_are_delivered(target, &*sink, &name);
            let waited = tokio::time::timeout(target.patience(), beside).await;
            assert!(waited.is_ok(), "a call beside waits for the silent destination");
        }
    };
    // The scheduler gives the call up in the end, as is done here.
    tokio::select! {
        () = call.run(&*sink, &batch) => panic!("the sink gave up what is silent before the others were delivered"),
        () = others => {}
    }
    // Nothing is timed. The silent ones have the limit of the sink: whoever waits for that comes after it.
    for index in [0, batch.len() - 1] {
        let known = call.known(index);
        assert!(known.is_none(), "the others and {BESIDE} calls waited until this was known: {known:?}");
    }
    goods_are_delivered(target, &*sink, "after").await;
}

/// A destination that takes nothing from us is `Denied`; the others take theirs.
pub async fn a_forbidden_destination_fails_alone(target: &dyn Target) {
    let messages = (target.forbidden(id("no-1")).await, target.forbidden(id("no-2")).await);
    let Some((first, last)) = destinations(target, "forbidden", messages) else { return };
    fails_alone(target, around(target, first, last), SinkErrorKind::Denied).await;
}

/// A destination without room is `Throttled`, and only itself; the others take theirs.
pub async fn a_full_destination_is_throttled_alone(target: &dyn Target) {
    let messages = (target.full(id("full-1")).await, target.full(id("full-2")).await);
    let Some((first, last)) = destinations(target, "full", messages) else { return };
    fails_alone(target, around(target, first, last), SinkErrorKind::Throttled).await;
}

/// The two messages, if the target shows this state. If not, it says why: no case is skipped in silence.
fn destinations(
    target: &dyn Target,
    state: &str,
    messages: (Option<StoredMessage>, Option<StoredMessage>),
) -> Option<(StoredMessage, StoredMessage)> {
    match (messages, target.cannot_show(state)) {
        ((Some(first), Some(last)), None) => Some((first, last)),
        ((None, None), Some(CannotShow(why))) => {
            println!("CANNOT SHOW a {state} destination: {why}");
            None
        }
        (messages, cannot) => {
            panic!("a {state} destination is shown or it cannot be: {messages:?}, {cannot:?}")
        }
    }
}

/// Good messages between two others.
fn around(target: &dyn Target, first: StoredMessage, last: StoredMessage) -> Vec<Delivery> {
    let goods = (0..3).map(|n| target.good(id(&format!("good-{n}"))));
    deliveries(std::iter::once(first).chain(goods).chain([last]))
}

fn assert_apart(sink: &dyn Sink, batch: &[Delivery]) {
    let name = |index: usize| sink.destination(&batch[index].message);
    assert_ne!(name(0), name(1), "the scheduler cannot tell them apart");
    assert_eq!(name(0), name(batch.len() - 1), "two messages to one destination");
}

async fn fails_alone(target: &dyn Target, batch: Vec<Delivery>, kind: SinkErrorKind) {
    let sink = target.sink();
    assert_apart(&*sink, &batch);
    let mut outcomes = sink.deliver(&batch).await;
    for outcome in [outcomes.remove(0), outcomes.remove(batch.len() - 2)] {
        let error = outcome.unwrap_err();
        assert_eq!((error.kind, error.scope), (kind, ErrorScope::Destination), "{}", error.detail);
    }
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_arrived(target, &batch[1..batch.len() - 1]).await;
    goods_are_delivered(target, &*sink, "after").await;
    let arrived = target.arrived().await;
    assert!(arrived.iter().all(|arrival| arrival.id != batch[0].message.id), "and yet it arrived");
}

async fn goods_are_delivered(target: &dyn Target, sink: &dyn Sink, name: &str) {
    let batch = deliveries((0..3).map(|n| target.good(id(&format!("{name}-{n}")))));
    let outcomes = sink.deliver(&batch).await;
    assert!(outcomes.iter().all(Result::is_ok), "{outcomes:?}");
    assert_arrived(target, &batch).await;
}

/// A call under way, and what is known of it.
struct WatchedCall {
    known: Mutex<Vec<Option<DeliveryResult>>>,
    changed: watch::Sender<()>,
}

impl WatchedCall {
    fn new(size: usize) -> Self {
        Self { known: Mutex::new(vec![None; size]), changed: watch::Sender::new(()) }
    }

    async fn run(&self, sink: &dyn Sink, batch: &[Delivery]) {
        let report = |index: usize, result: DeliveryResult| {
            self.known.lock().unwrap()[index].get_or_insert(result);
            self.changed.send_replace(());
        };
        sink.deliver_each(batch, &Outcomes::new(&report)).await;
    }

    fn known(&self, index: usize) -> Option<DeliveryResult> {
        self.known.lock().unwrap()[index].clone()
    }

    /// Waits until all between the first and the last are delivered.
    async fn goods_are_known(&self, target: &dyn Target) {
        let last = self.known.lock().unwrap().len() - 1;
        let mut changed = self.changed.subscribe();
        let are_known = changed.wait_for(|()| (1..last).all(|index| self.known(index).is_some()));
        let waited = tokio::time::timeout(target.patience(), are_known).await;
        assert!(waited.is_ok(), "the others wait for the first or the last");
        for index in 1..last {
            let result = self.known(index);
            assert!(matches!(result, Some(Ok(_))), "{index}: {result:?}");
        }
    }
}
