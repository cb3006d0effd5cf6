//! An open connection, for the protocols that are implemented here.

use std::io;

use futures_util::FutureExt;
use tokio::io::AsyncWriteExt;

use crate::{
    exchange::{self, Buffers, Exchange},
    stream::{self, Stream},
};

/// An open connection.
pub(crate) struct Link {
    stream: Box<dyn Stream>,
    buffers: Buffers,
}

impl Link {
    pub(crate) fn over(stream: Box<dyn Stream>) -> Self {
        Self { stream, buffers: Buffers::new() }
    }

    /// Writes and reads until the exchange is over. `exchange` has seen all that was read, also after an error.
    ///
    /// Cancel safety: the next call continues where this one was dropped.
    pub(crate) async fn exchange(&mut self, exchange: &mut impl Exchange) -> io::Result<()> {
        exchange::run(&mut self.stream, &mut self.buffers, exchange).await
    }

    /// Adds a keep-alive, unless something else is being sent.
    #[cfg(any(feature = "activemq", feature = "mqtt"))]
    pub(crate) fn keep_alive(&mut self, bytes: &[u8]) {
        if self.buffers.out.is_empty() && self.buffers.is_flushed {
            self.buffers.out.extend_from_slice(bytes);
        }
    }

    /// Whether the idle connection has no unread input, such as EOF.
    pub(crate) fn is_quiet(&mut self) -> bool {
        self.is_idle() && stream::is_quiet(&mut self.stream)
    }

    /// Whether nothing is left to be sent or to be parsed.
    pub(crate) fn is_idle(&self) -> bool {
        self.buffers.is_idle()
    }

    /// Closes the connection. `farewell` is sent if that takes no time: a few bytes fit, or the connection is of no use anyway.
    pub(crate) fn leave(mut self, farewell: &[u8]) {
        let _ = self.stream.write_all(farewell).now_or_never();
    }
}
