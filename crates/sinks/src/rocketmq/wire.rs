//! Connections: each is one call's at a time, and waits for the next when all its answers have come.

use std::{
    collections::{BTreeMap, HashMap},
    io,
    sync::{Arc, Mutex, PoisonError},
    task::Poll,
    time::Duration,
};

use bytes::BytesMut;
use duly_core::Monotonic;
use rustls::{ClientConfig, pki_types::ServerName};
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, ReadBuf},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::{
    frame::{self, Answer, Code},
    sign::Signer,
};

/// Brokers close what says nothing for two minutes.
const IDLE_MAX: Duration = Duration::from_secs(60);
/// Connections that wait for work, of each address.
const IDLE_COUNT: usize = 8;
/// Read at once.
const READ: usize = 64 * 1024;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open connection.
pub(super) struct Wire {
    address: String,
    stream: Box<dyn Stream>,
}

/// Where connections come from.
pub(super) struct Wires {
    tls: Option<Arc<ClientConfig>>,
    signer: Option<Signer>,
    idle: Mutex<HashMap<String, Vec<(Monotonic, Wire)>>>,
}

/// What is asked in one go: per request its fields and its body.
pub(super) struct Requests(BytesMut, usize);

impl Wires {
    pub(super) fn new(tls: Option<Arc<ClientConfig>>, signer: Option<Signer>) -> Self {
        Self { tls, signer, idle: Mutex::default() }
    }

    /// A connection to `address`: one that waits, or a new one.
    pub(super) async fn to(&self, address: &str, now: Monotonic) -> io::Result<Wire> {
        while let Some((since, mut wire)) = self.waiting(address) {
            if now.since(since) < IDLE_MAX && wire.is_quiet().await {
                return Ok(wire);
            }
        }
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
        Ok(Wire { address: address.into(), stream })
    }

    /// Gives back a connection on which nothing is outstanding.
    pub(super) fn give_back(&self, wire: Wire, now: Monotonic) {
        let mut idle = self.idle.lock().unwrap_or_else(PoisonError::into_inner);
        let waiting = idle.entry(wire.address.clone()).or_default();
        if waiting.len() < IDLE_COUNT {
            waiting.push((now, wire));
        }
    }

    fn waiting(&self, address: &str) -> Option<(Monotonic, Wire)> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner).get_mut(address)?.pop()
    }

    /// Nothing yet, to be added to.
    pub(super) fn requests(&self) -> Requests {
        Requests(BytesMut::new(), 0)
    }

    /// Adds one. Its answer has the same place.
    pub(super) fn add(
        &self,
        requests: &mut Requests,
        code: Code,
        fields: BTreeMap<&'static str, String>,
        body: &[u8],
    ) {
        frame::ask(&mut requests.0, code, requests.1, fields, body, self.signer.as_ref());
        requests.1 += 1;
    }

    /// Asks one thing.
    pub(super) async fn ask(
        &self,
        address: &str,
        now: Monotonic,
        code: Code,
        fields: BTreeMap<&'static str, String>,
        body: &[u8],
    ) -> io::Result<Answer> {
        let mut wire = self.to(address, now).await?;
        let mut requests = self.requests();
        self.add(&mut requests, code, fields, body);
        let mut answers = [None];
        wire.exchange(&requests, &mut answers).await?;
        self.give_back(wire, now);
        let [answer] = answers;
        answer.ok_or_else(|| io::ErrorKind::UnexpectedEof.into())
    }
}

impl Wire {
    /// Writes all requests and reads until all have their answers, which are in `answers` also if it ends early.
    pub(super) async fn exchange(
        &mut self,
        requests: &Requests,
        answers: &mut [Option<Answer>],
    ) -> io::Result<()> {
        let (mut from, mut to) = tokio::io::split(&mut self.stream);
        let writing = async {
            to.write_all(&requests.0).await?;
            to.flush().await
        };
        let reading = async {
            let mut read = BytesMut::with_capacity(READ);
            let mut left = answers.len();
            while left > 0 {
                while let Some((place, answer)) = frame::next(&mut read)? {
                    if let Some(empty @ None) = answers.get_mut(place) {
                        *empty = Some(answer);
                        left -= 1;
                    }
                }
                read.reserve(READ);
                if left > 0 && from.read_buf(&mut read).await? == 0 {
                    return Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed"));
                }
            }
            Ok(())
        };
        tokio::try_join!(writing, reading).map(|_| ())
    }

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
