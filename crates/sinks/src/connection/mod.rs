//! Connections of protocols that we speak ourselves. Each is one call's at a time: a call that is dropped half way takes its
//! connection with it, and what goes wrong on one does not touch what is under way on another.
//!
//! A broker works off a connection in order. A queue that takes nothing for a while therefore holds up all that was sent after it
//! on the same connection, and a broker that refuses a message may close the connection over it. The destination that did so
//! is suspected from then on, and its messages go on connections of their own.

mod address;
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

/// Calls that use a connection at the same time, and connections that wait for one, at most. Other calls wait in line.
const CONNECTIONS_MAX: usize = 8;
/// Connections besides, for destinations that are suspected.
const ASIDE_MAX: usize = 4;
/// A connection that nobody used for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// What differs between protocols.
pub(crate) trait Protocol: Send + Sync + 'static {
    /// What is known of a connection since it was made.
    type Session: Send + Sync + 'static;

    /// Sent before a connection is closed that was only waiting.
    const FAREWELL: &'static [u8];
    /// Sent when nothing else was for a while.
    const KEEP_ALIVE: &'static [u8];

    /// Logs in.
    fn log_in(
        &self,
        link: &mut Link,
        address: &Address,
        host: &str,
    ) -> impl Future<Output = Result<Self::Session, SinkError>> + Send;

    /// The longest that the broker lets us be silent, if it said so.
    fn silence_max(&self, session: &Self::Session) -> Option<Duration>;

    /// As many messages may wait for their answers.
    fn window(&self, session: &Self::Session) -> usize;

    /// The number of the first of so many messages.
    fn number(&self, session: &mut Self::Session, count: usize) -> u64;

    /// Adds a message to `out`, unless this broker will not take it.
    fn send(
        &self,
        session: &Self::Session,
        delivery: &Delivery,
        number: u64,
        out: &mut BytesMut,
    ) -> Result<(), SinkError>;

    /// Takes whole answers from the front of `read`, and adds to `out` what must be answered at once.
    fn on_read(
        &self,
        session: &Self::Session,
        in_flight: &mut InFlight<'_>,
        read: &mut BytesMut,
        out: &mut BytesMut,
    ) -> io::Result<()>;

    /// Asks something that delivers nothing.
    fn ask(&self, link: &mut Link) -> impl Future<Output = Result<(), SinkError>> + Send;
}

/// An open connection on which we are logged in.
struct Connection<P: Protocol> {
    link: Link,
    session: P::Session,
    /// It may be unused for so long.
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
    /// Suspects that ended a connection with several of their messages under way: they go one at a time.
    careful: Suspects,
    /// After a disconnect that one message may have caused, send one at a time until a call succeeds; that identifies it.
    is_careful: AtomicBool,
    clock: Arc<dyn Clock>,
    timeout: Duration,
}

/// The longest that the far end may hear nothing from us while we live: it may close what is silent for longer.
pub(crate) fn silence_max(timeout: Duration) -> Duration {
    // Twice: the keeper comes around once in a while.
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
            // Beside those that calls use, all of which may be held up.
            let mut connection = self.connection(begin_until).await?;
            self.protocol.ask(&mut connection.link).await?;
            self.idle.release(connection);
            Ok(())
        };
        let reply = within(&*self.clock, end, ask).await;
        reply.unwrap_or_else(|| Err(SinkError::unreachable("no answer in time")))
    }

    /// The ends of a call: a connection must stand by the first, answers must be there by the second.
    fn ends(&self) -> (Monotonic, Monotonic) {
        let now = self.now();
        (now.saturating_add(self.timeout / 2), now.saturating_add(self.timeout))
    }

    fn now(&self) -> Monotonic {
        self.clock.now().mono()
    }

    /// A connection that waits, or a new one.
    async fn connection(&self, until: Monotonic) -> Result<Connection<P>, SinkError> {
        if let Some(connection) = self.idle.take() {
            return Ok(connection);
        }
        let (link, session) = self.dialer.dial(&self.protocol, &*self.clock, until).await?;
        // Half of it: what is sent at the last moment is on its way for a while.
        let idle_max = self.protocol.silence_max(&session).map_or(IDLE_MAX, |max| IDLE_MAX.min(max / 2));
        Ok(Connection { link, session, idle_max })
    }
}

/// The failure to connect: nothing was sent, whatever it was.
pub(crate) fn connect_failed(why: &io::Error) -> SinkError {
    if is_certificate_io_fault(why) {
        SinkError::misconfigured(why.to_string())
    } else {
        SinkError::unreachable(why.to_string())
    }
}
