//! Connections: each belongs to one call at a time, and waits for the next when all its responses have come.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use bytes::BytesMut;
use duly_core::{Clock, Monotonic};
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{
    frame::{self, Answer, Code},
    sign::Signer,
    window::Window,
};

/// Brokers close what says nothing for two minutes.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Connections that wait for work, of each address.
const IDLE_COUNT: usize = 8;

pub(super) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open connection.
pub(super) struct Connection {
    address: String,
    pub(super) stream: Box<dyn Stream>,
    /// Received, and not yet understood.
    pub(super) received: BytesMut,
    /// Whether a request was answered by it: then the broker took our certificate, and what ends the connection later says nothing of
    /// the messages that are under way.
    pub(super) is_answered: bool,
}

/// Where connections come from.
pub(super) struct Connections {
    tls: Option<Arc<ClientConfig>>,
    signer: Option<Signer>,
    clock: Arc<dyn Clock>,
    idle: Mutex<HashMap<String, Vec<(Monotonic, Connection)>>>,
}

impl Connections {
    pub(super) fn new(tls: Option<Arc<ClientConfig>>, signer: Option<Signer>, clock: Arc<dyn Clock>) -> Self {
        Self { tls, signer, clock, idle: Mutex::default() }
    }

    pub(super) fn now(&self) -> Monotonic {
        self.clock.now().mono()
    }

    /// The result of `work`, or nothing if it does not end in time.
    pub(super) async fn within<T>(&self, end: Monotonic, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.clock.sleep_until(end) => None,
        }
    }

    /// A connection to `address` that stands by `end`: an idle one, or a new one.
    pub(super) async fn open(&self, address: &str, end: Monotonic) -> io::Result<Connection> {
        let now = self.now();
        while let Some((since, mut connection)) = self.take_idle(address) {
            if now.since(since) < IDLE_MAX && connection.is_quiet().await {
                return Ok(connection);
            }
        }
        let opened = self.within(end, self.connect(address)).await;
        opened.unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time")))
    }

    async fn connect(&self, address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &self.tls {
            None => Box::new(stream),
            Some(tls) => {
                let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
                let host = host.trim_start_matches('[').trim_end_matches(']').to_owned();
                let name = ServerName::try_from(host).map_err(io::Error::other)?;
                Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?)
            }
        };
        Ok(Connection { address: address.into(), stream, received: BytesMut::new(), is_answered: false })
    }

    /// Gives back a connection on which nothing is outstanding.
    pub(super) fn release(&self, connection: Connection) {
        let now = self.now();
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = idle.entry(connection.address.clone()).or_default();
        if waiting.len() < IDLE_COUNT {
            waiting.push((now, connection));
        }
    }

    fn take_idle(&self, address: &str) -> Option<(Monotonic, Connection)> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).get_mut(address)?.pop()
    }

    /// Adds a request to `out`, signed if we have a key. Its response has the same `opaque`.
    pub(super) fn add(
        &self,
        out: &mut BytesMut,
        code: Code,
        opaque: usize,
        fields: BTreeMap<&'static str, String>,
        body: &[u8],
    ) {
        frame::ask(out, code, opaque, fields, body, self.signer.as_ref());
    }

    /// Asks one thing, by which nothing is written. The response must be there by `end`.
    pub(super) async fn ask(
        &self,
        address: &str,
        end: Monotonic,
        code: Code,
        fields: BTreeMap<&'static str, String>,
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut connection = self.open(address, end).await?;
        let mut window = Window::over(&mut connection, 1);
        let mut add = |out: &mut BytesMut, opaque: usize| self.add(out, code, opaque, fields.clone(), body);
        let answer = self.within(end, window.next(&mut add)).await;
        let no_answer = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        let (_, answer) = answer.unwrap_or_else(|| Err(no_answer()))?;
        self.release(connection);
        Ok(answer)
    }
}

impl Connection {
    /// Whether nothing has come meanwhile: its end, above all.
    async fn is_quiet(&mut self) -> bool {
        let mut byte = [0; 1];
        std::future::poll_fn(|context| {
            let mut byte = ReadBuf::new(&mut byte);
            let read = std::pin::Pin::new(&mut self.stream).poll_read(context, &mut byte);
            Poll::Ready(read.is_pending())
        })
        .await
    }
}
