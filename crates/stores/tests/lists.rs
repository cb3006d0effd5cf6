//! Lists of the embedded store: a page reads little of what there is, and is what it would be if it read everything.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::{
    collections::BTreeSet,
    path::Path,
    sync::{Arc, Mutex},
    time::Duration,
};

use duly_core::{
    Attempt, DeadReason, Lane, MessageId, Outcome, Record, SinkName, State, Store, StoredMessage, Timestamp,
    Topic,
    schedule::Random,
    store::{Claim, Holder, Insert, Query, Settle, Settlement},
};
use duly_stores::{EmbeddedStore, embedded::Options};
use testkit::disk::Traffic;
use tokio::sync::Semaphore;

const SECOND: u64 = 1_000;
const HOUR: u64 = 3_600 * SECOND;
/// From what is near in memory to the widest buckets.
const REACH: [u64; 6] = [SECOND, 60 * SECOND, HOUR, 72 * HOUR, 5_000 * HOUR, 80_000 * HOUR];
const STATES: [State; 5] = [State::Pending, State::InFlight, State::Dead, State::Delivered, State::Cancelled];

async fn open(folder: &Path, traffic: &Traffic) -> Arc<EmbeddedStore> {
    let options = Options { retention: Duration::from_secs(365 * 24 * 3600), ..Options::small() };
    Arc::new(EmbeddedStore::open(folder, options, traffic.now()).await.unwrap())
}

fn id(number: u64) -> MessageId {
    MessageId::parse(&format!("m{number}")).unwrap()
}

fn below(random: &mut Random, limit: u64) -> u64 {
    random.draw() % limit
}

/// One of three lanes, two of them of topics.
fn message(number: u64, due: Timestamp) -> StoredMessage {
    let (sink, topic) = [("queue", "one"), ("queue", "two"), ("web", "one")][number as usize % 3];
    StoredMessage::new(id(number), SinkName::parse(sink).unwrap(), Topic::parse(topic).unwrap(), due)
}

fn lanes() -> [Lane; 3] {
    [0, 1, 2].map(|number| {
        let message = message(number, Timestamp::default());
        Lane::of(&message.sink, &message.topic)
    })
}

async fn insert(
    store: &dyn Store,
    traffic: &Traffic,
    random: &mut Random,
    numbers: impl Iterator<Item = u64>,
) {
    let now = traffic.now().wall();
    let one = |number| {
        let reach = REACH[below(random, 6) as usize];
        let due = now.saturating_add(Duration::from_millis(below(random, reach)));
        Insert::new(message(number, due))
    };
    let batch: Vec<_> = numbers.map(one).collect();
    store.insert(traffic.now(), batch).await.unwrap();
}

/// Claims some of what is due: delivered, dead, tried again much later or not at all, in flight.
async fn work(store: &dyn Store, traffic: &Traffic, random: &mut Random) {
    let now = traffic.now().wall();
    for lane in lanes() {
        let claim = Claim { lane, limit: 150, lease: Duration::from_secs(9_000), holder: Holder::Process };
        let claimed = store.claim(traffic.now(), claim).await.unwrap().messages;
        let tried = |outcome| Attempt::new(now, outcome, "no");
        let mut batch = Vec::new();
        for leased in claimed {
            let settlement = match below(random, 6) {
                0 => continue,
                1 => Settlement::Delivered { receipt: None },
                2 => Settlement::Dead { reason: DeadReason::Refused, attempt: Some(tried(Outcome::Refused)) },
                _ => {
                    let wait = Duration::from_millis(below(random, 100 * HOUR));
                    Settlement::Retry { at: now.saturating_add(wait), attempt: tried(Outcome::Failed) }
                }
            };
            batch.push(Settle { receipt: leased.receipt, settlement });
        }
        store.settle(traffic.now(), batch).await.unwrap();
    }
}

/// All pages of a list.
async fn listed(store: &dyn Store, mut query: Query) -> Vec<Record> {
    let mut all = Vec::new();
    loop {
        let page = store.list(&query).await.unwrap();
        assert!(page.records.len() <= query.limit);
        all.extend(page.records);
        match page.next {
            Some(next) => query.after = Some(next),
            None => return all,
        }
    }
}

fn some_query(random: &mut Random, start: Timestamp) -> Query {
    let mut time = |from: u64| {
        let reach = REACH[below(random, 6) as usize];
        let at = below(random, reach);
        (below(random, 2) == 0).then(|| start.saturating_add(Duration::from_millis(from + at)))
    };
    let (due_from, due_to) = (time(0), time(SECOND));
    let state = STATES[below(random, 5) as usize];
    let named = message(below(random, 3), start);
    let sink = (below(random, 2) == 0).then_some(named.sink);
    let topic = (below(random, 2) == 0).then_some(named.topic);
    let limit = 1 + below(random, 400) as usize;
    Query { state, sink, topic, due_from, due_to, after: None, limit }
}

