//! The child: accepts, cancels and delivers until it is killed.

use std::{
    fs::{File, OpenOptions},
    io::{self, Write},
    path::Path,
    sync::Arc,
    time::Duration,
};

use async_trait::async_trait;
use duly::{Changed, Clock, Duly, HandlerOptions, Message, Query, SinkOptions, State, SystemClock};
use duly_core::{
    Delivery, MessageId, Outcomes, RetryPolicy, Sink, SinkError, SinkErrorKind, Store, Timestamp,
    schedule::Random,
};
use duly_stores::{EmbeddedStore, embedded};

use super::Role;

/// The file that plays the target.
pub(super) const TARGET: &str = "target";
/// Claimed and not yet settled, per lane: what one kill can leave twice, for each of the two lanes.
pub const IN_FLIGHT: usize = 16;

const PRODUCERS: u64 = 4;
/// One child accepts at most so many per producer; then it only delivers.
const MESSAGES_MAX: u64 = 400;
/// The last child may take so long to deliver everything.
const DRAINED_WITHIN: Duration = Duration::from_secs(60);

/// One word to the parent, at once. The full stop at the end tells a whole line from a torn one.
pub(super) fn print_line(words: &str) {
    let mut out = io::stdout().lock();
    // The parent is gone only when the run is: nobody is left to tell.
    let _ = writeln!(out, "{words} .").and_then(|()| out.flush());
}

/// The target: one line per copy, each written by one call.
pub(super) struct Target {
    file: File,
    clock: SystemClock,
}

impl Target {
    pub(super) fn open(folder: &Path, clock: &SystemClock) -> io::Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(folder.join(TARGET))?;
        Ok(Self { file, clock: clock.clone() })
    }

    pub(super) fn take(&self, id: &MessageId, due: Timestamp) -> io::Result<()> {
        let line = format!("{id} {} {}\n", self.clock.now().wall().as_millis(), due.as_millis());
        (&self.file).write_all(line.as_bytes())
    }
}

impl Target {
    async fn send_all(&self, batch: &[Delivery]) -> Vec<Result<String, SinkError>> {
        let take = |delivery: &Delivery| match self.take(&delivery.message.id, delivery.message.due) {
            Ok(()) => Ok("written".into()),
            Err(error) => Err(SinkError::new(SinkErrorKind::Unknown, error.to_string())),
        };
        batch.iter().map(take).collect()
    }
}

#[async_trait]
impl Sink for Target {
    async fn deliver_each(&self, batch: &[Delivery], outcomes: &Outcomes<'_>) {
        outcomes.report_all(self.send_all(batch).await);
    }

    async fn probe(&self) -> Result<(), SinkError> {
        Ok(())
    }
}

pub(super) async fn open(folder: &Path, clock: &SystemClock) -> Arc<EmbeddedStore> {
    // Small files, so that every kind of background work is met by some kill.
    let options = embedded::Options::small();
    Arc::new(EmbeddedStore::open(folder.join("store"), options, clock.now()).await.unwrap())
}

/// The child's main.
pub async fn work(role: Role, folder: &Path, life: u64) {
    let clock = SystemClock::new().unwrap();
    let store = open(folder, &clock).await;
    let target = Arc::new(Target::open(folder, &clock).unwrap());
    // Kills count as tries: none of these messages may run out of them.
    let attempts = 10_000;
    let options = SinkOptions { in_flight: IN_FLIGHT, batch: 4, ..SinkOptions::default() };
    // What a kill took along waits, and kills come faster than the usual waits end.
    let (again, failed, max) =
        (Duration::from_millis(5), Duration::from_millis(5), Duration::from_millis(20));
    let handlers = HandlerOptions {
        batch: IN_FLIGHT,
        concurrency: 4,
        attempts,
        again,
        failed,
        max,
        ..HandlerOptions::default()
    };
    let duly = Duly::builder()
        .store(store.clone())
        .clock(Arc::new(clock.clone()))
        .retry(RetryPolicy { attempts, ..RetryPolicy::default() })
        .handlers(handlers)
        .sink("file", target.clone(), options)
        .start()
        .await
        .unwrap();
    let handler = move |task: duly::Task| {
        let target = target.clone();
        async move { target.take(task.message_id(), task.due()) }
    };
    duly.handle("jobs", handler).start().await.unwrap();
    if role == Role::Drain {
        drain(&duly, &store, &clock).await;
        return;
    }
    let producers: Vec<_> =
        (0..PRODUCERS).map(|producer| tokio::spawn(produce(duly.clone(), life, producer))).collect();
    for producer in producers {
        producer.await.unwrap();
    }
    // Until killed.
    std::future::pending::<()>().await;
}

async fn produce(duly: Duly, life: u64, producer: u64) {
    let mut random = Random::new(life << 8 | producer);
    for number in 0..MESSAGES_MAX {
        let id = format!("{life}-{producer}-{number}");
        let due = duly.now().saturating_add(Duration::from_millis(random.draw() % 400));
        let to = if random.draw().is_multiple_of(2) { "file/topic" } else { "jobs" };
        print_line(&format!("asked {id} {}", due.as_millis()));
        let body = "x".repeat((random.draw() % 600) as usize);
        if duly.send(Message::to(to).id(id.as_str()).text(body).at(due)).await.is_err() {
            continue;
        }
        print_line(&format!("accepted {id}"));
        if random.draw().is_multiple_of(10) {
            print_line(&format!("cancelling {id}"));
            if let Ok(Changed::Done { maybe_delivered }) = duly.cancel(id.as_str()).await {
                print_line(&format!("{} {id}", if maybe_delivered { "maybe" } else { "cancelled" }));
            }
        }
    }
}

/// Waits until everything has ended, then tells the state of every message.
async fn drain(duly: &Duly, store: &EmbeddedStore, clock: &SystemClock) {
    let end = clock.now().mono().saturating_add(DRAINED_WITHIN);
    loop {
        let totals = duly.totals().await.unwrap();
        if totals.pending + totals.in_flight == 0 {
            break;
        }
        assert!(clock.now().mono() < end, "not drained within {DRAINED_WITHIN:?}: {totals:?}");
        clock.sleep_until(clock.now().mono().saturating_add(Duration::from_millis(20))).await;
    }
    for state in [State::Delivered, State::Dead, State::Cancelled] {
        let mut query = Query { limit: 1000, ..Query::all(state) };
        loop {
            let page = store.list(&query).await.unwrap();
            for record in &page.records {
                print_line(&format!("state {} {}", record.message.id, state.as_str()));
            }
            let Some(next) = page.next else { break };
            query.after = Some(next);
        }
    }
    let totals = store.totals().await.unwrap();
    print_line(&format!("totals {}", if totals.balance() { "balance" } else { "differ" }));
    duly.shutdown().await.unwrap();
}
