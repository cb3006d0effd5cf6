//! Watches a broker for silence during one call.

use std::{sync::Arc, time::Duration};

use duly_core::{Monotonic, Sleep};

use super::RocketmqSink;

/// A broker that is silent for this long with messages in flight is avoided by messages that have another.
const SILENT: Duration = Duration::from_secs(2);

/// What is known of a broker's silence.
pub(super) struct Silence<'a> {
    sink: &'a RocketmqSink,
    address: &'a Arc<str>,
    since: Monotonic,
    /// Whether the broker is known to answer.
    is_there: bool,
    timer: Sleep,
}

impl<'a> Silence<'a> {
    pub(super) fn begin(sink: &'a RocketmqSink, address: &'a Arc<str>) -> Self {
        let since = sink.connections.now();
        let timer = sink.clock.sleep_until(since.saturating_add(SILENT));
        Self { sink, address, since, is_there: false, timer }
    }

    /// An answer came.
    pub(super) fn broken(&mut self) {
        self.since = self.sink.connections.now();
        if !self.is_there {
            self.is_there = true;
            self.sink.brokers.answered(self.address, self.since);
        }
    }

    /// Waits until there was no answer for [`SILENT`], and marks the broker as one to avoid.
    pub(super) async fn lasts(&mut self) {
        (&mut self.timer).await;
        let now = self.sink.connections.now();
        let mut again = self.since.saturating_add(SILENT);
        if again <= now {
            self.is_there = false;
            self.sink.brokers.avoid(self.address, now);
            again = now.saturating_add(SILENT);
        }
        self.timer = self.sink.clock.sleep_until(again);
    }

    /// The call timed out with messages unanswered.
    pub(super) fn ended(&self) {
        let now = self.sink.connections.now();
        if now.since(self.since) >= SILENT {
            self.sink.brokers.down(self.address, now);
        }
    }
}
