//! What ActiveMQ and the way to it may answer instead of yes, sorted by what comes next.

use duly_core::{SinkError, SinkErrorKind};

use super::frame::Frame;

/// As much of what a broker says as is worth keeping: the rest are its stack traces.
const WORDS_MAX: usize = 500;

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

/// What an ERROR frame says: the first line of its body names the cause better than its header does, where it has one.
pub(super) fn words(error: &Frame) -> String {
    let body = String::from_utf8_lossy(&error.body);
    let (header, line) =
        (error.header("message").unwrap_or_default(), body.lines().next().unwrap_or_default());
    let words = if line.contains(header) { line } else { header };
    let words: String = words.trim().chars().take(WORDS_MAX).collect();
    if words.is_empty() { "the broker says ERROR, and not why".into() } else { words }
}

/// An ERROR instead of CONNECTED: nothing was sent.
pub(super) fn not_let_in(words: String) -> SinkError {
    let is_about_us = has(
        &words,
        &["password", "security", "authoriz", "authentic", "credential", "access refused", "version"],
    );
    let kind = if is_about_us { SinkErrorKind::Misconfigured } else { SinkErrorKind::Unreachable };
    SinkError::new(kind, words)
}

/// An ERROR about one message.
pub(super) fn not_taken(words: String) -> SinkError {
    let kind = if has(&words, &["resourceallocation", "usage manager", "usage limit", "is full"]) {
        SinkErrorKind::Throttled
    } else if has(&words, &["not authorized", "access refused", "invaliddestination", "was exceeded"]) {
        SinkErrorKind::Refused
    } else {
        SinkErrorKind::Unknown
    };
    SinkError::new(kind, words)
}

fn has(words: &str, any: &[&str]) -> bool {
    let words = words.to_ascii_lowercase();
    any.iter().any(|each| words.contains(each))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn words_of_brokers_are_sorted_by_what_comes_next() {
        let kind = |words: &str| not_taken(words.into()).kind;
        assert_eq!(kind("User ann is not authorized to write to: queue://a"), SinkErrorKind::Refused);
        assert_eq!(kind("ProtocolException: The maximum data length was exceeded"), SinkErrorKind::Refused);
        assert_eq!(
            kind("javax.jms.ResourceAllocationException: Usage Manager Memory Limit reached on queue://a"),
            SinkErrorKind::Throttled
        );
        assert_eq!(kind("java.lang.NullPointerException"), SinkErrorKind::Unknown, "no guesses");
        let kind = |words: &str| not_let_in(words.into()).kind;
        assert_eq!(kind("User name [ann] or password is invalid."), SinkErrorKind::Misconfigured);
        assert_eq!(kind("Unsupported version, supported is 1.0"), SinkErrorKind::Misconfigured);
        assert_eq!(kind("the broker is being stopped"), SinkErrorKind::Unreachable);
    }
}
