//! The wish to stop, from a terminal or from whoever runs the service.

use tokio::signal::unix::{Signal, SignalKind, signal};

use super::Failure;

/// Takes SIGXFSZ, which would end the process without a word when a file grows past the limit of the process (`ulimit -f`). Once it is taken, the
/// write fails with "file too large" instead, and is told as a full disk is. It is so for the rest of the process.
pub(crate) fn outlive_file_limit() -> Result<(), Failure> {
    let kind = SignalKind::from_raw(rustix::process::Signal::XFSZ.as_raw());
    signal(kind).map(drop).map_err(|e| Failure::failed(format!("cannot listen to signals: {e}")))
}

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
