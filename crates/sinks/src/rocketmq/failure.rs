//! Errors of RocketMQ and of the way to it, sorted by what comes next. The table is in `docs.md`.

use std::io;

use duly_core::{SinkError, SinkErrorKind};

use super::frame::Response;
use crate::tls::is_certificate_io_fault;

/// `SEND_OK`.
pub(super) const SUCCESS: i32 = 0;
/// The topic is not there.
pub(super) const TOPIC_NOT_EXIST: i32 = 17;

const SYSTEM_ERROR: i32 = 1;
const SYSTEM_BUSY: i32 = 2;
const REQUEST_CODE_NOT_SUPPORTED: i32 = 3;
const FLUSH_DISK_TIMEOUT: i32 = 10;
const SLAVE_NOT_AVAILABLE: i32 = 11;
const FLUSH_SLAVE_TIMEOUT: i32 = 12;
const MESSAGE_ILLEGAL: i32 = 13;
const SERVICE_NOT_AVAILABLE: i32 = 14;
const VERSION_NOT_SUPPORTED: i32 = 15;
const NO_PERMISSION: i32 = 16;
const INVALID_PARAMETER: i32 = 29;
const FLOW_CONTROL: i32 = 215;
const NOT_LEADER_FOR_QUEUE: i32 = 501;
const GO_AWAY: i32 = 1500;

/// Words of brokers of 5.x that do not know us. Rights are missing, on the other hand, where they say `has no permission`.
const UNKNOWN_USER: [&str; 4] = ["signature", "User:", "username", "uthentication"];
/// Said of a resource by brokers of 4.x and 5.x: they know us, and this topic is not ours.
const NO_RIGHT: [&str; 3] = ["has no permission", "No default permission", "Authorization failed"];
/// A broker said so before it wrote anything.
const NOT_WRITTEN: [&str; 2] = ["in-sync replicas not enough", "create mapped file failed"];

/// Said of a batch as a whole, before anything of it is written: it is larger than one message may be.
const TOO_LARGE: &str = "size exceeded";
/// Brokers of 4.x answer so with `SYSTEM_ERROR` while their page cache is busy, before they write. 5.x answers `SYSTEM_BUSY`.
const BUSY: [&str; 1] = ["start flow control"];

/// The answer to a question by which nothing is written: no message can have arrived or been refused by it.
pub(super) fn query_failed(answer: &Response) -> SinkError {
    let failure = classify(answer);
    match failure.kind {
        SinkErrorKind::Unknown | SinkErrorKind::Refused => SinkError::unreachable(failure.detail),
        _ => failure.error(false),
    }
}

/// The scope of a failure.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum About {
    /// The message, everything, or nobody knows.
    Target,
    /// The topic: others go on.
    Topic,
    /// One broker, which surely does not keep the message: another may take it.
    Broker,
}

/// Why a message was not taken.
#[derive(Debug, Clone)]
pub(super) struct Failure {
    pub(super) kind: SinkErrorKind,
    pub(super) about: About,
    pub(super) detail: String,
}

impl Failure {
    fn new(kind: SinkErrorKind, about: About, detail: impl Into<String>) -> Self {
        Self { kind, about, detail: detail.into() }
    }

    /// It may have arrived.
    pub(super) fn no_answer(detail: impl Into<String>) -> Self {
        Self::new(SinkErrorKind::Unknown, About::Target, detail)
    }

    /// Nothing was sent to this broker.
    pub(super) fn unsent(detail: impl Into<String>) -> Self {
        Self::new(SinkErrorKind::Unreachable, About::Broker, detail)
    }

    /// As the scheduler sees it. `has_others`: whether another broker is there, so that the target is.
    pub(super) fn error(self, has_others: bool) -> SinkError {
        let error = SinkError::new(self.kind, self.detail);
        match self.about {
            About::Target => error,
            About::Broker if !has_others => error,
            About::Broker | About::Topic => error.at_destination(),
        }
    }
}

/// The failure to connect, or to ask something by which nothing is written.
pub(super) fn connect_failed(what: &str, address: &str, why: &io::Error) -> Failure {
    let detail = format!("{what} at {address}: {why}");
    refused_certificate(why, &detail).unwrap_or_else(|| Failure::unsent(detail))
}

/// The failure of a connection over which something was sent. A broker that refuses our certificate has acted on none of it; one
/// that has answered did not refuse it.
pub(super) fn lost(why: &io::Error, is_answered: bool) -> Failure {
    let detail = format!("the broker: {why}");
    let refused = if is_answered { None } else { refused_certificate(why, &detail) };
    refused.unwrap_or_else(|| Failure::no_answer(detail))
}

fn refused_certificate(why: &io::Error, detail: &str) -> Option<Failure> {
    is_certificate_io_fault(why).then(|| Failure::new(SinkErrorKind::Misconfigured, About::Target, detail))
}

/// The name of a code by which a broker says that it has the message with fewer copies, or not yet on its disk.
pub(super) fn weaker(code: i32) -> Option<&'static str> {
    match code {
        FLUSH_DISK_TIMEOUT => Some("FLUSH_DISK_TIMEOUT"),
        SLAVE_NOT_AVAILABLE => Some("SLAVE_NOT_AVAILABLE"),
        FLUSH_SLAVE_TIMEOUT => Some("FLUSH_SLAVE_TIMEOUT"),
        _ => None,
    }
}

