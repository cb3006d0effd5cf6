//! A connection to a target, and how many there are.

use std::{
    collections::VecDeque,
    io::{self, IoSlice},
    pin::Pin,
    sync::{
        Arc, Mutex, OnceLock, PoisonError,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    task::{Context, Poll, ready},
};

use bytes::BytesMut;
use duly_core::{Clock, Monotonic};
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

/// Refusals of our certificate that are remembered.
const FAULTS_MAX: usize = 64;

/// Why targets ended TLS over our certificate, of late. By TLS 1.3 that comes after the handshake, at any moment of the first request: what
/// HTTP makes of the lost connection does not always name it, nor give the connection to the request. The target has read nothing.
pub(super) struct CertificateFaults {
    clock: Arc<dyn Clock>,
    recent: Mutex<VecDeque<Recent>>,
}

struct Recent {
    at: Monotonic,
    authority: String,
    why: String,
}

impl CertificateFaults {
    pub(super) fn new(clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self { clock, recent: Mutex::default() })
    }

    fn add(&self, authority: &str, why: &io::Error) {
        let recent =
            Recent { at: self.clock.now().mono(), authority: authority.into(), why: why.to_string() };
        let mut all = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        if all.len() == FAULTS_MAX {
            all.pop_front();
        }
        all.push_back(recent);
    }

    /// The last of this target, if it came since.
    pub(super) fn since(&self, begin: Monotonic, authority: &str) -> Option<String> {
        let all = self.recent.lock().unwrap_or_else(PoisonError::into_inner);
        let last = all.iter().rev().find(|recent| recent.authority == authority)?;
        (last.at >= begin).then(|| last.why.clone())
    }
}

/// Notices that the target of one connection ends TLS over our certificate.
#[derive(Clone)]
pub(super) struct CertificateWatch {
    faults: Arc<CertificateFaults>,
    authority: Arc<str>,
    /// That of this connection.
    fault: Arc<OnceLock<String>>,
    /// Whether the target answered a request by it: then it took our certificate, and what ends the connection later says nothing of
    /// the requests that are under way.
    is_answered: Arc<AtomicBool>,
}

impl CertificateWatch {
    pub(super) fn new(faults: Arc<CertificateFaults>, authority: &str) -> Self {
        Self { faults, authority: authority.into(), fault: Arc::default(), is_answered: Arc::default() }
    }

    /// The watch over the connection that a request was given, if it was given one.
    pub(super) fn of(connection: &CaptureConnection) -> Option<Self> {
        let mut extras = http::Extensions::new();
        connection.connection_metadata().as_ref()?.get_extras(&mut extras);
        extras.remove()
    }

    /// Why the target ended TLS, if it did over our certificate.
    pub(super) fn fault(&self) -> Option<String> {
        self.fault.get().cloned()
    }

    /// The target answered a request by this connection.
    pub(super) fn answered(&self) {
        self.is_answered.store(true, Ordering::Relaxed);
    }

    fn notice<T>(&self, done: Poll<io::Result<T>>) -> Poll<io::Result<T>> {
        if let Poll::Ready(Err(why)) = &done
            && !self.is_answered.load(Ordering::Relaxed)
            && is_certificate_io_fault(why)
            && self.fault.set(why.to_string()).is_ok()
        {
            self.faults.add(&self.authority, why);
        }
        done
    }
}

/// Bytes to and from a target, with TLS or without.
pub(super) trait Io: AsyncRead + AsyncWrite + Send + Unpin {}
impl<T: AsyncRead + AsyncWrite + Send + Unpin> Io for T {}

/// Bytes read of the last words of a target that closed the connection.
const LAST_WORDS_MAX: usize = 16 * 1024;

/// A connection to a target.
pub(super) struct Stream {
    io: Box<dyn Io>,
    is_http2: bool,
    counted: Counted,
    certificate_watch: CertificateWatch,
    /// Why nothing can be written any more.
    failed_write: Option<io::Error>,
    /// Bytes read after that and not returned yet.
    last_words: BytesMut,
}

