//! Connections that are kept and used again, and what every call has in common.

use std::{
    io,
    path::Path,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

use crate::{Direct, Error, lines::Lines, target::Target, wire::EVENTS_KEEP_ALIVE};

/// No single answer of Duly is larger; one that is comes from somebody else.
pub(crate) const ANSWER_MAX: usize = 256 << 20;
/// How long an answer may take that nobody asked to wait for.
const PATIENCE: Duration = Duration::from_secs(60);
/// How long events may be silent. The server sends a comment at each interval: after four without one, the connection is lost.
const EVENTS_SILENCE_MAX: Duration = EVENTS_KEEP_ALIVE.saturating_mul(4);

/// Talks to one Duly server.
#[derive(Clone)]
pub struct Client {
    target: Arc<Target>,
    idle: Arc<Mutex<Vec<SendRequest<Full<Bytes>>>>>,
    /// How long an answer may take to begin.
    patience: Duration,
    /// How long the next part of an answer in lines may take.
    silence_max: Duration,
    /// The same of events.
    events_silence_max: Duration,
}

impl Client {
    /// For the server at `url`, such as `http://127.0.0.1:7380`. Nothing is connected before the first call.
    pub fn new(url: &str) -> Result<Self, Error> {
        let target = Arc::new(Target::new(url)?);
        Ok(Self {
            target,
            idle: Arc::default(),
            patience: PATIENCE,
            silence_max: PATIENCE,
            events_silence_max: EVENTS_SILENCE_MAX,
        })
    }

    /// The token that goes along with every call, made by `duly token`.
    pub fn token(mut self, token: &str) -> Result<Self, Error> {
        Arc::make_mut(&mut self.target).set_token(token)?;
        Ok(self)
    }

    /// Trusts only the root certificates in this PEM file, instead of this machine's. Reads the file.
    pub fn ca(mut self, file: impl AsRef<Path>) -> Result<Self, Error> {
        Arc::make_mut(&mut self.target).set_roots(file.as_ref())?;
        Ok(self)
    }

    /// How long an answer may take to begin, beyond what the call itself asks to wait, and how long the next part of an answer to a
    /// batch may take. A minute unless told otherwise. A connection that does not come about within it is given up, too.
    pub fn timeout(self, timeout: Duration) -> Self {
        Self { patience: timeout, silence_max: timeout, ..self }
    }

    /// Where the server is.
    pub fn url(&self) -> &str {
        self.target.url()
    }

    /// One connection for one caller, as a load generator needs it.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    #[doc(hidden)]
    pub async fn connect(&self) -> Result<Direct, Error> {
        Direct::open(&self.target).await
    }

    pub(crate) fn target(&self) -> &Arc<Target> {
        &self.target
    }

    pub(crate) async fn read<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::GET, path, Bytes::new(), self.patience).await
    }

    pub(crate) async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Error> {
        self.call(Method::DELETE, path, Bytes::new(), self.patience).await
    }

    pub(crate) async fn patch<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        self.call(Method::PATCH, path, json(body)?, self.patience).await
    }

    pub(crate) async fn post<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        self.call(Method::POST, path, json(body)?, self.patience).await
    }

    /// For an answer that may be `wait` away.
    pub(crate) async fn post_and_wait<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, Error> {
        self.call(Method::POST, path, json(body)?, self.patience.saturating_add(wait)).await
    }

    /// Sends `body`, one JSON value a line, and gives the answer line by line while it comes.
    pub(crate) async fn post_lines(&self, path: &str, body: Bytes) -> Result<Lines, Error> {
        let mut request = self.target.request(Method::POST, path, body)?;
        let kind = HeaderValue::from_static("application/x-ndjson");
        request.headers_mut().insert(header::ACCEPT, kind.clone());
        request.headers_mut().insert(header::CONTENT_TYPE, kind);
        let answer = self.answer(request, self.patience).await?;
        Ok(Lines::new(self.checked(answer).await?.into_body(), &self.target, self.silence_max))
    }

    /// A long answer without an end, line by line.
    pub(crate) async fn follow(&self, path: &str) -> Result<Lines, Error> {
        let mut request = self.target.request(Method::GET, path, Bytes::new())?;
        request.headers_mut().insert(header::ACCEPT, HeaderValue::from_static("text/event-stream"));
        let answer = self.answer(request, self.patience).await?;
        Ok(Lines::new(self.checked(answer).await?.into_body(), &self.target, self.events_silence_max))
    }

    /// The status and the bytes of `path`, whatever they are.
    pub(crate) async fn raw(&self, path: &str) -> Result<(StatusCode, Bytes), Error> {
        let request = self.target.request(Method::GET, path, Bytes::new())?;
        let answer = self.answer(request, self.patience).await?;
        let status = answer.status();
        Ok((status, self.whole(answer.into_body()).await?))
    }

    async fn call<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<T, Error> {
        let answer = self.answer(self.target.request(method, path, body)?, patience).await?;
        let answer = self.checked(answer).await?;
        let bytes = self.whole(answer.into_body()).await?;
        // "Done, and nothing to say" is an answer, too.
        let bytes = if bytes.is_empty() { Bytes::from_static(b"null") } else { bytes };
        serde_json::from_slice(&bytes).map_err(|e| {
            let detail =
                format!("{path} is answered by something else ({e}); is another program listening there?");
            self.target.unexpected(detail)
        })
    }

    async fn checked(&self, answer: Response<Incoming>) -> Result<Response<Incoming>, Error> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = self.whole_within(answer.into_body(), self.silence_max).await?;
        Err(Error::refused(status, &body, self.target.url()))
    }

    async fn whole(&self, body: Incoming) -> Result<Bytes, Error> {
        self.whole_within(body, PATIENCE).await
    }

    async fn whole_within(&self, body: Incoming, patience: Duration) -> Result<Bytes, Error> {
        let read = timeout(patience, Limited::new(body, ANSWER_MAX).collect()).await;
        match read {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(e)) => Err(self.target.broken(&e)),
            Err(_) => Err(self.target.broken(&"the rest of the answer did not come")),
        }
    }

    /// Sends on a kept connection if one is alive, and on a new one if it turns out not to be.
    async fn answer(
        &self,
        mut request: Request<Full<Bytes>>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Error> {
        while let Some(mut kept) = self.take() {
            match timeout(patience, kept.try_send_request(request)).await {
                Ok(Ok(answer)) => return Ok(self.keep(kept, answer)),
                // It was closed before anything was sent: the request comes back unharmed.
                Ok(Err(mut e)) => match e.take_message() {
                    Some(unsent) => request = unsent,
                    // It has answered in HTTP before: its scheme is right.
                    None => return Err(self.target.broken(&e.into_error())),
                },
                Err(_) => return Err(self.silent(patience)),
            }
        }
        let connected = timeout(patience, self.target.connect()).await;
        // The request was not sent.
        let mut fresh = connected.map_err(|_| self.target.unreachable(io::ErrorKind::TimedOut.into()))??;
        match timeout(patience, fresh.send_request(request)).await {
            Ok(Ok(answer)) => Ok(self.keep(fresh, answer)),
            Ok(Err(e)) => Err(self.no_http(&e)),
            Err(_) => Err(self.silent(patience)),
        }
    }

    fn take(&self) -> Option<SendRequest<Full<Bytes>>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        // One whose last answer was not read to its end is not ready: it is dropped, and so closed.
        std::iter::from_fn(|| idle.pop()).find(SendRequest::is_ready)
    }

    fn keep(&self, sender: SendRequest<Full<Bytes>>, answer: Response<Incoming>) -> Response<Incoming> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).push(sender);
        answer
    }

    /// The first answer of a connection cannot be read. What a TLS server says to a plain request is no HTTP.
    fn no_http(&self, why: &hyper::Error) -> Error {
        let url = self.target.url();
        if why.is_parse() && !why.is_parse_too_large() && url.starts_with("http://") {
            return Error::WrongScheme { url: url.to_owned(), instead: "https" };
        }
        self.target.broken(why)
    }

    fn silent(&self, patience: Duration) -> Error {
        self.target.no_answer(format!("nothing within {} s", patience.as_secs()))
    }
}

/// Tells of the server and never of the token.
impl std::fmt::Debug for Client {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Client").field("url", &self.url()).finish_non_exhaustive()
    }
}

fn json(body: &impl Serialize) -> Result<Bytes, Error> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|e| Error::Invalid(format!("cannot write JSON: {e}")))
}

#[cfg(test)]
mod tests;
