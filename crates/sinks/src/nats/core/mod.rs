//! Core NATS: no stream and no acknowledgement. All that can be known is that the server read a message and did not deny it.
//!
//! The protocol is implemented here because the client library exposes neither PONG nor the order of errors relative to it.

mod batch;
pub(super) mod protocol;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::BytesMut;
use duly_core::{Clock, Monotonic, Outcomes, SinkError, SinkErrorKind};
use tokio::{
    io::AsyncReadExt,
    net::{TcpStream, lookup_host},
    sync::{Semaphore, SemaphorePermit},
};

use super::{failure::unsecured, publish::OutgoingMessage, settings::Settings};
use crate::{
    exchange::Exchange,
    idle_pool::{IdleConnection, IdlePool},
    link::Link,
    tls,
    within::within,
};
use batch::Batch;
use protocol::{Line, PING, ServerInfo};

/// The first line of a server is not longer than this.
const GREETING_MAX: usize = 64 * 1024;
/// Calls that use a connection at the same time, and idle connections, at most. Other calls wait in line.
const CONNECTIONS_MAX: usize = 8;
/// A connection that was unused for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// An open connection, and what the server said first. Each belongs to one call at a time: a call that is dropped half way
/// takes its connection with it.
struct Connection {
    link: Link,
    info: ServerInfo,
}

impl IdleConnection for Connection {
    fn is_idle(&self) -> bool {
        self.link.is_idle()
    }

    fn is_quiet(&mut self) -> bool {
        self.link.is_quiet()
    }

    fn idle_max(&self) -> Duration {
        IDLE_MAX
    }

    fn leave(self) {
        self.link.leave(b"");
    }
}

/// Connections to core NATS.
pub(super) struct Core {
    in_use: Semaphore,
    idle: Arc<IdlePool<Connection>>,
    clock: Arc<dyn Clock>,
    /// The server that answered last: the next connection tries it first.
    server: AtomicUsize,
}

impl Core {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        let (in_use, idle) = (Semaphore::new(CONNECTIONS_MAX), IdlePool::new(CONNECTIONS_MAX, clock.clone()));
        Self { in_use, idle, clock, server: AtomicUsize::new(0) }
    }

    /// Deadlines of a call: to have a connection, and to have all answers.
    fn ends(&self, timeout: Duration) -> (Monotonic, Monotonic) {
        let now = self.clock.now().mono();
        (now.saturating_add(timeout / 2), now.saturating_add(timeout))
    }

    /// Publishes these, each with its index in the batch, and reports each when it is known.
    pub(super) async fn send(
        &self,
        settings: &Settings,
        messages: &[(usize, OutgoingMessage)],
        outcomes: &Outcomes<'_>,
    ) {
        let ends = self.ends(settings.timeout);
        let (_turn, mut connection) = match self.begin(settings, ends.0).await {
            Ok(begun) => begun,
            Err(failure) => {
                messages.iter().for_each(|(index, _)| outcomes.report(*index, Err(failure.clone())));
                return;
            }
        };
        let mut batch = Batch::new(messages, outcomes, connection.info.max_payload);
        let why = match within(&*self.clock, ends.1, connection.link.exchange(&mut batch)).await {
            Some(Ok(())) => {
                self.idle.release(connection);
                return;
            }
            Some(Err(why)) => why.to_string(),
            None => "no answer to a PING in time".to_owned(),
        };
        batch.give_up(&why);
    }

    /// Connects, if need be, and pings. Nothing is published.
    pub(super) async fn probe(&self, settings: &Settings) -> Result<(), SinkError> {
        let ends = self.ends(settings.timeout);
        let (_turn, mut connection) = self.begin(settings, ends.0).await?;
        let mut ask = Ask { request: PING.into(), answer: None };
        let reply = within(&*self.clock, ends.1, connection.link.exchange(&mut ask)).await;
        match (reply, ask.answer) {
            (Some(Ok(())), Some(Ok(()))) => {
                self.idle.release(connection);
                Ok(())
            }
            (Some(Ok(())), Some(Err(words))) => Err(SinkError::unreachable(words)),
            (Some(Err(why)), _) => Err(SinkError::unreachable(why.to_string())),
            _ => Err(SinkError::unreachable("no answer to a PING in time")),
        }
    }

    async fn begin(
        &self,
        settings: &Settings,
        until: Monotonic,
    ) -> Result<(SemaphorePermit<'_>, Connection), SinkError> {
        let turn = within(&*self.clock, until, self.in_use.acquire()).await.and_then(Result::ok);
        let turn = turn.ok_or_else(|| SinkError::unreachable("no free connection in time"))?;
        Ok((turn, self.connection(settings, until).await?))
    }

    /// An idle connection, or a new one to the first server that answers. A silent server uses only its share of the time.
    async fn connection(&self, settings: &Settings, until: Monotonic) -> Result<Connection, SinkError> {
        if let Some(connection) = self.idle.take() {
            return Ok(connection);
        }
        let count = settings.servers.len();
        let first = self.server.load(Ordering::Relaxed);
        let mut failure = SinkError::unreachable("no connection in time");
        for position in (0..count).map(|step| (first + step) % count) {
            let (_, end) = self.ends(settings.connect_share());
            match within(&*self.clock, end.min(until), connect(settings, position)).await {
                Some(Ok(connection)) => {
                    self.server.store(position, Ordering::Relaxed);
                    return Ok(connection);
                }
                // Every server of a cluster knows the same users.
                Some(Err(error)) if error.kind == SinkErrorKind::Misconfigured => return Err(error),
                Some(Err(error)) => failure = error,
                None => {}
            }
        }
        Err(failure)
    }
}

