//! A running listener: its tasks, and its stop.

use std::{
    panic::AssertUnwindSafe,
    sync::{Arc, Mutex, PoisonError, RwLock, atomic::AtomicBool},
};

use futures_util::FutureExt;
use redis_link::{Link, Reach};
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use super::{
    Subscription, acker, heartbeat, janitor,
    ordered::Ordered,
    processor::{Acks, AttemptIds, HandlerTarget, Processor, panic_message},
    reader::{READ_BACKOFF, Reader},
    reclaimer, retrier,
};
use crate::{
    Error, Priority, clock,
    group::Lane,
    meter::Meter,
    stop::{StopHandle, StopSignal},
};

/// How much longer than its `BLOCK` time a read may take.
const READ_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

pub(super) async fn start(subscription: Subscription) -> Result<Listener, Error> {
    let inner = subscription.streams.inner.clone();
    let (stop, signal) = StopHandle::new();
    let settings = subscription.settings.clone();
    let topic = subscription.topic.clone();
    if !settings.enabled {
        tracing::info!(topic, "listener disabled in this process");
        return Ok(Listener { stop });
    }
    let keys = subscription.keys();
    let lane = Lane::new(&keys, &settings.group, &subscription.consumer, Priority::Normal);
    register(&stop, &mut inner.listeners(), &lane)?;
    let mut shared = inner.link.clone();
    lane.create(&mut shared, settings.from).await.map_err(|error| Error::from_redis(&error))?;
    // Reads block their connection, so that they need one of their own.
    let reach = Reach::within(settings.poll_interval + READ_GRACE);
    let link = Link::connect(&inner.address, &reach).await.map_err(|error| Error::on_connect(&error))?;
    let (acks_tx, acks_rx) = mpsc::unbounded_channel();
    let processor = Arc::new(Processor {
        meter: Meter::new(&topic, &settings.group),
        permits: Arc::new(Semaphore::new(settings.concurrency)),
        settings,
        target: HandlerTarget {
            streams: inner.identity,
            handler: subscription.handler,
            filter: subscription.filter,
        },
        callbacks: subscription.callbacks,
        link: shared,
        lanes: RwLock::new(vec![Arc::new(lane)]),
        in_flight: Default::default(),
        acks: acks_tx,
        retry_scheduled: Notify::new(),
        has_unsettled: AtomicBool::new(false),
        attempt_ids: AttemptIds::new(),
        stop: signal.stop.clone(),
    });
    let ordered = subscription.ordered.map(|key| Ordered::new(key, processor.clone(), signal.stop.clone()));
    tokio::spawn(run(processor, ordered, link, keys.is_of_dead_letters(), acks_rx, signal));
    // A shutdown since the check at the start did not see this listener.
    if subscription.streams.check_open().is_err() {
        stop.request_stop();
    }
    Ok(Listener { stop })
}

