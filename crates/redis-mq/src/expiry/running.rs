//! What runs in the background, and how it is ended.

use std::sync::{Arc, Mutex, PoisonError};

use tokio::sync::watch;

/// A listener that was started. Dropping it changes nothing: it listens on, until it is [stopped](Self::stop) or the
/// [`RedisMq`](crate::RedisMq) is shut down.
#[derive(Debug, Clone)]
pub struct Expiring {
    stop: Arc<watch::Sender<bool>>,
    ended: watch::Receiver<()>,
}

/// The other ends: `ended` is dropped at the end.
pub(super) struct Told {
    pub(super) stop: watch::Receiver<bool>,
    pub(super) ended: watch::Sender<()>,
}

impl Expiring {
    pub(super) fn new() -> (Self, Told) {
        let (stop, told) = watch::channel(false);
        let (ended, gone) = watch::channel(());
        (Self { stop: Arc::new(stop), ended: gone }, Told { stop: told, ended })
    }

    /// Whether it listens.
    pub fn is_running(&self) -> bool {
        self.ended.has_changed().is_ok() && !*self.stop.borrow()
    }

    pub(super) fn tell(&self) {
        self.stop.send_replace(true);
    }

    /// Begins nothing more, and returns when running handlers have finished, at the latest after the processing timeout.
    ///
    /// Cancel safety: dropped midway, it stops all the same.
    pub async fn stop(mut self) {
        self.tell();
        while self.ended.changed().await.is_ok() {}
    }
}

/// All that runs for one [`RedisMq`](crate::RedisMq).
#[derive(Default)]
pub(crate) struct Running(Mutex<Vec<Expiring>>);

impl Running {
    pub(super) fn add(&self, one: &Expiring) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| other.ended.has_changed().is_ok());
        all.push(one.clone());
    }

    fn tell(&self) -> Vec<Expiring> {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        for one in &all {
            one.tell();
        }
        all
    }

    /// Ends all of them at once, and waits for each.
    pub(crate) async fn stop(&self) {
        for one in self.tell() {
            one.stop().await;
        }
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        self.tell();
    }
}
