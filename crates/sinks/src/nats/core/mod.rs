//! Core NATS: no stream and no acknowledgement. What can be known is that the server has read a message and did not deny it.
//!
//! Spoken by ourselves: the client library tells neither a PONG nor the order of the server's errors beside it.

mod batch;
pub(super) mod protocol;
mod wire;

use std::{
    io,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
};

use bytes::BytesMut;
use duly_core::{Clock, Monotonic, Outcomes, SinkError, SinkErrorKind};
use rustls::pki_types::ServerName;
use tokio::{
    io::AsyncReadExt,
    net::{TcpStream, lookup_host},
    sync::SemaphorePermit,
};
use tokio_rustls::TlsConnector;

use super::{
    failure::{no_connection, unsecured},
    publish::Parcel,
    settings::Settings,
};
use batch::Batch;
use protocol::{Info, Line, PING};
use wire::{Exchange, Wire, Wires};

/// The first line of a server is not longer than this.
const GREETING_MAX: usize = 64 * 1024;
/// Nothing is said to a server that is left.
const FAREWELL: &[u8] = b"";

/// Connections to core NATS.
pub(super) struct Core {
    wires: Arc<Wires<Info>>,
    /// The server that answered last: where the next connection begins to try.
    server: AtomicUsize,
}

impl Core {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Self {
        Self { wires: Wires::new(clock, FAREWELL), server: AtomicUsize::new(0) }
    }

    /// Publishes these, each with its index in the batch, and reports each when it is known.
    pub(super) async fn send(
        &self,
        settings: &Settings,
        parcels: &[(usize, Parcel)],
        outcomes: &Outcomes<'_>,
    ) {
        let ends = self.wires.ends(settings.timeout);
        let (_turn, mut wire) = match self.begin(settings, ends.0).await {
            Ok(begun) => begun,
            Err(failure) => {
                parcels.iter().for_each(|(index, _)| outcomes.report(*index, Err(failure.clone())));
                return;
            }
        };
        let mut batch = Batch::new(parcels, outcomes, wire.greeting.max_payload);
        let why = match self.wires.within(ends.1, wire.exchange(&mut batch)).await {
            Some(Ok(())) => {
                self.wires.give_back(wire);
                return;
            }
            Some(Err(why)) => why.to_string(),
            None => "no answer to a PING in time".to_owned(),
        };
        batch.give_up(&why);
    }

    /// Connects, if need be, and pings. Nothing is published.
    pub(super) async fn probe(&self, settings: &Settings) -> Result<(), SinkError> {
        let ends = self.wires.ends(settings.timeout);
        let (_turn, mut wire) = self.begin(settings, ends.0).await?;
        let mut ask = Ask { say: PING.into(), answer: None };
        let asked = self.wires.within(ends.1, wire.exchange(&mut ask)).await;
        match (asked, ask.answer) {
            (Some(Ok(())), Some(Ok(()))) => {
                self.wires.give_back(wire);
                Ok(())
            }
            (Some(Ok(())), Some(Err(words))) => Err(no_connection(words)),
            (Some(Err(why)), _) => Err(no_connection(why.to_string())),
            _ => Err(no_connection("no answer to a PING in time")),
        }
    }

    async fn begin(
        &self,
        settings: &Settings,
        until: Monotonic,
    ) -> Result<(SemaphorePermit<'_>, Wire<Info>), SinkError> {
        let turn = self.wires.within(until, self.wires.turn()).await.flatten();
        let turn = turn.ok_or_else(|| no_connection("no free connection in time"))?;
        Ok((turn, self.wire(settings, until).await?))
    }

    /// A connection that waits, or a new one to the first server that answers. One that is silent takes no more than its
    /// share of the time.
    async fn wire(&self, settings: &Settings, until: Monotonic) -> Result<Wire<Info>, SinkError> {
        if let Some(wire) = self.wires.waiting() {
            return Ok(wire);
        }
        let count = settings.servers.len();
        let first = self.server.load(Ordering::Relaxed);
        let mut failure = no_connection("no connection in time");
        for place in (0..count).map(|step| (first + step) % count) {
            let (_, end) = self.wires.ends(settings.connect_share());
            match self.wires.within(end.min(until), connect(settings, place)).await {
                Some(Ok(wire)) => {
                    self.server.store(place, Ordering::Relaxed);
                    return Ok(wire);
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

/// One thing said; a PONG or an error is the answer.
struct Ask {
    say: BytesMut,
    answer: Option<Result<(), String>>,
}

impl Exchange for Ask {
    fn poll_write(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(&std::mem::take(&mut self.say));
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

async fn connect(settings: &Settings, place: usize) -> Result<Wire<Info>, SinkError> {
    let server = &settings.servers[place];
    let failed = |why: io::Error| unsecured(&why);
    let stream = connect_tcp(server.host(), server.port()).await.map_err(failed)?;
    stream.set_nodelay(true).map_err(failed)?;
    let (stream, info) = greeting(stream).await.map_err(failed)?;
    if !info.headers {
        let detail = "this server takes no headers, in which the id of a message travels";
        return Err(SinkError::new(SinkErrorKind::Misconfigured, detail));
    }
    let is_secure = settings.is_secure || info.tls_required;
    let wire = if is_secure {
        let name = ServerName::try_from(server.host().to_owned()).map_err(io::Error::other);
        let tls = TlsConnector::from(Arc::new(settings.tls.clone()));
        Wire::over(tls.connect(name.map_err(failed)?, stream).await.map_err(failed)?)
    } else {
        Wire::over(stream)
    };
    let mut wire = wire.greeted(info);
    let hello = protocol::connect(&wire.greeting, &settings.login, is_secure).map_err(failed)?;
    let mut ask = Ask { say: hello, answer: None };
    wire.exchange(&mut ask).await.map_err(failed)?;
    match ask.answer {
        Some(Err(words)) => Err(not_let_in(words)),
        _ => Ok(wire),
    }
}

/// The first address of the host that takes the connection.
async fn connect_tcp(host: &str, port: u16) -> io::Result<TcpStream> {
    let addresses: Vec<_> = lookup_host((host.trim_matches(['[', ']']), port)).await?.collect();
    TcpStream::connect(&addresses[..]).await
}

/// What a server says in its first line. TLS begins after it, so that no more may be read.
async fn greeting(mut stream: TcpStream) -> io::Result<(TcpStream, Info)> {
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
