//! The wish to stop, from a terminal or from whoever runs the service.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;

/// SIGTERM and SIGINT. From the moment this is made, they end nothing by themselves.
pub(crate) struct Signals {
    terminate: Signal,
    interrupt: Signal,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let listen =
            |kind| signal(kind).map_err(|e| Failure::failed(format!("cannot listen to signals: {e}")));
        Ok(Self { terminate: listen(SignalKind::terminate())?, interrupt: listen(SignalKind::interrupt())? })
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        tokio::select! {
            _ = self.terminate.recv() => {}
            _ = self.interrupt.recv() => {}
        }
    }
}
