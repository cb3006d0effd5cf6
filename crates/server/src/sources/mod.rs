//! Sources: broker queues from which Duly consumes messages, so that applications that use a broker's delay feature need no
//! change.

#[cfg(feature = "rabbitmq")]
mod rabbitmq;

use std::{sync::Arc, time::Duration};

use duly::{Clock, Duly};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    config::{Config, SourceSetup},
    http::Topics,
};

/// Grace period at shutdown for storing consumed messages. The rest is requeued at the broker.
const GRACE: Duration = Duration::from_secs(5);

/// A queue from which messages can be consumed.
pub struct Probed {
    /// How many wait in it.
    pub waiting: u32,
    /// Whether the broker discards a message that came back to it too often.
    pub discards_returns: bool,
}

/// Checks whether messages can be consumed, and consumes none.
pub async fn probe(setup: &SourceSetup, clock: &dyn Clock) -> Result<Probed, String> {
    #[cfg(feature = "rabbitmq")]
    return rabbitmq::probe(setup, clock).await;
    #[cfg(not(feature = "rabbitmq"))]
    let _ = clock;
    #[cfg(not(feature = "rabbitmq"))]
    Err(format!("this build has nothing that reads the queue {:?}", setup.queue))
}

/// The running sources of one server.
pub(crate) struct Sources {
    stopping: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Sources {
    /// Starts all sources. An unreachable broker is retried.
    pub(crate) fn start(config: &Config, duly: &Duly, topics: &Arc<Topics>, clock: &Arc<dyn Clock>) -> Self {
        let (stopping, stopped) = watch::channel(false);
        #[cfg(feature = "rabbitmq")]
        let tasks = config.sources.iter().map(|(name, setup)| {
            let destination = rabbitmq::Destination { duly: duly.clone(), topics: topics.clone() };
            let source =
                rabbitmq::RabbitmqSource::new(name, setup, &config.limits, destination, clock.clone());
            tokio::spawn(source.run(stopped.clone()))
        });
        #[cfg(not(feature = "rabbitmq"))]
        let tasks = {
            // A build without sources refuses such a configuration.
            let _ = (config, duly, topics, clock, stopped);
            std::iter::empty()
        };
        Self { stopping, tasks: tasks.collect() }
    }

    /// Whether a source has ended; before the stop that is a fault.
    pub(crate) fn any_finished(&self) -> bool {
        self.tasks.iter().any(JoinHandle::is_finished)
    }

    /// Stops consuming.
    pub(crate) async fn stop(self) {
        self.stop_within(GRACE).await;
    }

    async fn stop_within(self, grace: Duration) {
        self.stopping.send_replace(true);
        // Concurrently: a hanging broker delays neither the other sources nor the rest of the shutdown.
        let stopped = self.tasks.into_iter().map(async |mut task| {
            if tokio::time::timeout(grace, &mut task).await.is_err() {
                task.abort();
            }
        });
        futures_util::future::join_all(stopped).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn sources_that_hang_are_given_up_together() {
        const GRACE: Duration = Duration::from_millis(200);
        const COUNT: u32 = 100;
        let (stopping, _) = watch::channel(false);
        let tasks = (0..COUNT).map(|_| tokio::spawn(std::future::pending())).collect();
        let began = tokio::time::Instant::now();
        Sources { stopping, tasks }.stop_within(GRACE).await;
        assert!(began.elapsed() < GRACE * COUNT / 2, "one after the other: {:?}", began.elapsed());
    }
}
