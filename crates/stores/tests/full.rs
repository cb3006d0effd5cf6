//! A full disk: new messages are refused, what is stored goes out, and everything goes on by itself once there is room.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

use std::{
    io,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering::SeqCst},
    },
    time::Duration,
};

use duly_core::{
    Body, Lane, MessageId, SinkName, Store, StoredMessage, Topic,
    schedule::Random,
    store::{
        Changed, Claim, Holder, Insert, Inserted, LeasedMessage, Settle, Settled, Settlement, StoreError,
        StoreErrorKind,
    },
};
use duly_stores::{EmbeddedStore, embedded::Options};
use testkit::disk::{HookedDisk, Hooks, PowerDisk, Traffic, once_there_is_room};

/// How often what is due is asked for until all of it has come.
const LOOKS_MAX: usize = 2_000_000;

fn tiny(disk: &PowerDisk) -> Options {
    Options {
        retention: Duration::from_secs(365 * 24 * 3600),
        segment_bytes: 32 << 10,
        checkpoint_bytes: 32 << 10,
        window_bytes: 16 << 10,
        buffer_bytes: 8 << 10,
        chunk_bytes: 8 << 10,
        disk: Arc::new(disk.clone()),
        ..Options::default()
    }
}

async fn open(disk: &PowerDisk, traffic: &Traffic) -> Arc<EmbeddedStore> {
    Arc::new(EmbeddedStore::open("/data", tiny(disk), traffic.now()).await.unwrap())
}

fn lane() -> Lane {
    Lane::Queue(Topic::parse("work").unwrap())
}

fn id(number: u64) -> MessageId {
    MessageId::parse(&format!("m{number}")).unwrap()
}

async fn insert(store: &dyn Store, traffic: &Traffic, number: u64, wait_ms: u64) -> Result<(), StoreError> {
    let due = traffic.now().wall().saturating_add(Duration::from_millis(wait_ms));
    let topic = Topic::parse("work").unwrap();
    let mut message = StoredMessage::new(id(number), SinkName::parse("queue").unwrap(), topic, due);
    message.body = Body::text("abcdefgh".repeat(40));
    let answer = store.insert(traffic.now(), vec![Insert::new(message)]).await?;
    assert_eq!(answer, [Inserted::Accepted]);
    Ok(())
}

/// Inserts, due in turn now, soon and later, until there is no room; says how many were taken.
async fn fill(store: &dyn Store, traffic: &Traffic, first: u64) -> u64 {
    for number in first..first + 10_000 {
        let wait = [0, 5_000, 200_000, 5_000_000][number as usize % 4];
        match insert(store, traffic, number, wait).await {
            Ok(()) => {}
            Err(error) => {
                assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
                return number - first;
            }
        }
    }
    panic!("a full disk takes everything");
}

/// Inserts until it is taken again, each time after a sweep, as the scheduler does.
async fn insert_when_there_is_room(store: &dyn Store, traffic: &Traffic, number: u64) {
    once_there_is_room(async || {
        store.sweep(traffic.now(), &[lane()]).await?;
        insert(store, traffic, number, 0).await
    })
    .await;
}

async fn claim(store: &dyn Store, traffic: &Traffic, limit: usize) -> Result<Vec<LeasedMessage>, StoreError> {
    let claim = Claim { lane: lane(), limit, lease: Duration::from_secs(60), holder: Holder::Process };
    Ok(store.claim(traffic.now(), claim).await?.messages)
}

async fn deliver(store: &dyn Store, traffic: &Traffic, claimed: &[LeasedMessage]) -> Result<(), StoreError> {
    let batch = claimed.iter().map(|leased| Settle {
        receipt: leased.receipt.clone(),
        settlement: Settlement::Delivered { receipt: None },
    });
    let settled = store.settle(traffic.now(), batch.collect()).await?;
    assert!(settled.iter().all(|settled| *settled == Settled::Done));
    Ok(())
}

