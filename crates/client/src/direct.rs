//! A connection driven by whoever uses it: no task of its own, no hand-over between threads.

use std::{pin::Pin, sync::Arc, time::Duration};

use bytes::Bytes;
use http::{HeaderValue, Method, Request, StatusCode, header};
use http_body_util::{BodyExt, Full, Limited};
use hyper::client::conn::http1::{self, SendRequest};
use tokio::time::timeout;

use crate::{Error, client::ANSWER_MAX, connect::Io, target::Target};

type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The part of a connection that reads and writes, as long as somebody polls it.
type Driven = Pin<Box<http1::Connection<Io, Full<Bytes>>>>;

/// One connection for one caller, as cheap as a load generator needs it.
pub struct Direct {
    target: Arc<Target>,
    sender: SendRequest<Full<Bytes>>,
    /// None once it ended: as long as it is kept, the sender would wait for it.
    connection: Option<Driven>,
}

impl Direct {
    /// Connects.
    pub(crate) async fn open(target: &Arc<Target>) -> Result<Self, Error> {
        let (sender, connection) = target.shake_hands().await?;
        Ok(Self { target: target.clone(), sender, connection: Some(Box::pin(connection)) })
    }

    /// Posts JSON to `path` and reads the whole answer, whatever its status. After an error the connection is of no more use.
    ///
    /// Cancel safety: dropped midway, it may be done or not, and the connection is of no more use.
    pub async fn post(
        &mut self,
        path: &str,
        body: Bytes,
        patience: Duration,
    ) -> Result<(StatusCode, Bytes), Error> {
        let request = self.target.request(Method::POST, path, body)?;
        self.call(request, patience).await
    }

    /// The same with one JSON value a line, in both directions.
    ///
    /// Cancel safety: dropped midway, it may be done or not, and the connection is of no more use.
    pub async fn post_lines(
        &mut self,
        path: &str,
        lines: Bytes,
        patience: Duration,
    ) -> Result<(StatusCode, Bytes), Error> {
        let mut request = self.target.request(Method::POST, path, lines)?;
        let kind = HeaderValue::from_static("application/x-ndjson");
        request.headers_mut().insert(header::CONTENT_TYPE, kind.clone());
        request.headers_mut().insert(header::ACCEPT, kind);
        self.call(request, patience).await
    }

    async fn call(
        &mut self,
        request: Request<Full<Bytes>>,
        patience: Duration,
    ) -> Result<(StatusCode, Bytes), Error> {
        let done = timeout(patience, self.exchange(request)).await;
        match done {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(e)) => Err(self.target.broken(&e)),
            Err(_) => Err(self.target.no_answer(format!("nothing within {} s", patience.as_secs()))),
        }
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> Result<(StatusCode, Bytes), BoxError> {
        let Self { sender, connection, .. } = self;
        let answer = async {
            sender.ready().await?;
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            Ok((status, Limited::new(answer.into_body(), ANSWER_MAX).collect().await?.to_bytes()))
        };
        tokio::pin!(answer);
        loop {
            let Some(open) = connection else { return answer.await };
            tokio::select! {
                biased;
                done = &mut answer => return done,
                // The server may have answered before it closed the connection: that answer counts.
                _ = open.as_mut() => *connection = None,
            }
        }
    }
}
