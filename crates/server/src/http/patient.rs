//! A timeout for clients that do not read their response.

use std::{
    future::Pending,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering::Relaxed},
    },
    task::{Context, Poll},
    time::Duration,
};

use tokio::{
    io::{AsyncRead, AsyncWrite, ReadBuf},
    time::{Timeout, timeout},
};

/// Closes a connection whose client neither reads a pending response nor writes for a while. It would occupy a connection for ever.
pub(super) struct Patient<T> {
    stream: T,
    patience: Duration,
    /// Runs while writes are blocked.
    waiting: Option<Pin<Box<Timeout<Pending<()>>>>>,
    /// Bytes read and written.
    moved: Arc<AtomicU64>,
}

impl<T: AsyncWrite + Unpin> Patient<T> {
    pub(super) fn new(stream: T, patience: Duration) -> Self {
        Self { stream, patience, waiting: None, moved: Arc::default() }
    }

    /// The number of bytes read and written.
    pub(super) fn moved(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.moved)
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.moved.fetch_add(bytes as u64, Relaxed);
        }
        written
    }

    fn patiently<R>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(done) = write(Pin::new(&mut self.stream), cx) {
            self.waiting = None;
            return Poll::Ready(done);
        }
        let patience = self.patience;
        let waiting = self.waiting.get_or_insert_with(|| Box::pin(timeout(patience, std::future::pending())));
        waiting.as_mut().poll(cx).map(|_| Err(io::ErrorKind::TimedOut.into()))
    }
}

impl<T: AsyncRead + Unpin> AsyncRead for Patient<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buffer: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let before = buffer.filled().len();
        let read = Pin::new(&mut self.stream).poll_read(cx, buffer);
        let bytes = buffer.filled().len() - before;
        if bytes > 0 {
            self.moved.fetch_add(bytes as u64, Relaxed);
            // Some clients send everything before they read: that counts as activity.
            self.waiting = None;
        }
        read
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Patient<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let written = self.patiently(cx, |stream, cx| stream.poll_write(cx, bytes));
        self.count(written)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.patiently(cx, T::poll_flush)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.patiently(cx, T::poll_shutdown)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        parts: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        let written = self.patiently(cx, |stream, cx| stream.poll_write_vectored(cx, parts));
        self.count(written)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures_util::FutureExt;
    use tokio::io::{AsyncReadExt, AsyncWriteExt, duplex};

    #[tokio::test]
    async fn who_reads_on_gets_everything_and_who_does_not_is_left() {
        let (near, mut far) = duplex(16);
        let mut near = Patient::new(near, Duration::from_millis(200));
        let mut read = [0; 64];
        let (written, got) = tokio::join!(near.write_all(&[7; 64]), far.read_exact(&mut read));
        assert!(written.is_ok() && got.is_ok());
        let left = near.write_all(&[7; 64]).await.unwrap_err();
        assert_eq!(left.kind(), io::ErrorKind::TimedOut);
    }

    #[tokio::test]
    async fn who_still_writes_may_read_later() {
        let (near, mut far) = duplex(16);
        let mut near = Patient::new(near, Duration::from_millis(200));
        let blocked = |near: &mut Patient<_>| near.waiting.is_some();
        near.write_all(&[7; 16]).await.unwrap();
        assert!(near.write_all(&[7; 16]).now_or_never().is_none());
        assert!(blocked(&mut near));
        far.write_all(&[8; 16]).await.unwrap();
        near.read_exact(&mut [0; 16]).await.unwrap();
        assert!(!blocked(&mut near), "its time begins anew");
    }
}
