//! A whole Duly on the machine's clock, and what notes every arrival.

use std::{
    sync::{Arc, Mutex},
    time::Duration,
};

use async_trait::async_trait;
use duly::{Clock, Delivery, Duly, Message, Outcomes, Sink, SinkError, SinkOptions, SystemClock, Timestamp};
use duly_stores::MemoryStore;
use tokio::sync::Notify;

/// Where messages wait.
#[derive(Clone, Copy)]
pub(crate) enum StoreKind {
    Embedded,
    Memory,
}

impl StoreKind {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Embedded => "embedded",
            Self::Memory => "memory",
        }
    }
}

/// Who takes them.
#[derive(Clone, Copy)]
pub(crate) enum Lane {
    Sink,
    Handler,
}

impl Lane {
    pub(crate) fn name(self) -> &'static str {
        match self {
            Self::Sink => "sink",
            Self::Handler => "handler",
        }
    }
}

/// Notes how late each message arrives.
pub(crate) struct Arrivals {
    clock: SystemClock,
    late_us: Mutex<Vec<u32>>,
    expected: usize,
    pub(crate) all: Notify,
}

impl Arrivals {
    fn note(&self, dues: impl Iterator<Item = Timestamp>) {
        let now = self.clock.now().wall_micros();
        let mut late_us = self.late_us.lock().unwrap();
        late_us.extend(dues.map(|due| {
            let due = due.as_millis() * 1000;
            assert!(now >= due, "early by {} us", due - now);
            u32::try_from(now - due).unwrap_or(u32::MAX)
        }));
        if late_us.len() >= self.expected {
            self.all.notify_one();
        }
    }

    /// How late each was, in ms and sorted.
    pub(crate) fn late_ms(&self) -> Vec<f64> {
        let mut late: Vec<f64> = self.late_us.lock().unwrap().iter().map(|us| f64::from(*us) / 1e3).collect();
        late.sort_unstable_by(f64::total_cmp);
        late
    }
}

impl Arrivals {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        self.note(batch.iter().map(|delivery| delivery.message.due));
        vec![Ok(String::new()); batch.len()]
    }
}

#[async_trait]
impl Sink for Arrivals {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    async fn probe(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

/// What a run stands on.
pub(crate) struct Bed {
    pub(crate) duly: Duly,
    pub(crate) clock: SystemClock,
    pub(crate) arrivals: Arc<Arrivals>,
    target: &'static str,
    body: &'static [u8],
    _folder: tempfile::TempDir,
}

impl Bed {
    /// Everything as it is unless told otherwise, so that the figures are those that people get.
    pub(crate) async fn make(store_kind: StoreKind, lane: Lane, expected: usize) -> Self {
        let folder = tempfile::tempdir().unwrap();
        let clock = SystemClock::new().unwrap();
        let late_us = Mutex::new(Vec::with_capacity(expected));
        let arrivals = Arc::new(Arrivals { clock: clock.clone(), late_us, expected, all: Notify::new() });
        let builder = Duly::builder().clock(Arc::new(clock.clone()));
        let builder = match store_kind {
            StoreKind::Embedded => builder.folder(folder.path()),
            StoreKind::Memory => builder.store(Arc::new(MemoryStore::new())),
        };
        let duly = builder.sink("bench", arrivals.clone(), SinkOptions::default()).start().await.unwrap();
        let target = match lane {
            Lane::Sink => "bench/arrivals",
            Lane::Handler => "arrivals",
        };
        if matches!(lane, Lane::Handler) {
            let noted = arrivals.clone();
            let handler = move |task: duly::Task| {
                noted.note(std::iter::once(task.due()));
                std::future::ready(())
            };
            duly.handle("arrivals", handler).start().await.unwrap();
        }
        Self { duly, clock, arrivals, target, body: &[b'x'; 256], _folder: folder }
    }

    pub(crate) fn message(&self, due: Timestamp) -> Message {
        Message::to(self.target).bytes(self.body).at(due)
    }

    pub(crate) async fn send(&self, dues: impl Iterator<Item = Timestamp>) {
        for answer in self.duly.send_batch(dues.map(|due| self.message(due))).await {
            answer.unwrap();
        }
    }

    pub(crate) async fn sleep(&self, span: Duration) {
        self.clock.sleep_until(self.clock.now().mono().saturating_add(span)).await;
    }

    pub(crate) async fn end(self) {
        self.duly.shutdown().await.unwrap();
    }
}
