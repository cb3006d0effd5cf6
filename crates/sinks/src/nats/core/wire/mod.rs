//! Connections to core NATS. Each belongs to one call at a time: a call that is dropped half way takes its connection with it, and
//! what goes wrong on one does not touch what is under way on another.

mod exchange;

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use bytes::BytesMut;
use duly_core::{Clock, Monotonic};
use futures_util::FutureExt;
use tokio::{
    io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt},
    sync::{Semaphore, SemaphorePermit},
};

pub(crate) use exchange::Exchange;

/// Calls that use a connection at the same time, and connections that wait for one, at most. Other calls wait in line.
const CONNECTIONS_MAX: usize = 8;
/// A connection that nobody used for this long is closed.
const IDLE_MAX: Duration = Duration::from_secs(30);

trait Stream: AsyncRead + AsyncWrite + Unpin + Send {}
impl<S: AsyncRead + AsyncWrite + Unpin + Send> Stream for S {}

/// An open connection, and what was said in greeting.
pub(crate) struct Wire<G> {
    stream: Box<dyn Stream>,
    read: BytesMut,
    pub(crate) greeting: G,
}

/// Where connections wait.
pub(crate) struct Wires<G> {
    in_use: Semaphore,
    idle: Mutex<Idle<G>>,
    /// Said before a connection is closed that was only waiting.
    farewell: &'static [u8],
    clock: Arc<dyn Clock>,
}

struct Idle<G> {
    wires: Vec<(Monotonic, Wire<G>)>,
    /// Whether somebody looks after them.
    has_keeper: bool,
}

impl<G: Send + 'static> Wires<G> {
    pub(crate) fn new(clock: Arc<dyn Clock>, farewell: &'static [u8]) -> Arc<Self> {
        let idle = Mutex::new(Idle { wires: Vec::new(), has_keeper: false });
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
    pub(crate) fn waiting(&self) -> Option<Wire<G>> {
        let now = self.clock.now().mono();
        loop {
            let (since, mut wire) = self.lock().wires.pop()?;
            if now.since(since) < IDLE_MAX && wire.stream.read(&mut [0]).now_or_never().is_none() {
                return Some(wire);
            }
        }
    }

    /// Gives back a connection on which nothing is outstanding.
    pub(crate) fn give_back(self: &Arc<Self>, wire: Wire<G>) {
        if !wire.read.is_empty() {
            return;
        }
        let mut idle = self.lock();
        if idle.wires.len() < CONNECTIONS_MAX {
            idle.wires.push((self.clock.now().mono(), wire));
        }
        if !idle.has_keeper {
            idle.has_keeper = true;
            drop(idle);
            self.keep();
        }
    }

    /// Closes what nobody uses, as long as there is something.
    fn keep(self: &Arc<Self>) {
        let (wires, clock) = (Arc::downgrade(self), self.clock.clone());
        tokio::spawn(async move {
            loop {
                clock.sleep_until(clock.now().mono().saturating_add(IDLE_MAX)).await;
                match wires.upgrade() {
                    Some(wires) if wires.sweep() => {}
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
        for (_, mut wire) in idle.wires.extract_if(.., is_old) {
            // A few bytes fit, or the connection is of no use anyway.
            let _ = wire.stream.write_all(self.farewell).now_or_never();
        }
        idle.has_keeper = !idle.wires.is_empty();
        idle.has_keeper
    }

    fn lock(&self) -> MutexGuard<'_, Idle<G>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wire<()> {
    /// One on which a protocol has begun that turns to TLS, or does not, in its own way.
    pub(crate) fn over(stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static) -> Self {
        Self { stream: Box::new(stream), read: BytesMut::new(), greeting: () }
    }

    pub(crate) fn greeted<G>(self, greeting: G) -> Wire<G> {
        Wire { stream: self.stream, read: self.read, greeting }
    }
}
