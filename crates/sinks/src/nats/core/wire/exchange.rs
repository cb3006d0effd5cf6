//! One exchange on a connection: what is written, and what is read.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

use super::Wire;

/// No more is put together to be sent while this much waits to be: it bounds what a connection holds, with one message.
const PIECE: usize = 64 * 1024;
/// Read at once.
const READ: usize = 16 * 1024;

/// One side of a conversation.
pub(crate) trait Exchange: Send {
    /// Adds what is to be said next, if it is time for it. Asked again until `out` holds a [`PIECE`] or it adds nothing.
    fn poll_write(&mut self, out: &mut BytesMut);

    /// Takes what is whole from the front of `read`, and answers into `out` what must be answered at once.
    fn on_read(&mut self, read: &mut BytesMut, out: &mut BytesMut) -> io::Result<()>;

    /// Whether everything expected was read.
    fn is_over(&self) -> bool;
}

impl<G> Wire<G> {
    /// Writes and reads until the exchange is over. What was read by then is known to `exchange` also if this fails or is dropped.
    pub(crate) async fn exchange(&mut self, exchange: &mut impl Exchange) -> io::Result<()> {
        let (mut from, mut to) = tokio::io::split(&mut self.stream);
        let (mut out, mut is_flushed) = (BytesMut::new(), true);
        loop {
            while out.len() < PIECE {
                let before = out.len();
                exchange.poll_write(&mut out);
                if out.len() == before {
                    break;
                }
            }
            if exchange.is_over() && out.is_empty() && is_flushed {
                return Ok(());
            }
            let has_more = !out.is_empty() || !is_flushed;
            tokio::select! {
                read = read_more(&mut from, &mut self.read) => {
                    read?;
                    exchange.on_read(&mut self.read, &mut out)?;
                }
                sent = push(&mut to, &mut out, &mut is_flushed), if has_more => sent?,
            }
        }
    }
}

async fn read_more(from: &mut (impl AsyncRead + Unpin), read: &mut BytesMut) -> io::Result<()> {
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