/// Why a broker took nothing of a batch, if it may take some of its messages otherwise.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum BatchRefusal {
    /// The broker knows no batches.
    Unsupported,
    /// It is larger than one message may be.
    TooLarge,
    /// Something is wrong with one of its messages, at least.
    Illegal,
}

/// Why a batch was refused, if its messages may fare better by other requests.
pub(super) fn batch_refusal(answer: &Response) -> Option<BatchRefusal> {
    match answer.code {
        REQUEST_CODE_NOT_SUPPORTED => Some(BatchRefusal::Unsupported),
        SYSTEM_ERROR if answer.remark.contains(TOO_LARGE) => Some(BatchRefusal::TooLarge),
        MESSAGE_ILLEGAL => Some(BatchRefusal::Illegal),
        _ => None,
    }
}

/// An answer that is not `SEND_OK`.
pub(super) fn classify(answer: &Response) -> Failure {
    use SinkErrorKind::{Denied, Misconfigured, Refused, Throttled, Unknown, Unreachable};
    let remark = answer.remark.trim();
    let says = |words: &[&str]| words.iter().any(|word| remark.contains(word));
    let (kind, about, name) = match answer.code {
        // No attempt may count: the broker has it, and a dead letter would be a lie.
        code if let Some(word) = weaker(code) => (Throttled, About::Broker, word),
        // Said before it was looked at: the broker clears its queue, or does not let it in.
        SYSTEM_BUSY => (Throttled, About::Broker, "SYSTEM_BUSY"),
        FLOW_CONTROL => (Throttled, About::Broker, "FLOW_CONTROL"),
        SERVICE_NOT_AVAILABLE => (Unreachable, About::Broker, "SERVICE_NOT_AVAILABLE"),
        GO_AWAY => (Unreachable, About::Broker, "GO_AWAY"),
        MESSAGE_ILLEGAL => (Refused, About::Target, "MESSAGE_ILLEGAL"),
        TOPIC_NOT_EXIST => (Denied, About::Topic, "TOPIC_NOT_EXIST"),
        // The route is of yesterday.
        NOT_LEADER_FOR_QUEUE => (Unreachable, About::Topic, "NOT_LEADER_FOR_QUEUE"),
        INVALID_PARAMETER if says(&["queueId"]) => (Unreachable, About::Topic, "INVALID_PARAMETER"),
        INVALID_PARAMETER => (Denied, About::Topic, "INVALID_PARAMETER"),
        // A broker that is being drained, as before maintenance.
        NO_PERMISSION if remark.starts_with("the broker[") => (Unreachable, About::Broker, "NO_PERMISSION"),
        NO_PERMISSION if says(&NO_RIGHT) || !says(&UNKNOWN_USER) => (Denied, About::Topic, "NO_PERMISSION"),
        NO_PERMISSION => (Misconfigured, About::Target, "NO_PERMISSION"),
        // Brokers of 4.x do not say NO_PERMISSION.
        SYSTEM_ERROR if remark.contains("AclException") && says(&NO_RIGHT) => {
            (Denied, About::Topic, "SYSTEM_ERROR")
        }
        SYSTEM_ERROR if remark.contains("AclException") => (Misconfigured, About::Target, "SYSTEM_ERROR"),
        SYSTEM_ERROR if says(&BUSY) => (Throttled, About::Broker, "SYSTEM_ERROR"),
        SYSTEM_ERROR if says(&NOT_WRITTEN) => (Unreachable, About::Broker, "SYSTEM_ERROR"),
        SYSTEM_ERROR => (Unknown, About::Target, "SYSTEM_ERROR"),
        REQUEST_CODE_NOT_SUPPORTED => (Misconfigured, About::Target, "REQUEST_CODE_NOT_SUPPORTED"),
        VERSION_NOT_SUPPORTED => (Misconfigured, About::Target, "VERSION_NOT_SUPPORTED"),
        code => return Failure::new(Unknown, About::Target, format!("code {code} {remark}").trim_end()),
    };
    Failure::new(kind, about, format!("{name} {remark}").trim_end())
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use bytes::Bytes;

    use super::*;

    #[test]
    fn what_a_name_server_answers_costs_no_attempt() {
        for code in [SYSTEM_ERROR, MESSAGE_ILLEGAL, 9_999] {
            let remark = "name server not ready".to_owned();
            let answer = Response { code, remark, fields: BTreeMap::new(), body: Bytes::new() };
            assert!(!query_failed(&answer).kind.outcome().counts(), "{code}");
        }
    }

    #[test]
    fn an_alert_of_a_broker_that_has_answered_refuses_no_message() {
        let alert = rustls::Error::AlertReceived(rustls::AlertDescription::CertificateExpired);
        let why = io::Error::other(alert);
        assert_eq!(lost(&why, false).kind, SinkErrorKind::Misconfigured);
        assert_eq!(lost(&why, true).kind, SinkErrorKind::Unknown);
    }
}
