//! How long a server that does not answer is waited for.

use std::time::{Duration, Instant};

use duly_client::Client;

use super::clock;

/// A call is given this long, however little patience is left: a busy disk may take seconds to sync a batch.
const CALL_MIN: Duration = Duration::from_secs(5);
/// No call is given longer.
const CALL_MAX: Duration = Duration::from_secs(60);
/// The shortest and the longest wait between two calls.
const BACKOFF_MIN: Duration = Duration::from_millis(100);
pub(super) const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Whether another call is worth it.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    Retry,
    GiveUp,
}

/// The patience left since the last call that made progress.
pub(super) struct Patience {
    whole: Duration,
    /// When the first call began of those that brought nothing.
    since: Option<Instant>,
    backoff: Duration,
}

impl Patience {
    pub(super) fn new(whole: Duration) -> Self {
        Self { whole, since: None, backoff: BACKOFF_MIN }
    }

    /// The client for the next call. Silence of the server counts as well.
    pub(super) fn bound(&mut self, client: &Client) -> Client {
        self.since.get_or_insert_with(clock::instant);
        client.clone().timeout(self.of_a_call())
    }

    /// Half of what is left: after a call by a kept connection whose other end is gone without a word, there is time for another one.
    fn of_a_call(&self) -> Duration {
        (self.left() / 2).clamp(CALL_MIN, CALL_MAX)
    }

    /// The last call brought something.
    pub(super) fn renew(&mut self) {
        (self.since, self.backoff) = (None, BACKOFF_MIN);
    }

    /// The last call failed, and may well succeed a little later.
    pub(super) fn next(&self) -> Next {
        if self.left().is_zero() { Next::GiveUp } else { Next::Retry }
    }

    /// Waits before the next call.
    pub(super) async fn back_off(&mut self) {
        clock::sleep(self.backoff.min(self.left())).await;
        self.backoff = (self.backoff * 2).min(BACKOFF_MAX);
    }

    fn left(&self) -> Duration {
        self.whole.saturating_sub(self.since.map_or(Duration::ZERO, |since| since.elapsed()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_call_leaves_time_for_another_one() {
        let of = |seconds| Patience::new(Duration::from_secs(seconds)).of_a_call().as_secs();
        assert_eq!((of(30), of(1), of(3_600)), (15, 5, 60));
    }
}
