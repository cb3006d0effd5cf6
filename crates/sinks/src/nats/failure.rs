//! What NATS and the way to it may answer instead of yes, sorted by what comes next.

use std::{error::Error, io};

use async_nats::{
    ConnectError, ConnectErrorKind, RequestError,
    client::RequestErrorKind,
    jetstream::{self, ErrorCode},
};
use duly_core::{SinkError, SinkErrorKind};

/// Nothing was sent.
pub(super) fn no_connection(detail: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Unreachable, detail)
}

/// It may have arrived.
pub(super) fn no_answer(detail: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Unknown, detail)
}

/// It will never be taken.
pub(super) fn refused(detail: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Refused, detail)
}

/// The failure to connect: nothing was sent, whatever it was.
pub(super) fn unconnected(error: &ConnectError) -> SinkError {
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

/// What JetStream says instead of storing a message. None of them has it stored.
pub(super) fn not_stored(error: &jetstream::Error) -> SinkError {
    let kind = match error.error_code() {
        ErrorCode::STREAM_MESSAGE_EXCEEDS_MAXIMUM | ErrorCode::STREAM_SEALED => SinkErrorKind::Refused,
        // The stream is full and takes no more, or the server is.
        ErrorCode::STREAM_STORE_FAILED
        | ErrorCode::INSUFFICIENT_RESOURCES
        | ErrorCode::STORAGE_RESOURCES_EXCEEDED
        | ErrorCode::MEMORY_RESOURCES_EXCEEDED
        | ErrorCode::ACCOUNT_RESOURCES_EXCEEDED => SinkErrorKind::Throttled,
        ErrorCode::JETSTREAM_NOT_ENABLED | ErrorCode::JETSTREAM_NOT_ENABLED_FOR_ACCOUNT => {
            SinkErrorKind::Misconfigured
        }
        _ if error.code() == 503 => SinkErrorKind::Unreachable,
        _ => SinkErrorKind::Unknown,
    };
    SinkError::new(kind, error.to_string())
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
        if let Some(rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented) = found {
            return true;
        }
        cause = inner.source();
    }
    false
}
