//! The other end: a small HTTP client for the command line.
//!
//! Enough of HTTP/1.1 to talk to Duly: connections are kept and used again, JSON goes in and out, a problem becomes a
//! [`Failure`] with its exit code, and long answers are read line by line.

mod connect;
mod direct;
mod lines;
mod problem;
mod sse;
mod target;

use std::{
    sync::{Mutex, PoisonError},
    time::Duration,
};

use bytes::Bytes;
use http::{Method, Request, Response, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::{body::Incoming, client::conn::http1::SendRequest};
use serde::{Serialize, de::DeserializeOwned};
use tokio::time::timeout;

pub(crate) use direct::Direct;
pub use lines::Lines;
pub use sse::{ServerEvent, ServerEvents};
pub use target::{Target, segment};

use crate::cli::Failure;

/// No single answer of Duly is larger; one that is comes from somebody else.
const ANSWER_MAX: usize = 256 << 20;
/// How long an answer may take that nobody asked to wait for.
const PATIENCE: Duration = Duration::from_secs(60);

/// Talks to one Duly.
pub struct Client {
    target: Target,
    idle: Mutex<Vec<SendRequest<Full<Bytes>>>>,
    /// How long an answer may take to begin.
    patience: Duration,
    /// How long the next part of an answer in lines may take.
    silence_max: Duration,
}

impl Client {
    /// For the Duly at `target`. Nothing is connected before the first call.
    pub fn new(target: Target) -> Self {
        Self { target, idle: Mutex::new(Vec::new()), patience: PATIENCE, silence_max: PATIENCE }
    }

    /// One that waits only for what was asked to take a while.
    #[cfg(test)]
    pub(crate) fn without_patience(target: Target) -> Self {
        Self { patience: Duration::ZERO, ..Self::new(target) }
    }

    /// Where it talks to.
    pub fn target(&self) -> &Target {
        &self.target
    }

    /// Asks for what is at `path`.
    pub async fn get<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::GET, path, Bytes::new(), self.patience).await
    }

    /// Removes what is at `path`.
    pub async fn delete<T: DeserializeOwned>(&self, path: &str) -> Result<T, Failure> {
        self.call(Method::DELETE, path, Bytes::new(), self.patience).await
    }

    /// Sends `body` to `path`.
    pub async fn post<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.call(Method::POST, path, json(body)?, self.patience).await
    }

    /// Sends `body` to `path`, where an answer may be `wait` away.
    pub async fn post_and_wait<T: DeserializeOwned>(
        &self,
        path: &str,
        body: &impl Serialize,
        wait: Duration,
    ) -> Result<T, Failure> {
        self.call(Method::POST, path, json(body)?, self.patience.saturating_add(wait)).await
    }

    /// Changes what is at `path`.
    pub async fn patch<T: DeserializeOwned>(&self, path: &str, body: &impl Serialize) -> Result<T, Failure> {
        self.call(Method::PATCH, path, json(body)?, self.patience).await
    }

    /// Sends `body`, one JSON value a line, and gives the answer line by line while it comes.
    pub async fn post_lines(&self, path: &str, body: Bytes) -> Result<Lines, Failure> {
        let mut request = self.target.request(Method::POST, path, body)?;
        let kind = header::HeaderValue::from_static("application/x-ndjson");
        request.headers_mut().insert(header::ACCEPT, kind.clone());
        request.headers_mut().insert(header::CONTENT_TYPE, kind);
        let answer = self.answer(request, self.patience).await?;
        Ok(Lines::new(self.checked(answer).await?.into_body(), self.target.url()).within(self.silence_max))
    }

    /// Listens to the server-sent events at `path`.
    pub async fn events(&self, path: &str) -> Result<ServerEvents, Failure> {
        let mut request = self.target.request(Method::GET, path, Bytes::new())?;
        let kind = header::HeaderValue::from_static("text/event-stream");
        request.headers_mut().insert(header::ACCEPT, kind);
        let answer = self.answer(request, self.patience).await?;
        Ok(ServerEvents::new(Lines::new(self.checked(answer).await?.into_body(), self.target.url())))
    }

    /// Asks for `path`: the status and the bytes, whatever they are.
    pub async fn raw(&self, path: &str) -> Result<(StatusCode, Bytes), Failure> {
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
    ) -> Result<T, Failure> {
        let answer = self.answer(self.target.request(method, path, body)?, patience).await?;
        let answer = self.checked(answer).await?;
        let bytes = self.whole(answer.into_body()).await?;
        // "Done, and nothing to say" is an answer, too.
        let bytes = if bytes.is_empty() { Bytes::from_static(b"null") } else { bytes };
        serde_json::from_slice(&bytes).map_err(|e| {
            Failure::failed(format!(
                "what {} answered to {path} is not what Duly answers ({e}); is another program listening there?",
                self.target.url()
            ))
        })
    }

    async fn checked(&self, answer: Response<Incoming>) -> Result<Response<Incoming>, Failure> {
        if answer.status().is_success() {
            return Ok(answer);
        }
        let status = answer.status();
        let body = self.whole(answer.into_body()).await?;
        Err(problem::failure(status, &body, self.target.url()))
    }

    async fn whole(&self, body: Incoming) -> Result<Bytes, Failure> {
        let read = timeout(PATIENCE, Limited::new(body, ANSWER_MAX).collect()).await;
        match read {
            Ok(Ok(body)) => Ok(body.to_bytes()),
            Ok(Err(e)) => Err(self.broken(&e.to_string())),
            Err(_) => Err(self.broken("the rest of the answer did not come")),
        }
    }

    /// Sends on a kept connection if one is alive, and on a new one if it turns out not to be.
    async fn answer(
        &self,
        mut request: Request<Full<Bytes>>,
        patience: Duration,
    ) -> Result<Response<Incoming>, Failure> {
        while let Some(mut kept) = self.take() {
            match timeout(patience, kept.try_send_request(request)).await {
                Ok(Ok(answer)) => return Ok(self.keep(kept, answer)),
                // It was closed before anything was sent: the request comes back unharmed.
                Ok(Err(mut e)) => match e.take_message() {
                    Some(unsent) => request = unsent,
                    None => return Err(self.broken(&e.into_error().to_string())),
                },
                Err(_) => return Err(self.silent(patience)),
            }
        }
        let mut fresh = self.target.connect().await?;
        match timeout(patience, fresh.send_request(request)).await {
            Ok(Ok(answer)) => Ok(self.keep(fresh, answer)),
            Ok(Err(e)) => Err(self.broken(&e.to_string())),
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

    fn broken(&self, why: &str) -> Failure {
        let url = self.target.url();
        // What a TLS server says to a plain request is no HTTP.
        if why.starts_with("invalid HTTP") && url.starts_with("http://") {
            return Failure::unreachable(format!("{url} does not speak plain HTTP: call it with https://"));
        }
        Failure::unreachable(format!("the connection to {url} broke: {why}"))
    }

    fn silent(&self, patience: Duration) -> Failure {
        Failure::unreachable(format!("{} did not answer within {} s", self.target.url(), patience.as_secs()))
    }
}

fn json(body: &impl Serialize) -> Result<Bytes, Failure> {
    serde_json::to_vec(body).map(Bytes::from).map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))
}

#[cfg(test)]
mod tests;
