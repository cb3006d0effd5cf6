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
    sync::watch,
    time::{Timeout, timeout},
};

/// Closes a connection whose client neither reads a pending response nor writes for a while. It would occupy a connection for ever.
pub(super) struct Patient<T> {
    stream: T,
    patience: Duration,
    /// Runs while writes are blocked and the client writes nothing either.
    waiting: Option<Pin<Box<Timeout<Pending<()>>>>>,
    is_blocked: bool,
    progress: Arc<WriteProgress>,
}

/// How far the client of a connection has read.
#[derive(Debug, Default)]
pub(super) struct WriteProgress {
    /// Bytes that it has taken.
    written: AtomicU64,
    /// Whether bytes wait for it that it does not take.
    blocked: watch::Sender<bool>,
}

impl WriteProgress {
    /// Bytes that the client has taken.
    pub(super) fn written(&self) -> u64 {
        self.written.load(Relaxed)
    }

    /// Whether bytes wait for the client that it does not take.
    pub(super) fn blocked(&self) -> watch::Receiver<bool> {
        self.blocked.subscribe()
    }

    pub(super) fn set_blocked(&self, is_blocked: bool) {
        self.blocked.send_replace(is_blocked);
    }

    pub(super) fn add_written(&self, bytes: usize) {
        self.written.fetch_add(bytes as u64, Relaxed);
    }
}

impl<T: AsyncWrite + Unpin> Patient<T> {
    pub(super) fn new(stream: T, patience: Duration) -> Self {
        Self { stream, patience, waiting: None, is_blocked: false, progress: Arc::default() }
    }

    /// How far its client has read, also later.
    pub(super) fn progress(&self) -> Arc<WriteProgress> {
        Arc::clone(&self.progress)
    }

    fn count(&self, written: Poll<io::Result<usize>>) -> Poll<io::Result<usize>> {
        if let Poll::Ready(Ok(bytes)) = written {
            self.progress.add_written(bytes);
        }
        written
    }

    fn set_blocked(&mut self, is_blocked: bool) {
        if self.is_blocked != is_blocked {
            self.is_blocked = is_blocked;
            self.progress.set_blocked(is_blocked);
        }
    }

    fn patiently<R>(
        &mut self,
        cx: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut T>, &mut Context<'_>) -> Poll<io::Result<R>>,
    ) -> Poll<io::Result<R>> {
        if let Poll::Ready(done) = write(Pin::new(&mut self.stream), cx) {
            self.waiting = None;
            self.set_blocked(false);
            return Poll::Ready(done);
        }
        self.set_blocked(true);
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
            // Some clients send everything before they read. What holds memory must be read meanwhile: see `slow_reader`.
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

    #[tokio::test]
    async fn only_what_the_client_reads_is_progress() {
        let (near, mut far) = duplex(16);
        let mut near = Patient::new(near, Duration::from_secs(60));
        let progress = near.progress();
        let state = || (progress.written(), *progress.blocked().borrow());
        near.write_all(&[7; 16]).await.unwrap();
        assert_eq!(state(), (16, false));
        assert!(near.write_all(&[7; 16]).now_or_never().is_none());
        assert_eq!(state(), (16, true));
        far.write_all(&[8; 16]).await.unwrap();
        near.read_exact(&mut [0; 16]).await.unwrap();
        assert_eq!(state(), (16, true), "it wrote, and read nothing");
        far.read_exact(&mut [0; 8]).await.unwrap();
        assert!(near.write_all(&[7; 8]).now_or_never().is_some());
        assert_eq!(state(), (24, false));
    }
}
