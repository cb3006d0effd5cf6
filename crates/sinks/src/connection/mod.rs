//! Connection pool of the protocols that are implemented here. A connection serves one call at a time. A call that is dropped half way
//! closes its connection; a failure of one connection affects no message on another.
//!
//! A broker processes a connection in order. A queue that stalls therefore delays everything that was sent after it on that
//! connection, and a broker may close the connection when it refuses a message. The destination that caused this becomes a suspect:
//! its messages then use connections of their own.

mod address;
mod ask;
mod call;
mod dial;
mod in_flight;
mod suspects;

use std::{
    io,
    sync::{Arc, atomic::AtomicBool},
    time::Duration,
};

use bytes::BytesMut;
use duly_core::{Clock, Delivery, Monotonic, SinkError};
use tokio::sync::Semaphore;

pub(crate) use crate::link::Link;
use crate::{
    idle_pool::{IdleConnection, IdlePool},
    tls::is_certificate_io_fault,
    within::within,
};
pub(crate) use address::{Address, Scheme, Written};
use dial::Dialer;
pub(crate) use in_flight::InFlight;
use suspects::Suspects;

/// Maximum of calls that use a connection at the same time, and of idle connections. Other calls queue.
const CONNECTIONS_MAX: usize = 8;
/// Maximum of additional connections, for suspects.
const ASIDE_MAX: usize = 4;
/// A connection that was unused for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// The protocol-specific part of the pool.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// State of one connection, such as what the broker announced at login.
    type Session: Send + Sync + 'static;

    /// Sent before an idle connection is closed.
    const FAREWELL: &'static [u8];
    /// Keep-alive, sent when nothing else was sent for a while.
    const KEEP_ALIVE: &'static [u8];

    /// Logs in.
    fn log_in(
        &self,
        link: &mut Link,
        address: &Address,
        host: &str,
    ) -> impl Future<Output = Result<Self::Session, SinkError>> + Send;

    /// The longest silence that the broker accepts from the client, if it announced one.
    fn silence_max(&self, session: &Self::Session) -> Option<Duration>;

    /// Maximum of messages without an answer.
    fn window(&self, session: &Self::Session) -> usize;

    /// Reserves `count` message numbers and returns the first.
    fn number(&self, session: &mut Self::Session, count: usize) -> u64;

    /// Encodes a message into `out`, unless this broker cannot accept it.
    fn send(
        &self,
        session: &Self::Session,
        delivery: &Delivery,
        number: u64,
        out: &mut BytesMut,
    ) -> Result<(), SinkError>;

    /// Parses complete answers from the front of `read`, and adds immediate replies to `out`.
    fn on_read(
        &self,
        session: &Self::Session,
        in_flight: &mut InFlight<'_>,
        read: &mut BytesMut,
        out: &mut BytesMut,
    ) -> io::Result<()>;

    /// Sends a request that delivers nothing, and waits for the answer.
    fn ask(&self, link: &mut Link) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// An open connection, logged in.
struct Connection<P: Protocol> {
    link: Link,
    session: P::Session,
    /// Closed when unused for this long.
    idle_max: Duration,
}

impl<P: Protocol> IdleConnection for Connection<P> {
    fn is_idle(&self) -> bool {
        self.link.is_idle()
    }

    fn is_quiet(&mut self) -> bool {
        self.link.is_quiet()
    }

    fn idle_max(&self) -> Duration {
        self.idle_max
    }

    fn leave(self) {
        self.link.leave(P::FAREWELL);
    }
}

/// The connections of a sink.
pub(crate) struct Pool<P: Protocol> {
    protocol: P,
    dialer: Dialer,
    in_use: Semaphore,
    aside: Semaphore,
    idle: Arc<IdlePool<Connection<P>>>,
    suspects: Suspects,
    /// Suspects that closed a connection with several of their messages in flight: their messages go one at a time.
    careful: Suspects,
    /// After a disconnect that one message may have caused, send one at a time until a call succeeds; that identifies it.
    is_careful: AtomicBool,
    clock: Arc<dyn Clock>,
    timeout: Duration,
}

/// The longest silence of a live client: the broker may close a connection that is silent for longer.
pub(crate) fn silence_max(timeout: Duration) -> Duration {
    // Twice: the sweeper runs at intervals.
    2 * (IDLE_MAX + timeout)
}

impl<P: Protocol> Pool<P> {
    pub(crate) fn new(protocol: P, address: Address, timeout: Duration, clock: Arc<dyn Clock>) -> Arc<Self> {
        Arc::new(Self {
            protocol,
            dialer: Dialer::new(address),
            in_use: Semaphore::new(CONNECTIONS_MAX),
            aside: Semaphore::new(ASIDE_MAX),
            idle: IdlePool::new(CONNECTIONS_MAX, clock.clone()),
            suspects: Suspects::default(),
            careful: Suspects::default(),
            is_careful: AtomicBool::new(false),
            clock,
            timeout,
        })
    }

    /// Whether the broker answers. Delivers nothing.
    pub(crate) async fn probe(self: &Arc<Self>) -> Result<(), SinkError> {
        let (begin_until, end) = self.ends();
        let ask = async {
            // Not one of the connections of calls, which may all be stalled.
            let mut connection = self.connection(begin_until).await?;
            self.protocol.ask(&mut connection.link).await?;
            self.idle.release(connection);
            Ok(())
        };
        let reply = within(&*self.clock, end, ask).await;
        reply.unwrap_or_else(|| Err(SinkError::unreachable("no answer in time")))
    }

    /// Deadlines of a call: to have a connection, and to have all answers.
    fn ends(&self) -> (Monotonic, Monotonic) {
        let now = self.now();
        (now.saturating_add(self.timeout / 2), now.saturating_add(self.timeout))
    }

    fn now(&self) -> Monotonic {
        self.clock.now().mono()
    }

    /// An idle connection, or a new one.
    async fn connection(&self, until: Monotonic) -> Result<Connection<P>, SinkError> {
        if let Some(connection) = self.idle.take() {
            return Ok(connection);
        }
        let (link, session) = self.dialer.dial(&self.protocol, &*self.clock, until).await?;
        // Half: a keep-alive that is sent at the last moment takes time to arrive.
        let idle_max = self.protocol.silence_max(&session).map_or(IDLE_MAX, |max| IDLE_MAX.min(max / 2));
        Ok(Connection { link, session, idle_max })
    }
}

/// A failure to connect: nothing was sent.
pub(crate) fn connect_failed(why: &io::Error) -> SinkError {
    if is_certificate_io_fault(why) {
        SinkError::misconfigured(why.to_string())
    } else {
        SinkError::unreachable(why.to_string())
    }
}
