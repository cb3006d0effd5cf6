//! The bytes of one connection: what is sent, and what is read.

use std::io;

use bytes::{Buf, Bytes, BytesMut};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::address::Address;

/// No more is put together to be sent while this much waits to be: it bounds what a connection holds, with one message.
const PIECE: usize = 64 * 1024;
/// Read at once.
const READ: usize = 16 * 1024;

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Our side of a conversation.
pub(crate) trait Exchange: Send {
    /// Adds what is to be sent next, if it is time for it. Asked again until `out` holds a [`PIECE`] or it adds nothing.
    fn write(&mut self, out: &mut BytesMut);

    /// Takes what is whole from the front of `read`, and adds to `out` what must be answered at once.
    fn on_read(&mut self, read: &mut BytesMut, out: &mut BytesMut) -> io::Result<()>;

    /// Whether all answers are there.
    fn is_over(&self) -> bool;
}

/// An open connection.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    read: BytesMut,
    out: BytesMut,
    is_flushed: bool,
}

impl Link {
    /// TLS over `stream`, if the address wants it.
    pub(super) async fn over(stream: TcpStream, host: &str, address: &Address) -> io::Result<Self> {
        stream.set_nodelay(true)?;
        let stream: Box<dyn Stream> = match &address.tls {
            None => Box::new(stream),
            Some(tls) => {
                let name = ServerName::try_from(host.to_owned()).map_err(io::Error::other)?;
                Box::new(TlsConnector::from(tls.clone()).connect(name, stream).await?)
            }
        };
        Ok(Self { stream, read: BytesMut::new(), out: BytesMut::new(), is_flushed: true })
    }

    /// Writes and reads until it is over. Dropped at any moment, it can be called again and goes on where it was.
    pub(crate) async fn exchange(&mut self, exchange: &mut impl Exchange) -> io::Result<()> {
        let (mut from, mut to) = tokio::io::split(&mut self.stream);
        loop {
            while self.out.len() < PIECE {
                let before = self.out.len();
                exchange.write(&mut self.out);
                if self.out.len() == before {
                    break;
                }
            }
            let has_more = !self.out.is_empty() || !self.is_flushed;
            if exchange.is_over() && !has_more {
                return Ok(());
            }
            tokio::select! {
                done = read(&mut from, &mut self.read) => {
                    done?;
                    exchange.on_read(&mut self.read, &mut self.out)?;
                }
                done = push(&mut to, &mut self.out, &mut self.is_flushed), if has_more => done?,
            }
        }
    }

    /// Sends `question`; the first answer that `parse` finds is returned.
    pub(crate) async fn ask<A: Send>(
        &mut self,
        question: impl Into<Bytes>,
        parse: impl Fn(&mut BytesMut) -> io::Result<Option<A>> + Send,
    ) -> io::Result<A> {
        let mut ask = Ask { question: question.into(), parse, answer: None };
        self.exchange(&mut ask).await?;
        ask.answer.ok_or_else(|| io::Error::other("no answer"))
    }

    /// Adds bytes that mean nothing, unless something else is being sent: the far end hears that we are alive.
    pub(super) fn keep_alive(&mut self, bytes: &[u8]) {
        if self.out.is_empty() && self.is_flushed {
            self.out.extend_from_slice(bytes);
        }
    }

    /// Whether the far end has said nothing that nobody asked for: its end, above all.
    pub(super) fn is_quiet(&mut self) -> bool {
        use futures_util::FutureExt;
        self.is_idle() && self.stream.read(&mut [0]).now_or_never().is_none()
    }

    /// Whether nothing is left to be sent or to be understood.
    pub(super) fn is_idle(&self) -> bool {
        self.read.is_empty() && self.out.is_empty() && self.is_flushed
    }

    /// Says goodbye, if that takes no time: a few bytes fit, or the connection is of no use anyway.
    pub(super) fn leave(mut self, farewell: &[u8]) {
        use futures_util::FutureExt;
        let _ = self.stream.write_all(farewell).now_or_never();
    }
}

struct Ask<A, P> {
    question: Bytes,
    parse: P,
    answer: Option<A>,
}

impl<A: Send, P: Fn(&mut BytesMut) -> io::Result<Option<A>> + Send> Exchange for Ask<A, P> {
    fn write(&mut self, out: &mut BytesMut) {
        out.extend_from_slice(&std::mem::take(&mut self.question));
    }

    fn on_read(&mut self, read: &mut BytesMut, _: &mut BytesMut) -> io::Result<()> {
        if self.answer.is_none() {
            self.answer = (self.parse)(read)?;
        }
        Ok(())
    }

    fn is_over(&self) -> bool {
        self.answer.is_some()
    }
}

async fn read(from: &mut (impl AsyncRead + Unpin), read: &mut BytesMut) -> io::Result<()> {
    read.reserve(READ);
    match from.read_buf(read).await? {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
        _ => Ok(()),
    }
}

/// Dropped at any moment, it goes on where it was.
async fn push(
    to: &mut (impl AsyncWrite + Unpin),
    out: &mut BytesMut,
    is_flushed: &mut bool,
) -> io::Result<()> {
    if out.has_remaining() {
        *is_flushed = false;
        to.write_buf(out).await?;
    }
    if !out.has_remaining() {
        to.flush().await?;
        *is_flushed = true;
    }
    Ok(())
}
