//! One message, one lane or one bucket never stops the others: what is damaged is set aside, and shares are fair.

mod gate;

use std::{
    path::{Path, PathBuf},
    task::Poll,
    time::Duration,
};

use duly_core::{
    Attempt, Body, DeadReason, Lane, Now, Outcome, State, Store, StoredMessage, Topic,
    store::{
        Changed, Claim, Claimed, Holder, Insert, Inserted, Query, Settle, Settled, Settlement, StoreError,
        StoreErrorKind,
    },
};
use duly_stores::{EmbeddedStore, embedded::Options};

use crate::folder::{copy, flip, id, insert, message, names, now, open, small};
use gate::Gate;

fn lane(topic: &str) -> Lane {
    Lane::Queue(Topic::parse(topic).unwrap())
}

/// A message of another topic than [`message`] gives.
fn of_topic(topic: &str, number: u64, due: u64, body: usize) -> StoredMessage {
    StoredMessage { topic: Topic::parse(topic).unwrap(), ..message(number, due, body) }
}

fn with_properties(number: u64, count: usize) -> StoredMessage {
    let mut message = message(number, 0, 20);
    for at in 0..count {
        message.properties.set(&format!("p{at}"), &format!("v{at}")).unwrap();
    }
    message
}

async fn claim(store: &EmbeddedStore, topic: &str, limit: usize, now: Now) -> Result<Claimed, StoreError> {
    let claim = Claim { lane: lane(topic), limit, lease: Duration::from_secs(60), holder: Holder::Client };
    store.claim(now, claim).await
}

/// The numbers of what a claim gives.
async fn claimed(store: &EmbeddedStore, topic: &str, now: Now) -> Vec<String> {
    let claimed = claim(store, topic, 100, now).await.unwrap();
    claimed.messages.iter().map(|leased| leased.message.id.to_string()).collect()
}

/// The file whose name `is_one` and that holds `text`, and where.
fn find(folder: &Path, text: &str, is_one: fn(&str) -> bool) -> (PathBuf, usize) {
    for name in names(folder).into_iter().filter(|name| is_one(name)) {
        let bytes = std::fs::read(folder.join(&name)).unwrap();
        if let Some(at) = bytes.windows(text.len()).position(|window| window == text.as_bytes()) {
            return (folder.join(name), at);
        }
    }
    panic!("{text} is nowhere");
}

fn is_table(name: &str) -> bool {
    name.ends_with(".data")
}

fn content(number: u64) -> String {
    format!("content of number {number}")
}

async fn insert_three(store: &EmbeddedStore, due: u64) {
    for number in 0..3 {
        let body = Body::text(content(number));
        insert(store, StoredMessage { body, ..message(number, due, 0) }).await;
    }
}

async fn sweep(store: &EmbeddedStore, now: Now) {
    store.sweep(now, &[lane("work")]).await.unwrap();
}

#[test]
fn a_message_with_more_properties_than_a_byte_counts_comes_back_whole() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await.unwrap();
        for (number, count) in (0..).zip([0, 1, 255, 256, 257, 1_024]) {
            insert(&store, with_properties(number, count)).await;
        }
        store.close().await.unwrap();
        let store = open(folder.path()).await.unwrap();
        let claimed = claim(&store, "work", 100, now(1)).await.unwrap().messages;
        let counts: Vec<usize> = claimed.iter().map(|leased| leased.message.properties.len()).collect();
        assert_eq!(counts, [0, 1, 255, 256, 257, 1_024]);
        // Their heads are too large to be held in memory: they are read again when they are delivered, and kept whole.
        let done = claimed.iter().map(|leased| {
            let settlement = Settlement::Delivered { receipt: None };
            Settle { receipt: leased.receipt.clone(), settlement }
        });
        let settled = store.settle(now(2), done.collect()).await.unwrap();
        assert!(settled.iter().all(|settled| *settled == Settled::Done));
        let record = store.get(&[id(5)]).await.unwrap().remove(0).unwrap();
        assert_eq!((record.state, record.message.properties.len()), (State::Delivered, 1_024));
        // Delivered is delivered, also after a crash and after an orderly end.
        store.abandon();
        for _ in 0..2 {
            let store = open(folder.path()).await.unwrap();
            let totals = store.totals().await.unwrap();
            assert!(totals.balance() && (totals.delivered, totals.pending) == (6, 0), "{totals:?}");
            assert!(claim(&store, "work", 100, now(3)).await.unwrap().messages.is_empty());
            store.close().await.unwrap();
        }
    });
}

