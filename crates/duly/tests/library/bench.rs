//! What the tests stand on: a Duly whose time stands still until it is moved.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use duly::{
    Builder, Clock, Delivery, Duly, ManualClock, Message, MessageId, Outcomes, Record, Sink, SinkError,
    SinkErrorKind, SinkOptions, Timestamp,
};
use duly_stores::MemoryStore;

/// A Duly on a manual clock.
pub(crate) struct Bench {
    pub(crate) duly: Duly,
    pub(crate) clock: ManualClock,
    pub(crate) store: Arc<MemoryStore>,
}

impl Bench {
    pub(crate) async fn start() -> Self {
        Self::with(|builder| builder).await
    }

    pub(crate) async fn with(more: impl FnOnce(Builder) -> Builder) -> Self {
        Self::on(Arc::new(MemoryStore::new()), ManualClock::new(), more).await
    }

    pub(crate) async fn on(
        store: Arc<MemoryStore>,
        clock: ManualClock,
        more: impl FnOnce(Builder) -> Builder,
    ) -> Self {
        let builder = Duly::builder().store(store.clone()).clock(Arc::new(clock.clone())).seed(1);
        Self { duly: more(builder).start().await.unwrap(), clock, store }
    }

    /// Lets everything happen that can happen without time passing.
    pub(crate) async fn calm(&self) {
        for _ in 0..300 {
            tokio::task::yield_now().await;
        }
    }

    /// Lets `span` pass, stopping wherever somebody sleeps until.
    pub(crate) async fn pass(&self, span: Duration) {
        let end = self.clock.now().mono().saturating_add(span);
        self.calm().await;
        while let Some(next) = self.clock.next_deadline().filter(|next| *next <= end) {
            self.clock.advance_to(next);
            self.calm().await;
        }
        self.clock.advance_to(end);
        self.calm().await;
    }

    pub(crate) async fn send(&self, message: Message) -> MessageId {
        self.duly.send(message).await.unwrap().id
    }

    pub(crate) async fn record(&self, id: &MessageId) -> Record {
        self.duly.get(id).await.unwrap().unwrap()
    }

    pub(crate) fn in_ms(&self, ms: u64) -> Timestamp {
        self.duly.now().saturating_add(Duration::from_millis(ms))
    }
}

/// What a sink was given: id, attempt and the time.
pub(crate) type Arrival = (String, u32, Timestamp);

/// A sink that does as it is told and remembers what came.
pub(crate) struct Target {
    clock: ManualClock,
    pub(crate) mood: Mutex<Mood>,
    pub(crate) arrivals: Mutex<Vec<Arrival>>,
    settled: Mutex<Vec<String>>,
    pub(crate) calls: Mutex<Vec<usize>>,
}

/// How a target behaves.
#[derive(Debug, Clone)]
pub(crate) enum Mood {
    Good,
    /// Every call fails in this way, for every message.
    Bad(SinkErrorKind),
    /// A call that contains this id fails as a whole.
    Poisoned(String),
    /// Never answers.
    Hangs,
    Panics,
}

impl Target {
    pub(crate) fn new(clock: &ManualClock, mood: Mood) -> Arc<Self> {
        Arc::new(Self {
            clock: clock.clone(),
            mood: Mutex::new(mood),
            arrivals: Mutex::default(),
            settled: Mutex::default(),
            calls: Mutex::default(),
        })
    }

    pub(crate) fn set(&self, mood: Mood) {
        *self.mood.lock().unwrap() = mood;
    }

    pub(crate) fn ids(&self) -> Vec<String> {
        self.arrivals.lock().unwrap().iter().map(|(id, ..)| id.clone()).collect()
    }

    /// What the sink was told to be recorded as delivered.
    pub(crate) fn settled_ids(&self) -> Vec<String> {
        self.settled.lock().unwrap().clone()
    }

    pub(crate) fn arrivals(&self) -> Vec<Arrival> {
        self.arrivals.lock().unwrap().clone()
    }

    fn fail(kind: SinkErrorKind) -> SinkError {
        SinkError::new(kind, "as told")
    }
}

impl Target {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        self.calls.lock().unwrap().push(batch.len());
        let mood = self.mood.lock().unwrap().clone();
        let poisoned = |id: &str| batch.iter().any(|delivery| delivery.message.id.as_str() == id);
        let error = match mood {
            Mood::Good => None,
            Mood::Bad(kind) => Some(Self::fail(kind)),
            Mood::Poisoned(id) => poisoned(&id).then(|| Self::fail(SinkErrorKind::Unknown)),
            Mood::Hangs => std::future::pending().await,
            Mood::Panics => panic!("as told"),
        };
        if let Some(error) = error {
            return vec![Err(error); batch.len()];
        }
        let now = self.clock.now().wall();
        let arrival = |d: &Delivery| (d.message.id.as_str().to_owned(), d.attempt, now);
        self.arrivals.lock().unwrap().extend(batch.iter().map(arrival));
        batch.iter().map(|delivery| Ok(format!("proof of {}", delivery.message.id))).collect()
    }
}

#[async_trait]
impl Sink for Target {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    async fn probe(&self) -> Result<(), SinkError> {
        match *self.mood.lock().unwrap() {
            Mood::Bad(kind) if !kind.outcome().counts() => Err(Self::fail(kind)),
            _ => Ok(()),
        }
    }

    async fn settled(&self, delivered: &[Delivery]) {
        let ids = delivered.iter().map(|delivery| delivery.message.id.to_string());
        self.settled.lock().unwrap().extend(ids);
    }
}

impl Bench {
    /// With one sink, `orders`, that behaves as told.
    pub(crate) async fn with_target(mood: Mood, options: SinkOptions) -> (Self, Arc<Target>) {
        let clock = ManualClock::new();
        let target = Target::new(&clock, mood);
        let sink = target.clone();
        let bench = Self::on(Arc::new(MemoryStore::new()), clock, |b| b.sink("orders", sink, options)).await;
        (bench, target)
    }
}