/// One request; a PONG or an error is the answer.
struct Ask {
    request: BytesMut,
    answer: Option<Result<(), String>>,
}

impl Exchange for Ask {
    fn poll_write(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(&std::mem::take(&mut self.request));
    }

    fn on_read(&mut self, read: &mut BytesMut, out: &mut BytesMut) -> io::Result<()> {
        while self.answer.is_none() {
            match protocol::next(read)? {
                Some(Line::Pong) => self.answer = Some(Ok(())),
                Some(Line::Error(words)) => self.answer = Some(Err(words)),
                Some(Line::Ping) => out.extend_from_slice(protocol::PONG),
                Some(Line::Other) => {}
                None => break,
            }
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.answer.is_some()
    }
}

async fn connect(settings: &Settings, position: usize) -> Result<Connection, SinkError> {
    let server = &settings.servers[position];
    let failed = |why: io::Error| unsecured(&why);
    let stream = connect_tcp(server.host(), server.port()).await.map_err(failed)?;
    let (stream, info) = greeting(stream).await.map_err(failed)?;
    if !info.headers {
        let detail = "this server takes no headers, in which the id of a message travels";
        return Err(SinkError::misconfigured(detail));
    }
    let is_secure = settings.is_secure || info.tls_required;
    let tls = is_secure.then(|| Arc::new(settings.tls.clone()));
    let link = Link::over(tls::connect(tls.as_ref(), server.host(), stream).await.map_err(failed)?);
    let hello = protocol::connect(&info, &settings.login, is_secure).map_err(failed)?;
    let mut connection = Connection { link, info };
    let mut ask = Ask { request: hello, answer: None };
    connection.link.exchange(&mut ask).await.map_err(failed)?;
    match ask.answer {
        Some(Err(words)) => Err(not_let_in(words)),
        _ => Ok(connection),
    }
}

/// The first address of the host that takes the connection.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host.trim_matches(['[', ']']), port)).await?.collect();
    TcpStream::connect(&addresses[..]).await
}

/// Reads the first line of a server. TLS begins after it, so that no more may be read.
async fn greeting(mut stream: TcpStream) -> io::Result<(TcpStream, ServerInfo)> {
    let mut line = Vec::new();
    while !line.ends_with(b"\n") {
        if line.len() > GREETING_MAX {
            return Err(io::Error::other("this is no NATS server"));
        }
        line.push(stream.read_u8().await?);
    }
    let info = protocol::info(&String::from_utf8_lossy(&line))?;
    Ok((stream, info))
}

fn not_let_in(words: String) -> SinkError {
    let is_about_us = words.to_ascii_lowercase().contains("auth") && !words.contains("Timeout");
    let kind = if is_about_us { SinkErrorKind::Misconfigured } else { SinkErrorKind::Unreachable };
    SinkError::new(kind, words)
}
