//! Classifies errors of NATS and of the connection to it.

use std::{error::Error, io};

use async_nats::{
    ConnectError, ConnectErrorKind, RequestError,
    client::RequestErrorKind,
    jetstream::{self, ErrorCode},
};
use duly_core::{SinkError, SinkErrorKind};

use crate::tls::is_certificate_fault;

/// The same of a connection that we make ourselves.
pub(super) fn unsecured(error: &io::Error) -> SinkError {
    let kind =
        if is_bad_certificate(error) { SinkErrorKind::Misconfigured } else { SinkErrorKind::Unreachable };
    SinkError::new(kind, error.to_string())
}

/// A failure to connect: nothing was sent.
pub(super) fn connect_failed(error: &ConnectError) -> SinkError {
    let kind = match error.kind() {
        ConnectErrorKind::AuthorizationViolation
        | ConnectErrorKind::Authentication
        | ConnectErrorKind::ServerParse => SinkErrorKind::Misconfigured,
        _ if is_bad_certificate(error) => SinkErrorKind::Misconfigured,
        _ => SinkErrorKind::Unreachable,
    };
    SinkError::new(kind, words(error))
}

/// The failure of a request; `None` if nobody was there to take it, which may have several reasons.
pub(super) fn unanswered(error: &RequestError) -> Option<SinkError> {
    let kind = match error.kind() {
        RequestErrorKind::NoResponders => return None,
        RequestErrorKind::MaxPayloadExceeded | RequestErrorKind::InvalidSubject => SinkErrorKind::Refused,
        RequestErrorKind::TimedOut | RequestErrorKind::Other => SinkErrorKind::Unknown,
    };
    Some(SinkError::new(kind, words(error)))
}

/// An error of JetStream for a message. None of them has it stored, and most are about the stream that the
/// subject leads to.
pub(super) fn not_stored(error: &jetstream::Error) -> SinkError {
    let kind = match error.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_HEADER_EXCEEDS_MAXIMUM => {
            SinkErrorKind::Refused
        }
        ErrorCode::STREAM_SEALED | ErrorCode::STREAM_NOT_FOUND => SinkErrorKind::Denied,
        // The stream is full and takes no more, or the server is on which it lies. Others may lie elsewhere.
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED => SinkErrorKind::Throttled,
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            return SinkError::misconfigured(error.to_string());
        }
        // No leader, not enough servers of its group.
        ErrorCode::CLUSTER_NOT_LEADER | ErrorCode::CLUSTER_NO_PEERS => SinkErrorKind::Unreachable,
        // An earlier try waits for the servers of its group to agree. This one was not stored.
        ErrorCode::STREAM_DUPLICATE_MESSAGE_CONFLICT => SinkErrorKind::Unreachable,
        _ if error.code() == 503 => SinkErrorKind::Unreachable,
        // It did answer: that says nothing of the destination.
        _ => return SinkError::unknown(error.to_string()),
    };
    SinkError::new(kind, error.to_string()).at_destination()
}

fn words(error: &(dyn Error + 'static)) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let more = inner.to_string();
        if !words.contains(&more) {
            words = format!("{words}: {more}");
        }
        cause = inner.source();
    }
    words
}

/// The cause lies wrapped: by the client, and by the connection.
fn is_bad_certificate(error: &(dyn Error + 'static)) -> bool {
    let mut cause = Some(error);
    while let Some(inner) = cause {
        let inside = inner.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
        let found = inner.downcast_ref().or_else(|| inside.and_then(|inside| inside.downcast_ref()));
        if found.is_some_and(is_certificate_fault) {
            return true;
        }
        cause = inner.source();
    }
    false
}
