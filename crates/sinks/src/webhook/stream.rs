//! A connection to a target, and how many there are.

use std::{
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    task::{Context, Poll},
};

use hyper_util::client::legacy::connect::{Connected, Connection};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};

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

/// Bytes to and from a target, with TLS or without.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// A connection to a target.
pub(super) struct Stream {
    io: Box<dyn Io>,
    is_http2: bool,
    counted: Counted,
}

impl Stream {
    pub(super) fn new(io: impl Io + 'static, is_http2: bool, counted: Counted) -> Self {
        Self { io: Box::new(io), is_http2, counted }
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new();
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
        Pin::new(&mut self.io).poll_read(context, buffer)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write(context, bytes)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.io).poll_write_vectored(context, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}
