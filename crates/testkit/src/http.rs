//! A real HTTP server that does as the test says, on a thread and a port of its own.

use std::{
    convert::Infallible,
    io,
    net::SocketAddr,
    pin::Pin,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
    thread::JoinHandle,
    time::Duration,
};

use bytes::Bytes;
use http::{HeaderMap, Method, Response, Uri, Version, request::Parts};
use http_body_util::BodyExt;
use hyper::{
    body::{Body, Frame, Incoming},
    server::conn::{http1, http2},
    service::service_fn,
};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    net::{TcpListener, TcpSocket, TcpStream},
    sync::{oneshot, watch},
};
use tokio_rustls::TlsAcceptor;

use crate::servers::wait_until;

/// A port that was ours is free again within this, or the test fails.
const PORT_WITHIN: Duration = Duration::from_secs(20);

const LOOPBACK: [u8; 4] = [127, 0, 0, 1];
const EVERYWHERE: [u8; 4] = [0, 0, 0, 0];
/// Requests at the same time on one connection that speaks HTTP/2.
const STREAMS_MAX: u32 = 1_000;

/// One request, whole.
#[derive(Debug, Clone)]
pub struct Request {
    /// The method.
    pub method: Method,
    /// Path and query, as they came.
    pub uri: Uri,
    /// The headers.
    pub headers: HeaderMap,
    /// The body.
    pub body: Bytes,
    /// Which connection brought it, from 1.
    pub connection: usize,
    /// HTTP/1.1 or HTTP/2.
    pub version: Version,
}

impl Request {
    /// A header as text, if it is there.
    pub fn header(&self, name: &str) -> Option<String> {
        self.headers.get(name).map(|value| String::from_utf8_lossy(value.as_bytes()).into_owned())
    }
}

/// What the server does about a request.
pub enum Reply {
    /// Answers.
    Answer(Response<Bytes>),
    /// Answers after this long.
    Later(Response<Bytes>, Duration),
    /// Answers once the signal is true.
    AfterSignal(Response<Bytes>, watch::Receiver<bool>),
    /// Answers with a body of these bytes without an end.
    Endless(Response<Bytes>),
    /// Answers with a head and the beginning of a body, and then nothing more.
    Unfinished(Response<Bytes>),
    /// Never answers.
    Never,
    /// Closes the connection.
    HangUp,
}

impl Reply {
    /// An answer with this status and body.
    pub fn status(status: u16, body: impl Into<Bytes>) -> Self {
        Self::Answer(Response::builder().status(status).body(body.into()).unwrap())
    }

    /// An answer with this status and one header.
    pub fn header(status: u16, name: &str, value: &str) -> Self {
        let answer = Response::builder().status(status).header(name, value).body(Bytes::new());
        Self::Answer(answer.unwrap())
    }
}

type Decide = dyn Fn(&Request) -> Reply + Send + Sync;

/// A real HTTP server that does as the test says.
pub struct HttpServer {
    addr: SocketAddr,
    shared: Arc<ServerState>,
    running: Mutex<Option<Running>>,
    /// Bound and not listening: while the server is stopped, connections are refused and nobody else gets the port.
    place: Mutex<Option<TcpSocket>>,
    tls: Option<TlsAcceptor>,
}

struct ServerState {
    decide: Box<Decide>,
    requests: watch::Sender<Vec<Request>>,
    connections: AtomicUsize,
    open: AtomicUsize,
    open_max: AtomicUsize,
    streamed: AtomicUsize,
}

struct Running {
    stop: oneshot::Sender<()>,
    thread: JoinHandle<()>,
}

impl HttpServer {
    /// Listens on a free port of the loopback address. `decide` is asked about every request.
    pub fn start(decide: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(LOOPBACK, None, decide)
    }

    /// The same on every address of the loopback network, each of which is an origin of its own.
    pub fn start_everywhere(decide: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(EVERYWHERE, None, decide)
    }

