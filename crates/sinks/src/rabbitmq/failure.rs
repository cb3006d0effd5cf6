//! Classifies errors of RabbitMQ and of the connection to it.

use duly_core::{SinkError, SinkErrorKind};
use lapin::{Error, ErrorKind};

use crate::tls::is_certificate_io_fault;

/// Reply codes of AMQP.
const ACCESS_REFUSED: u16 = 403;
const NOT_FOUND: u16 = 404;
const PRECONDITION_FAILED: u16 = 406;
const NOT_ALLOWED: u16 = 530;

/// The broker lacks memory or disk and blocks all publishers.
pub(super) fn blocked(reason: &str) -> SinkError {
    SinkError::throttled(format!("the broker blocks publishers: {reason}"))
}

/// A negative confirm.
pub(super) fn rejected() -> SinkError {
    let detail = "the broker did not take it: a queue that is full and rejects, or that has no leader";
    SinkError::throttled(detail).at_destination()
}

/// A failure to connect: nothing was sent.
pub(super) fn connect_failed(error: &Error) -> SinkError {
    let kind = match code(error) {
        Some(ACCESS_REFUSED | NOT_ALLOWED) => SinkErrorKind::Misconfigured,
        _ if is_bad_certificate(error) => SinkErrorKind::Misconfigured,
        _ => SinkErrorKind::Unreachable,
    };
    SinkError::new(kind, error.to_string())
}

/// Why the broker closed a channel, from its error text. The text names no message.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Cause {
    /// An exchange that is not there, or that takes nothing from us.
    Exchange(String),
    /// A routing key that the user may not write to (topic permissions).
    Key { exchange: String, key: String },
    /// The same, with a key so long that the broker cut its words: how `key' in exchange 'exchange' in vhost '` begins.
    LongKey { begin: String },
    /// A body of so many bytes; the broker takes `max`.
    Size { bytes: usize, max: usize },
    /// Something else, or the connection itself.
    Other,
}

/// What RabbitMQ calls the default exchange.
const DEFAULT_EXCHANGE: &str = "amq.default";

const TOPIC: &str = "access to topic '";
/// Ends an error text that was cut because it was too long for AMQP.
const CUT: &str = "...";
/// Maximum length of an error text in bytes.
const WORDS_MAX: usize = 255;

impl Cause {
    pub(super) fn of(error: &Error) -> Self {
        let words = words(error);
        let exchange = || {
            let name = quoted_after(&words, "exchange '")?;
            Some(if name == DEFAULT_EXCHANGE { String::new() } else { name.to_owned() })
        };
        let found = match code(error) {
            Some(NOT_FOUND) => exchange().map(Self::Exchange),
            Some(ACCESS_REFUSED) if is_cut(&words) => {
                cut_after(&words, TOPIC).or_else(|| exchange().map(Self::Exchange))
            }
            Some(ACCESS_REFUSED) => match (quoted_after(&words, TOPIC), exchange()) {
                (Some(key), Some(exchange)) => Some(Self::Key { exchange, key: key.to_owned() }),
                (None, Some(exchange)) => Some(Self::Exchange(exchange)),
                (_, None) => None,
            },
            Some(PRECONDITION_FAILED) => size(&words),
            _ => None,
        };
        found.unwrap_or(Self::Other)
    }
}

fn quoted_after<'a>(words: &'a str, begin: &str) -> Option<&'a str> {
    let (_, rest) = words.split_once(begin)?;
    // A routing key may hold a quote itself: what follows is fixed.
    let end = ["' in exchange '", "' in vhost '"].iter().filter_map(|end| rest.find(end)).min();
    Some(&rest[..end.or_else(|| rest.find('\''))?])
}

/// Whether the error text was cut.
fn is_cut(words: &str) -> bool {
    words.len() >= WORDS_MAX && words.ends_with(CUT)
}

fn cut_after(words: &str, begin: &str) -> Option<Cause> {
    let (_, rest) = words.strip_suffix(CUT)?.split_once(begin)?;
    Some(Cause::LongKey { begin: rest.to_owned() })
}

/// Whether the words that were cut begin as they would for this exchange and routing key.
pub(super) fn is_long_key(begin: &str, exchange: &str, key: &str) -> bool {
    let shared = key.len().min(begin.len());
    // Nearly all keys differ before their end.
    if key.as_bytes()[..shared] != begin.as_bytes()[..shared] {
        return false;
    }
    let whole = format!("{key}' in exchange '{exchange}' in vhost '");
    whole.starts_with(begin) || begin.starts_with(&whole)
}

/// The broker's error text, without that of the client.
fn words(error: &Error) -> String {
    match error.kind() {
        ErrorKind::ProtocolError(error) => error.get_message().to_string(),
        _ => error.to_string(),
    }
}

fn size(words: &str) -> Option<Cause> {
    let number = |begin: &str| {
        let (_, rest) = words.split_once(begin)?;
        rest.split(|sign: char| !sign.is_ascii_digit()).next()?.parse().ok()
    };
    Some(Cause::Size { bytes: number("message size ")?, max: number("max size ")? })
}

