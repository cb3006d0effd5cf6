//! Where messages come from besides HTTP: queues of brokers, from which applications that ask a broker for a delay are
//! served without being changed.

#[cfg(feature = "rabbitmq")]
mod rabbitmq;

use std::{sync::Arc, time::Duration};

use duly::{Clock, Duly};
use tokio::{sync::watch, task::JoinHandle};

use crate::{
    config::{Config, SourceSetup},
    http::Topics,
};

/// How long what was just taken may need to be safe when the server stops. What is not goes back to the broker.
const GRACE: Duration = Duration::from_secs(5);

/// Looks whether messages could be taken from there, and takes none. Gives how many wait.
pub(crate) async fn probe(setup: &SourceSetup, clock: &dyn Clock) -> Result<u32, String> {
    #[cfg(feature = "rabbitmq")]
    return rabbitmq::probe(setup, clock).await;
    #[cfg(not(feature = "rabbitmq"))]
    let _ = clock;
    #[cfg(not(feature = "rabbitmq"))]
    Err(format!("this build has nothing that reads the queue {:?}", setup.queue))
}

/// The sources of one server, at work until they are stopped.
pub(crate) struct Sources {
    stopping: watch::Sender<bool>,
    tasks: Vec<JoinHandle<()>>,
}

impl Sources {
    /// Begins to take messages from all of them. A broker that is not there is waited for.
    pub(crate) fn start(config: &Config, duly: &Duly, topics: &Arc<Topics>, clock: &Arc<dyn Clock>) -> Self {
        let (stopping, stopped) = watch::channel(false);
        #[cfg(feature = "rabbitmq")]
        let tasks = config.sources.iter().map(|(name, setup)| {
            let into = rabbitmq::Into { duly: duly.clone(), topics: topics.clone() };
            let bridge = rabbitmq::Bridge::new(name, setup, &config.limits, into, clock.clone());
            tokio::spawn(bridge.run(stopped.clone()))
        });
        #[cfg(not(feature = "rabbitmq"))]
        let tasks = {
            // A configuration with a source is refused where none was built in.
            let _ = (config, duly, topics, clock, stopped);
            std::iter::empty()
        };
        Self { stopping, tasks: tasks.collect() }
    }

    /// Whether one of them has ended; before the stop, none does by itself.
    pub(crate) fn any_finished(&self) -> bool {
        self.tasks.iter().any(JoinHandle::is_finished)
    }

    /// Takes nothing more.
    pub(crate) async fn stop(self) {
        self.stop_within(GRACE).await;
    }

    async fn stop_within(self, grace: Duration) {
        self.stopping.send_replace(true);
        // All at once: one whose broker hangs takes no time from the others, nor from what is stopped after them.
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
