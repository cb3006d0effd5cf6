//! Stopping background work, and waiting until it has stopped.

use std::sync::Arc;

use tokio::sync::watch;

/// Asks background work to stop, and waits for its end. Dropping it changes nothing: the work goes on.
#[derive(Debug, Clone)]
pub(crate) struct StopHandle {
    stop: Arc<watch::Sender<bool>>,
    ended: watch::Receiver<()>,
}

/// The end of the background work: it watches `stop`, and drops `ended` when it has stopped.
pub(crate) struct StopSignal {
    pub(crate) stop: watch::Receiver<bool>,
    pub(crate) ended: watch::Sender<()>,
}

impl StopHandle {
    pub(crate) fn new() -> (Self, StopSignal) {
        let (stop_tx, stop_rx) = watch::channel(false);
        let (ended_tx, ended_rx) = watch::channel(());
        (Self { stop: Arc::new(stop_tx), ended: ended_rx }, StopSignal { stop: stop_rx, ended: ended_tx })
    }

    /// Whether the work runs and was not asked to stop.
    pub(crate) fn is_running(&self) -> bool {
        !self.has_ended() && !*self.stop.borrow()
    }

    pub(crate) fn has_ended(&self) -> bool {
        self.ended.has_changed().is_err()
    }

    pub(crate) fn request_stop(&self) {
        self.stop.send_replace(true);
    }

    /// Waits until the work has ended.
    pub(crate) async fn stopped(mut self) {
        while self.ended.changed().await.is_ok() {}
    }
}
