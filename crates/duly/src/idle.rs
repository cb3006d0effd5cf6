//! Waiting until there is nothing to do, for tests.

use std::{collections::BTreeSet, time::Duration};

use duly_core::Lane;

use crate::{Duly, Error, millis};

/// How long to wait before the store is asked again: the first time, and at most.
const LOOK: (Duration, Duration) = (millis(1), millis(20));

impl Duly {
    /// Waits until the handlers and sinks of this process have nothing to do: whatever is due in their lanes is settled, and nothing is being
    /// delivered. What is due later, or waits for its next try, does not count; neither do paused lanes and queues that nobody handles here.
    ///
    /// For tests, where it takes the place of a sleep; it asks the store again and again. It does not return while a target is away.
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
        let mut wait = LOOK.0;
        while !self.is_idle().await? {
            #[expect(clippy::disallowed_methods, reason = "a manual clock stands still meanwhile")]
            tokio::time::sleep(wait).await;
            wait = (wait * 2).min(LOOK.1);
        }
        // The driver answers after everything that it was told before.
        self.served().await.map(drop)
    }

    async fn is_idle(&self) -> Result<bool, Error> {
        let served: BTreeSet<Lane> = self.served().await?.into_iter().map(|(lane, _)| lane).collect();
        let lanes = self.lanes().await?;
        let mut busy = lanes.iter().filter(|status| served.contains(&status.lane));
        Ok(!busy.any(|status| status.in_flight > 0 || status.ready > 0 && !status.paused))
    }
}
