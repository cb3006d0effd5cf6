//! A minimum rate for connections whose answers hold memory.

use std::{
    sync::atomic::{AtomicU64, Ordering::Relaxed},
    time::Duration,
};

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

/// How long an answer may hold memory without a byte read or written.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// Bytes per second that a connection moves on average while its answer holds memory, beyond [`GRACE`].
pub(super) const RATE_MIN: u64 = 64 << 10;

/// The bytes that an answer holds of the memory for answers. An extension of its response.
#[derive(Clone)]
pub(super) struct Unread(pub(super) watch::Receiver<usize>);

/// The bounds of a reader.
#[derive(Debug, Clone, Copy)]
pub(super) struct ReaderLimits {
    pub(super) grace: Duration,
    /// Bytes per second.
    pub(super) rate_min: u64,
}

impl Default for ReaderLimits {
    fn default() -> Self {
        Self { grace: GRACE, rate_min: RATE_MIN }
    }
}

impl ReaderLimits {
    /// How long an answer may hold memory while the connection has moved so many bytes.
    fn held_max(self, moved: u64) -> Duration {
        self.grace.saturating_add(Duration::from_millis(moved.saturating_mul(1_000) / self.rate_min.max(1)))
    }

    /// Returns when an answer of the connection has held memory for too long. `moved` counts what it reads and writes.
    pub(super) async fn exceeded(self, mut answers: mpsc::UnboundedReceiver<Unread>, moved: &AtomicU64) {
        // A connection writes one answer after the other.
        while let Some(Unread(mut unread)) = answers.recv().await {
            // A batch holds memory and releases it several times. An error means that the answer is over.
            while unread.wait_for(|bytes| *bytes > 0).await.is_ok() {
                if self.is_exceeded(&mut unread, moved).await {
                    return;
                }
            }
        }
        std::future::pending().await
    }

    /// Waits until the answer holds nothing, or holds it for too long.
    async fn is_exceeded(self, unread: &mut watch::Receiver<usize>, moved: &AtomicU64) -> bool {
        let (begin, before) = (Instant::now(), moved.load(Relaxed));
        loop {
            let end = begin + self.held_max(moved.load(Relaxed).saturating_sub(before));
            let left = end.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return true;
            }
            // What the client reads meanwhile moves the end.
            if timeout(left, unread.wait_for(|bytes| *bytes == 0)).await.is_ok() {
                return false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_answer_has_30_seconds_and_one_more_for_each_64_kilobytes() {
        let held = |moved| ReaderLimits::default().held_max(moved).as_millis();
        assert_eq!([0, 32 << 10, 6 << 20].map(held), [30_000, 30_500, 126_000]);
    }
}