#[test]
fn a_message_that_cannot_be_written_down_is_refused() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await.unwrap();
        for (name, value) in [("n".repeat(256), "v".to_owned()), ("n".to_owned(), "v".repeat(1 << 16))] {
            let mut message = message(1, 0, 10);
            message.properties.put(&name, &value);
            let error = store.insert(now(0), vec![Insert::new(message)]).await.unwrap_err();
            assert_eq!(error.kind, StoreErrorKind::TooLarge, "{error}");
        }
        assert_eq!(store.totals().await.unwrap().accepted, 0);
    });
}

/// Opens and closes the store: then the journal no longer has what a damaged table could be mended with.
async fn forget_journal(folder: &Path) {
    open(folder).await.unwrap().close().await.unwrap();
}

/// Three messages in a bucket.
async fn bucket_of_three() -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    let store = open(folder.path()).await.unwrap();
    insert_three(&store, 60_000).await;
    store.close().await.unwrap();
    forget_journal(folder.path()).await;
    folder
}

#[test]
fn a_flipped_bit_in_a_bucket_sets_one_message_aside_and_no_other() {
    testkit::block_on(async {
        let folder = bucket_of_three().await;
        let (path, at) = find(folder.path(), &content(1), is_table);
        flip(&path, at + 3);
        let store = open(folder.path()).await.unwrap();
        assert_eq!(claimed(&store, "work", now(61)).await, ["m0", "m2"]);
        // Other lanes go on, and so does what comes later.
        insert(&store, of_topic("other", 9, 0, 10)).await;
        assert_eq!(claimed(&store, "other", now(62)).await, ["m9"]);
        let totals = store.totals().await.unwrap();
        assert!(totals.balance() && totals.pending == 1, "{totals:?}");
        assert_eq!(store.metrics().damaged, 1);
        // The sweep makes a dead letter of it, with what could be read.
        sweep(&store, now(62)).await;
        let check = async |store: &EmbeddedStore| {
            let totals = store.totals().await.unwrap();
            assert!(totals.balance() && (totals.pending, totals.dead) == (0, 1), "{totals:?}");
            let record = store.get(&[id(1)]).await.unwrap().remove(0).unwrap();
            assert_eq!((record.state, record.reason), (State::Dead, Some(DeadReason::Damaged)));
            assert_eq!(record.message.body.len(), "content of number 1".len());
            assert!(record.history[0].detail.contains("cannot be read"), "{:?}", record.history);
            assert_eq!(store.list(&Query::all(State::Dead)).await.unwrap().records.len(), 1);
        };
        check(&store).await;
        // It stays one after a crash, is not replayed, and can be purged.
        store.abandon();
        let store = open(folder.path()).await.unwrap();
        check(&store).await;
        assert_eq!(store.replay(now(63), &[id(1)]).await.unwrap(), [Changed::TooLate(State::Dead)]);
        let purged = store.purge(now(63), &[id(1)]).await.unwrap();
        assert!(matches!(purged[0], Changed::Done { .. }));
        let totals = store.totals().await.unwrap();
        assert!(totals.balance() && (totals.dead, totals.purged) == (0, 1), "{totals:?}");
        store.close().await.unwrap();
        assert!(open(folder.path()).await.unwrap().totals().await.unwrap().balance());
    });
}

#[test]
fn a_flipped_bit_anywhere_in_a_bucket_never_stops_the_other_messages() {
    testkit::block_on(async {
        let whole = bucket_of_three().await;
        let (path, first) = find(whole.path(), &content(0), is_table);
        let (_, second) = find(whole.path(), &content(1), is_table);
        let len = second - first;
        for at in (len..2 * len).step_by(3) {
            let folder = copy(whole.path());
            flip(&folder.path().join(path.file_name().unwrap()), at);
            let store = open(folder.path()).await.unwrap();
            let came = claimed(&store, "work", now(61)).await;
            assert!(came.contains(&"m0".into()) && came.contains(&"m2".into()), "byte {at}: {came:?}");
            sweep(&store, now(62)).await;
            let totals = store.totals().await.unwrap();
            assert!(totals.balance() && totals.accepted == 3, "byte {at}: {totals:?}");
            assert_eq!(came.len() as u64 + store.metrics().damaged, 3, "byte {at}: {came:?}");
        }
    });
}