/// Classifies the error of a message that was alone on a channel that was closed.
pub(super) fn unconfirmed_alone(error: &Error) -> SinkError {
    match (Cause::of(error), code(error)) {
        (Cause::Size { .. }, _) => SinkError::refused(error.to_string()),
        (_, Some(ACCESS_REFUSED | NOT_FOUND)) => SinkError::denied(error.to_string()),
        _ => SinkError::unknown(error.to_string()),
    }
}

/// Classifies the error of a query, which delivers nothing.
pub(super) fn query_failed(error: &Error) -> SinkError {
    match code(error) {
        Some(ACCESS_REFUSED | NOT_FOUND | NOT_ALLOWED) => SinkError::misconfigured(error.to_string()),
        _ => SinkError::unreachable(error.to_string()),
    }
}

/// Whether the broker knows no queue of that name. It says otherwise of one whose node is down, with the same code.
pub(super) fn is_no_such_queue(error: &Error) -> bool {
    is_not_found(error) && words(error).starts_with("NOT_FOUND - no queue '")
}

/// Whether what was named is not there.
pub(super) fn is_not_found(error: &Error) -> bool {
    code(error) == Some(NOT_FOUND)
}

fn code(error: &Error) -> Option<u16> {
    match error.kind() {
        ErrorKind::ProtocolError(error) => Some(error.get_id()),
        _ => None,
    }
}

fn is_bad_certificate(error: &Error) -> bool {
    matches!(error.kind(), ErrorKind::IOError(failed) if is_certificate_io_fault(failed))
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
        let kind = |code| unconfirmed_alone(&closed(code, "no")).kind;
        assert_eq!(kind(404), SinkErrorKind::Denied);
        assert_eq!(kind(403), SinkErrorKind::Denied);
        assert_eq!(kind(406), SinkErrorKind::Unknown, "nothing is dead-lettered on a guess");
        assert_eq!(kind(320), SinkErrorKind::Unknown, "the broker goes away: some may have arrived");
        assert_eq!(connect_failed(&closed(320, "shutdown")).kind, SinkErrorKind::Unreachable);
        assert_eq!(connect_failed(&closed(530, "vhost x not found")).kind, SinkErrorKind::Misconfigured);
    }

    #[test]
    fn the_brokers_words_tell_what_ended_a_channel() {
        let cause = |code, words| Cause::of(&closed(code, words));
        let exchange = |name: &str| Cause::Exchange(name.into());
        assert_eq!(cause(404, "NOT_FOUND - no exchange 'shop' in vhost '/'"), exchange("shop"));
        let words = "ACCESS_REFUSED - access to exchange 'amq.default' in vhost '/' refused for user 'few'";
        assert_eq!(cause(403, words), exchange(""));
        let words = "ACCESS_REFUSED - cannot publish to internal exchange 'amq.rabbitmq.trace' in vhost '/'";
        assert_eq!(cause(403, words), exchange("amq.rabbitmq.trace"));
        let words = "ACCESS_REFUSED - access to topic 'it's.me' in exchange 'shop' in vhost '/' refused for user 'few'";
        assert_eq!(cause(403, words), Cause::Key { exchange: "shop".into(), key: "it's.me".into() });
        let words = "PRECONDITION_FAILED - message size 5000 is larger than configured max size 1000";
        assert_eq!(cause(406, words), Cause::Size { bytes: 5000, max: 1000 });
        assert_eq!(cause(406, "PRECONDITION_FAILED - unknown delivery tag 7"), Cause::Other);
        assert_eq!(cause(403, "ACCESS_REFUSED - no"), Cause::Other);
    }

    #[test]
    fn a_queue_that_is_away_is_not_taken_for_none_whatever_its_name() {
        let is_none = |words: &str| is_no_such_queue(&closed(404, words));
        assert!(is_none("NOT_FOUND - no queue 'orders' in vhost '/'"));
        let away = |name| {
            format!(
                "NOT_FOUND - home node 'rabbit@a' of durable queue '{name}' in vhost '/' is down or inaccessible"
            )
        };
        assert!(!is_none(&away("orders")));
        assert!(!is_none(&away("x no queue 'y")));
    }

    #[test]
    fn an_exchange_is_known_also_where_the_broker_cut_its_words() {
        let user = "u".repeat(250);
        let whole =
            format!("ACCESS_REFUSED - access to exchange 'shop' in vhost '/' refused for user '{user}'");
        let words = format!("{}...", &whole[..252]);
        assert_eq!(Cause::of(&closed(403, &words)), Cause::Exchange("shop".into()));
    }

    #[test]
    fn a_routing_key_is_known_again_where_the_broker_cut_its_words() {
        for length in [100, 180, 200, 218, 250] {
            let key = "k".repeat(length);
            let whole = format!(
                "ACCESS_REFUSED - access to topic '{key}' in exchange 'amq.topic' in vhost '/' refused for user 'few'"
            );
            let words = if whole.len() > 255 { format!("{}...", &whole[..252]) } else { whole };
            let is_found = |key: &str, exchange: &str| match Cause::of(&closed(403, &words)) {
                Cause::LongKey { begin } => is_long_key(&begin, exchange, key),
                cause => cause == Cause::Key { exchange: exchange.into(), key: key.into() },
            };
            assert!(is_found(&key, "amq.topic"), "{length}");
            assert!(!is_found(&format!("x{key}"), "amq.topic"), "{length}");
            assert!(!is_found("orders", "amq.topic"), "{length}");
        }
    }
}
