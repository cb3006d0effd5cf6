//! What Redis and the way to it may answer instead of yes, sorted by what comes next.

use std::{error::Error, io, sync::Arc};

use duly_core::{SinkError, SinkErrorKind};
use redis::{ErrorKind, RedisError};

/// Nothing was sent.
pub(super) fn no_connection(detail: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Unreachable, detail)
}

/// It may have arrived.
pub(super) fn no_answer(detail: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Unknown, detail)
}

/// The failure of a command that was sent, or that could not be.
pub(super) fn sorted(error: &RedisError) -> SinkError {
    let kind = match error.kind() {
        // The last way that was tried led nowhere, and it was all new: what was sent before went down with its server.
        ErrorKind::ClusterConnectionNotFound => SinkErrorKind::Unreachable,
        _ if error.is_connection_refusal() => SinkErrorKind::Unreachable,
        ErrorKind::AuthenticationFailed | ErrorKind::InvalidClientConfig => SinkErrorKind::Misconfigured,
        _ => error.code().map_or(SinkErrorKind::Unknown, by_code),
    };
    SinkError::new(kind, words(error))
}

/// The failure to connect: nothing was sent, whatever it was.
pub(super) fn unconnected(error: &RedisError) -> SinkError {
    let kind = match sorted(error).kind {
        SinkErrorKind::Misconfigured => SinkErrorKind::Misconfigured,
        _ if is_bad_certificate(error) => SinkErrorKind::Misconfigured,
        _ => SinkErrorKind::Unreachable,
    };
    SinkError::new(kind, words(error))
}

/// What the server says by its first word. All of these it says before it has changed anything.
fn by_code(code: &str) -> SinkErrorKind {
    match code {
        "NOAUTH" | "WRONGPASS" | "NOPERM" => SinkErrorKind::Misconfigured,
        "WRONGTYPE" => SinkErrorKind::Refused,
        "OOM" | "BUSY" => SinkErrorKind::Throttled,
        "LOADING" | "READONLY" | "CLUSTERDOWN" | "MOVED" | "ASK" | "TRYAGAIN" | "MASTERDOWN" | "MISCONF"
        | "NOREPLICAS" => SinkErrorKind::Unreachable,
        _ => SinkErrorKind::Unknown,
    }
}

/// Whether another connection may fare better: this one is broken, or leads to a server that is no longer the master.
pub(super) fn is_the_wires(error: &RedisError) -> bool {
    let is_away = matches!(error.code(), Some("READONLY" | "LOADING" | "NOAUTH" | "MASTERDOWN"));
    is_away || error.is_io_error() || error.is_unrecoverable_error()
}

/// The cause lies wrapped: by the client, by the connection, and by TLS.
fn is_bad_certificate(error: &RedisError) -> bool {
    type Shared = Arc<dyn Error + Send + Sync>;
    let cause = error.source().and_then(|cause| cause.downcast_ref::<Shared>());
    let failed = cause.and_then(|cause| cause.downcast_ref::<io::Error>()).and_then(io::Error::get_ref);
    matches!(failed.and_then(|failed| failed.downcast_ref()), Some(rustls::Error::InvalidCertificate(_)))
}

fn words(error: &RedisError) -> String {
    match (error.code(), error.detail()) {
        (Some(code), Some(detail)) => format!("{code} {detail}"),
        _ => error.to_string(),
    }
}
