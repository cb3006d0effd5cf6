//! Connections: taken up to a limit, each with its deadlines, all ended cleanly.

use duly::ErrorCode;
use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::response::IntoResponse;
use http_body_util::BodyExt;
use hyper::{server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, oneshot, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{
    addresses::{ConnectionLimits, ConnectionPermit},
    fault::Fault,
    front::Front,
    patient::Patient,
};
use crate::config::HttpLimits;

/// How long a client may take over the handshake of TLS.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// How long a client may leave what waits for it unread, and send nothing either.
const UNREAD_MAX: Duration = Duration::from_secs(30);
/// Bytes of a connection's reading buffer, and so of the head of a request.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// After an error of `accept` such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// How long a refused connection may take to read that it was refused.
const REFUSAL: Duration = Duration::from_secs(2);
/// Refusals under way at the same time; further ones are only closed.
const REFUSALS_MAX: usize = 64;

/// The log is told of refusals no more often.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// A listener at work.
pub struct Listening {
    addr: SocketAddr,
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<()>,
}

impl Listening {
    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether nobody takes connections any more.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Takes no more connections, lets calls under way end within `grace`, then closes what is left.
    pub async fn stop(self, grace: Duration) {
        // If the task is gone already, there is nothing to stop.
        let _ = self.stop.send(grace);
        let _ = self.task.await;
    }
}

/// Serves `front` on `listener`.
pub fn listen(
    listener: TcpListener,
    tls: Option<TlsAcceptor>,
    front: Front,
    limits: &HttpLimits,
) -> io::Result<Listening> {
    let addr = listener.local_addr()?;
    let mut http = http1::Builder::new();
    http.timer(TokioTimer::new()).header_read_timeout(limits.header_timeout).max_buf_size(BUFFER_BYTES_MAX);
    let (close, closed) = watch::channel(false);
    let door = Door {
        http,
        tls,
        front,
        places: Arc::new(ConnectionLimits::new(limits)),
        refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        refused: Arc::default(),
        close: closed,
    };
    let (stop, stopped) = oneshot::channel();
    Ok(Listening { addr, stop, task: tokio::spawn(door.run(listener, stopped, close)) })
}

#[derive(Clone)]
struct Door {
    http: http1::Builder,
    tls: Option<TlsAcceptor>,
    front: Front,
    places: Arc<ConnectionLimits>,
    refusals: Arc<Semaphore>,
    refused: Arc<Mutex<Refused>>,
    /// Turns true when what is left is closed.
    close: watch::Receiver<bool>,
}

impl Door {
    async fn run(
        self,
        listener: TcpListener,
        mut stopped: oneshot::Receiver<Duration>,
        close: watch::Sender<bool>,
    ) {
        let graceful = GracefulShutdown::new();
        let grace = loop {
            let accepted = tokio::select! {
                accepted = listener.accept() => accepted,
                grace = &mut stopped => break grace.unwrap_or_default(),
            };
            match accepted {
                Ok((stream, from)) => self.take(stream, from.ip(), graceful.watcher()),
                Err(error) => {
                    tracing::warn!(%error, "accept failed; check the limit of open files");
                    // Not a busy loop while the cause lasts.
                    if let Ok(grace) = timeout(ACCEPT_PAUSE, &mut stopped).await {
                        break grace.unwrap_or_default();
                    }
                }
            }
        };
        drop(listener);
        if timeout(grace, graceful.shutdown()).await.is_err() {
            close.send_replace(true);
            tracing::warn!("connections closed at the shutdown deadline");
        }
    }

    fn take(&self, stream: TcpStream, from: IpAddr, watcher: Watcher) {
        // Answers are small and somebody waits for each.
        let _ = stream.set_nodelay(true);
        match self.places.enter(from) {
            Ok(place) => {
                tokio::spawn(self.clone().serve(stream, watcher, place));
            }
            Err(limit) => {
                let count = self.refused.lock().unwrap_or_else(PoisonError::into_inner).note(Instant::now());
                if let Some(count) = count {
                    // Over TLS the client cannot be told: there are no words before the handshake.
                    tracing::warn!(%from, count, "connection refused: as many are open as {limit}");
                }
                self.refuse(stream, limit);
            }
        }
    }

    async fn serve(self, stream: TcpStream, watcher: Watcher, _permit: ConnectionPermit) {
        let mut close = self.close.clone();
        tokio::select! {
            () = self.welcome(stream, watcher) => {}
            _ = close.wait_for(|close| *close) => {}
        }
    }

    async fn welcome(&self, stream: TcpStream, watcher: Watcher) {
        match &self.tls {
            None => self.converse(stream, watcher).await,
            Some(tls) => match timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.converse(stream, watcher).await,
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake timed out"),
            },
        }
    }

    async fn converse(&self, stream: impl AsyncRead + AsyncWrite + Unpin + 'static + Send, watcher: Watcher) {
        let service = service_fn(|request| {
            let answer = self.front.clone().answer(request);
            async { Ok::<_, Infallible>(answer.await) }
        });
        let stream = Patient::new(stream, UNREAD_MAX);
        let connection = self.http.serve_connection(TokioIo::new(stream), service);
        if let Err(error) = watcher.watch(connection).await {
            tracing::debug!(%error, "connection ended early");
        }
    }

    /// Says why, briefly, without a place among the connections.
    fn refuse(&self, mut stream: TcpStream, limit: &'static str) {
        let Ok(place) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        if self.tls.is_some() {
            return; // Only the log tells.
        }
        tokio::spawn(async move {
            let _place = place;
            let _ = timeout(REFUSAL, async {
                stream.write_all(&refusal(limit).await).await?;
                stream.shutdown().await
            })
            .await;
        });
    }
}

/// The connections that were refused since the log was last told: whoever opens them without end does not fill the log as well.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    logged: Option<Instant>,
}

impl Refused {
    /// Counts one more. How many to tell the log of, if it is time.
    fn note(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_PAUSE) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// The whole answer, as bytes.
async fn refusal(limit: &str) -> Vec<u8> {
    let detail = format!("as many connections are open as {limit}; close some, or raise it");
    let fault = Fault::new(ErrorCode::TooManyConnections, detail);
    let (parts, body) = fault.into_response().into_parts();
    let body = body.collect().await.map(|body| body.to_bytes()).unwrap_or_default();
    let mut text =
        format!("HTTP/1.1 {}\r\nconnection: close\r\ncontent-length: {}\r\n", parts.status, body.len())
            .into_bytes();
    for (name, value) in &parts.headers {
        text.extend_from_slice(name.as_str().as_bytes());
        text.extend_from_slice(b": ");
        text.extend_from_slice(value.as_bytes());
        text.extend_from_slice(b"\r\n");
    }
    text.extend_from_slice(b"\r\n");
    text.extend_from_slice(&body);
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_log_is_told_of_all_refusals_but_not_one_by_one() {
        let (mut refused, begun) = (Refused::default(), Instant::now());
        let told = [0, 1, 2, 10, 11].map(|second| refused.note(begun + Duration::from_secs(second)));
        assert_eq!(told, [Some(1), None, None, Some(3), None]);
    }
}
