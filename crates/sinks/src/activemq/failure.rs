//! Errors of ActiveMQ and of the way to it, sorted by what comes next.

use duly_core::{SinkError, SinkErrorKind};

use super::frame::Frame;

/// Characters of a broker's error that are kept; the rest is a stack trace.
const WORDS_MAX: usize = 500;

/// The text of an ERROR frame. The first line of its body, if there is one, names the cause better than its header.
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
    let by_code = words.get(..9).filter(|code| code.starts_with("AMQ")).map(by_code);
    let (kind, is_local) = by_code.unwrap_or_else(|| by_words(&words));
    let error = SinkError::new(kind, words);
    if is_local { error.at_destination() } else { error }
}

/// The code that the words of Artemis begin with: what it means, and whether it is about the destination alone. Nothing else of
/// them is looked at: they repeat what is in the message.
fn by_code(code: &str) -> (SinkErrorKind, bool) {
    match code {
        // No permission; no such queue, address or destination; another routing type.
        "AMQ229032" | "AMQ229213" | "AMQ229017" | "AMQ229203" | "AMQ339001" | "AMQ229207" | "AMQ229208"
        | "AMQ339041" => (SinkErrorKind::Denied, true),
        // The address is full and may not grow, or no queue is behind it. The second code does not say which of them.
        "AMQ229102" | "AMQ339011" => (SinkErrorKind::Throttled, true),
        // Headers that are too large.
        "AMQ339028" => (SinkErrorKind::Refused, false),
        _ => (SinkErrorKind::Unknown, false),
    }
}

fn by_words(words: &str) -> (SinkErrorKind, bool) {
    // The rest is a name that the sender of the message chose.
    let names = ["queue://", "topic://"];
    let words = names.into_iter().fold(words, |words, begin| words.split(begin).next().unwrap_or(words));
    if has(words, &["store is full"]) {
        (SinkErrorKind::Throttled, false)
    } else if has(words, &["resourceallocation", "usage manager", "usage limit", "is full"]) {
        (SinkErrorKind::Throttled, true)
    } else if has(words, &["not authorized", "access refused", "invaliddestination"]) {
        (SinkErrorKind::Denied, true)
    } else if has(words, &["was exceeded"]) {
        (SinkErrorKind::Refused, false)
    } else {
        (SinkErrorKind::Unknown, false)
    }
}

fn has(words: &str, any: &[&str]) -> bool {
    let words = words.to_ascii_lowercase();
    any.iter().any(|each| words.contains(each))
}

#[cfg(test)]
mod tests {
    use duly_core::ErrorScope;

    use super::*;

    #[test]
    fn words_of_brokers_are_sorted_by_what_comes_next() {
        use SinkErrorKind::{Denied, Refused, Throttled, Unknown};
        let (target, destination) = (ErrorScope::Target, ErrorScope::Destination);
        for (words, kind, scope) in [
            ("User ann is not authorized to write to: queue://a", Denied, destination),
            // A name that looks like the words of a full store stops nobody.
            ("User ann is not authorized to write to: queue://store is full", Denied, destination),
            ("User ann is not authorized to write to: topic://x is full", Denied, destination),
            ("ProtocolException: The maximum data length was exceeded", Refused, target),
            (
                "javax.jms.ResourceAllocationException: Usage Manager Memory Limit reached on queue://a",
                Throttled,
                destination,
            ),
            (
                "javax.jms.ResourceAllocationException: Persistent store is Full, 100% of 1024",
                Throttled,
                target,
            ),
            ("java.lang.NullPointerException", Unknown, target),
            ("AMQ229032 User duly does not have permission='SEND' on address a", Denied, destination),
            ("AMQ229102 Address \"a\" is full.", Throttled, destination),
            (
                "AMQ339011 Error sending message CoreMessage[properties=[x=not authorized]]",
                Throttled,
                destination,
            ),
            ("AMQ339041 Not allowed to specify ANYCAST semantics on MULTICAST address.", Denied, destination),
            ("AMQ339028 Message header too big, increase minLargeMessageSize please.", Refused, target),
            ("AMQ339031 Error handling send", Unknown, target),
            ("AMQ229213 User: duly does not have permission='CREATE_ADDRESS'", Denied, destination),
            ("AMQ229017 Queue a does not exist", Denied, destination),
            ("AMQ229203 Address Does Not Exist: a", Denied, destination),
            ("AMQ229207 Can not create queue with delivery mode", Denied, destination),
            ("AMQ229208 Invalid routing type ANYCAST for address a", Denied, destination),
        ] {
            let error = not_taken(words.into());
            assert_eq!((error.kind, error.scope), (kind, scope), "{words}");
        }
        let kind = |words: &str| not_let_in(words.into()).kind;
        assert_eq!(kind("User name [ann] or password is invalid."), SinkErrorKind::Misconfigured);
        assert_eq!(kind("Unsupported version, supported is 1.0"), SinkErrorKind::Misconfigured);
        assert_eq!(kind("the broker is being stopped"), SinkErrorKind::Unreachable);
    }
}