#[test]
fn a_full_disk_refuses_the_new_and_lets_the_old_go() {
    testkit::block_on(async {
        let disk = PowerDisk::default();
        let traffic = Traffic::default();
        let store = open(&disk, &traffic).await;
        disk.set_room(Some(600 << 10));
        let taken = fill(&*store, &traffic, 0).await;
        assert!(taken > 100, "{taken}");
        // What is stored goes on: cancelled, rescheduled, claimed and delivered, also what is due only later.
        let changed = store.cancel(traffic.now(), &[id(3), id(7)]).await.unwrap();
        assert_eq!(changed, [Changed::Done { maybe_delivered: false }; 2]);
        let later = traffic.now().wall().saturating_add(Duration::from_secs(100));
        store.reschedule(traffic.now(), &[(id(11), later)]).await.unwrap();
        let mut delivered = 0;
        for wait in [0, 5_000, 200_000] {
            traffic.pass(wait);
            for _ in 0..10 {
                let claimed = claim(&*store, &traffic, 5).await.unwrap();
                assert!(!claimed.is_empty(), "nothing comes after {wait} ms");
                deliver(&*store, &traffic, &claimed).await.unwrap();
                delivered += claimed.len() as u64;
            }
        }
        let error = insert(&*store, &traffic, 20_000, 0).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
        let totals = store.totals().await.unwrap();
        assert!(totals.balance(), "{totals:?}");
        assert_eq!((totals.accepted, totals.delivered, totals.cancelled), (taken, delivered, 2));
        // Room is made, and it goes on by itself.
        disk.set_room(None);
        insert_when_there_is_room(&*store, &traffic, 20_000).await;
        traffic.pass(10_000_000);
        delivered += drain(&*store, &traffic).await;
        assert_eq!(delivered, taken - 2 + 1, "everything comes in the end");
        store.close().await.unwrap();
        let store = open(&disk, &traffic).await;
        let totals = store.totals().await.unwrap();
        assert_eq!((totals.pending, totals.delivered, totals.cancelled), (0, delivered, 2));
    });
}

/// Delivers what is due until nothing is left.
async fn drain(store: &dyn Store, traffic: &Traffic) -> u64 {
    let mut delivered = 0;
    for _ in 0..LOOKS_MAX {
        if store.totals().await.unwrap().pending == 0 {
            return delivered;
        }
        store.sweep(traffic.now(), &[lane()]).await.unwrap();
        let claimed = once_there_is_room(async || claim(store, traffic, 50).await).await;
        once_there_is_room(async || deliver(store, traffic, &claimed).await).await;
        delivered += claimed.len() as u64;
    }
    panic!("{:?} never came", store.totals().await.unwrap());
}

#[test]
fn delivery_stops_rather_than_repeats_when_the_reserve_is_used_up() {
    testkit::block_on(async {
        let disk = PowerDisk::default();
        let traffic = Traffic::default();
        let store = open(&disk, &traffic).await;
        disk.set_room(Some(600 << 10));
        let taken = fill(&*store, &traffic, 0).await;
        traffic.pass(10_000_000);
        // Failed tries use the reserve up and free nothing.
        let mut came = std::collections::HashSet::new();
        let stopped = 'used_up: {
            for _ in 0..100_000 {
                let claimed = match claim(&*store, &traffic, 5).await {
                    // What is due cannot be brought in.
                    Ok(claimed) if claimed.is_empty() => break 'used_up None,
                    Ok(claimed) => claimed,
                    Err(error) => break 'used_up Some(error),
                };
                for leased in &claimed {
                    assert!(came.insert(leased.message.id.clone()), "{} came twice", leased.message.id);
                }
                let attempt = duly_core::Attempt::new(traffic.now().wall(), duly_core::Outcome::Again, "no");
                let at = traffic.now().wall().saturating_add(Duration::from_secs(3600));
                let settlement = Settlement::Retry { at, attempt };
                let batch = claimed
                    .iter()
                    .map(|leased| Settle { receipt: leased.receipt.clone(), settlement: settlement.clone() });
                match store.settle(traffic.now(), batch.collect()).await {
                    Ok(settled) => assert!(settled.iter().all(|settled| *settled == Settled::Done)),
                    // They stay claimed, and are settled when there is room.
                    Err(error) => break 'used_up Some(error),
                }
            }
            panic!("the reserve has no end");
        };
        assert!(stopped.as_ref().is_none_or(|error| error.kind == StoreErrorKind::Full), "{stopped:?}");
        disk.set_room(None);
        insert_when_there_is_room(&*store, &traffic, 20_000).await;
        traffic.pass(10_000_000);
        assert_eq!(drain(&*store, &traffic).await, taken + 1);
    });
}

