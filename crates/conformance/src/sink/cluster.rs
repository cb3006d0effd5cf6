//! What a sink does when one server of several is killed.

use std::{
    collections::BTreeSet,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{Delivery, DeliveryResult, MessageId, Outcomes, Sink, SinkErrorKind, StoredMessage};
use futures_util::future::{join, join_all};
use tokio::sync::Notify;

use super::{deliveries, id};

/// Calls at the same time, their rounds, and the messages of one: a thousand in all.
const CALLS: usize = 4;
const ROUNDS: usize = 10;
const SIZE: usize = 25;
/// The server dies in this round, once so many of its messages are delivered.
const FATAL_ROUND: usize = 3;
const FATAL_AFTER: usize = 10;
/// A target made of several servers.
#[async_trait]
pub trait Cluster: Send + Sync {
    /// A sink that delivers there, whichever servers are up.
    fn sink(&self) -> Arc<dyn Sink>;

    /// A message that the cluster takes, also while one server is away, if only after a time.
    fn good(&self, id: MessageId) -> StoredMessage;

    /// kill -9 of a server that good messages depend on.
    async fn kill_one(&self);

    /// Starts it again, and returns when the cluster is whole.
    async fn restore(&self);

    /// What is not taken within this after a server was killed never is: elections, and time limits of clients on a busy machine.
    fn patience(&self) -> Duration {
        Duration::from_secs(180)
    }

    /// The ids of all messages that are there.
    async fn ids(&self) -> BTreeSet<MessageId>;
}

/// A server is killed while calls are under way: each message is taken in the end, all are there, and none was refused or
/// denied for it. No case of the suite: a sink's own tests call it where their cluster runs, as one takes long to start.
///
/// # Panics
/// If it is not so.
pub async fn a_server_killed_under_load_loses_nothing(cluster: &dyn Cluster) {
    let sink = cluster.sink();
    let mut left = Vec::new();
    for round in 0..ROUNDS {
        let (taken, reached) = (AtomicUsize::new(0), Notify::new());
        let calls = (0..CALLS).map(|call| {
            let message = move |n: usize| cluster.good(id(&format!("r{round}-c{call}-{n}")));
            CountedCall { batch: deliveries((0..SIZE).map(message)), taken: &taken, reached: &reached }
        });
        let calls: Vec<_> = calls.collect();
        let killing = async {
            if round == FATAL_ROUND {
                reached.notified().await;
                cluster.kill_one().await;
            }
        };
        let (rest, ()) = join(join_all(calls.into_iter().map(|call| call.run(&*sink))), killing).await;
        left.extend(rest.into_iter().flatten());
    }
    let repeated = async {
        while !left.is_empty() {
            let (taken, reached) = (AtomicUsize::new(0), Notify::new());
            let batch = std::mem::take(&mut left);
            left = CountedCall { batch, taken: &taken, reached: &reached }.run(&*sink).await;
            // A sink that knows its answer at once leaves no time to the clock otherwise.
            tokio::task::yield_now().await;
        }
    };
    let waited = tokio::time::timeout(cluster.patience(), repeated).await;
    assert!(waited.is_ok(), "what a killed server had is never taken by the others");
    cluster.restore().await;
    let there = cluster.ids().await;
    let all = (0..ROUNDS).flat_map(|round| (0..CALLS).map(move |call| (round, call)));
    let all = all.flat_map(|(round, call)| (0..SIZE).map(move |n| id(&format!("r{round}-c{call}-{n}"))));
    let lost: Vec<_> = all.filter(|id| !there.contains(id)).collect();
    assert!(lost.is_empty(), "{} were acknowledged and are lost: {lost:?}", lost.len());
}

/// A call, and how many messages all calls of its round have delivered.
struct CountedCall<'a> {
    batch: Vec<Delivery>,
    taken: &'a AtomicUsize,
    reached: &'a Notify,
}

impl CountedCall<'_> {
    /// What was not delivered.
    async fn run(self, sink: &dyn Sink) -> Vec<Delivery> {
        let results = std::sync::Mutex::new(vec![false; self.batch.len()]);
        let report = |index: usize, result: DeliveryResult| match result {
            Ok(_) => {
                results.lock().unwrap()[index] = true;
                if self.taken.fetch_add(1, Ordering::SeqCst) + 1 == FATAL_AFTER {
                    self.reached.notify_one();
                }
            }
            Err(error) => {
                let kinds = [SinkErrorKind::Unreachable, SinkErrorKind::Unknown, SinkErrorKind::Throttled];
                assert!(kinds.contains(&error.kind), "an outage is taken for the message's fault: {error}");
            }
        };
        sink.deliver_each(&self.batch, &Outcomes::new(&report)).await;
        let results = results.into_inner().unwrap();
        let left = self.batch.into_iter().zip(results).filter(|(_, is_taken)| !is_taken);
        left.map(|(delivery, _)| delivery).collect()
    }
}
