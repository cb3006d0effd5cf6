//! An open connection.

use std::io;

use bytes::{Bytes, BytesMut};
use rustls::pki_types::ServerName;
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    net::TcpStream,
};
use tokio_rustls::TlsConnector;

use super::address::Address;
use crate::exchange::{self, Buffers, Exchange, Stream};

/// An open connection.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    buffers: Buffers,
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
        Ok(Self { stream, buffers: Buffers::new() })
    }

    /// Writes and reads until it is over. Dropped at any moment, it can be called again and goes on where it was.
    pub(crate) async fn exchange(&mut self, exchange: &mut impl Exchange) -> io::Result<()> {
        exchange::run(&mut self.stream, &mut self.buffers, exchange).await
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
        if self.buffers.out.is_empty() && self.buffers.is_flushed {
            self.buffers.out.extend_from_slice(bytes);
        }
    }

    /// Whether the far end has said nothing that nobody asked for: its end, above all.
    pub(super) fn is_quiet(&mut self) -> bool {
        use futures_util::FutureExt;
        self.is_idle() && self.stream.read(&mut [0]).now_or_never().is_none()
    }

    /// Whether nothing is left to be sent or to be understood.
    pub(super) fn is_idle(&self) -> bool {
        self.buffers.is_idle()
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
    fn poll_write(&mut self, out: &mut BytesMut) {
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