async fn compare(store: &dyn Store, random: &mut Random, start: Timestamp, count: u64) {
    let ids: Vec<_> = (0..count).map(id).collect();
    let known: Vec<Record> = store.get(&ids).await.unwrap().into_iter().flatten().collect();
    assert_eq!(known.len() as u64, count);
    for _ in 0..60 {
        let query = some_query(random, start);
        let mut wanted: Vec<_> = known
            .iter()
            .filter(|record| record.state == query.state && query.matches(&record.message))
            .map(|record| (record.message.due, record.message.id.clone()))
            .collect();
        wanted.sort();
        let shown = format!("{query:?}");
        let found = listed(store, query).await.into_iter();
        let found: Vec<_> = found.map(|record| (record.message.due, record.message.id)).collect();
        assert!(found == wanted, "{} instead of {}: {shown}", found.len(), wanted.len());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn pages_are_those_of_all_messages_in_order() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = Traffic::default();
    let start = traffic.now().wall();
    let mut random = Random::new(7);
    let mut store = open(folder.path(), &traffic).await;
    let mut count = 0;
    for round in 0..4 {
        for _ in 0..10 {
            insert(&*store, &traffic, &mut random, count..count + 100).await;
            count += 100;
        }
        traffic.pass([20 * SECOND, HOUR, 30 * HOUR, SECOND][round]);
        store.sweep(traffic.now(), &lanes()).await.unwrap();
        work(&*store, &traffic, &mut random).await;
        let mut some = |many| (0..many).map(|_| id(below(&mut random, count))).collect::<Vec<_>>();
        store.cancel(traffic.now(), &some(40)).await.unwrap();
        let moved = some(40).into_iter().map(|id| (id, start.saturating_add(Duration::from_secs(90_000))));
        store.reschedule(traffic.now(), &moved.collect::<Vec<_>>()).await.unwrap();
        compare(&*store, &mut random, start, count).await;
        store.close().await.unwrap();
        drop(store);
        store = open(folder.path(), &traffic).await;
        compare(&*store, &mut random, start, count).await;
    }
}

/// Messages of the lane that is looked at, due in some weeks: they are moved again and again as time passes.
async fn insert_kept(store: &dyn Store, traffic: &Traffic, from: u64) -> Vec<MessageId> {
    let due =
        |number| traffic.now().wall().saturating_add(Duration::from_millis((500 + number % 900) * HOUR));
    let kept: Vec<_> = (from..from + 20).map(|number| message(3 * number + 1, due(number))).collect();
    let ids = kept.iter().map(|message| message.id.clone()).collect();
    let batch = kept.into_iter().map(Insert::new).collect();
    store.insert(traffic.now(), batch).await.unwrap();
    ids
}

#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn what_moves_while_it_is_listed_is_on_its_page() {
    let folder = tempfile::tempdir().unwrap();
    let traffic = Traffic::default();
    let store = open(folder.path(), &traffic).await;
    let accepted = Arc::new(Mutex::new(BTreeSet::new()));
    // So much traffic comes between two lists: on a fast disk there would be more messages than this test has time to list.
    let rounds = Arc::new(Semaphore::new(0));
    let (other, time, all, allowed) = (store.clone(), traffic.clone(), accepted.clone(), rounds.clone());
    let busy = tokio::spawn(async move {
        let mut random = Random::new(3);
        let mut count = 1_000_000;
        while let Ok(round) = allowed.acquire().await {
            round.forget();
            let kept = insert_kept(&*other, &time, count).await;
            all.lock().unwrap().extend(kept);
            // Others fill buffers and tables, and go; time opens buckets.
            let numbers = (count..count + 300).map(|number| 3 * number);
            insert(&*other, &time, &mut random, numbers).await;
            let old: Vec<_> = (count - 900..count - 600).map(|number| id(3 * number)).collect();
            other.cancel(time.now(), &old).await.unwrap();
            count += 300;
            time.pass(HOUR);
            other.sweep(time.now(), &lanes()).await.unwrap();
        }
    });
    for _ in 0..200 {
        rounds.add_permits(2);
        let wanted = accepted.lock().unwrap().clone();
        let mut query = Query { limit: 1_000, ..Query::all(State::Pending) };
        (query.sink, query.topic) = (Some(SinkName::queue()), Some(Topic::parse("two").unwrap()));
        let found: BTreeSet<_> =
            listed(&*store, query).await.into_iter().map(|record| record.message.id).collect();
        let missing = wanted.difference(&found).count();
        assert_eq!(missing, 0, "of {}", wanted.len());
    }
    rounds.close();
    busy.await.unwrap();
}