/// Ends the leases of three messages, of which the middle one is damaged.
async fn end_three_leases(store: &EmbeddedStore) {
    insert(store, of_topic("other", 9, 0, 10)).await;
    assert_eq!(claimed(store, "other", now(120)).await, ["m9"]);
    sweep(store, now(121)).await;
    // Lost ones come alone.
    let mut came = Vec::new();
    while let [leased] = &*claim(store, "work", 10, now(122)).await.unwrap().messages {
        came.push((leased.message.id.to_string(), leased.attempt));
    }
    assert_eq!(came, [("m0".to_owned(), 2), ("m2".to_owned(), 2)]);
    sweep(store, now(123)).await;
    let record = store.get(&[id(1)]).await.unwrap().remove(0).unwrap();
    assert_eq!(record.reason, Some(DeadReason::Damaged));
    assert_eq!(store.metrics().damaged, 1);
    let totals = store.totals().await.unwrap();
    assert!(totals.balance() && totals.dead == 1, "{totals:?}");
}

#[test]
fn a_damaged_message_whose_lease_ends_costs_the_others_nothing() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await.unwrap();
        insert_three(&store, 0).await;
        assert_eq!(claimed(&store, "work", now(1)).await.len(), 3);
        let (path, at) = find(folder.path(), &content(1), |name| name.starts_with("journal"));
        flip(&path, at);
        end_three_leases(&store).await;
    });
}

#[test]
fn a_claimed_message_that_is_damaged_does_not_keep_the_store_from_opening() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await.unwrap();
        insert_three(&store, 0).await;
        assert_eq!(claimed(&store, "work", now(1)).await.len(), 3);
        // A client's claims outlive the process, and their entries now lie in a table.
        store.close().await.unwrap();
        forget_journal(folder.path()).await;
        let (path, at) = find(folder.path(), &content(1), is_table);
        flip(&path, at);
        end_three_leases(&open(folder.path()).await.unwrap()).await;
    });
}

#[test]
fn a_lane_that_acknowledges_nothing_leaves_room_for_every_other() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let options = Options { in_flight_max: 400, ..Options::small() };
        let store = EmbeddedStore::open(folder.path(), options, now(0)).await.unwrap();
        let topics: Vec<String> = (0..8).map(|number| format!("greedy-{number}")).collect();
        let mut number = 0;
        for topic in &topics {
            let batch = (0..300).map(|_| {
                number += 1;
                Insert::new(of_topic(topic, number, 0, 10))
            });
            let answers = store.insert(now(0), batch.collect()).await.unwrap();
            assert!(answers.iter().all(|answer| *answer == Inserted::Accepted));
        }
        for topic in &topics {
            let mut held = 0;
            let error = loop {
                match claim(&store, topic, 100, now(1)).await {
                    Ok(claimed) => {
                        assert!(!claimed.messages.is_empty(), "{topic} gives nothing and says nothing");
                        held += claimed.messages.len();
                    }
                    Err(error) => break error,
                }
            };
            assert_eq!(error.kind, StoreErrorKind::TooManyInFlight, "{error}");
            assert!((64..=200).contains(&held), "{topic} holds {held}");
        }
        // A handler of the same queue is not told of an error: it waits for the next sweep.
        let lane = lane(&topics[0]);
        let claim = Claim { lane, limit: 10, lease: Duration::from_secs(60), holder: Holder::Process };
        let waits = store.claim(now(1), claim).await.unwrap();
        assert!(waits.messages.is_empty() && waits.next.is_none());
        assert!(store.totals().await.unwrap().balance());
    });
}

