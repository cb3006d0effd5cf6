//! A sink that writes down what it is given: the reference, and an end for tests of other things.

use std::{
    collections::BTreeSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use async_trait::async_trait;
use duly_core::{
    Delivery, MessageId, Outcomes, Sink, SinkError, SinkErrorKind, SinkName, StoredMessage, Timestamp,
};

use tokio::sync::watch;

use super::{Arrival, Cluster, Target};

/// Topics that it does not take at once, or not at all.
pub(super) const REFUSED: &str = "refused";
pub(super) const SLOW: &str = "recorder/slow";
pub(super) const SILENT: &str = "recorder/silent";
pub(super) const FORBIDDEN: &str = "recorder/forbidden";
pub(super) const FULL: &str = "recorder/full";

/// A sink that writes down what it is given, and refuses the topic `refused`.
#[derive(Debug, Clone, Default)]
pub struct Recorder {
    arrived: Arc<Mutex<Vec<Delivery>>>,
    away: Arc<AtomicBool>,
    released: Arc<watch::Sender<bool>>,
    /// How many more messages fail until another server has taken over.
    leaderless: Arc<AtomicUsize>,
}

impl Recorder {
    /// What arrived, in its order.
    pub fn deliveries(&self) -> Vec<Delivery> {
        self.arrived.lock().unwrap().clone()
    }

    /// The ids that arrived, each once.
    pub fn ids(&self) -> BTreeSet<MessageId> {
        self.deliveries().into_iter().map(|delivery| delivery.message.id).collect()
    }

    /// Whether a server was killed and no other has taken over.
    #[cfg(test)]
    pub(super) fn is_leaderless(&self) -> bool {
        self.leaderless.load(Ordering::SeqCst) > 0
    }

    fn reached(&self) -> Result<(), SinkError> {
        if self.away.load(Ordering::SeqCst) {
            return Err(SinkError::new(SinkErrorKind::Unreachable, "the recorder is away"));
        }
        Ok(())
    }

    fn take(&self, delivery: &Delivery) -> Result<String, SinkError> {
        self.reached()?;
        if self
            .leaderless
            .fetch_update(Ordering::SeqCst, Ordering::SeqCst, |left| left.checked_sub(1))
            .is_ok()
        {
            return Err(SinkError::new(SinkErrorKind::Unreachable, "its server is away"));
        }
        let no = |kind| Err(SinkError::new(kind, "this topic is not taken"));
        match delivery.message.topic.as_str() {
            REFUSED => return no(SinkErrorKind::Refused),
            FORBIDDEN => return no(SinkErrorKind::Denied),
            FULL => return no(SinkErrorKind::Throttled).map_err(SinkError::at_destination),
            _ => {}
        }
        let mut arrived = self.arrived.lock().unwrap();
        arrived.push(delivery.clone());
        Ok(arrived.len().to_string())
    }
}

fn to(topic: &str, id: MessageId) -> StoredMessage {
    let sink: SinkName = "target".parse().unwrap();
    StoredMessage::new(id, sink, topic.parse().unwrap(), Timestamp::from_millis(1))
}

#[async_trait]
impl Sink for Recorder {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let is = |index: &usize, topic: &str| batch[*index].message.topic.as_str() == topic;
        let (late, known): (Vec<_>, Vec<_>) =
            (0..batch.len()).partition(|index| is(index, SLOW) || is(index, SILENT));
        known.iter().for_each(|index| outcomes.report(*index, self.take(&batch[*index])));
        for index in late.iter().filter(|index| is(index, SLOW)) {
            // The sender is ours.
            let _ = self.released.subscribe().wait_for(|is_released| *is_released).await;
            outcomes.report(*index, self.take(&batch[*index]));
        }
        if late.iter().any(|index| is(index, SILENT)) {
            std::future::pending::<()>().await;
        }
    }

    async fn probe(&self) -> Result<(), SinkError> {
        self.reached()
    }
}

#[async_trait]
impl Target for Recorder {
    fn sink(&self) -> Arc<dyn Sink> {
        Arc::new(self.clone())
    }

    fn bad(&self, id: MessageId) -> StoredMessage {
        to(REFUSED, id)
    }

    async fn slow(&self, id: MessageId) -> Option<StoredMessage> {
        Some(to(SLOW, id))
    }

    async fn release(&self) {
        self.released.send_replace(true);
    }

    async fn silent(&self, id: MessageId) -> Option<StoredMessage> {
        Some(to(SILENT, id))
    }

    async fn forbidden(&self, id: MessageId) -> Option<StoredMessage> {
        Some(to(FORBIDDEN, id))
    }

    async fn full(&self, id: MessageId) -> Option<StoredMessage> {
        Some(to(FULL, id))
    }

    async fn arrived(&self) -> Vec<Arrival> {
        self.deliveries().iter().map(Arrival::of).collect()
    }

    async fn stop(&self) {
        self.away.store(true, Ordering::SeqCst);
    }

    async fn start(&self) {
        self.away.store(false, Ordering::SeqCst);
    }
}

/// Messages that find no server until another has taken over.
const LEADERLESS: usize = 200;

#[async_trait]
impl Cluster for Recorder {
    fn sink(&self) -> Arc<dyn Sink> {
        Target::sink(self)
    }

    fn good(&self, id: MessageId) -> StoredMessage {
        Target::good(self, id)
    }

    async fn kill_one(&self) {
        self.leaderless.store(LEADERLESS, Ordering::SeqCst);
    }

    async fn restore(&self) {
        self.leaderless.store(0, Ordering::SeqCst);
    }

    async fn ids(&self) -> BTreeSet<MessageId> {
        Self::ids(self)
    }
}
