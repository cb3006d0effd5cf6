//! The byte stream of a connection, for the protocols that are implemented here.

use futures_util::FutureExt;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};

/// TCP, or TLS over it.
pub(crate) trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// Whether an idle stream has no unread input, such as EOF.
pub(crate) fn is_quiet(stream: &mut (impl AsyncRead + Unpin)) -> bool {
    stream.read(&mut [0]).now_or_never().is_none()
}
