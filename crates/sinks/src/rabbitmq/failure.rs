//! What RabbitMQ and the way to it may answer instead of yes, sorted by what comes next.

use std::io;

use duly_core::{SinkError, SinkErrorKind};
use lapin::{Error, ErrorKind};

/// Reply codes of AMQP.
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const NOT_ALLOWED: u16 = 530;
const PRECONDITION_FAILED: u16 = 406;

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

/// The broker is short of something and takes no messages from anybody.
pub(super) fn blocked(reason: &str) -> SinkError {
    SinkError::new(SinkErrorKind::Throttled, format!("the broker blocks publishers: {reason}"))
}

/// The failure to connect: nothing was sent, whatever it was.
pub(super) fn unconnected(error: &Error) -> SinkError {
    let kind = match code(error) {
        Some(ACCESS_REFUSED | NOT_ALLOWED) => SinkErrorKind::Misconfigured,
        _ if is_bad_certificate(error) => SinkErrorKind::Misconfigured,
        _ => SinkErrorKind::Unreachable,
    };
    SinkError::new(kind, error.to_string())
}

/// The end of a channel or connection on which messages of one exchange were under way.
pub(super) fn unconfirmed(error: &Error) -> SinkError {
    let kind = match code(error) {
        // There is no such exchange, so it has taken none of them.
        Some(NOT_FOUND) => SinkErrorKind::Refused,
        Some(ACCESS_REFUSED | NOT_ALLOWED) => SinkErrorKind::Misconfigured,
        _ => SinkErrorKind::Unknown,
    };
    SinkError::new(kind, error.to_string())
}

/// The most bytes that a message may have, if it is for that that the broker closed the channel.
pub(super) fn size_max(error: &Error) -> Option<usize> {
    let words = error.to_string();
    let last = words.split(|sign: char| !sign.is_ascii_digit()).rfind(|number| !number.is_empty());
    let is_for_size = code(error) == Some(PRECONDITION_FAILED) && words.contains("message size");
    last.filter(|_| is_for_size)?.parse().ok()
}

/// What a question met that delivers nothing.
pub(super) fn unasked(error: &Error) -> SinkError {
    match unconfirmed(error) {
        SinkError { kind: SinkErrorKind::Unknown, detail, .. } => no_connection(detail),
        other => other,
    }
}

fn code(error: &Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

fn is_bad_certificate(error: &Error) -> bool {
    let ErrorKind::IOError(failed) = error.kind() else { return false };
    let mut inside = failed.get_ref();
    while let Some(cause) = inside {
        if let Some(why) = cause.downcast_ref::<rustls::Error>() {
            return matches!(
                why,
                rustls::Error::InvalidCertificate(_) | rustls::Error::NoCertificatesPresented
            );
        }
        inside = cause.downcast_ref::<io::Error>().and_then(io::Error::get_ref);
    }
    false
}

#[cfg(test)]
mod tests {
    use lapin::protocol::AMQPError;

    use super::*;

    fn closed(code: u16, words: &str) -> Error {
        ErrorKind::ProtocolError(AMQPError::from_id(code, words.into()).unwrap()).into()
    }

    #[test]
    fn the_end_of_a_channel_is_sorted_by_its_code() {
        let kind = |code| unconfirmed(&closed(code, "no")).kind;
        assert_eq!(kind(404), SinkErrorKind::Refused);
        assert_eq!(kind(403), SinkErrorKind::Misconfigured);
        assert_eq!(kind(406), SinkErrorKind::Unknown, "nothing is dead-lettered on a guess");
        assert_eq!(kind(320), SinkErrorKind::Unknown, "the broker goes away: some may have arrived");
        assert_eq!(unconnected(&closed(320, "shutdown")).kind, SinkErrorKind::Unreachable);
        assert_eq!(unconnected(&closed(530, "vhost x not found")).kind, SinkErrorKind::Misconfigured);
    }

    #[test]
    fn the_largest_message_is_learnt_from_the_brokers_words() {
        let words = "PRECONDITION_FAILED - message size 5000 is larger than configured max size 1000";
        assert_eq!(size_max(&closed(406, words)), Some(1000));
        assert_eq!(size_max(&closed(406, "PRECONDITION_FAILED - unknown delivery tag 7")), None);
    }
}
