//! The outcome of each unconfirmed message when the broker closes a shared channel.

use duly_core::SinkError;
use lapin::Error;

use super::{
    failure::{Cause, is_long_key},
    message::OutgoingMessage,
    publisher::PublishEvent,
};

/// A message that was published and not confirmed.
pub(super) struct Unconfirmed<'a> {
    pub(super) message: &'a OutgoingMessage,
    /// The broker's reason, if it returned the message.
    pub(super) returned: Option<&'a str>,
    /// Whether its destination has taken a message on this channel.
    pub(super) is_known: bool,
}

/// The event of each of these messages, which are in the order of publishing.
///
/// The broker works on the messages of a channel in order and closes it at the culprit: those before it may have been
/// taken, those after it were not. It names what was wrong and not the message. If nothing has ever gone to that
/// destination, the first message to it is the culprit; otherwise the right was lost on the way, and only the last one is sure
/// not to have been taken.
pub(super) fn judge(cause: &Cause, error: &Error, under: &[Unconfirmed<'_>]) -> Vec<PublishEvent> {
    let is_candidate = |each: &Unconfirmed<'_>| match cause {
        Cause::Exchange(exchange) => each.message.exchange.as_str() == exchange,
        Cause::Key { exchange, key } => {
            each.message.exchange.as_str() == exchange && each.message.key.as_str() == key
        }
        Cause::LongKey { begin } => {
            is_long_key(begin, each.message.exchange.as_str(), each.message.key.as_str())
        }
        Cause::Size { bytes, .. } => each.message.size() == *bytes,
        Cause::Other => false,
    };
    let first = under.iter().position(is_candidate);
    let is_new = matches!(cause, Cause::Key { .. } | Cause::LongKey { .. })
        && first.is_some_and(|first| !under[first].is_known);
    let culprit = if is_new { first } else { under.iter().rposition(is_candidate) };
    let each = under.iter().enumerate().map(|(index, each)| match (each.returned, culprit) {
        (Some(words), _) => PublishEvent::Returned(words.to_owned()),
        (None, Some(culprit)) if index > culprit => PublishEvent::Again,
        (None, Some(culprit)) if index == culprit => PublishEvent::Done(Err(match cause {
            Cause::Size { .. } => SinkError::refused(error.to_string()),
            _ => SinkError::denied(error.to_string()),
        })),
        _ => PublishEvent::Done(Err(SinkError::unknown(format!(
            "the channel was closed before the confirm: {error}"
        )))),
    });
    each.collect()
}
