//! A connection to a target, and how many there are.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, OnceLock,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{CaptureConnection, Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

use crate::tls::is_certificate_io_fault;

/// While more connections than this are open or being made, a new one serves one request and is closed. So a sink keeps
/// this many connections at most, however many origins its messages name; the others last as long as a request.
pub(super) const KEPT_MAX: usize = 256;

/// Counts the connections of one sink.
#[derive(Clone, Default)]
pub(super) struct Count(Arc<AtomicUsize>);

impl Count {
    pub(super) fn add(&self) -> Counted {
        let before = self.0.fetch_add(1, Ordering::Relaxed);
        Counted { count: self.0.clone(), is_kept: before < KEPT_MAX }
    }

    #[cfg(test)]
    pub(super) fn now(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }
}

/// One connection, from before it is made until it is closed.
pub(super) struct Counted {
    count: Arc<AtomicUsize>,
    /// Whether it may serve more than one request.
    pub(super) is_kept: bool,
}

impl Drop for Counted {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

/// Why the target ended TLS over our certificate, once it did. By TLS 1.3 that comes after the handshake, at any moment of the first
/// request: what HTTP then makes of the lost connection does not always name it. The target has not read the request.
#[derive(Clone, Default)]
pub(super) struct CertificateFault(Arc<OnceLock<String>>);

impl CertificateFault {
    /// That of the connection which a request used.
    pub(super) fn of(connection: &CaptureConnection) -> Option<String> {
        let mut extras = http::Extensions::new();
        connection.connection_metadata().as_ref()?.get_extras(&mut extras);
        extras.get::<Self>()?.0.get().cloned()
    }

    fn notice<T>(&self, read: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(why)) = &read
            && is_certificate_io_fault(why)
        {
            let _ = self.0.set(why.to_string());
        }
        read
    }
}

/// Bytes to and from a target, with TLS or without.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection to a target.
pub(super) struct Stream {
    io: Box<dyn Io>,
    is_http2: bool,
    counted: Counted,
    certificate_fault: CertificateFault,
}

impl Stream {
    pub(super) fn new(io: impl Io + 'static, is_http2: bool, counted: Counted) -> Self {
        Self { io: Box::new(io), is_http2, counted, certificate_fault: CertificateFault::default() }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.certificate_fault.clone());
        if !self.counted.is_kept {
            connected.poison();
        }
        if self.is_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl AsyncRead for Stream {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        self.certificate_fault.notice(read)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write(context, bytes);
        self.certificate_fault.notice(written)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = Pin::new(&mut self.io).poll_write_vectored(context, slices);
        self.certificate_fault.notice(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let flushed = Pin::new(&mut self.io).poll_flush(context);
        self.certificate_fault.notice(flushed)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