async fn run(
    processor: Arc<Processor>,
    ordered: Option<Arc<Ordered>>,
    link: Link,
    all_lanes_known: bool,
    acks: mpsc::UnboundedReceiver<Acks>,
    StopSignal { stop, ended }: StopSignal,
) {
    let (over_tx, over) = watch::channel(false);
    let acks = Arc::new(tokio::sync::Mutex::new(acks));
    let acker = supervise("ack", (processor.clone(), acks), |(processor, acks)| async move {
        acker::run(processor, &mut *acks.lock().await).await;
    });
    supervise("heartbeat", (processor.clone(), over.clone()), |(processor, over)| {
        heartbeat::run(processor, over)
    });
    let state = (processor.clone(), stop.clone());
    let mut tasks =
        vec![supervise("maintenance", state.clone(), |(processor, stop)| janitor::run(processor, stop))];
    if let Some(ordered) = &ordered {
        supervise("leadership", (ordered.clone(), over), |(ordered, over)| ordered.renew_leadership(over));
    } else {
        let last_run = reclaimer::pending_from_last_run(&processor).await;
        let last_run = Arc::new(Mutex::new(last_run));
        tasks.push(supervise("reclaim", (state.clone(), last_run), |((processor, stop), last_run)| {
            let last_run = std::mem::take(&mut *last_run.lock().unwrap_or_else(PoisonError::into_inner));
            reclaimer::run(processor, last_run, stop)
        }));
        tasks.push(supervise("retry", state, |(processor, stop)| retrier::run(processor, stop)));
    }
    let reader = Reader::new(processor.clone(), ordered.clone(), link, stop, all_lanes_known);
    let reader = Arc::new(tokio::sync::Mutex::new(reader));
    let _ = supervise("read", reader, |reader| async move { reader.lock().await.run().await }).await;
    for task in tasks {
        let _ = task.await;
    }
    if let Some(ordered) = &ordered {
        ordered.drained().await;
    }
    // With all permits taken, no handler call runs.
    let _ = processor.permits.acquire_many(processor.permits_max()).await;
    let _ = processor.acks.send(None);
    let _ = acker.await;
    over_tx.send_replace(true);
    if let Some(ordered) = &ordered {
        ordered.release_leadership().await;
    }
    for lane in processor.lanes() {
        if let Err(error) = lane.leave(&mut processor.link.clone()).await {
            tracing::debug!(topic = lane.topic, %error, "consumer removal failed");
        }
    }
    drop(ended);
}

/// Runs a task until it ends. A task that panics, by a bug here or in code that it calls such as a metrics recorder, is restarted: nothing
/// else would do its work.
fn supervise<T, F>(
    name: &'static str,
    state: T,
    run: impl Fn(T) -> F + Send + Sync + 'static,
) -> tokio::task::JoinHandle<()>
where
    T: Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    tokio::spawn(async move {
        loop {
            // Called inside the future, so that a panic before the first await is caught, too.
            let task = async { run(state.clone()).await };
            let Err(panic) = AssertUnwindSafe(task).catch_unwind().await else { return };
            tracing::error!(
                task = name,
                panic = panic_message(&*panic),
                "listener task restarted after a panic"
            );
            clock::sleep(READ_BACKOFF.1).await;
        }
    })
}

/// Registers a listener under its name. Two listeners of one name would reclaim each other's entries.
fn register(stop: &StopHandle, all: &mut Vec<(String, StopHandle)>, lane: &Lane) -> Result<(), Error> {
    let Lane { stream, group, consumer, .. } = lane;
    let name = format!("{stream}\n{group}\n{consumer}");
    all.retain(|(_, other)| !other.has_ended());
    if all.iter().any(|(known, _)| *known == name) {
        let detail = format!(
            "a listener of {stream:?} is running in this process as {consumer:?} of the group {group:?}; stop it first"
        );
        return Err(Error::Invalid(detail));
    }
    all.push((name, stop.clone()));
    Ok(())
}

/// A started listener. Dropping it does not stop it.
#[derive(Debug)]
pub struct Listener {
    stop: StopHandle,
}

impl Listener {
    /// Whether it runs and was not asked to stop.
    pub fn is_running(&self) -> bool {
        self.stop.is_running()
    }

    /// Stops reading, and returns when running handler calls have finished, at the latest after the processing timeout. Entries that were
    /// read and not begun are released: other consumers get them at once.
    ///
    /// Cancel safety: dropped midway, the listener stops all the same.
    pub async fn stop(self) {
        self.stop.request_stop();
        self.stop.stopped().await;
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::{AtomicU64, Ordering};

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_started_again_and_one_that_ends_is_not() {
        let runs = Arc::new(AtomicU64::new(0));
        let task = supervise("test", runs.clone(), |runs| async move {
            assert!(runs.fetch_add(1, Ordering::Relaxed) > 0, "a bug");
        });
        task.await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }
}
