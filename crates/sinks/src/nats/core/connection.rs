//! Connections to core NATS. Each belongs to one call at a time: a call that is dropped half way takes its connection with it, and
//! what goes wrong on one does not touch what is under way on another.

use std::{
    io,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use duly_core::{Clock, Monotonic};
use futures_util::FutureExt;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{Semaphore, SemaphorePermit},
};

use crate::exchange::{self, Buffers, Exchange, Stream};

/// Calls that use a connection at the same time, and connections that wait for one, at most. Other calls wait in line.
const CONNECTIONS_MAX: usize = 8;
/// A connection that nobody used for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

/// An open connection, and what was said in greeting.
pub(crate) struct Connection<G> {
    stream: Box<dyn Stream>,
    buffers: Buffers,
    pub(crate) greeting: G,
}

/// Where connections wait.
pub(crate) struct ConnectionPool<G> {
    in_use: Semaphore,
    idle: Mutex<Idle<G>>,
    /// Said before a connection is closed that was only waiting.
    farewell: &'static [u8],
    clock: Arc<dyn Clock>,
}

struct Idle<G> {
    connections: Vec<(Monotonic, Connection<G>)>,
    /// Whether somebody looks after them.
    has_sweeper: bool,
}

impl<G: Send + 'static> ConnectionPool<G> {
    pub(crate) fn new(clock: Arc<dyn Clock>, farewell: &'static [u8]) -> Arc<Self> {
        let idle = Mutex::new(Idle { connections: Vec::new(), has_sweeper: false });
        Arc::new(Self { in_use: Semaphore::new(CONNECTIONS_MAX), idle, farewell, clock })
    }

    /// The ends of a call: a connection must stand by the first, answers must be there by the second.
    pub(crate) fn ends(&self, timeout: Duration) -> (Monotonic, Monotonic) {
        let now = self.clock.now().mono();
        (now.saturating_add(timeout / 2), now.saturating_add(timeout))
    }

    pub(crate) async fn within<T>(&self, end: Monotonic, work: impl Future<Output = T>) -> Option<T> {
        tokio::select! {
            biased;
            done = work => Some(done),
            () = self.clock.sleep_until(end) => None,
        }
    }

    /// The right to use one connection.
    pub(crate) async fn turn(&self) -> Option<SemaphorePermit<'_>> {
        self.in_use.acquire().await.ok()
    }

    /// One that waits, and on which nothing has come meanwhile: its end, above all.
    pub(crate) fn waiting(&self) -> Option<Connection<G>> {
        let now = self.clock.now().mono();
        loop {
            let (since, mut connection) = self.lock().connections.pop()?;
            if now.since(since) < IDLE_MAX && connection.stream.read(&mut [0]).now_or_never().is_none() {
                return Some(connection);
            }
        }
    }

    /// Gives back a connection on which nothing is outstanding.
    pub(crate) fn release(self: &Arc<Self>, connection: Connection<G>) {
        if !connection.buffers.is_idle() {
            return;
        }
        let mut idle = self.lock();
        if idle.connections.len() < CONNECTIONS_MAX {
            idle.connections.push((self.clock.now().mono(), connection));
        }
        if !idle.has_sweeper {
            idle.has_sweeper = true;
            drop(idle);
            self.start_sweeper();
        }
    }

    /// Closes what nobody uses, as long as there is something.
    fn start_sweeper(self: &Arc<Self>) {
        let (connections, clock) = (Arc::downgrade(self), self.clock.clone());
        tokio::spawn(async move {
            loop {
                clock.sleep_until(clock.now().mono().saturating_add(IDLE_MAX)).await;
                match connections.upgrade() {
                    Some(connections) if connections.sweep() => {}
                    _ => return,
                }
            }
        });
    }

    /// Whether any are left.
    fn sweep(&self) -> bool {
        let now = self.clock.now().mono();
        let mut idle = self.lock();
        let is_old = |(since, _): &mut (Monotonic, _)| now.since(*since) >= IDLE_MAX;
        for (_, mut connection) in idle.connections.extract_if(.., is_old) {
            // A few bytes fit, or the connection is of no use anyway.
            let _ = connection.stream.write_all(self.farewell).now_or_never();
        }
        idle.has_sweeper = !idle.connections.is_empty();
        idle.has_sweeper
    }

    fn lock(&self) -> MutexGuard<'_, Idle<G>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl<G> Connection<G> {
    /// Writes and reads until the exchange is over. `exchange` has seen all that was read, also after an error.
    pub(crate) async fn exchange(&mut self, exchange: &mut impl Exchange) -> io::Result<()> {
        exchange::run(&mut self.stream, &mut self.buffers, exchange).await
    }
}

impl Connection<()> {
    /// One on which a protocol has begun that turns to TLS, or does not, in its own way.
    pub(crate) fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self { stream: Box::new(stream), buffers: Buffers::new(), greeting: () }
    }

    pub(crate) fn greeted<G>(self, greeting: G) -> Connection<G> {
        Connection { stream: self.stream, buffers: self.buffers, greeting }
    }
}
