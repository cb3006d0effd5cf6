//! A connection driven by whoever uses it: no task of its own, no hand-over between threads.

use std::{pin::Pin, time::Duration};

use bytes::Bytes;
use http::{Request, StatusCode};
use http_body_util::{BodyExt, Full};
use hyper::client::conn::http1::{self, SendRequest};
use tokio::time::timeout;

use super::{Target, connect::Io};
use crate::cli::Failure;

/// The part of a connection that reads and writes, as long as somebody polls it.
type Driven = Pin<Box<http1::Connection<Io, Full<Bytes>>>>;

/// One connection for one caller, as cheap as a load generator needs it.
pub(crate) struct Direct {
    sender: SendRequest<Full<Bytes>>,
    /// None once it ended: as long as it is kept, the sender would wait for it.
    connection: Option<Driven>,
}

impl Direct {
    pub(crate) async fn open(target: &Target) -> Result<Self, Failure> {
        let (sender, connection) = target.shake_hands().await?;
        Ok(Self { sender, connection: Some(Box::pin(connection)) })
    }

    /// Sends a request and reads the whole answer. After a failure the connection is of no more use.
    pub(crate) async fn call(
        &mut self,
        request: Request<Full<Bytes>>,
        patience: Duration,
    ) -> Result<(StatusCode, Bytes), Failure> {
        let done = timeout(patience, self.exchange(request)).await;
        match done {
            Ok(Ok(answer)) => Ok(answer),
            Ok(Err(e)) => Err(Failure::unreachable(format!("the connection broke: {e}"))),
            Err(_) => Err(Failure::unreachable(format!("no answer within {} s", patience.as_secs()))),
        }
    }

    async fn exchange(&mut self, request: Request<Full<Bytes>>) -> hyper::Result<(StatusCode, Bytes)> {
        let Self { sender, connection } = self;
        let answer = async {
            sender.ready().await?;
            let answer = sender.send_request(request).await?;
            let status = answer.status();
            Ok((status, answer.into_body().collect().await?.to_bytes()))
        };
        tokio::pin!(answer);
        loop {
            let Some(open) = connection else { return answer.await };
            tokio::select! {
                biased;
                done = &mut answer => return done,
                // What it has read before it ended is still to be had: the answer decides.
                _ = open.as_mut() => *connection = None,
            }
        }
    }
}
