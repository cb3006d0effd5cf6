//! The whole library over brokers: the embedded store in a folder of its own, and a sink for each broker.

use std::{
    borrow::Cow,
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use duly::{Clock, Duly, Message, Outcomes, Sink, SinkOptions, SystemClock};
use duly_core::{Delivery, DeliveryResult, SinkError, Timestamp};
use tempfile::TempDir;

use crate::broker::{Broker, sink};

/// A Duly that delivers to brokers.
pub(crate) struct Whole {
    pub(crate) duly: Duly,
    pub(crate) watched: Vec<Arc<Watched>>,
    body: usize,
    _folder: TempDir,
}

/// A sink, and what its broker has acknowledged.
pub(crate) struct Watched {
    sink: Arc<dyn Sink>,
    clock: SystemClock,
    watch: Watch,
    acknowledged: Mutex<Vec<Acknowledged>>,
}

/// What is written down: nothing where memory is measured.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Watch {
    Everything,
    Nothing,
}

/// One acknowledgement.
pub(crate) struct Acknowledged {
    pub(crate) id: String,
    pub(crate) due: Timestamp,
    /// From the due time to the acknowledgement, in ms.
    pub(crate) late: f64,
}

impl Whole {
    pub(crate) async fn start(brokers: &[Arc<dyn Broker>], watch: Watch, body: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let mut builder = Duly::builder().folder(folder.path());
        let mut watched = Vec::new();
        for broker in brokers {
            let (sink, batch) = sink(&**broker);
            let (clock, acknowledged) = (SystemClock::new().unwrap(), Mutex::default());
            let sink = Arc::new(Watched { sink, clock, watch, acknowledged });
            watched.push(sink.clone());
            let usual = SinkOptions::default();
            builder =
                builder.sink(broker.name(), sink, SinkOptions { batch: usual.batch.min(batch), ..usual });
        }
        Self { duly: builder.start().await.unwrap(), watched, body, _folder: folder }
    }

    /// Message `id` to `broker`.
    pub(crate) fn message(&self, broker: &dyn Broker, id: String, due: Timestamp) -> Message {
        self.message_to(broker, broker.topic(), id, due)
    }

    /// Message `id` to a topic of `broker`.
    pub(crate) fn message_to(&self, broker: &dyn Broker, topic: &str, id: String, due: Timestamp) -> Message {
        let body = vec![b'x'; self.body];
        Message::to_sink(broker.name(), topic).id(id).at(due).bytes(body)
    }

    pub(crate) async fn send(&self, messages: Vec<Message>) {
        let mut messages = messages.into_iter().peekable();
        while messages.peek().is_some() {
            let batch: Vec<_> = messages.by_ref().take(1_000).collect();
            for sent in self.duly.send_batch(batch).await {
                sent.unwrap();
            }
        }
    }

    /// Waits until everything is delivered, or nothing was for `patience`.
    pub(crate) async fn drained(&self, patience: Duration) -> bool {
        let (mut last, mut waited) = (0, Duration::ZERO);
        loop {
            let stats = self.duly.stats();
            if stats.delivered + stats.dead >= stats.accepted {
                return true;
            }
            waited = if stats.delivered == last { waited + TICK } else { Duration::ZERO };
            if waited >= patience {
                return false;
            }
            last = stats.delivered;
            pause(TICK).await;
        }
    }
}

const TICK: Duration = Duration::from_millis(100);

impl Watched {
    /// All that was seen since this was last asked.
    pub(crate) fn take(&self) -> Vec<Acknowledged> {
        std::mem::take(&mut *self.acknowledged.lock().unwrap())
    }
}

#[async_trait]
impl Sink for Watched {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        let report = |index: usize, result: DeliveryResult| {
            if let (Watch::Everything, Ok(_), Some(Delivery { message, .. })) =
                (&self.watch, &result, batch.get(index))
            {
                let late = self.clock.now().wall_micros() as f64 / 1e3 - message.due.as_millis() as f64;
                let acknowledged = Acknowledged { id: message.id.to_string(), due: message.due, late };
                self.acknowledged.lock().unwrap().push(acknowledged);
            }
            outcomes.report(index, result);
        };
        self.sink.deliver_each(batch, &Outcomes::new(&report)).await;
    }

    fn destination<'a>(&self, message: &'a duly_core::StoredMessage) -> Cow<'a, str> {
        self.sink.destination(message)
    }

    async fn probe(&self) -> Result<(), SinkError> {
        self.sink.probe().await
    }

    async fn settled(&self, delivered: &[Delivery]) {
        self.sink.settled(delivered).await;
    }
}

/// Sleeps a moment.
pub(crate) async fn pause(span: Duration) {
    #[expect(clippy::disallowed_methods, reason = "a benchmark goes by real time")]
    tokio::time::sleep(span).await;
}

/// What a server does takes its time, and holds up nobody.
pub(crate) async fn aside(broker: &Arc<dyn Broker>, act: fn(&dyn Broker)) {
    let broker = broker.clone();
    tokio::task::spawn_blocking(move || act(&*broker)).await.unwrap();
}
