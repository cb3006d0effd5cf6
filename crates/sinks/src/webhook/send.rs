//! One message, one request.

use std::{pin::pin, time::Duration};

use bytes::Bytes;
use duly_core::{Delivery, Invalid, Monotonic, SinkError, SinkErrorKind};
use http::{Request, Response};
use http_body_util::Full;
use hyper::body::Incoming;
use hyper_util::client::legacy::{
    self,
    connect::{CaptureConnection, Connected, capture_connection},
};
use tokio::sync::SemaphorePermit;

use super::{
    WebhookSink,
    answer::{self, leads_to_another_origin, retry_after},
    endpoint::{self, Endpoint, UrlSource, endpoint_of},
    failure::{self, Answered},
    headers::{Credentials, headers},
    origin::{self, InFlightRequest},
    stream::CertificateWatch,
};

/// How long a message waits for a slot of its origin, if messages name the origin.
const NAMED_WAIT_MAX: Duration = Duration::from_secs(1);

/// A message that cannot become a request.
pub(super) fn misfit(fault: &Invalid) -> SinkError {
    SinkError::refused(fault.to_string())
}

impl WebhookSink {
    /// Sends one message, and says what became of it.
    pub(super) async fn send(&self, delivery: &Delivery) -> Result<String, SinkError> {
        let settings = &self.settings;
        let topic = delivery.message.topic.as_str();
        let endpoint =
            endpoint_of(topic, settings.base.as_ref(), &settings.allowed).map_err(|fault| misfit(&fault))?;
        let begin = self.clock.now().mono();
        let in_flight = self.enter(topic, &endpoint)?;
        let _slot = self.slot(&in_flight, &endpoint, begin).await?;
        let end = begin.saturating_add(settings.timeout);

        let seconds = self.clock.now().wall().as_millis() / 1000;
        let headers = headers(delivery, &Credentials::to(&endpoint, settings), seconds)
            .map_err(|fault| misfit(&fault))?;
        let mut request = Request::new(Full::new(delivery.message.body.to_bytes()));
        *request.method_mut() = settings.method.clone();
        *request.uri_mut() = endpoint.uri.clone();
        *request.headers_mut() = headers;
        let answer = self.answer_to(request, &in_flight, &endpoint, end).await?;
        self.judge(answer, topic, &endpoint, end).await
    }

    fn enter(&self, topic: &str, endpoint: &Endpoint) -> Result<InFlightRequest, SinkError> {
        let paths_max = match endpoint.source {
            UrlSource::Config => usize::MAX,
            UrlSource::Message => origin::PATHS_MAX,
        };
        let path = endpoint::destination(topic);
        let in_flight = self.origins.enter(endpoint.origin(), &path, self.settings.per_origin, paths_max);
        in_flight
            .ok_or_else(|| failure::crowded("not sent: too many paths of this origin are without an answer"))
    }

    /// A slot of the origin. The sink's own is waited for, for half of the time that a request has, so that the other
    /// half is left for the answer. One that messages name is waited for only shortly: those that wait take the room of all others.
    async fn slot<'a>(
        &self,
        in_flight: &'a InFlightRequest,
        endpoint: &Endpoint,
        begin: Monotonic,
    ) -> Result<SemaphorePermit<'a>, SinkError> {
        let wait = match endpoint.source {
            UrlSource::Config => self.settings.timeout / 2,
            UrlSource::Message => NAMED_WAIT_MAX.min(self.settings.timeout / 2),
        };
        let slot = tokio::select! {
            biased;
            slot = in_flight.slot() => slot,
            () = self.clock.sleep_until(begin.saturating_add(wait)) => None,
        };
        slot.ok_or_else(|| failure::crowded("not sent: the target took too long over the messages before it"))
    }

    async fn answer_to(
        &self,
        mut request: Request<Full<Bytes>>,
        in_flight: &InFlightRequest,
        endpoint: &Endpoint,
        end: Monotonic,
    ) -> Result<Response<Incoming>, SinkError> {
        let (connection, begin) = (capture_connection(&mut request), self.clock.now().mono());
        let answer = tokio::select! {
            biased;
            answer = self.exchange(request, in_flight, endpoint, connection.clone()) => answer,
            () = self.clock.sleep_until(end) => {
                let timeout = self.settings.timeout;
                let Some(used) = &*connection.connection_metadata() else {
                    let detail = format!("no connection within {timeout:?}");
                    return Err(failure::connect_failed(endpoint.source, SinkErrorKind::Unreachable, detail));
                };
                // With HTTP/2 the others on it go on, but if it is the connection that is dead, new ones must not join them.
                used.poison();
                if used.is_negotiated_h2() {
                    in_flight.disconnected();
                }
                return Err(failure::silent(format!("no answer within {timeout:?}")));
            }
        };
        let watch = CertificateWatch::of(&connection);
        if let (Ok(_), Some(watch)) = (&answer, &watch) {
            watch.answered();
        }
        let is_http2 = connection.connection_metadata().as_ref().is_some_and(Connected::is_negotiated_h2);
        if answer.is_err() && is_http2 {
            // The connection may have ended for all that share it.
            in_flight.disconnected();
        }
        answer.map_err(|why| match watch {
            Some(watch) => failure::broken(endpoint, &why, watch.fault()),
            None => {
                let authority = endpoint.uri.authority().map_or("", |authority| authority.as_str());
                let faults = self.client(endpoint.source).connector.certificate_faults();
                failure::without_connection(endpoint, &why, faults.since(begin, authority))
            }
        })
    }

    async fn exchange(
        &self,
        request: Request<Full<Bytes>>,
        in_flight: &InFlightRequest,
        endpoint: &Endpoint,
        mut connection: CaptureConnection,
    ) -> Result<Response<Incoming>, legacy::Error> {
        // Only TLS offers HTTP/2, and so a connection worth waiting for.
        let is_tls = endpoint.uri.scheme_str() == Some("https");
        let first = if is_tls { in_flight.first().await } else { None };
        let mut answer = pin!(self.client(endpoint.source).pool.request(request));
        if let Some(first) = first {
            tokio::select! {
                biased;
                answer = &mut answer => return answer,
                _ = connection.wait_for_connection_metadata() => first.connected(),
            }
        }
        answer.await
    }

    async fn judge(
        &self,
        answer: Response<Incoming>,
        topic: &str,
        endpoint: &Endpoint,
        end: Monotonic,
    ) -> Result<String, SinkError> {
        let (head, body) = answer.into_parts();
        let to_another_origin = leads_to_another_origin(&head.headers, &endpoint.uri);
        let retry_after = retry_after(&head.headers, self.clock.now().wall());
        // Cut only after the secrets are out: half of one is still worth something.
        let words = self.settings.secrets.hide(&answer::words(body, &*self.clock, end).await);
        let words: String = words.chars().take(answer::WORDS_MAX).collect();
        let status = head.status;
        let failure = answer::failure(status, &self.settings.permanent, to_another_origin);
        let is_whole = match (endpoint.source, failure) {
            (UrlSource::Message, _) => false,
            (UrlSource::Config, Some(answer::Failure::Busy)) => {
                self.busy_paths.record(&endpoint::destination(topic))
            }
            (UrlSource::Config, _) => {
                self.busy_paths.answered();
                false
            }
        };
        let Some(failure) = failure else {
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
        let error = Answered { detail: &detail, retry_after, status: status.as_u16(), is_whole };
        Err(failure::answered(endpoint.source, failure, error))
    }
}
