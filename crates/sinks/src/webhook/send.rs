//! One message, one request.

use std::error::Error;

use bytes::Bytes;
use duly_core::{Delivery, Invalid, SinkError, SinkErrorKind};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{self, connect::capture_connection};

use super::{
    Call, WebhookSink,
    answer::{self, is_elsewhere, kind, retry_after},
    connect::ConnectError,
    headers::headers,
    place::{Place, Whose, place},
};

/// A message that cannot become a request.
pub(super) fn misfit(fault: &Invalid) -> SinkError {
    SinkError::new(SinkErrorKind::Refused, fault.to_string())
}

impl WebhookSink {
    /// Sends one message, and says what became of it.
    pub(super) async fn send(&self, delivery: &Delivery, call: Call) -> Result<String, SinkError> {
        let now = self.clock.now();
        let settings = &self.settings;
        let topic = delivery.message.topic.as_str();
        let place =
            place(topic, settings.base.as_ref(), &settings.allowed).map_err(|fault| misfit(&fault))?;
        if now.mono() > call.begin_until {
            let words = "not sent: the target took too long over the messages before it";
            return Err(SinkError::new(SinkErrorKind::Throttled, words));
        }
        let seconds = now.wall().as_millis() / 1000;
        let headers =
            headers(delivery, &settings.headers, &settings.keys, seconds).map_err(|fault| misfit(&fault))?;

        let mut request = Request::new(Full::new(delivery.message.body.to_bytes()));
        *request.method_mut() = settings.method.clone();
        *request.uri_mut() = place.uri.clone();
        *request.headers_mut() = headers;
        let answer = self.answer_to(request, &place, call).await?;
        self.judge(answer, &place, call).await
    }

    async fn answer_to(
        &self,
        mut request: Request<Full<Bytes>>,
        place: &Place,
        call: Call,
    ) -> Result<Response<Incoming>, SinkError> {
        let connection = capture_connection(&mut request);
        let answer = tokio::select! {
            biased;
            answer = self.client.request(request) => answer,
            () = self.clock.sleep_until(call.end) => {
                let timeout = self.settings.timeout;
                let error = match *connection.connection_metadata() {
                    Some(_) => SinkError::new(SinkErrorKind::Unknown, format!("no answer within {timeout:?}")),
                    None => SinkError::new(SinkErrorKind::Unreachable, format!("no connection within {timeout:?}")),
                };
                return Err(blame(place, error));
            }
        };
        answer.map_err(|why| broken(place, &why))
    }

    async fn judge(
        &self,
        answer: Response<Incoming>,
        place: &Place,
        call: Call,
    ) -> Result<String, SinkError> {
        let (head, body) = answer.into_parts();
        let elsewhere = is_elsewhere(&head.headers, &place.uri);
        let retry_after = retry_after(&head.headers, self.clock.now().wall());
        // Cut only after the secrets are out: half of one is still worth something.
        let words = self.settings.secrets.hide(&answer::words(body, &*self.clock, call.end).await);
        let words: String = words.chars().take(answer::WORDS_MAX).collect();
        let status = head.status;
        let Some(kind) = kind(status, &self.settings.permanent, elsewhere) else {
            return Ok(format!("{} {words}", status.as_u16()).trim_end().to_owned());
        };
        let mut detail = format!("the target answered {status}");
        if status.is_redirection() {
            detail.push_str("; redirects are not followed, set the url to where it leads");
        }
        if !words.is_empty() {
            detail.push_str(": ");
            detail.push_str(&words);
        }
        Err(blame(place, SinkError { retry_after, ..SinkError::new(kind, detail) }))
    }
}

/// A request that got no answer.
fn broken(place: &Place, why: &legacy::Error) -> SinkError {
    let cause = why.source().and_then(|cause| cause.downcast_ref::<ConnectError>());
    let error = match cause {
        Some(refused @ ConnectError::Forbidden { .. }) if place.whose == Whose::Messages => {
            return SinkError::new(SinkErrorKind::Refused, refused.to_string());
        }
        Some(cause) => SinkError::new(cause.kind(), cause.to_string()),
        None if why.is_connect() => SinkError::new(SinkErrorKind::Unreachable, chain(why)),
        None => SinkError::new(SinkErrorKind::Unknown, format!("the connection was lost: {}", chain(why))),
    };
    blame(place, error)
}

/// A message with an address of its own stands for itself: its target's outage is its own failed try, and neither stops
/// the messages that go elsewhere nor lasts for ever.
fn blame(place: &Place, error: SinkError) -> SinkError {
    match (place.whose, error.kind) {
        (Whose::Sinks, _) | (_, SinkErrorKind::Refused | SinkErrorKind::Unknown) => error,
        (Whose::Messages, _) => SinkError { kind: SinkErrorKind::Unknown, ..error },
    }
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
