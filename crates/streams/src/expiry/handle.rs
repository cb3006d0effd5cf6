//! Handles of the listeners of this module.

use std::sync::{Mutex, PoisonError};

use crate::stop::{StopHandle, StopSignal};

/// A started [`ExpiryListener`](super::ExpiryListener) or [`TimerListener`](super::TimerListener). Dropping it does not stop it: it runs until
/// [`stop`](Self::stop) or until the [`Streams`](crate::Streams) is shut down.
#[derive(Debug, Clone)]
pub struct ExpiryHandle {
    stop: StopHandle,
}

impl ExpiryHandle {
    pub(super) fn new() -> (Self, StopSignal) {
        let (stop, signal) = StopHandle::new();
        (Self { stop }, signal)
    }

    /// Whether it runs and was not asked to stop.
    pub fn is_running(&self) -> bool {
        self.stop.is_running()
    }

    pub(super) fn request_stop(&self) {
        self.stop.request_stop();
    }

    /// Starts no more handlers, and returns when those that run have finished, at the latest after the processing timeout.
    ///
    /// Cancel safety: dropped midway, it stops all the same.
    pub async fn stop(self) {
        self.stop.request_stop();
        self.stop.stopped().await;
    }
}

/// The handles of one [`Streams`](crate::Streams).
#[derive(Default)]
pub(crate) struct ExpiryHandles(Mutex<Vec<ExpiryHandle>>);

impl ExpiryHandles {
    pub(super) fn add(&self, handle: &ExpiryHandle) {
        let mut all = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        all.retain(|other| !other.stop.has_ended());
        all.push(handle.clone());
    }

    fn request_stop(&self) -> Vec<ExpiryHandle> {
        let all = std::mem::take(&mut *self.0.lock().unwrap_or_else(PoisonError::into_inner));
        all.iter().for_each(ExpiryHandle::request_stop);
        all
    }

    /// Asks all of them to stop at once, then waits for each.
    pub(crate) async fn stop(&self) {
        for handle in self.request_stop() {
            handle.stop().await;
        }
    }
}

impl Drop for ExpiryHandles {
    fn drop(&mut self) {
        self.request_stop();
    }
}
