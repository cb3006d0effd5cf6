//! Connections: one is enough, none is lost, and no transaction stays open.

use std::sync::{Arc, Mutex};

use duly_core::{
    State, Store,
    store::{Changed, Inserted, Query, Settled},
};
use duly_stores::{SqlStore, sql::Options};

use crate::{
    bed::{bury, claim, deliver, id, insert, lane, message, messages, ms, now, state, totals},
    server::{both, until},
};

const DONE: Changed = Changed::Done { maybe_delivered: false };

fn one_connection() -> Options {
    Options { connections: 1, ..Options::new(1) }
}

/// Every call there is, under ids that begin with `name`.
async fn walk(store: &SqlStore, name: &str) {
    let id_of = |n: usize| id(&format!("{name}-{n}"));
    let new = |n: usize| duly_core::StoredMessage {
        topic: duly_core::Topic::parse(name).unwrap(),
        ..message(&format!("{name}-{n}"), 0)
    };
    let accepted = insert(store, (0..6).map(new).collect()).await.unwrap();
    assert_eq!(accepted, [const { Inserted::Accepted }; 6]);
    let again = insert(store, (0..6).map(new).collect()).await.unwrap();
    assert!(again.iter().all(|known| matches!(known, Inserted::Duplicate { .. })));
    assert_eq!(store.cancel(now(1), &[id_of(0)]).await.unwrap(), [DONE]);
    assert_eq!(store.reschedule(now(1), &[(id_of(1), ms(1))]).await.unwrap(), [DONE]);
    let all = duly_core::store::Claim {
        lane: lane(name),
        limit: 10,
        lease: crate::bed::LEASE,
        holder: duly_core::store::Holder::Client,
    };
    let held = store.claim(now(2), all).await.unwrap().messages;
    assert_eq!(held.len(), 5);
    let receipts: Vec<_> = held.iter().map(|leased| leased.receipt.clone()).collect();
    assert_eq!(store.extend(now(2), &receipts, crate::bed::LEASE).await.unwrap(), [Settled::Done; 5]);
    assert_eq!(deliver(store, 3, &held[..3]).await.unwrap(), [Settled::Done; 3]);
    bury(store, 3, &held[3..]).await;
    assert_eq!(store.replay(now(4), &[held[3].message.id.clone()]).await.unwrap(), [DONE]);
    assert_eq!(store.purge(now(4), &[held[4].message.id.clone()]).await.unwrap(), [DONE]);
    store.set_paused(&lane(name), true).await.unwrap();
    store.sweep(now(5), &[lane(name)]).await.unwrap();
    store.set_paused(&lane(name), false).await.unwrap();
    assert!(store.lanes(now(5)).await.unwrap().iter().any(|status| status.lane == lane(name)));
    assert!(!store.list(&Query::all(State::Delivered)).await.unwrap().records.is_empty());
    assert_eq!(store.forecast(ms(0), ms(60_000), 1).await.unwrap().len(), 1);
    assert!(!store.nodes().await.unwrap().is_empty());
    store.totals().await.unwrap();
}

both! {
    fn one_connection_is_enough_for_everything(bed: shared) {
        let store = bed.store_with(one_connection()).await;
        walk(&store, "alone").await;
        totals(&store).await;
        store.close().await.unwrap();
    }

    fn one_connection_is_enough_for_sixteen_callers_at_once(bed: shared) {
        let store = Arc::new(bed.store_with(one_connection()).await);
        let callers: Vec<_> = (0..16)
            .map(|n| {
                let store = store.clone();
                tokio::spawn(async move { walk(&store, &format!("t{n}")).await })
            })
            .collect();
        for caller in callers {
            caller.await.unwrap();
        }
        let totals = totals(&store).await;
        assert_eq!((totals.accepted, totals.delivered, totals.purged), (96, 48, 16));
    }

    fn a_call_that_is_given_up_at_any_point_leaves_no_transaction_and_no_connection_behind(bed: own) {
        let store = bed.store_with(one_connection()).await;
        insert(&store, messages(50)).await.unwrap();
        // Each time it gets a little further before nobody waits for it any more.
        let mut polls = 0;
        let in_flight = Mutex::new(Vec::new());
        loop {
            let new: Vec<_> = (0..3).map(|n| message(&format!("p{polls}-{n}"), 0)).collect();
            let call = async {
                insert(&store, new).await.unwrap();
                let held = claim(&store, 1, 5).await.unwrap().messages;
                in_flight.lock().unwrap().extend(held.iter().cloned());
                deliver(&store, 1, &held).await.unwrap();
                store.sweep(now(1), &[lane("work")]).await.unwrap();
            };
            if given_up_after(polls, call).await {
                break;
            }
            polls += 1;
        }
        // Four calls, each of which waits for the server at least once.
        assert!(polls >= 4, "{polls}");
        bed.nobody_is_at_work().await;
        let connections = bed.words(
            "SELECT COUNT(*) FROM information_schema.processlist WHERE db = DATABASE() AND id <> CONNECTION_ID()",
            "SELECT COUNT(*) FROM pg_stat_activity WHERE application_name = 'duly'",
        );
        until("the connections that were given up are closed", || bed.sql(connections).parse::<u32>().unwrap() <= 1).await;
        // What was claimed for nobody is released, what was claimed for somebody is theirs.
        store.sweep(now(2), &[lane("work")]).await.unwrap();
        deliver(&store, 2, &in_flight.into_inner().unwrap()).await.unwrap();
        let totals = totals(&store).await;
        assert_eq!(totals.in_flight, 0, "{totals:?}");
        assert_eq!(state(&store, &format!("p{polls}-0")).await, Some(State::Pending));
    }
}

/// Goes on with the work that often and then drops it. Returns whether it was done before.
async fn given_up_after(polls: u32, work: impl Future<Output = ()>) -> bool {
    let mut work = Box::pin(work);
    let mut left = polls;
    std::future::poll_fn(move |context| {
        if work.as_mut().poll(context).is_ready() {
            return std::task::Poll::Ready(true);
        }
        if left == 0 {
            return std::task::Poll::Ready(false);
        }
        left -= 1;
        std::task::Poll::Pending
    })
    .await
}
