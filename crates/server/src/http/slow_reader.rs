//! A minimum rate for clients that leave answers unread which hold memory.

use std::time::Duration;

use tokio::{
    sync::{mpsc, watch},
    time::{Instant, timeout},
};

use super::patient::WriteProgress;

/// How long bytes may wait for a client while its answer holds memory.
pub(super) const GRACE: Duration = Duration::from_secs(30);
/// Bytes per second that a client reads on average while bytes wait for it, beyond [`GRACE`].
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
    /// How long bytes may wait for a client that reads so many.
    fn blocked_max(self, read: u64) -> Duration {
        self.grace.saturating_add(Duration::from_millis(read.saturating_mul(1_000) / self.rate_min.max(1)))
    }

    /// Returns when a client has read too little of an answer that holds memory.
    pub(super) async fn exceeded(
        self,
        mut answers: mpsc::UnboundedReceiver<Unread>,
        progress: &WriteProgress,
    ) {
        // A connection writes one answer after the other.
        while let Some(Unread(mut unread)) = answers.recv().await {
            // A batch holds memory and releases it several times. An error means that the answer is over.
            while unread.wait_for(|bytes| *bytes > 0).await.is_ok() {
                if self.is_exceeded(&mut unread, progress).await {
                    return;
                }
            }
        }
        std::future::pending().await
    }

    /// Waits until the answer holds nothing, or the client has left bytes unread for too long.
    ///
    /// What the client writes does not count: it could go on for ever and read nothing. Nor does time in which nothing waits for it:
    /// there are no results yet of a batch that arrives slowly.
    async fn is_exceeded(self, unread: &mut watch::Receiver<usize>, progress: &WriteProgress) -> bool {
        let (before, mut blocked) = (progress.written(), progress.blocked());
        let mut blocked_for = Duration::ZERO;
        loop {
            tokio::select! {
                // An answer that holds nothing any more has no time limit, whatever else is so.
                biased;
                _ = unread.wait_for(|bytes| *bytes == 0) => return false,
                _ = blocked.wait_for(|is_blocked| *is_blocked) => {}
            }
            let begin = Instant::now();
            loop {
                let read = progress.written().saturating_sub(before);
                let left = self.blocked_max(read).saturating_sub(blocked_for + begin.elapsed());
                if left.is_zero() {
                    return true;
                }
                tokio::select! {
                    biased;
                    _ = unread.wait_for(|bytes| *bytes == 0) => return false,
                    // What the client reads meanwhile moves the end.
                    read = timeout(left, blocked.wait_for(|is_blocked| !is_blocked)) => if read.is_ok() {
                        break;
                    },
                }
            }
            blocked_for += begin.elapsed();
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt;

    use super::*;

    #[test]
    fn an_answer_has_30_seconds_and_one_more_for_each_64_kilobytes() {
        let blocked = |read| ReaderLimits::default().blocked_max(read).as_millis();
        assert_eq!([0, 32 << 10, 6 << 20].map(blocked), [30_000, 30_500, 126_000]);
    }

    #[tokio::test]
    async fn time_counts_only_while_there_is_something_to_be_read() {
        let limits = ReaderLimits { grace: Duration::ZERO, rate_min: u64::MAX };
        let (answers, held) = mpsc::unbounded_channel();
        let (unread, bytes) = watch::channel(100);
        assert!(answers.send(Unread(bytes)).is_ok());
        let progress = WriteProgress::default();
        let mut exceeded = std::pin::pin!(limits.exceeded(held, &progress));
        assert!(exceeded.as_mut().now_or_never().is_none(), "a slow writer to which nothing was sent yet");
        unread.send_replace(0);
        progress.set_blocked(true);
        assert!(exceeded.as_mut().now_or_never().is_none(), "nothing holds memory");
        unread.send_replace(100);
        exceeded.await;
    }

    #[tokio::test]
    async fn what_is_read_gives_time() {
        let limits = ReaderLimits { grace: Duration::ZERO, rate_min: 1 };
        let (answers, held) = mpsc::unbounded_channel();
        let (_unread, bytes) = watch::channel(100);
        assert!(answers.send(Unread(bytes)).is_ok());
        let progress = WriteProgress::default();
        let mut exceeded = std::pin::pin!(limits.exceeded(held, &progress));
        assert!(exceeded.as_mut().now_or_never().is_none());
        progress.add_written(86_400);
        progress.set_blocked(true);
        assert!(exceeded.as_mut().now_or_never().is_none(), "a day more");
    }
}