impl Stream {
    pub(super) fn new(
        io: impl Io + 'static,
        is_http2: bool,
        counted: Counted,
        certificate_watch: CertificateWatch,
    ) -> Self {
        let last_words = BytesMut::new();
        Self { io: Box::new(io), is_http2, counted, certificate_watch, failed_write: None, last_words }
    }

    /// The result of a write. Of one that failed, once all is read that the target said before: HTTP gives up without it, and it may be
    /// why. The connection is closed by then, so nothing is waited for that may not come.
    fn written<T>(
        &mut self,
        context: &mut Context<'_>,
        write: impl FnOnce(Pin<&mut Box<dyn Io>>, &mut Context<'_>) -> Poll<io::Result<T>>,
    ) -> Poll<io::Result<T>> {
        if self.failed_write.is_none() {
            match write(Pin::new(&mut self.io), context) {
                Poll::Ready(Err(why)) => self.failed_write = Some(why),
                done => return done,
            }
        }
        ready!(self.read_last_words(context));
        let why = self.failed_write.take().unwrap_or_else(|| io::ErrorKind::BrokenPipe.into());
        self.certificate_watch.notice(Poll::Ready(Err(why)))
    }

    fn read_last_words(&mut self, context: &mut Context<'_>) -> Poll<()> {
        while self.last_words.len() < LAST_WORDS_MAX {
            let mut bytes = [0; 1024];
            let mut buffer = ReadBuf::new(&mut bytes);
            let read = ready!(Pin::new(&mut self.io).poll_read(context, &mut buffer));
            let is_over = read.is_err() || buffer.filled().is_empty();
            let _ = self.certificate_watch.notice(Poll::Ready(read));
            if is_over {
                break;
            }
            self.last_words.extend_from_slice(buffer.filled());
        }
        Poll::Ready(())
    }
}

impl Connection for Stream {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(self.certificate_watch.clone());
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
        if !self.last_words.is_empty() {
            let count = self.last_words.len().min(buffer.remaining());
            buffer.put_slice(&self.last_words.split_to(count));
            return Poll::Ready(Ok(()));
        }
        let read = Pin::new(&mut self.io).poll_read(context, buffer);
        self.certificate_watch.notice(read)
    }
}

impl AsyncWrite for Stream {
    fn poll_write(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: &[u8],
    ) -> Poll<io::Result<usize>> {
        self.written(context, |io, context| io.poll_write(context, bytes))
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        slices: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        self.written(context, |io, context| io.poll_write_vectored(context, slices))
    }

    fn is_write_vectored(&self) -> bool {
        self.io.is_write_vectored()
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        self.written(context, |io, context| io.poll_flush(context))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.io).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use rustls::{AlertDescription, Error};
    use tokio::io::AsyncReadExt;

    use super::*;

    /// A target that ends TLS over our certificate.
    struct Refusing;

    impl AsyncRead for Refusing {
        fn poll_read(self: Pin<&mut Self>, _: &mut Context<'_>, _: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Err(io::Error::other(Error::AlertReceived(AlertDescription::CertificateExpired))))
        }
    }

    impl AsyncWrite for Refusing {
        fn poll_write(self: Pin<&mut Self>, _: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
            Poll::Ready(Ok(bytes.len()))
        }
        fn poll_flush(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
        fn poll_shutdown(self: Pin<&mut Self>, _: &mut Context<'_>) -> Poll<io::Result<()>> {
            Poll::Ready(Ok(()))
        }
    }

    #[tokio::test]
    async fn an_alert_of_a_target_that_has_answered_refuses_no_request() {
        let clock = Arc::new(duly::ManualClock::default());
        for is_answered in [false, true] {
            let faults = CertificateFaults::new(clock.clone());
            let watch = CertificateWatch::new(faults.clone(), "target");
            if is_answered {
                watch.answered();
            }
            let mut stream = Stream::new(Refusing, true, Count::default().add(), watch.clone());
            stream.read_u8().await.unwrap_err();
            assert_eq!(watch.fault().is_none(), is_answered);
            assert_eq!(faults.since(Monotonic::default(), "target").is_none(), is_answered);
        }
    }
}
