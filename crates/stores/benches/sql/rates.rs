//! How many messages a second are inserted and delivered while a million wait.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use duly::Clock;
use duly_core::{Store, StoredMessage};
use testkit::bench::report::Report;

use crate::{
    Arguments,
    bare::Bare,
    bed::{
        BATCH, DatabaseKind, Server, claim, clock_time, delivered, fill, insert, lane, lane_no, later,
        message, store,
    },
};

/// So many callers insert at the same time, here and there.
const CALLERS: usize = 4;
/// Here and there in turns, so that both see the same weather.
const ROUNDS: usize = 4;

pub(crate) async fn measure(report: &mut Report, arguments: &Arguments, kind: DatabaseKind) {
    let server = Server::start(kind);
    let (ours, theirs) = (server.database(), server.database());
    let (store, clock) = store(&ours, 10_000).await;
    let bare = Arc::new(Bare::new(&server, &theirs, kind).await);
    let now = clock.now();
    store.insert(now, vec![insert(message(0, now.wall(), later(now), arguments.body))]).await.unwrap();
    let first_due = later(now).as_millis();
    fill(&server, &ours, 0, arguments.pending, lane_no(&server, &ours), first_due);
    Bare::fill(&server, &theirs, arguments.pending, first_due);

    let stop = Arc::new(AtomicBool::new(false));
    let sweeping = tokio::spawn(sweep(store.clone(), clock.clone(), stop.clone()));
    let part = arguments.count / ROUNDS / BATCH * BATCH;
    let mut spent = [0.0; 5];
    for round in 0..ROUNDS {
        let all = Arc::new(messages(clock.now(), part, round, arguments.body));
        spent[0] += inserting(all.clone(), bare.clone()).await;
        spent[1] += inserting(all.clone(), (store.clone(), clock.clone())).await;
        let ids: Vec<_> = all.iter().map(|message| message.id.to_string()).collect();
        let begin = clock_time();
        for ids in ids.chunks(BATCH) {
            bare.deliver(ids).await;
        }
        spent[2] += begin.elapsed().as_secs_f64();
        spent[3] += delivering(&store, &clock, part).await;
    }
    stop.store(true, Ordering::Relaxed);
    sweeping.await.unwrap();
    let rate = |spent: f64| (part * ROUNDS) as f64 / spent;
    let name = kind.name();
    let pending = arguments.pending;
    report.beside(
        format!("{name}: insert, {CALLERS} callers, {pending} pending; bare batched INSERT"),
        rate(spent[1]),
        "msg/s",
        rate(spent[0]),
    );
    report.beside(
        format!("{name}: claim and settle, retention running; bare pair of UPDATEs"),
        rate(spent[3]),
        "msg/s",
        rate(spent[2]),
    );
    let totals = store.totals().await.unwrap();
    assert!(totals.balance() && totals.delivered == (part * ROUNDS) as u64, "{totals:?}");
}

fn messages(now: duly_core::Now, count: usize, round: usize, body: usize) -> Vec<StoredMessage> {
    (0..count).map(|n| message(round * count + n, now.wall(), now.wall(), body)).collect()
}

/// Whoever takes a batch.
trait Takes: Clone + Send + Sync + 'static {
    fn take(&self, batch: &[StoredMessage]) -> impl Future<Output = ()> + Send;
}

impl Takes for Arc<Bare> {
    async fn take(&self, batch: &[StoredMessage]) {
        self.insert(batch).await;
    }
}

impl Takes for (Arc<duly_stores::SqlStore>, duly_stores::ServerClock) {
    async fn take(&self, batch: &[StoredMessage]) {
        let batch = batch.iter().cloned().map(insert).collect();
        self.0.insert(self.1.now(), batch).await.unwrap();
    }
}

async fn inserting(all: Arc<Vec<StoredMessage>>, to: impl Takes) -> f64 {
    let next = Arc::new(AtomicUsize::new(0));
    let begin = clock_time();
    let callers: Vec<_> = (0..CALLERS)
        .map(|_| {
            let (all, next, to) = (all.clone(), next.clone(), to.clone());
            tokio::spawn(async move {
                while let Some(batch) = all.chunks(BATCH).nth(next.fetch_add(1, Ordering::Relaxed)) {
                    to.take(batch).await;
                }
            })
        })
        .collect();
    for caller in callers {
        caller.await.unwrap();
    }
    begin.elapsed().as_secs_f64()
}

async fn delivering(store: &duly_stores::SqlStore, clock: &duly_stores::ServerClock, count: usize) -> f64 {
    let begin = clock_time();
    let mut seen = 0;
    while seen < count {
        let claimed = store.claim(clock.now(), claim()).await.unwrap();
        seen += claimed.messages.len();
        if !claimed.messages.is_empty() {
            store.settle(clock.now(), delivered(&claimed.messages)).await.unwrap();
        }
    }
    begin.elapsed().as_secs_f64()
}

/// As the runtime does: and with it retention, as soon as more than ten thousand have ended.
async fn sweep(store: Arc<duly_stores::SqlStore>, clock: duly_stores::ServerClock, stop: Arc<AtomicBool>) {
    while !stop.load(Ordering::Relaxed) {
        store.sweep(clock.now(), &[lane()]).await.unwrap();
        clock.sleep_until(clock.now().mono().saturating_add(Duration::from_millis(100))).await;
    }
}
