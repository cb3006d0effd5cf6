//! A listener that runs: its tasks, and its end.

use std::{
    panic::AssertUnwindSafe,
    sync::{
        Arc, Mutex, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64},
    },
};

use futures_util::FutureExt;
use redis_link::{Link, Reach};
use tokio::sync::{Notify, Semaphore, mpsc, watch};

use super::{
    Subscription,
    ordered::Ordered,
    reading::{BACKOFF, Reader},
    reclaiming, retrying, tending,
    work::{Work, words},
};
use crate::{Error, Priority, clock, group::Lane, meter::Meter};

/// How much longer than it was told to wait a read may take.
const READ_GRACE: std::time::Duration = std::time::Duration::from_secs(5);

pub(super) async fn start(subscription: Subscription) -> Result<Listener, Error> {
    let inner = subscription.mq.inner.clone();
    let (stopper, stopped) = Stopper::new();
    let settings = subscription.settings.clone();
    let topic = subscription.topic.clone();
    if !settings.enabled {
        tracing::info!(topic, "listener disabled in this process");
        return Ok(Listener { stopper });
    }
    let keys = subscription.keys();
    let lane = Lane::new(&keys, &settings.group, &subscription.consumer, Priority::Normal);
    stopper.register(&mut inner.listeners(), &lane)?;
    let mut shared = inner.link.clone();
    lane.create(&mut shared, settings.from).await.map_err(|error| Error::of(&error))?;
    // Its reads wait inside of Redis, and whoever shared the connection would wait with them.
    let reach = Reach::within(settings.poll_interval + READ_GRACE);
    let link = Link::connect(&inner.address, &reach).await.map_err(|error| Error::unconnected(&error))?;
    let (acks, acked) = mpsc::unbounded_channel();
    let work = Arc::new(Work {
        meter: Meter::new(&topic, &settings.group),
        room: Arc::new(Semaphore::new(settings.concurrency)),
        settings,
        mq: inner.identity,
        handler: subscription.handler,
        filter: subscription.filter,
        notices: subscription.notices,
        link: shared,
        lanes: RwLock::new(vec![Arc::new(lane)]),
        hand: Default::default(),
        acks,
        again: Notify::new(),
        unsettled: AtomicBool::new(false),
        drawn: clock::draw(),
        attempts: AtomicU64::new(0),
        stop: stopped.stop.clone(),
    });
    let ordered = subscription.ordered.map(|key| Ordered::new(key, work.clone(), stopped.stop.clone()));
    tokio::spawn(run(work, ordered, link, keys.is_of_dead_letters(), acked, stopped));
    // Shut down meanwhile, or it would be left out.
    if subscription.mq.check_open().is_err() {
        stopper.tell();
    }
    Ok(Listener { stopper })
}

async fn run(
    work: Arc<Work>,
    ordered: Option<Arc<Ordered>>,
    link: Link,
    knows_all: bool,
    acked: mpsc::UnboundedReceiver<super::work::Acks>,
    Stopped { stop, ended }: Stopped,
) {
    let (over, is_over) = watch::channel(false);
    let acked = Arc::new(tokio::sync::Mutex::new(acked));
    let duty = (work.clone(), acked);
    let acking = supervise("acknowledge", duty, |(work, acked)| async move {
        tending::acknowledge(work, &mut *acked.lock().await).await;
    });
    supervise("heartbeat", (work.clone(), is_over.clone()), |(work, over)| tending::beat(work, over));
    let duty = (work.clone(), stop.clone());
    let mut tasks = vec![supervise("tidy", duty.clone(), |(work, stop)| tending::tidy(work, stop))];
    if let Some(ordered) = &ordered {
        supervise("lead", (ordered.clone(), is_over), |(ordered, over)| ordered.keep_leading(over));
    } else {
        let left_here = reclaiming::left_here(&work).await;
        let left_here = Arc::new(Mutex::new(left_here));
        tasks.push(supervise("reclaim", (duty.clone(), left_here), |((work, stop), left_here)| {
            let left_here = std::mem::take(&mut *left_here.lock().unwrap_or_else(PoisonError::into_inner));
            reclaiming::run(work, left_here, stop)
        }));
        tasks.push(supervise("retry", duty, |(work, stop)| retrying::run(work, stop)));
    }
    let reader = Reader::new(work.clone(), ordered.clone(), link, stop, knows_all);
    let reader = Arc::new(tokio::sync::Mutex::new(reader));
    let _ = supervise("read", reader, |reader| async move { reader.lock().await.run().await }).await;
    for task in tasks {
        let _ = task.await;
    }
    if let Some(ordered) = &ordered {
        ordered.emptied().await;
    }
    // All the room there is again: nobody is at work any more.
    let _ = work.room.acquire_many(work.all_room()).await;
    let _ = work.acks.send(None);
    let _ = acking.await;
    over.send_replace(true);
    if let Some(ordered) = &ordered {
        ordered.let_go().await;
    }
    for lane in work.lanes() {
        if let Err(error) = lane.leave(&mut work.link.clone()).await {
            tracing::debug!(topic = lane.topic, %error, "consumer removal failed");
        }
    }
    drop(ended);
}

