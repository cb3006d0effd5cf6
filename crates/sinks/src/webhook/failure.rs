//! Classifies failures: their kind and scope.
//!
//! A failure of the sink's own url is about the whole target only if no message could fare better: no connection. What a path
//! answers is about that path. A message with an address of its own stands for itself (ADR 0009): what keeps its target
//! from taking it counts as a try, or a dead endpoint would keep its messages for ever.

use std::{error::Error, time::Duration};

use duly_core::{SinkError, SinkErrorKind};
use hyper_util::client::legacy;

use super::{
    answer::Failure,
    connect::ConnectError,
    endpoint::{Endpoint, UrlSource},
};

/// A `Retry-After` longer than this concerns its path only: it must not stop the others.
const WHOLE_WISH_MAX: Duration = Duration::from_secs(30);

/// An answer that is no success. `is_whole` says whether the whole server asks for time.
pub(super) fn answered(source: UrlSource, failure: Failure, error: Answered<'_>) -> SinkError {
    let Answered { detail, retry_after, status, is_whole } = error;
    let new = |kind| SinkError::new(kind, detail).after(retry_after);
    match (failure, source) {
        (Failure::Bad, _) => new(SinkErrorKind::Refused),
        (Failure::Forbidden, _) | (Failure::Setup, UrlSource::Message) => new(SinkErrorKind::Denied),
        // The operator's to mend, and no message's fault: it costs no attempt.
        (Failure::Setup, UrlSource::Config) => new(SinkErrorKind::Misconfigured).at_destination(),
        (Failure::Busy, UrlSource::Config)
            if is_whole && retry_after.is_none_or(|retry_after| retry_after <= WHOLE_WISH_MAX) =>
        {
            new(SinkErrorKind::Throttled)
        }
        // A proxy in front of an endpoint that was removed for good answers so, too.
        (Failure::Busy, UrlSource::Message) if status == 503 && retry_after.is_none() => {
            new(SinkErrorKind::Unknown)
        }
        (Failure::Busy, _) => new(SinkErrorKind::Throttled).at_destination(),
        (Failure::Open, _) => new(SinkErrorKind::Unknown),
    }
}

/// The facts of an answer.
pub(super) struct Answered<'a> {
    pub(super) detail: &'a str,
    pub(super) retry_after: Option<Duration>,
    pub(super) status: u16,
    pub(super) is_whole: bool,
}

/// The time is over, and there was no answer.
pub(super) fn silent(detail: String) -> SinkError {
    SinkError::unknown(detail).at_destination()
}

/// There was no connection: nothing was sent.
pub(super) fn connect_failed(source: UrlSource, kind: SinkErrorKind, detail: String) -> SinkError {
    match (source, kind) {
        (UrlSource::Message, SinkErrorKind::Throttled) => SinkError::new(kind, detail).at_destination(),
        (UrlSource::Message, _) => SinkError::denied(detail),
        (UrlSource::Config, _) => SinkError::new(kind, detail),
    }
}

/// The origin has reached its limit of requests: nothing was sent.
pub(super) fn crowded(detail: &str) -> SinkError {
    SinkError::throttled(detail).at_destination()
}

/// A request that was given no connection: nothing was sent. Perhaps because the target ended TLS over our certificate.
pub(super) fn without_connection(
    endpoint: &Endpoint,
    why: &legacy::Error,
    certificate_fault: Option<String>,
) -> SinkError {
    match why.source().and_then(|cause| cause.downcast_ref::<ConnectError>()) {
        Some(refused @ ConnectError::Forbidden { .. }) if endpoint.source == UrlSource::Message => {
            SinkError::refused(refused.to_string())
        }
        Some(cause) => connect_failed(endpoint.source, cause.kind(), cause.to_string()),
        None => match certificate_fault {
            Some(fault) => about_certificate(endpoint, &fault),
            None => connect_failed(endpoint.source, SinkErrorKind::Unreachable, chain(why)),
        },
    }
}

/// A request that got no answer by its connection.
pub(super) fn broken(
    endpoint: &Endpoint,
    why: &legacy::Error,
    certificate_fault: Option<String>,
) -> SinkError {
    if why.is_connect() {
        return without_connection(endpoint, why, certificate_fault);
    }
    if let Some(fault) = certificate_fault {
        return about_certificate(endpoint, &fault);
    }
    if was_not_processed(why) {
        let detail = format!("the target did not begin with the request: {}", chain(why));
        return SinkError::throttled(detail).at_destination();
    }
    silent(format!("the connection was lost: {}", chain(why)))
}

/// The target ended TLS over our certificate. It does so before it reads the request.
fn about_certificate(endpoint: &Endpoint, fault: &str) -> SinkError {
    let detail = format!("the target refuses our certificate or misses one: {fault}");
    connect_failed(endpoint.source, SinkErrorKind::Misconfigured, detail)
}

/// Whether the target says that it has not acted on the request, and will not: it refused the stream, or went away before it
/// (RFC 9113, 8.7). h2 gives a stream the GOAWAY of the target only if the stream comes after the last that was processed.
fn was_not_processed(why: &legacy::Error) -> bool {
    let mut frames = causes(why).filter_map(|cause| cause.downcast_ref::<h2::Error>());
    frames.any(|frame| {
        let is_refused = frame.is_reset() && frame.reason() == Some(h2::Reason::REFUSED_STREAM);
        frame.is_remote() && (is_refused || frame.is_go_away())
    })
}

fn causes(why: &legacy::Error) -> impl Iterator<Item = &(dyn Error + 'static)> {
    std::iter::successors(why.source(), |cause: &&(dyn Error + 'static)| (*cause).source())
}

/// An error and what caused it, in one line.
fn chain(error: &dyn Error) -> String {
    let mut words = error.to_string();
    let mut cause = error.source();
    while let Some(next) = cause {
        words.push_str(": ");
        words.push_str(&next.to_string());
        cause = next.source();
    }
    words
}

#[cfg(test)]
mod tests {
    use duly_core::ErrorScope;

    use super::*;

    #[test]
    fn a_long_wish_of_three_paths_does_not_stop_the_others() {
        let busy = |seconds| {
            let retry_after = Some(Duration::from_secs(seconds));
            let answered_so = Answered { detail: "busy", retry_after, status: 429, is_whole: true };
            answered(UrlSource::Config, Failure::Busy, answered_so).scope
        };
        assert_eq!(busy(30), ErrorScope::Target);
        assert_eq!(busy(31), ErrorScope::Destination);
    }
}
