//! Waiting for idleness, for tests.

use std::{collections::BTreeSet, time::Duration};

use duly_core::Lane;

use crate::{Duly, Error, millis};

/// Waits between two checks: the first and the longest.
const POLL_INTERVAL: (Duration, Duration) = (millis(1), millis(20));

impl Duly {
    /// Waits until the handlers and sinks of this process are idle: all due messages of their lanes are settled, and
    /// nothing is being delivered. Messages that are due later or wait for a retry do not count, nor do paused lanes
    /// and queues without a handler here.
    ///
    /// For tests, instead of a sleep; it polls the store. It does not return while a target is unreachable.
    /// Cancel safety: dropped midway, nothing has changed.
    ///
    /// ```
    /// use duly::{Duly, ManualClock, Message, minutes};
    ///
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), duly::Error> {
    /// let clock = ManualClock::new();
    /// let duly = Duly::builder().memory().clock(clock.clone()).start().await?;
    /// duly.handle("order", |_| async {}).start().await?;
    /// let id = duly.send(Message::to("order").after(minutes(15))).await?;
    /// clock.advance(minutes(16));
    /// duly.idle().await?;
    /// assert_eq!(duly.get(&id).await?.map(|record| record.state), Some(duly::State::Delivered));
    /// # duly.shutdown().await
    /// # }
    /// ```
    pub async fn idle(&self) -> Result<(), Error> {
        let mut wait = POLL_INTERVAL.0;
        while !self.is_idle().await? {
            #[expect(clippy::disallowed_methods, reason = "a manual clock stands still meanwhile")]
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(POLL_INTERVAL.1);
        }
        // The driver answers after it has handled all earlier inputs.
        self.served().await.map(drop)
    }

    async fn is_idle(&self) -> Result<bool, Error> {
        let served: BTreeSet<Lane> = self.served().await?.into_iter().map(|(lane, _)| lane).collect();
        let lanes = self.lanes().await?;
        let mut busy = lanes.iter().filter(|status| served.contains(&status.lane));
        Ok(!busy.any(|status| status.in_flight > 0 || status.ready > 0 && !status.paused))
    }
}