/// Runs a duty on a task of its own, until it has ended. One that panics, which is a bug here or in what is given to us, such as a
/// recorder of metrics, is begun again: nobody would notice that it is gone.
fn supervise<T, F>(
    duty: &'static str,
    given: T,
    begin: impl Fn(T) -> F + Send + Sync + 'static,
) -> tokio::task::JoinHandle<()>
where
    T: Clone + Send + Sync + 'static,
    F: Future<Output = ()> + Send,
{
    tokio::spawn(async move {
        loop {
            // Within the future, so that one that panics at once is caught, too.
            let run = async { begin(given.clone()).await };
            let Err(panic) = AssertUnwindSafe(run).catch_unwind().await else { return };
            tracing::error!(duty, panic = words(&*panic), "listener task panicked, restarting it");
            clock::sleep(BACKOFF.1).await;
        }
    })
}

/// A listener that was started. Dropping it changes nothing: it listens on.
#[derive(Debug)]
pub struct Listener {
    stopper: Stopper,
}

impl Listener {
    /// Whether it listens.
    pub fn is_running(&self) -> bool {
        self.stopper.is_running()
    }

    /// Reads nothing more, and returns when running calls have finished, at the latest after the processing timeout. What was read
    /// and not begun is handed back, and others have it at once.
    ///
    /// Cancel safety: dropped midway, the listener stops all the same.
    pub async fn stop(self) {
        self.stopper.tell();
        self.stopper.gone().await;
    }
}

/// Tells a listener to stop, and when it has.
#[derive(Debug, Clone)]
pub(crate) struct Stopper {
    stop: Arc<watch::Sender<bool>>,
    ended: watch::Receiver<()>,
}

/// The other ends: `ended` is dropped at the end.
struct Stopped {
    stop: watch::Receiver<bool>,
    ended: watch::Sender<()>,
}

impl Stopper {
    fn new() -> (Self, Stopped) {
        let (stop, told) = watch::channel(false);
        let (ended, gone) = watch::channel(());
        (Self { stop: Arc::new(stop), ended: gone }, Stopped { stop: told, ended })
    }

    fn is_running(&self) -> bool {
        self.ended.has_changed().is_ok() && !*self.stop.borrow()
    }

    /// Two listeners under one name would take each other's entries for left behind.
    fn register(&self, all: &mut Vec<(String, Self)>, lane: &Lane) -> Result<(), Error> {
        let Lane { stream, group, consumer, .. } = lane;
        let name = format!("{stream}\n{group}\n{consumer}");
        // Those whose other end is gone have ended.
        all.retain(|(_, other)| other.ended.has_changed().is_ok());
        if all.iter().any(|(known, _)| *known == name) {
            let words = format!(
                "a listener of {stream:?} is running in this process as {consumer:?} of the group {group:?}; stop it first"
            );
            return Err(Error::Invalid(words));
        }
        all.push((name, self.clone()));
        Ok(())
    }

    pub(crate) fn tell(&self) {
        self.stop.send_replace(true);
    }

    pub(crate) async fn gone(mut self) {
        while self.ended.changed().await.is_ok() {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::atomic::Ordering;

    use super::*;

    #[tokio::test]
    async fn a_task_that_panics_is_started_again_and_one_that_ends_is_not() {
        let runs = Arc::new(AtomicU64::new(0));
        let duty = supervise("test", runs.clone(), |runs| async move {
            assert!(runs.fetch_add(1, Ordering::Relaxed) > 0, "a bug");
        });
        duty.await.unwrap();
        assert_eq!(runs.load(Ordering::Relaxed), 2);
    }
}
