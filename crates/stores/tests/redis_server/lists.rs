//! Pages and sweeps where there is more than one look can take.

use std::time::Duration;

use duly_core::{
    Attempt, Outcome, Priority, State, Store,
    store::{Query, Settle, Settlement},
};
use testkit::{block_on, servers::redis};

use crate::bed::{claim, insert, lane, message, message_in, ms, now, single};

async fn listed(store: &duly_stores::RedisStore, mut query: Query) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..10_000 {
        let page = store.list(&query).await.unwrap();
        assert!(page.records.len() <= query.limit);
        ids.extend(page.records.iter().map(|record| record.message.id.to_string()));
        match page.next {
            Some(next) => {
                assert!(query.after.is_none_or(|after| after < next), "a page that leads nowhere");
                query.after = Some(next);
            }
            None => return ids,
        }
    }
    panic!("a list without end");
}

#[test]
fn pages_go_through_a_burst_in_one_millisecond_of_every_priority() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (_server, store) = single().await;
        let burst = (0..600).map(|n| {
            let mut message = message_in(if n % 3 == 0 { "work" } else { "mail" }, &format!("m{n:03}"), 500);
            message.priority = Priority::new((n * 7 % 10) as u8).unwrap();
            message
        });
        insert(&store, burst.collect()).await.unwrap();
        insert(&store, vec![message("before", 499), message("z-behind", 501)]).await.unwrap();
        let mut expected: Vec<_> = (0..600).map(|n| format!("m{n:03}")).collect();
        expected.insert(0, "before".into());
        expected.push("z-behind".into());
        for limit in [1, 7, 100, 1000] {
            assert_eq!(
                listed(&store, Query { limit, ..Query::all(State::Pending) }).await,
                expected,
                "{limit}"
            );
        }
        let within =
            Query { due_from: Some(ms(500)), due_to: Some(ms(501)), limit: 7, ..Query::all(State::Pending) };
        assert_eq!(listed(&store, within.clone()).await, expected[1..601]);
        let topic = Some("work".parse().unwrap());
        let of_topic = Query { topic, sink: Some("queue".parse().unwrap()), ..within };
        let third: Vec<_> = (0..600).step_by(3).map(|n| format!("m{n:03}")).collect();
        assert_eq!(listed(&store, of_topic).await, third);
    });
}

#[test]
fn what_waits_for_its_next_try_is_listed_by_its_due_time() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (_server, store) = single().await;
        insert(&store, (0..50).map(|n| message(&format!("m{n:02}"), n)).collect()).await.unwrap();
        let leased = claim(&store, 100, 50).await.unwrap().messages;
        assert_eq!(leased.len(), 50);
        let retry = leased.iter().step_by(2).map(|leased| Settle {
            receipt: leased.receipt.clone(),
            settlement: Settlement::Retry {
                at: ms(60_000),
                attempt: Attempt::new(ms(100), Outcome::Failed, ""),
            },
        });
        let back = leased.iter().skip(1).step_by(2);
        let back =
            back.map(|leased| Settle { receipt: leased.receipt.clone(), settlement: Settlement::Release });
        store.settle(now(100), retry.chain(back).collect()).await.unwrap();
        let expected: Vec<_> = (0..50).map(|n| format!("m{n:02}")).collect();
        for limit in [1, 3, 50] {
            assert_eq!(
                listed(&store, Query { limit, ..Query::all(State::Pending) }).await,
                expected,
                "{limit}"
            );
        }
    });
}

#[test]
fn a_sweep_over_more_lanes_than_one_look_names_them_all() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (_server, store) = single().await;
        let topic = |n: u64| format!("a rather long name of topic {n:04}");
        let batch = (0..3000u64).map(|n| message_in(&topic(n), &format!("m{n}"), 10_000 + n));
        insert(&store, batch.collect()).await.unwrap();
        let lanes: Vec<_> = (0..3000).map(|n| lane(&topic(n))).collect();
        // Before anything is due, within it, and when all is overdue.
        for at in [0, 11_000, 60_000] {
            let sweep = store.sweep(now(at), &lanes).await.unwrap();
            assert_eq!(sweep.next.len(), 3000);
            for (n, (lane, next)) in (0..).zip(&sweep.next) {
                assert!(*lane == lanes[n as usize] && *next <= ms(10_000 + n), "{lane} at {next}");
            }
        }
        let statuses = store.lanes(now(11_000)).await.unwrap();
        assert_eq!(statuses.len(), 3000);
        assert_eq!(statuses.iter().map(|status| status.ready).sum::<u64>(), 1001);
        let all = Query { limit: 500, ..Query::all(State::Pending) };
        assert_eq!(listed(&store, all).await.len(), 3000);
    });
}

#[test]
fn a_forecast_counts_by_the_minute_and_by_the_hour() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (_server, store) = single().await;
        let minute = 60_000;
        insert(&store, (0..120).map(|n| message(&format!("m{n}"), n * minute + 7)).collect()).await.unwrap();
        let by_minute = store.forecast(ms(0), ms(10 * minute), 5).await.unwrap();
        assert_eq!(by_minute, [2; 5]);
        let by_hour = store.forecast(ms(0), ms(4 * 60 * minute), 4).await.unwrap();
        assert_eq!(by_hour, [60, 60, 0, 0]);
        let years = store
            .forecast(ms(0), ms(0).saturating_add(Duration::from_secs(3650 * 86_400)), 10)
            .await
            .unwrap();
        assert_eq!(years, [120, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
    });
}
