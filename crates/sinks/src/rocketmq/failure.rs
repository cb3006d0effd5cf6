//! What RocketMQ and the way to it may answer instead of yes, sorted by what comes next.

use std::io;

use duly_core::{SinkError, SinkErrorKind};

use super::frame::Answer;

/// `SEND_OK`, and nothing else is.
pub(super) const SUCCESS: i32 = 0;
/// The topic is not there.
pub(super) const NO_TOPIC: i32 = 17;

const SYSTEM_ERROR: i32 = 1;
const SYSTEM_BUSY: i32 = 2;
const FLUSH_DISK_TIMEOUT: i32 = 10;
const SLAVE_NOT_AVAILABLE: i32 = 11;
const FLUSH_SLAVE_TIMEOUT: i32 = 12;
const MESSAGE_ILLEGAL: i32 = 13;
const SERVICE_NOT_AVAILABLE: i32 = 14;
const NO_PERMISSION: i32 = 16;

/// Nothing was sent.
pub(super) fn no_connection(detail: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Unreachable, detail)
}

/// It may have arrived.
pub(super) fn no_answer(detail: impl Into<String>) -> SinkError {
    SinkError::new(SinkErrorKind::Unknown, detail)
}

/// The failure to connect, or to ask something by which nothing is written.
pub(super) fn unconnected(what: &str, address: &str, why: &io::Error) -> SinkError {
    let cause = why.get_ref().and_then(|cause| cause.downcast_ref());
    let kind = match cause {
        Some(rustls::Error::InvalidCertificate(_)) => SinkErrorKind::Misconfigured,
        _ => SinkErrorKind::Unreachable,
    };
    SinkError::new(kind, format!("{what} at {address}: {why}"))
}

/// An answer that is not `SEND_OK`.
pub(super) fn sorted(answer: &Answer) -> SinkError {
    let remark = answer.remark.trim();
    let name = |word: &str| format!("{word} {remark}").trim_end().to_owned();
    let (kind, detail) = match answer.code {
        // The broker has it, and does not promise to keep it.
        FLUSH_DISK_TIMEOUT => (SinkErrorKind::Unknown, name("FLUSH_DISK_TIMEOUT")),
        SLAVE_NOT_AVAILABLE => (SinkErrorKind::Unknown, name("SLAVE_NOT_AVAILABLE")),
        FLUSH_SLAVE_TIMEOUT => (SinkErrorKind::Unknown, name("FLUSH_SLAVE_TIMEOUT")),
        // Said before it was looked at: the broker clears its queue, or does not let it in.
        SYSTEM_BUSY => (SinkErrorKind::Throttled, name("SYSTEM_BUSY")),
        SERVICE_NOT_AVAILABLE => (SinkErrorKind::Unreachable, name("SERVICE_NOT_AVAILABLE")),
        MESSAGE_ILLEGAL => (SinkErrorKind::Refused, name("MESSAGE_ILLEGAL")),
        NO_TOPIC => (SinkErrorKind::Refused, name("TOPIC_NOT_EXIST")),
        NO_PERMISSION => (SinkErrorKind::Misconfigured, name("NO_PERMISSION")),
        // Brokers of 4.x say so when they do not know who asks.
        SYSTEM_ERROR if remark.contains("AclException") => {
            (SinkErrorKind::Misconfigured, name("SYSTEM_ERROR"))
        }
        SYSTEM_ERROR => (SinkErrorKind::Unknown, name("SYSTEM_ERROR")),
        code => (SinkErrorKind::Unknown, name(&format!("code {code}"))),
    };
    SinkError::new(kind, detail)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(code: i32, remark: &str) -> SinkErrorKind {
        let fields = std::collections::BTreeMap::new();
        sorted(&Answer { code, remark: remark.into(), fields, body: bytes::Bytes::new() }).kind
    }

    #[test]
    fn what_is_not_safely_taken_is_unknown_and_what_has_no_name_too() {
        for code in [FLUSH_DISK_TIMEOUT, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT, SYSTEM_ERROR, 999, -1] {
            assert_eq!(kind(code, "words"), SinkErrorKind::Unknown, "{code}");
        }
        assert_eq!(
            kind(SYSTEM_ERROR, "org.apache.rocketmq.acl.common.AclException: no"),
            SinkErrorKind::Misconfigured
        );
        assert_eq!(kind(SYSTEM_BUSY, "[TIMEOUT_CLEAN_QUEUE]broker busy"), SinkErrorKind::Throttled);
        assert_eq!(kind(SERVICE_NOT_AVAILABLE, "disk full"), SinkErrorKind::Unreachable);
    }
}
