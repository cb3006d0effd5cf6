//! The server is killed, sleeps, or is started again: errors say so in time, and it goes on by itself.

use std::{
    collections::HashSet,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
};

use duly_core::{
    MessageId, Record, State, Store,
    store::{Inserted, Settled, StoreError, StoreErrorKind},
};
use duly_stores::SqlStore;

use crate::{
    bed::{claim, deliver, insert, lane, message, messages, now, totals},
    server::{both, until},
};

fn is_unavailable(error: &StoreError) {
    assert!(error.kind.is_transient(), "{error}");
}

/// What those at work have seen.
#[derive(Default)]
struct Ledger {
    stop: AtomicBool,
    accepted: Mutex<HashSet<MessageId>>,
    delivered: Mutex<Vec<MessageId>>,
    errors: AtomicUsize,
}

impl Ledger {
    fn failed(&self, error: &StoreError) {
        is_unavailable(error);
        self.errors.fetch_add(1, Ordering::Relaxed);
    }

    fn goes_on(&self) -> bool {
        !self.stop.load(Ordering::Relaxed)
    }
}

/// Accepts until it is told to stop; what was not answered is sent again until it is.
async fn produce(store: Arc<SqlStore>, ledger: Arc<Ledger>, who: usize) {
    let mut batch = 0;
    while ledger.goes_on() {
        let new: Vec<_> = (0..10).map(|n| message(&format!("w{who}-{batch}-{n}"), 0)).collect();
        match insert(&store, new.clone()).await {
            Ok(answers) => {
                let good = |answer: &Inserted| !matches!(answer, Inserted::Conflict);
                assert!(answers.iter().all(good), "{answers:?}");
                ledger.accepted.lock().unwrap().extend(new.into_iter().map(|message| message.id));
                batch += 1;
            }
            Err(error) => ledger.failed(&error),
        }
    }
}

async fn consume(store: Arc<SqlStore>, ledger: Arc<Ledger>) {
    while ledger.goes_on() {
        let held = match claim(&store, 1, 20).await {
            Ok(claimed) => claimed.messages,
            Err(error) => {
                ledger.failed(&error);
                continue;
            }
        };
        assert!(
            held.iter().all(|leased| leased.attempt == 1),
            "no lease ends in this test, so nothing is lost"
        );
        // Delivered is what the store says was: a settle without an answer is tried again.
        loop {
            match deliver(&store, 1, &held).await {
                Ok(settled) => {
                    let done = held.iter().zip(&settled).filter(|(_, settled)| **settled == Settled::Done);
                    ledger.delivered.lock().unwrap().extend(done.map(|(held, _)| held.message.id.clone()));
                    break;
                }
                Err(error) => ledger.failed(&error),
            }
        }
        tokio::task::yield_now().await;
    }
}

