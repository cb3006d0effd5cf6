//! Idle connections, for the protocols that are implemented here.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use duly_core::{Clock, Monotonic};

/// A connection that can wait for its next use.
pub(crate) trait IdleConnection: Send + 'static {
    /// Whether nothing is left to be sent or to be parsed.
    fn is_idle(&self) -> bool;

    /// Whether there is no unread input, such as EOF.
    fn is_quiet(&mut self) -> bool;

    /// A connection that was unused for this long is closed.
    fn idle_max(&self) -> Duration;

    /// Closes it.
    fn leave(self);
}

/// Connections that nobody uses. The one that was used last is used first.
pub(crate) struct IdlePool<C> {
    idle: Mutex<Idle<C>>,
    count_max: usize,
    clock: Arc<dyn Clock>,
}

struct Idle<C> {
    connections: Vec<(Monotonic, C)>,
    /// Whether a task closes those that are too old.
    has_sweeper: bool,
}

impl<C: IdleConnection> IdlePool<C> {
    /// Keeps `count_max` connections.
    pub(crate) fn new(count_max: usize, clock: Arc<dyn Clock>) -> Arc<Self> {
        let idle = Mutex::new(Idle { connections: Vec::new(), has_sweeper: false });
        Arc::new(Self { idle, count_max, clock })
    }

    /// An idle connection that is still open, as far as is known.
    pub(crate) fn take(&self) -> Option<C> {
        let now = self.now();
        loop {
            let (since, mut connection) = self.lock().connections.pop()?;
            if now.since(since) < connection.idle_max() && connection.is_quiet() {
                return Some(connection);
            }
        }
    }

    /// Keeps a connection on which nothing is outstanding.
    pub(crate) fn release(self: &Arc<Self>, connection: C) {
        if !connection.is_idle() {
            return;
        }
        let (now, first_sweep) = (self.now(), connection.idle_max());
        let mut idle = self.lock();
        if idle.connections.len() < self.count_max {
            idle.connections.push((now, connection));
        }
        if !idle.has_sweeper {
            idle.has_sweeper = true;
            drop(idle);
            self.start_sweeper(first_sweep);
        }
    }

    /// Closes connections that are too old, while there are any.
    fn start_sweeper(self: &Arc<Self>, first: Duration) {
        let (pool, clock) = (Arc::downgrade(self), self.clock.clone());
        tokio::spawn(async move {
            let mut next = first;
            loop {
                clock.sleep_until(clock.now().mono().saturating_add(next)).await;
                match pool.upgrade().and_then(|pool| pool.sweep()) {
                    Some(time) => next = time,
                    None => return,
                }
            }
        });
    }

    /// Returns the time to the next sweep, if any connections are left.
    fn sweep(&self) -> Option<Duration> {
        let now = self.now();
        let mut idle = self.lock();
        let is_old = |(since, connection): &mut (Monotonic, C)| now.since(*since) >= connection.idle_max();
        for (_, connection) in idle.connections.extract_if(.., is_old) {
            connection.leave();
        }
        let next = idle.connections.iter().map(|(_, connection)| connection.idle_max()).min();
        idle.has_sweeper = next.is_some();
        next
    }

    fn now(&self) -> Monotonic {
        self.clock.now().mono()
    }

    fn lock(&self) -> MutexGuard<'_, Idle<C>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