    /// The same behind TLS. It speaks HTTP/2 if `tls` has agreed on it.
    pub fn start_tls(tls: TlsAcceptor, decide: impl Fn(&Request) -> Reply + Send + Sync + 'static) -> Self {
        Self::start_with(EVERYWHERE, Some(tls), decide)
    }

    fn start_with(
        address: [u8; 4],
        tls: Option<TlsAcceptor>,
        decide: impl Fn(&Request) -> Reply + Send + Sync + 'static,
    ) -> Self {
        let socket = bound(SocketAddr::from((address, 0))).unwrap();
        let shared = ServerState {
            decide: Box::new(decide),
            requests: watch::Sender::new(Vec::new()),
            connections: AtomicUsize::new(0),
            open: AtomicUsize::new(0),
            open_max: AtomicUsize::new(0),
            streamed: AtomicUsize::new(0),
        };
        let server = Self {
            addr: socket.local_addr().unwrap(),
            shared: Arc::new(shared),
            running: Mutex::new(None),
            place: Mutex::new(Some(socket)),
            tls,
        };
        server.again();
        server
    }

    /// Where it listens.
    pub fn addr(&self) -> SocketAddr {
        SocketAddr::from((LOOPBACK, self.addr.port()))
    }

    /// `http://127.0.0.1:…`, or with `https`.
    pub fn url(&self) -> String {
        let scheme = if self.tls.is_some() { "https" } else { "http" };
        format!("{scheme}://{}", self.addr())
    }

    /// All requests so far, in their order.
    pub fn requests(&self) -> Vec<Request> {
        self.shared.requests.borrow().clone()
    }

    /// Waits until there were so many requests.
    pub async fn wait_for(&self, count: usize) -> Vec<Request> {
        let mut requests = self.shared.requests.subscribe();
        requests.wait_for(|all| all.len() >= count).await.unwrap().clone()
    }

    /// Connections so far.
    pub fn connections(&self) -> usize {
        self.shared.connections.load(Ordering::SeqCst)
    }

    /// The most connections that were open at the same time.
    pub fn open_max(&self) -> usize {
        self.shared.open_max.load(Ordering::SeqCst)
    }

    /// Bytes of [`Reply::Endless`] that were taken so far.
    pub fn streamed(&self) -> usize {
        self.shared.streamed.load(Ordering::SeqCst)
    }

    /// Closes every connection and takes no more; the port stays taken.
    pub fn stop(&self) {
        if self.end() {
            let mut place = None;
            // Somebody's outgoing connection may have been given the port in this very moment.
            wait_until("the port is free again", PORT_WITHIN, || {
                place = bound(self.addr).ok();
                place.is_some()
            });
            *self.place.lock().unwrap() = place;
        }
    }

    /// Closes everything. Returns whether it was running.
    fn end(&self) -> bool {
        let Some(running) = self.running.lock().unwrap().take() else { return false };
        drop(running.stop);
        running.thread.join().unwrap();
        true
    }

    /// Listens again at the same place, after a stop.
    pub fn again(&self) {
        let Some(socket) = self.place.lock().unwrap().take() else { return };
        let (stop, stopped) = oneshot::channel();
        let (ready, is_ready) = std::sync::mpsc::channel();
        let (shared, tls) = (self.shared.clone(), self.tls.clone());
        let thread = std::thread::spawn(move || {
            let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
            runtime.block_on(async {
                let listener = socket.listen(1024).unwrap();
                ready.send(()).unwrap();
                tokio::select! {
                    () = accept(listener, shared, tls) => {}
                    _ = stopped => {}
                }
            });
            // Dropping the runtime closes what is open.
        });
        is_ready.recv().unwrap();
        *self.running.lock().unwrap() = Some(Running { stop, thread });
    }
}

impl Drop for HttpServer {
    fn drop(&mut self) {
        self.end();
    }
}

fn bound(addr: SocketAddr) -> io::Result<TcpSocket> {
    let socket = TcpSocket::new_v4()?;
    socket.set_reuseaddr(true)?;
    socket.bind(addr)?;
    Ok(socket)
}