#[test]
fn nothing_is_lost_whatever_the_room() {
    testkit::block_on(async {
        for seed in 0..12 {
            let mut random = Random::new(seed);
            let disk = PowerDisk::default();
            let traffic = Traffic::default();
            let mut store = open(&disk, &traffic).await;
            for life in 0..2 {
                let room = disk.used() as u64 + random.draw() % (400 << 10);
                disk.set_room(Some(room as usize));
                let port: Arc<dyn Store> = store.clone();
                let worked = traffic.run(&port, random.draw(), 150).await;
                assert!(worked.is_ok(), "seed {seed}, life {life}: {worked:?}");
                disk.set_room(None);
                if random.draw().is_multiple_of(2) {
                    let worked = traffic.run(&port, random.draw(), 30).await;
                    assert!(worked.is_ok(), "seed {seed}, life {life}: {worked:?}");
                }
                if random.draw().is_multiple_of(2) {
                    drop(port);
                    store.abandon();
                    store = open(&disk, &traffic).await;
                }
                let port: Arc<dyn Store> = store.clone();
                let before = traffic.ledger().clone();

                traffic.judge(&port, &before).await;
            }
            let port: Arc<dyn Store> = store.clone();
            traffic.drain(&port).await;
        }
    });
}

#[test]
fn what_waited_for_room_comes_once_the_store_has_noticed_it() {
    testkit::block_on(async {
        let disk = PowerDisk::default();
        let traffic = Traffic::default();
        let store = open(&disk, &traffic).await;
        let port: Arc<dyn Store> = store.clone();
        traffic.run(&port, 0, 50).await.unwrap();
        disk.set_room(Some(disk.used()));
        // Until the reserve is used up as well.
        for seed in 1..1_000 {
            if store.health().await.claiming.is_err() {
                break;
            }
            traffic.run(&port, seed, 20).await.unwrap();
        }
        let claiming = store.health().await.claiming;
        assert!(claiming.as_ref().is_err_and(|error| error.kind == StoreErrorKind::Full), "{claiming:?}");
        disk.set_room(None);
        traffic.drain(&port).await;
    });
}

/// Claims and delivers `count` messages while the disk is full.
async fn deliver_some(store: &dyn Store, traffic: &Traffic, count: usize) -> u64 {
    let mut delivered = 0;
    while delivered < count {
        let claimed = claim(store, traffic, 5).await.unwrap();
        assert!(!claimed.is_empty(), "only {delivered} of {count} come");
        deliver(store, traffic, &claimed).await.unwrap();
        delivered += claimed.len();
    }
    delivered as u64
}

#[test]
fn a_store_opens_on_a_full_disk_and_delivers() {
    testkit::block_on(async {
        let disk = PowerDisk::default();
        let traffic = Traffic::default();
        let store = open(&disk, &traffic).await;
        disk.set_room(Some(600 << 10));
        let mut taken = fill(&*store, &traffic, 0).await;
        traffic.pass(10_000);
        // Some are in the hands of the process when it ends.
        let claimed = claim(&*store, &traffic, 3).await.unwrap();
        assert_eq!(claimed.len(), 3);
        // Not one byte more than there is.
        disk.set_room(Some(disk.used()));
        store.abandon();
        let mut delivered = 0;
        for life in 0..2 {
            let store = open(&disk, &traffic).await;
            // Opening removes what was left half made, so there may be room for a few.
            taken += fill(&*store, &traffic, 30_000 + life * 10_000).await;
            delivered += deliver_some(&*store, &traffic, 10).await;
            store.abandon();
        }
        let store = open(&disk, &traffic).await;
        disk.set_room(None);
        insert_when_there_is_room(&*store, &traffic, 20_000).await;
        traffic.pass(10_000_000);
        delivered += drain(&*store, &traffic).await;
        assert_eq!(delivered, taken + 1, "nothing is lost");
    });
}

#[test]
fn a_store_that_cannot_be_opened_for_want_of_room_says_how_much_it_needs() {
    testkit::block_on(async {
        let disk = PowerDisk::default();
        disk.set_room(Some(20 << 10));
        let opened = EmbeddedStore::open("/data", tiny(&disk), Traffic::default().now()).await;
        let error = opened.map(|_| ()).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
        assert!(error.what.contains("free 32 KiB and start again"), "{error}");
        disk.set_room(None);
        open(&disk, &Traffic::default()).await;
    });
}

#[test]
fn health_says_that_the_disk_is_full_and_later_that_it_is_not() {
    testkit::block_on(async {
        let disk = PowerDisk::default();
        let traffic = Traffic::default();
        let store = open(&disk, &traffic).await;
        assert_eq!(store.health().await.whole(), Ok(()));
        disk.set_room(Some(600 << 10));
        fill(&*store, &traffic, 0).await;
        let health = store.health().await;
        assert_eq!(health.accepting.unwrap_err().kind, StoreErrorKind::Full);
        assert_eq!((health.claiming, health.background), (Ok(()), Ok(())), "what is stored still goes out");
        disk.set_room(None);
        insert_when_there_is_room(&*store, &traffic, 20_000).await;
        assert_eq!(store.health().await.whole(), Ok(()));
        store.abandon();
        let closed = store.health().await;
        assert!([closed.accepting, closed.claiming, closed.background].iter().all(Result::is_err));
    });
}

