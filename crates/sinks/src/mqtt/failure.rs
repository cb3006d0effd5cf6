//! Errors of MQTT brokers and of the way to them, sorted by what comes next.

use std::io;

use duly_core::{SinkError, SinkErrorKind};

use super::{config::MqttVersion, packet::Reason};

/// Codes from here on are failures.
const FAILURE: u8 = 0x80;
/// Accepted, and no subscriber matches.
pub(super) const NOBODY: u8 = 0x10;

pub(super) fn strange() -> io::Error {
    io::Error::new(io::ErrorKind::InvalidData, "this is no MQTT: an answer that cannot be read")
}

/// Whether it is a failure at all.
pub(super) fn is_failure(reason: &Reason) -> bool {
    reason.code >= FAILURE
}

/// A CONNACK that does not let us in: nothing was sent.
pub(super) fn not_let_in(reason: &Reason, version: MqttVersion) -> SinkError {
    use SinkErrorKind::{Misconfigured, Throttled, Unreachable};
    let (kind, detail) = match reason.code {
        // As versions before 5 said it.
        1 if version == MqttVersion::V5 => {
            (Misconfigured, "this broker does not speak version 5: write version = \"3.1.1\"".into())
        }
        1 => (Misconfigured, "this broker does not speak version 3.1.1".into()),
        2 => (Misconfigured, "the broker wants a client id of its own choice".into()),
        3 => (Unreachable, "the broker is not available".into()),
        4 => (Misconfigured, "bad user name or password".into()),
        5 => (Misconfigured, "not authorized".into()),
        0x84 | 0x85 | 0x86 | 0x87 | 0x8a | 0x8c | 0x9c | 0x9d => (Misconfigured, describe(reason)),
        0x89 | 0x97 | 0x9f => (Throttled, describe(reason)),
        _ => (Unreachable, describe(reason)),
    };
    SinkError::new(kind, detail)
}

/// An acknowledgement, or a goodbye, that says no to one message.
pub(super) fn not_taken(reason: &Reason) -> SinkError {
    use SinkErrorKind::{Denied, Refused, Throttled, Unknown};
    let error = |kind| SinkError::new(kind, describe(reason));
    match reason.code {
        // Not authorized: rights are those of the topic. Without them the connection would not be there.
        0x87 => error(Denied),
        // This topic, this body or this size will never do.
        0x90 | 0x95 | 0x99 | 0x9a | 0x9b => error(Refused),
        // A quota may be that of the topic; if it is that of the client, every topic will say so for itself.
        0x97 => error(Throttled).at_destination(),
        0x89 | 0x93 | 0x96 => error(Throttled),
        _ => error(Unknown),
    }
}

/// The reason in words.
pub(super) fn describe(reason: &Reason) -> String {
    let name = match reason.code {
        0x80 => "unspecified error",
        0x81 => "malformed packet",
        0x82 => "protocol error",
        0x83 => "implementation specific error",
        0x84 => "unsupported protocol version",
        0x85 => "client identifier not valid",
        0x86 => "bad user name or password",
        0x87 => "not authorized",
        0x88 => "server unavailable",
        0x89 => "server busy",
        0x8a => "banned",
        0x8b => "server shutting down",
        0x8c => "bad authentication method",
        0x8d => "keep alive timeout",
        0x8e => "session taken over",
        0x90 => "topic name invalid",
        0x91 => "packet identifier in use",
        0x93 => "receive maximum exceeded",
        0x95 => "packet too large",
        0x96 => "message rate too high",
        0x97 => "quota exceeded",
        0x98 => "administrative action",
        0x99 => "payload format invalid",
        0x9a => "retain not supported",
        0x9b => "QoS not supported",
        0x9c => "use another server",
        0x9d => "server moved",
        0x9f => "connection rate exceeded",
        _ => "a reason without a name",
    };
    let words = if reason.words.is_empty() { String::new() } else { format!(": {}", reason.words) };
    format!("{name} (0x{:02x}){words}", reason.code)
}

#[cfg(test)]
mod tests {
    use duly_core::ErrorScope;

    use super::*;

    #[test]
    fn reasons_are_sorted_by_what_comes_next() {
        let reason = |code| Reason { code, words: "words".into() };
        let kind = |code| not_taken(&reason(code)).kind;
        for code in [0x90, 0x95, 0x99, 0x9a, 0x9b] {
            assert_eq!(kind(code), SinkErrorKind::Refused, "{code:x}");
        }
        assert_eq!([kind(0x89), kind(0x93), kind(0x96), kind(0x97)], [SinkErrorKind::Throttled; 4]);
        assert_eq!(kind(0x87), SinkErrorKind::Denied);
        let scope = |code| not_taken(&reason(code)).scope;
        assert_eq!([scope(0x87), scope(0x97)], [ErrorScope::Destination; 2]);
        assert_eq!([scope(0x89), scope(0x96), scope(0x80)], [ErrorScope::Target; 3]);
        for code in [0x80, 0x83, 0x91, 0xff] {
            assert_eq!(kind(code), SinkErrorKind::Unknown, "{code:x}: nothing is dead-lettered on a guess");
        }
        assert!(!is_failure(&reason(0)) && !is_failure(&reason(NOBODY)) && is_failure(&reason(0x80)));
        let kind = |code| not_let_in(&reason(code), MqttVersion::V5).kind;
        assert_eq!([kind(4), kind(5), kind(0x86), kind(0x87), kind(1)], [SinkErrorKind::Misconfigured; 5]);
        assert_eq!([kind(3), kind(0x88), kind(0x8b)], [SinkErrorKind::Unreachable; 3]);
        assert_eq!(kind(0x89), SinkErrorKind::Throttled);
        assert_eq!(describe(&reason(0x97)), "quota exceeded (0x97): words");
    }
}