async fn accept(listener: TcpListener, shared: Arc<ServerState>, tls: Option<TlsAcceptor>) {
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let connection = shared.connections.fetch_add(1, Ordering::SeqCst) + 1;
        let (shared, tls) = (shared.clone(), tls.clone());
        tokio::spawn(async move {
            let open = shared.open.fetch_add(1, Ordering::SeqCst) + 1;
            shared.open_max.fetch_max(open, Ordering::SeqCst);
            // A client that goes away is its own business; the test looks at what came.
            let _ = serve(stream, shared.clone(), tls, connection).await;
            shared.open.fetch_sub(1, Ordering::SeqCst);
        });
    }
}

async fn serve(
    stream: TcpStream,
    shared: Arc<ServerState>,
    tls: Option<TlsAcceptor>,
    connection: usize,
) -> io::Result<()> {
    stream.set_nodelay(true)?;
    let service = service_fn(move |request| answer(shared.clone(), connection, request));
    let mut server = http1::Builder::new();
    server.max_buf_size(1024 * 1024);
    let served = match tls {
        None => server.serve_connection(TokioIo::new(stream), service).await,
        Some(tls) => {
            let stream = tls.accept(stream).await?;
            let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
            let stream = TokioIo::new(stream);
            if is_http2 {
                let mut server = http2::Builder::new(TokioExecutor::new());
                server.max_concurrent_streams(STREAMS_MAX).serve_connection(stream, service).await
            } else {
                server.serve_connection(stream, service).await
            }
        }
    };
    served.map_err(io::Error::other)
}

async fn answer(
    shared: Arc<ServerState>,
    connection: usize,
    request: http::Request<Incoming>,
) -> io::Result<Response<ResponseBody>> {
    let (Parts { method, uri, headers, version, .. }, body) = request.into_parts();
    let body = body.collect().await.map_err(io::Error::other)?.to_bytes();
    let request = Request { method, uri, headers, body, connection, version };
    let reply = (shared.decide)(&request);
    shared.requests.send_modify(|all| all.push(request));
    let with = |answer: Response<Bytes>, then| {
        let streamed = shared.clone();
        answer.map(|bytes| ResponseBody { bytes, then, sent: false, shared: streamed })
    };
    match reply {
        Reply::Answer(answer) => Ok(with(answer, Then::End)),
        Reply::Later(answer, span) => {
            #[expect(clippy::disallowed_methods, reason = "a target that takes its time takes real time")]
            tokio::time::sleep(span).await;
            Ok(with(answer, Then::End))
        }
        Reply::AfterSignal(answer, mut signal) => {
            // A test that has gone tells nothing more.
            let _ = signal.wait_for(|is_set| *is_set).await;
            Ok(with(answer, Then::End))
        }
        Reply::Endless(answer) => Ok(with(answer, Then::Repeat)),
        Reply::Unfinished(answer) => Ok(with(answer, Then::Wait)),
        Reply::Never => std::future::pending().await,
        Reply::HangUp => Err(io::Error::other("hanging up")),
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Then {
    End,
    Repeat,
    Wait,
}

struct ResponseBody {
    bytes: Bytes,
    then: Then,
    sent: bool,
    shared: Arc<ServerState>,
}

impl Body for ResponseBody {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        match (self.sent, self.then) {
            (true, Then::End) => return Poll::Ready(None),
            (true, Then::Wait) => return Poll::Pending,
            (true, Then::Repeat) => {
                self.shared.streamed.fetch_add(self.bytes.len(), Ordering::SeqCst);
            }
            (false, _) => self.sent = true,
        }
        Poll::Ready(Some(Ok(Frame::data(self.bytes.clone()))))
    }

    fn is_end_stream(&self) -> bool {
        self.then == Then::End && (self.sent || self.bytes.is_empty())
    }

    fn size_hint(&self) -> hyper::body::SizeHint {
        match self.then {
            Then::End => hyper::body::SizeHint::with_exact(self.bytes.len() as u64),
            _ => hyper::body::SizeHint::default(),
        }
    }
}
