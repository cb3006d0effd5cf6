//! Connections to brokers and name servers. A connection serves one call at a time, and is idle once all its responses have arrived.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use bytes::BytesMut;
use duly_core::{Clock, Monotonic};
use rustls::ClientConfig;
use tokio::net::TcpStream;

use super::{
    frame::{self, Code, Response},
    sign::Signer,
    window::Window,
};
use crate::{
    idle_pool::{IdleConnection, IdlePool},
    stream::{self, Stream},
    tls,
    within::within,
};

/// Brokers close a connection that is silent for two minutes.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Maximum of idle connections for each address.
const IDLE_COUNT: usize = 8;

/// An open connection.
pub(super) struct Connection {
    address: String,
    pub(super) stream: Box<dyn Stream>,
    /// Received and not parsed.
    pub(super) received: BytesMut,
    /// Whether a request was answered on it: then the broker accepted our certificate, and a later alert says nothing about the messages in
    /// flight.
    pub(super) is_answered: bool,
}

/// Opens connections, and keeps the idle ones.
pub(super) struct Connections {
    tls: Option<Arc<ClientConfig>>,
    signer: Option<Signer>,
    clock: Arc<dyn Clock>,
    /// By address.
    idle: Mutex<HashMap<String, Arc<IdlePool<Connection>>>>,
}

impl Connections {
    pub(super) fn new(tls: Option<Arc<ClientConfig>>, signer: Option<Signer>, clock: Arc<dyn Clock>) -> Self {
        Self { tls, signer, clock, idle: Mutex::default() }
    }

    pub(super) fn now(&self) -> Monotonic {
        self.clock.now().mono()
    }

    /// A connection to `address` that stands by `end`: an idle one, or a new one.
    pub(super) async fn open(&self, address: &str, end: Monotonic) -> io::Result<Connection> {
        if let Some(connection) = self.idle(address).take() {
            return Ok(connection);
        }
        let opened = within(&*self.clock, end, self.connect(address)).await;
        opened.unwrap_or_else(|| Err(io::Error::new(io::ErrorKind::TimedOut, "no connection in time")))
    }

    async fn connect(&self, address: &str) -> io::Result<Connection> {
        let stream = TcpStream::connect(address).await?;
        let host = address.rsplit_once(':').map_or(address, |(host, _)| host);
        let stream = tls::connect(self.tls.as_ref(), host, stream).await?;
        Ok(Connection { address: address.into(), stream, received: BytesMut::new(), is_answered: false })
    }

    /// Returns a connection that awaits no response.
    pub(super) fn release(&self, connection: Connection) {
        self.idle(&connection.address).release(connection);
    }

    fn idle(&self, address: &str) -> Arc<IdlePool<Connection>> {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(pool) = idle.get(address) {
            return pool.clone();
        }
        idle.entry(address.to_owned()).or_insert(IdlePool::new(IDLE_COUNT, self.clock.clone())).clone()
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

    /// Sends one request that writes nothing. The response must arrive by `end`.
    pub(super) async fn ask(
        &self,
        address: &str,
        end: Monotonic,
        code: Code,
        fields: BTreeMap<&'static str, String>,
        body: &[u8],
    ) -> io::Result<Response> {
        let mut connection = self.open(address, end).await?;
        let mut window = Window::over(&mut connection, 1);
        let mut add = |out: &mut BytesMut, opaque: usize| self.add(out, code, opaque, fields.clone(), body);
        let answer = within(&*self.clock, end, window.next(&mut add)).await;
        let no_answer = || io::Error::new(io::ErrorKind::TimedOut, "no answer in time");
        let (_, answer) = answer.unwrap_or_else(|| Err(no_answer()))?;
        self.release(connection);
        Ok(answer)
    }
}

impl IdleConnection for Connection {
    fn is_idle(&self) -> bool {
        // A call that releases it has read all its responses.
        self.received.is_empty()
    }

    fn is_quiet(&mut self) -> bool {
        stream::is_quiet(&mut self.stream)
    }

    fn idle_max(&self) -> Duration {
        IDLE_MAX
    }

    fn leave(self) {}
}
