//! Connections: limited in number, each with timeouts, all closed gracefully.

use duly::ErrorCode;
use std::{
    convert::Infallible,
    io,
    net::{IpAddr, SocketAddr},
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use axum::response::IntoResponse;
use http::{Request, Response};
use http_body_util::BodyExt;
use hyper::{body::Incoming, server::conn::http1, service::service_fn};
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    server::graceful::{GracefulShutdown, Watcher},
};
use tokio::{
    io::{AsyncRead, AsyncWrite, AsyncWriteExt},
    net::{TcpListener, TcpStream},
    sync::{Semaphore, mpsc, oneshot, watch},
    task::JoinHandle,
    time::{Instant, timeout},
};
use tokio_rustls::TlsAcceptor;

use super::{
    addresses::{ConnectionLimits, ConnectionPermit},
    fault::Fault,
    front::Front,
    patient::Patient,
    slow_reader::{ReaderLimits, Unread},
};
use crate::config::HttpLimits;

/// Timeout of the TLS handshake.
const HANDSHAKE: Duration = Duration::from_secs(10);
/// Timeout of a client that neither reads its response nor sends.
const UNREAD_MAX: Duration = Duration::from_secs(30);
/// Bytes of a connection's read buffer, and so the limit of a request's head.
const BUFFER_BYTES_MAX: usize = 64 << 10;
/// Pause after an error of `accept` such as too many open files.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);
/// Timeout of a refused client to read the response.
const REFUSAL: Duration = Duration::from_secs(2);
/// Refusals in progress; further connections are closed without a response.
const REFUSALS_MAX: usize = 64;

/// Minimum interval of log events about refused connections.
const LOG_PAUSE: Duration = Duration::from_secs(10);

/// A running listener.
pub struct Listening {
    addr: SocketAddr,
    stop: oneshot::Sender<Duration>,
    task: JoinHandle<()>,
}

impl Listening {
    /// The address it listens on.
    pub fn addr(&self) -> SocketAddr {
        self.addr
    }

    /// Whether the accept loop has ended.
    pub fn is_finished(&self) -> bool {
        self.task.is_finished()
    }

    /// Stops accepting, lets requests in progress finish within `grace`, then closes the rest.
    pub async fn stop(self, grace: Duration) {
        // If the task has ended, there is nothing to stop.
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
    let acceptor = Acceptor {
        http,
        tls,
        front,
        connections: Arc::new(ConnectionLimits::new(limits)),
        refusals: Arc::new(Semaphore::new(REFUSALS_MAX)),
        refused: Arc::default(),
        close: closed,
    };
    let (stop, stopped) = oneshot::channel();
    Ok(Listening { addr, stop, task: tokio::spawn(acceptor.run(listener, stopped, close)) })
}

#[derive(Clone)]
struct Acceptor {
    http: http1::Builder,
    tls: Option<TlsAcceptor>,
    front: Front,
    connections: Arc<ConnectionLimits>,
    refusals: Arc<Semaphore>,
    refused: Arc<Mutex<Refused>>,
    /// Turns true at the shutdown deadline: remaining connections are closed.
    close: watch::Receiver<bool>,
}

impl Acceptor {
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
                    tracing::warn!(%error, "accept failed");
                    // Do not spin while the cause lasts.
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
        // Responses are small; do not delay them by Nagle's algorithm.
        let _ = stream.set_nodelay(true);
        match self.connections.enter(from) {
            Ok(permit) => {
                tokio::spawn(self.clone().serve(stream, watcher, permit));
            }
            Err(limit) => {
                let count = self.refused.lock().unwrap_or_else(PoisonError::into_inner).note(Instant::now());
                if let Some(count) = count {
                    // Over TLS the client gets no response: nothing can be sent before the handshake.
                    tracing::warn!(%from, count, %limit, "connection refused");
                }
                self.refuse(stream, limit);
            }
        }
    }

    async fn serve(self, stream: TcpStream, watcher: Watcher, _permit: ConnectionPermit) {
        let mut close = self.close.clone();
        tokio::select! {
            () = self.handshake(stream, watcher) => {}
            _ = close.wait_for(|close| *close) => {}
        }
    }

    async fn handshake(&self, stream: TcpStream, watcher: Watcher) {
        match &self.tls {
            None => self.serve_http(stream, watcher).await,
            Some(tls) => match timeout(HANDSHAKE, tls.accept(stream)).await {
                Ok(Ok(stream)) => self.serve_http(stream, watcher).await,
                Ok(Err(error)) => tracing::debug!(%error, "TLS handshake failed"),
                Err(_) => tracing::debug!("TLS handshake timed out"),
            },
        }
    }

    async fn serve_http(
        &self,
        stream: impl AsyncRead + AsyncWrite + Unpin + 'static + Send,
        watcher: Watcher,
    ) {
        let answer = |request| self.front.clone().answer(request);
        serve_connection(&self.http, stream, watcher, ReaderLimits::default(), answer).await;
    }

    /// Sends a short error response without counting as a connection.
    fn refuse(&self, mut stream: TcpStream, limit: &'static str) {
        let Ok(permit) = Arc::clone(&self.refusals).try_acquire_owned() else { return };
        if self.tls.is_some() {
            return; // Only the log tells.
        }
        tokio::spawn(async move {
            let _permit = permit;
            let _ = timeout(REFUSAL, async {
                stream.write_all(&refusal(limit).await).await?;
                stream.shutdown().await
            })
            .await;
        });
    }
}

