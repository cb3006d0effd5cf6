//! One exchange on a connection: what is written, and what is read. For the protocols that are implemented here.

use std::io;

use bytes::{Buf, BytesMut};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt};

/// Nothing is added to the output while this much is not written yet. It bounds what a connection buffers, with one message.
const WRITE_SIZE: usize = 64 * 1024;
/// Bytes read at once.
const READ_SIZE: usize = 16 * 1024;

/// The client side of a protocol.
pub(crate) trait Exchange: Send {
    /// Adds the next bytes to send, if there are any. Called again until `out` holds [`WRITE_SIZE`] bytes or nothing is added.
    fn poll_write(&mut self, out: &mut BytesMut);

    /// Parses complete frames from the front of `read`, and adds immediate replies to `out`.
    fn on_read(&mut self, read: &mut BytesMut, out: &mut BytesMut) -> io::Result<()>;

    /// Whether all answers have arrived.
    fn is_over(&self) -> bool;
}

/// The bytes of a connection that are not parsed or not sent yet.
pub(crate) struct Buffers {
    pub(crate) read: BytesMut,
    pub(crate) out: BytesMut,
    pub(crate) is_flushed: bool,
}

impl Buffers {
    pub(crate) fn new() -> Self {
        Self { read: BytesMut::new(), out: BytesMut::new(), is_flushed: true }
    }

    /// Whether nothing is left to be sent or to be parsed.
    pub(crate) fn is_idle(&self) -> bool {
        self.read.is_empty() && self.out.is_empty() && self.is_flushed
    }
}

/// Writes and reads until the exchange is over. `exchange` has seen all that was read, also after an error.
///
/// Cancel safety: the next call with the same buffers continues where this one was dropped.
pub(crate) async fn run(
    stream: &mut (impl AsyncRead + AsyncWrite + Unpin),
    buffers: &mut Buffers,
    exchange: &mut impl Exchange,
) -> io::Result<()> {
    let (mut from, mut to) = tokio::io::split(stream);
    let Buffers { read, out, is_flushed } = buffers;
    loop {
        while out.len() < WRITE_SIZE {
            let before = out.len();
            exchange.poll_write(out);
            if out.len() == before {
                break;
            }
        }
        let has_more = !out.is_empty() || !*is_flushed;
        if exchange.is_over() && !has_more {
            return Ok(());
        }
        tokio::select! {
            done = read_more(&mut from, read) => {
                done?;
                exchange.on_read(read, out)?;
            }
            done = write_some(&mut to, out, is_flushed), if has_more => done?,
        }
    }
}

/// A stream that the peer has closed is an error.
async fn read_more(from: &mut (impl AsyncRead + Unpin), read: &mut BytesMut) -> io::Result<()> {
    read.reserve(READ_SIZE);
    match from.read_buf(read).await? {
        0 => Err(io::Error::new(io::ErrorKind::UnexpectedEof, "the connection was closed")),
        _ => Ok(()),
    }
}

/// Writes a part of `out`, and flushes once it is empty. If it is dropped, `out` and `is_flushed` say what is left.
async fn write_some(
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