/// Opening a file panics once this is set.
#[derive(Default)]
struct Fragile(AtomicBool);

impl Hooks for Fragile {
    fn open(&self, _: &str) -> io::Result<()> {
        assert!(!self.0.load(SeqCst), "as told");
        Ok(())
    }
}

#[test]
fn health_says_that_a_thread_of_the_store_has_died() {
    testkit::block_on(async {
        let (fragile, traffic) = (Arc::new(Fragile::default()), Traffic::default());
        let disk = PowerDisk::default();
        let options = Options { disk: HookedDisk::on(disk.clone(), fragile.clone()), ..tiny(&disk) };
        let store = EmbeddedStore::open("/data", options, traffic.now()).await.unwrap();
        insert(&store, &traffic, 0, 0).await.unwrap();
        assert_eq!(store.health().await.whole(), Ok(()));
        fragile.0.store(true, SeqCst);
        // The journal needs more segments, which the background thread makes. Without it, inserts wait for ever.
        let filling = async {
            let mut number = 1;
            while insert(&store, &traffic, number, 0).await.is_ok() {
                number += 1;
            }
            std::future::pending::<()>().await;
        };
        let reported = async {
            while store.health().await.background.is_ok() {
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = filling => {}
            () = reported => {}
        }
        let health = store.health().await.background.unwrap_err();
        assert_eq!(health.kind, StoreErrorKind::Closed, "{health}");
    });
}

/// Syncs of the next manifest fail with this error, once there is one.
#[derive(Default)]
struct SyncFails(Mutex<Option<io::ErrorKind>>);

impl Hooks for SyncFails {
    fn sync(&self, name: &str) -> io::Result<()> {
        match *self.0.lock().unwrap() {
            Some(kind) if name == "manifest.new" => Err(kind.into()),
            _ => Ok(()),
        }
    }
}

/// A folder with one message, which was claimed by a process that is gone, on a disk with these hooks.
async fn with_a_claim(hooks: &Arc<SyncFails>, traffic: &Traffic) -> impl Fn() -> Options {
    let (disk, hooks) = (PowerDisk::default(), hooks.clone());
    let options = move || Options { disk: HookedDisk::on(disk.clone(), hooks.clone()), ..tiny(&disk) };
    let store = EmbeddedStore::open("/data", options(), traffic.now()).await.unwrap();
    insert(&store, traffic, 0, 0).await.unwrap();
    assert_eq!(claim(&store, traffic, 1).await.unwrap().len(), 1);
    store.abandon();
    options
}

#[test]
fn a_store_opens_where_only_a_sync_says_that_the_disk_is_full() {
    testkit::block_on(async {
        for kind in [io::ErrorKind::StorageFull, io::ErrorKind::QuotaExceeded] {
            let (hooks, traffic) = (Arc::new(SyncFails::default()), Traffic::default());
            let options = with_a_claim(&hooks, &traffic).await;
            *hooks.0.lock().unwrap() = Some(kind);
            let store = EmbeddedStore::open("/data", options(), traffic.now()).await.unwrap();
            let again = claim(&store, &traffic, 1).await.unwrap();
            assert_eq!(again[0].attempt, 2, "the log of claims is read although no manifest names it");
            deliver(&store, &traffic, &again).await.unwrap();
            assert!(store.totals().await.unwrap().balance());
        }
    });
}

#[test]
fn a_store_does_not_open_where_a_sync_fails_for_another_reason() {
    testkit::block_on(async {
        let (hooks, traffic) = (Arc::new(SyncFails::default()), Traffic::default());
        let options = with_a_claim(&hooks, &traffic).await;
        // As a disk says it that cannot write: an input/output error has no kind of its own.
        *hooks.0.lock().unwrap() = Some(io::ErrorKind::Other);
        let opened = EmbeddedStore::open("/data", options(), traffic.now()).await;
        let error = opened.map(|_| ()).unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        assert!(error.what.contains("into the manifest failed: a sync failed"), "{error}");
        *hooks.0.lock().unwrap() = None;
        let store = EmbeddedStore::open("/data", options(), traffic.now()).await.unwrap();
        assert_eq!(claim(&store, &traffic, 1).await.unwrap()[0].attempt, 2, "and nothing was lost");
    });
}