/// Serves one connection until it ends, or until its client is too slow to read an answer that holds memory.
async fn serve_connection<A, B>(
    http: &http1::Builder,
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    watcher: Watcher,
    limits: ReaderLimits,
    answer: impl Fn(Request<Incoming>) -> A,
) where
    A: Future<Output = Response<B>>,
    B: hyper::body::Body + 'static,
    B::Error: Into<Box<dyn std::error::Error + Send + Sync>>,
{
    let (answers, held) = mpsc::unbounded_channel();
    let service = service_fn(|request| {
        let (answer, answers) = (answer(request), &answers);
        async move {
            let mut response = answer.await;
            if let Some(unread) = response.extensions_mut().remove::<Unread>() {
                // It is received as long as the connection is served.
                let _ = answers.send(unread);
            }
            Ok::<_, Infallible>(response)
        }
    });
    let stream = Patient::new(stream, UNREAD_MAX);
    let progress = stream.progress();
    let connection = http.serve_connection(TokioIo::new(stream), service);
    tokio::select! {
        ended = watcher.watch(connection) => if let Err(error) = ended {
            tracing::debug!(%error, "connection ended early");
        },
        () = limits.exceeded(held, &progress) => tracing::debug!("connection of a slow reader closed"),
    }
}

/// Counts refused connections between two log events, so that a flood of them does not flood the log.
#[derive(Debug, Default)]
struct Refused {
    count: u64,
    logged: Option<Instant>,
}

impl Refused {
    /// Counts one more. Returns the number to log if the interval has passed.
    fn note(&mut self, now: Instant) -> Option<u64> {
        self.count += 1;
        if self.logged.is_some_and(|logged| now.duration_since(logged) < LOG_PAUSE) {
            return None;
        }
        self.logged = Some(now);
        Some(std::mem::take(&mut self.count))
    }
}

/// The whole response, as bytes.
async fn refusal(limit: &str) -> Vec<u8> {
    let detail = format!("as many connections are open as {limit} allows; close some, or raise it");
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
    use crate::{
        auth::{Caller, Tokens},
        http::{answer, answer_memory::AnswerMemory},
    };
    use tokio::io::{AsyncReadExt, duplex};

    /// Serves answers that hold 8 MB of memory to a client that reads some bytes at a time. Returns what it got, and the memory that is
    /// free then.
    async fn read_slowly(limits: ReaderLimits, bytes_at_once: usize) -> (usize, usize) {
        let (memory, http) = (AnswerMemory::new(8 << 20, &Tokens::new(Vec::new())), http1::Builder::new());
        let (near, mut far) = duplex(bytes_at_once);
        // It lives on: dropped, it tells connections to end.
        let shutdown = GracefulShutdown::new();
        let watcher = shutdown.watcher();
        let answer = async |_| {
            answer::json_in(memory.share(&Caller::anyone()).wait(8 << 20).await, &"x".repeat(8 << 20))
        };
        let served = serve_connection(&http, near, watcher, limits, answer);
        let mut read = 0;
        let reads = async {
            far.write_all(b"GET / HTTP/1.1\r\nconnection: close\r\n\r\n").await.unwrap();
            while let Ok(bytes @ 1..) = far.read(&mut vec![0; bytes_at_once]).await {
                read += bytes;
            }
        };
        tokio::join!(reads, served);
        drop(shutdown);
        (read, memory.free())
    }

    #[tokio::test]
    async fn who_reads_a_large_answer_too_slowly_loses_it() {
        // It has no time at all for what it does not read at once.
        let limits = ReaderLimits { grace: Duration::ZERO, rate_min: u64::MAX };
        let (read, free) = read_slowly(limits, 64).await;
        assert!(read < 8 << 20, "{read}");
        assert_eq!(free, 8 << 20);
        let (read, free) = read_slowly(ReaderLimits { grace: Duration::MAX, ..limits }, 64).await;
        assert!(read > 8 << 20, "{read}");
        assert_eq!(free, 8 << 20);
    }

    #[tokio::test]
    async fn who_goes_on_writing_and_reads_nothing_is_cut() {
        let (memory, http) = (AnswerMemory::new(8 << 20, &Tokens::new(Vec::new())), http1::Builder::new());
        let (near, mut far) = duplex(64);
        let shutdown = GracefulShutdown::new();
        let watcher = shutdown.watcher();
        // As a batch does: the answer begins while the request goes on.
        let answer = async |request: Request<Incoming>| {
            tokio::spawn(request.into_body().collect());
            answer::json_in(memory.share(&Caller::anyone()).wait(8 << 20).await, &"x".repeat(8 << 20))
        };
        // In memory far more is written than that.
        let limits = ReaderLimits { grace: Duration::from_millis(50), rate_min: 100_000 };
        let served = serve_connection(&http, near, watcher, limits, answer);
        let writes = async {
            far.write_all(b"POST / HTTP/1.1\r\ncontent-length: 9000000000000\r\n\r\n").await.unwrap();
            while far.write_all(&[b' '; 64]).await.is_ok() {}
        };
        let both = async { tokio::join!(writes, served) };
        timeout(Duration::from_secs(30), both).await.expect("its connection is closed");
        assert_eq!(memory.free(), 8 << 20);
        drop(shutdown);
    }

    #[test]
    fn the_log_is_told_of_all_refusals_but_not_one_by_one() {
        let (mut refused, begun) = (Refused::default(), Instant::now());
        let reported = [0, 1, 2, 10, 11].map(|second| refused.note(begun + Duration::from_secs(second)));
        assert_eq!(reported, [Some(1), None, None, Some(3), None]);
    }
}
