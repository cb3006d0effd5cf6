//! Sliding window of requests on one connection: a response makes room for the next request.

use std::{
    io,
    pin::{Pin, pin},
    task::{Context, Poll, ready},
};

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncReadExt, AsyncWrite};

use super::{
    connection::Connection,
    frame::{self, Response},
};

/// Maximum of requests without a response on one connection: brokers reject what waits longer than 200 ms in their queue.
pub(super) const WINDOW: usize = 64;
/// Maximum of bytes that are encoded before they are written.
const PIECE: usize = 64 * 1024;
/// Bytes read at once.
const READ: usize = 64 * 1024;

/// The requests of one call on its connection.
pub(super) struct Window<'a> {
    connection: &'a mut Connection,
    /// To be written.
    out: BytesMut,
    needs_flush: bool,
    /// Bytes written so far.
    written: usize,
    /// The offset of each encoded request in the bytes of the connection.
    starts: Vec<usize>,
    answered: Vec<bool>,
    left: usize,
}

impl<'a> Window<'a> {
    /// For `count` requests.
    pub(super) fn over(connection: &'a mut Connection, count: usize) -> Self {
        Self {
            connection,
            out: BytesMut::new(),
            needs_flush: false,
            written: 0,
            starts: Vec::with_capacity(count),
            answered: vec![false; count],
            left: count,
        }
    }

    /// For so many requests more.
    pub(super) fn extend(&mut self, count: usize) {
        self.answered.resize(self.answered.len() + count, false);
        self.left += count;
    }

    /// Whether every request has its response.
    pub(super) fn is_done(&self) -> bool {
        self.left == 0
    }

    /// Whether the other end has answered anything, now or in a call before.
    pub(super) fn is_answered(&self) -> bool {
        self.connection.is_answered
    }

    /// Whether anything of this request may have left us.
    pub(super) fn may_be_sent(&self, index: usize) -> bool {
        self.starts.get(index).is_some_and(|start| *start < self.written)
    }

    /// The next response, with the index of its request. `add` adds the request of an index, called in order. Nothing is
    /// lost if this is given up and called again.
    pub(super) async fn next(
        &mut self,
        add: &mut (impl FnMut(&mut BytesMut, usize) + Send),
    ) -> io::Result<(usize, Response)> {
        loop {
            while let Some((index, answer)) = frame::next(&mut self.connection.received)? {
                self.connection.is_answered = true;
                if let Some(is_answered @ false) = self.answered.get_mut(index) {
                    *is_answered = true;
                    self.left -= 1;
                    return Ok((index, answer));
                }
            }
            self.fill(add);
            std::future::poll_fn(|context| self.poll(context)).await?;
        }
    }

    /// Adds as many requests as the window has room for.
    fn fill(&mut self, add: &mut impl FnMut(&mut BytesMut, usize)) {
        let answered = self.answered.len() - self.left;
        while self.starts.len() < self.answered.len()
            && self.starts.len() - answered < WINDOW
            && self.out.len() < PIECE
        {
            self.starts.push(self.written + self.out.len());
            add(&mut self.out, self.starts.len() - 1);
        }
    }

    /// Writes what it can. Ready when something was read, or when all is written and there may be more to add.
    fn poll(&mut self, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        let stream = &mut self.connection.stream;
        let before = self.written;
        while self.out.has_remaining() {
            match Pin::new(&mut *stream).poll_write(context, &self.out)? {
                Poll::Ready(0) => return Poll::Ready(Err(io::ErrorKind::WriteZero.into())),
                Poll::Ready(count) => {
                    self.out.advance(count);
                    self.written += count;
                    self.needs_flush = true;
                }
                Poll::Pending => break,
            }
        }
        if self.needs_flush && self.out.is_empty() {
            self.needs_flush = Pin::new(&mut *stream).poll_flush(context)?.is_pending();
        }
        if self.written > before && self.out.is_empty() {
            return Poll::Ready(Ok(()));
        }
        self.connection.received.reserve(READ);
        let read = pin!(stream.read_buf(&mut self.connection.received));
        match ready!(read.poll(context))? {
            0 => {
                let closed = io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed");
                Poll::Ready(Err(closed))
            }
            _ => Poll::Ready(Ok(())),
        }
    }
}