#[test]
fn a_backlog_that_cannot_be_read_for_a_while_loses_nothing() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let gate = Gate::default();
        let options = Options { disk: gate.disk(), ..small() };
        let store = EmbeddedStore::open(folder.path(), options, now(0)).await.unwrap();
        // More than fits in memory: the rest waits in runs, beginning with what is due last.
        for number in 0..400 {
            insert(&store, message(number, number, 1_000)).await;
        }
        let mut came = std::collections::BTreeMap::new();
        for round in 0..2_000 {
            if came.len() == 400 {
                break;
            }
            // Twice out of three times nothing can be read from a run; after a while everything can, and time has passed.
            gate.fail_reads(round % 3 != 2 && round < 1_000);
            let now = if round < 1_000 { now(10) } else { now(25) };
            match claim(&store, "work", 7, now).await {
                Ok(claimed) => {
                    came.extend(claimed.messages.into_iter().map(|one| (one.message.id, one.attempt)));
                }
                Err(error) => assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}"),
            }
        }
        assert!(gate.failed() > 0, "no read of a run failed");
        let totals = store.totals().await.unwrap();
        assert_eq!((came.len(), totals.in_flight, totals.pending), (400, 400, 0));
        assert!(came.values().all(|attempt| *attempt == 1), "a try was counted that never was: {came:?}");
        let lanes = store.lanes(now(25)).await.unwrap();
        assert_eq!((lanes[0].in_flight, lanes[0].pending), (400, 0));
    });
}

#[test]
fn a_claimed_message_that_cannot_be_read_for_a_while_holds_up_no_other_verdict() {
    testkit::block_on(async {
        let folder = bucket_of_three().await;
        let gate = Gate::default();
        let options = Options { disk: gate.disk(), ..small() };
        let store = EmbeddedStore::open(folder.path(), options, now(0)).await.unwrap();
        insert(&store, of_topic("other", 9, 0, 10)).await;
        let mut came = claim(&store, "work", 2, now(61)).await.unwrap().messages;
        came.extend(claim(&store, "other", 10, now(61)).await.unwrap().messages);
        let ids: Vec<String> = came.iter().map(|leased| leased.message.id.to_string()).collect();
        assert_eq!(ids, ["m0", "m1", "m9"]);
        // The first lies in a table and is to be written again; the others need no table.
        let attempt = Attempt::new(now(61).wall(), Outcome::Failed, "not now");
        let retry = Settlement::Retry { at: now(62).wall(), attempt };
        let settlements = [retry.clone(), Settlement::Delivered { receipt: None }, retry];
        let batch = came.iter().zip(settlements).map(|(leased, settlement)| {
            let receipt = leased.receipt.clone();
            Settle { receipt, settlement }
        });
        gate.fail_reads(true);
        let settled = store.settle(now(61), batch.collect()).await.unwrap();
        gate.fail_reads(false);
        assert!(gate.failed() > 0, "no read of a table failed");
        assert_eq!(settled, [Settled::Lost, Settled::Done, Settled::Done]);
        assert_eq!(claimed(&store, "other", now(63)).await, ["m9"]);
        // It comes again once its lease has ended.
        assert_eq!(claimed(&store, "work", now(63)).await, ["m2"]);
        assert_eq!(claimed(&store, "work", now(122)).await, ["m0"]);
        assert!(store.totals().await.unwrap().balance());
    });
}

#[test]
fn a_large_bucket_on_its_way_holds_up_no_lane() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let store = open(folder.path()).await.unwrap();
        // Six times what is read at once, all due in one second.
        for number in 0..50 {
            insert(&store, of_topic("bulk", number, 10_000, 1_000)).await;
        }
        store.close().await.unwrap();
        let gate = Gate::default();
        let options = Options { disk: gate.disk(), ..small() };
        let store = EmbeddedStore::open(folder.path(), options, now(0)).await.unwrap();
        gate.close_after(2);
        sweep(&store, now(20)).await;
        gate.reached().await;
        // In the middle of it, something of another lane is due in the same second.
        insert(&store, of_topic("other", 99, 10_000, 10)).await;
        let mut other = Box::pin(claim(&store, "other", 10, now(20)));
        let first = std::future::poll_fn(|context| Poll::Ready(other.as_mut().poll(context))).await;
        gate.open();
        let Poll::Ready(claimed) = first else { panic!("the claim waits for another lane's messages") };
        assert_eq!(claimed.unwrap().messages[0].message.id, id(99));
        drop(other);
        let mut came = 0;
        while came < 50 {
            came += claim(&store, "bulk", 100, now(21)).await.unwrap().messages.len();
        }
    });
}
