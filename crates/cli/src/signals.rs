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
    hangup: Option<Signal>,
}

impl Signals {
    pub(crate) fn new() -> Result<Self, Failure> {
        let (terminate, interrupt) = (listen(SignalKind::terminate())?, listen(SignalKind::interrupt())?);
        Ok(Self { terminate, interrupt, hangup: None })
    }

    /// The same, and SIGHUP, which a terminal sends when it is closed.
    pub(crate) fn with_hangup() -> Result<Self, Failure> {
        Ok(Self { hangup: Some(listen(SignalKind::hangup())?), ..Self::new()? })
    }

    /// The same, except where whoever started the process made it outlive its terminal (`nohup`).
    pub(crate) fn with_hangup_unless_ignored() -> Result<Self, Failure> {
        if hangup_is_ignored() { Self::new() } else { Self::with_hangup() }
    }

    /// From here on SIGHUP is taken and means nothing: a terminal that is closed sends it more than once.
    pub(crate) fn ignore_hangups(&mut self) {
        self.hangup = None;
    }

    /// Waits for the next.
    pub(crate) async fn next(&mut self) {
        let Self { terminate, interrupt, hangup } = self;
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
            Some(_) = async { hangup.as_mut()?.recv().await } => {}
        }
    }
}

/// Whether the process was started with SIGHUP ignored. Where the system does not tell, it may be, and SIGHUP stays what it was.
fn hangup_is_ignored() -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let ignored = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let ignored = ignored.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok());
    // The first bit is that of signal 1, which is SIGHUP.
    ignored.is_none_or(|mask| mask & 1 == 1)
}

fn listen(kind: SignalKind) -> Result<Signal, Failure> {
    signal(kind).map_err(|e| Failure::failed(format!("cannot listen to signals: {e}")))
}