both! {
    fn a_server_that_is_killed_under_load_loses_nothing_and_does_nothing_twice(bed: own) {
        let (one, two) = (Arc::new(bed.store(1).await), Arc::new(bed.store(2).await));
        let ledger = Arc::new(Ledger::default());
        let mut work: Vec<_> = [&one, &two]
            .into_iter()
            .enumerate()
            .flat_map(|(who, store)| {
                [
                    tokio::spawn(produce(store.clone(), ledger.clone(), who)),
                    tokio::spawn(consume(store.clone(), ledger.clone())),
                ]
            })
            .collect();
        let has = |count: usize| ledger.delivered.lock().unwrap().len() >= count;
        for round in 1..=2 {
            until("there is some traffic", || has(round * 50)).await;
            let before = ledger.delivered.lock().unwrap().len();
            tokio::task::block_in_place(|| {
                bed.kill();
                bed.start();
            });
            until("it goes on by itself", || has(before + 100)).await;
        }
        ledger.stop.store(true, Ordering::Relaxed);
        for work in work.drain(..) {
            work.await.unwrap();
        }
        // What was claimed without an answer comes back, what is left is delivered.
        for _ in 0..1_000 {
            for store in [&one, &two] {
                store.sweep(now(2), &[lane("work")]).await.unwrap();
            }
            if totals(&one).await.in_flight == 0 {
                break;
            }
        }
        while let held = claim(&one, 3, 100).await.unwrap().messages
            && !held.is_empty()
        {
            deliver(&one, 3, &held).await.unwrap();
            ledger.delivered.lock().unwrap().extend(held.into_iter().map(|held| held.message.id));
        }
        let totals = totals(&one).await;
        assert_eq!((totals.pending, totals.in_flight, totals.delivered), (0, 0, totals.accepted), "{totals:?}");
        let accepted: Vec<_> = ledger.accepted.lock().unwrap().iter().cloned().collect();
        let records = one.get(&accepted).await.unwrap();
        let is_delivered = |record: &Option<Record>| record.as_ref().is_some_and(|record| record.state == State::Delivered);
        assert!(records.iter().all(is_delivered), "nothing is lost");
        let delivered = ledger.delivered.lock().unwrap();
        let once: HashSet<_> = delivered.iter().collect();
        assert_eq!(once.len(), delivered.len(), "nothing is twice");
    }

    fn a_server_that_is_down_is_unavailable_in_time_and_is_found_again(bed: own) {
        let store = bed.store(1).await;
        insert(&store, messages(20)).await.unwrap();
        let held = claim(&store, 1, 5).await.unwrap().messages;
        tokio::task::block_in_place(|| bed.kill());
        let (inserted, claimed, settled, swept) = tokio::join!(
            insert(&store, vec![message("new", 0)]),
            claim(&store, 1, 5),
            deliver(&store, 1, &held),
            async { store.sweep(now(1), &[lane("work")]).await },
        );
        let inserted = inserted.unwrap_err();
        assert_eq!(inserted.kind, StoreErrorKind::Unavailable, "no commit was sent: {inserted}");
        for error in [claimed.unwrap_err(), settled.unwrap_err(), swept.unwrap_err()] {
            is_unavailable(&error);
        }
        tokio::task::block_in_place(|| bed.start());
        assert_eq!(deliver(&store, 2, &held).await.unwrap(), [Settled::Done; 5]);
        assert_eq!(claim(&store, 2, 100).await.unwrap().messages.len(), 15);
        let totals = totals(&store).await;
        assert_eq!((totals.accepted, totals.delivered, totals.in_flight), (20, 5, 15));
    }

    fn a_server_that_sleeps_is_unavailable_in_time_and_goes_on_where_it_was(bed: own) {
        let store = bed.store(1).await;
        insert(&store, messages(20)).await.unwrap();
        let held = claim(&store, 1, 5).await.unwrap().messages;
        bed.pause();
        let (inserted, claimed, settled, swept) = tokio::join!(
            insert(&store, vec![message("new", 0)]),
            claim(&store, 1, 5),
            deliver(&store, 1, &held),
            async { store.sweep(now(1), &[lane("work")]).await },
        );
        for error in [inserted.unwrap_err(), claimed.unwrap_err(), settled.unwrap_err(), swept.unwrap_err()] {
            is_unavailable(&error);
        }
        bed.cont();
        // What was sent before it slept may come true when it wakes, and then it is as if it had been answered.
        assert_eq!(insert(&store, vec![message("new", 0)]).await.unwrap().len(), 1);
        // What the server still does for a claim of before keeps its rows for a moment: then a later sweep hands them back.
        for _ in 0..1_000 {
            store.sweep(now(2), &[lane("work")]).await.unwrap();
            if totals(&store).await.in_flight <= held.len() as u64 {
                break;
            }
        }
        let settled = deliver(&store, 2, &held).await.unwrap();
        let delivered = totals(&store).await.delivered;
        assert_eq!(delivered, 5, "{settled:?}");
        let rest = claim(&store, 2, 100).await.unwrap().messages;
        assert!(rest.iter().all(|leased| leased.attempt == 1));
        assert_eq!(rest.len(), 16, "what was claimed for nobody came back");
        assert_eq!(totals(&store).await.accepted, 21);
    }
}
