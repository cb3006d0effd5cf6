//! D6: streams are kept short, and never at the cost of somebody who has not read.

use std::time::Duration;

use duly_streams::{Entry, Settings, Trim, Unacknowledged};
use redis::streams::StreamRangeReply;
use tokio::sync::mpsc;

use crate::{Order, next, quick, server::both, wait_until};

fn done() -> impl Fn(Entry<Order>) -> std::future::Ready<Result<(), String>> + Send + Sync + 'static {
    |_| std::future::ready(Ok(()))
}

#[tokio::test(flavor = "multi_thread")]
async fn trimming_never_passes_what_a_group_has_not_acknowledged_and_names_who_holds_it_up() {
    for server in both() {
        let trim = Trim { max_len: Some(10), ..Trim::default() };
        let streams = server.connect(Settings { trim, ..quick() }).await;
        server.of("order").run::<()>(&["XGROUP", "CREATE", "order", "slow", "0", "MKSTREAM"]);
        let (reported, mut telling) = mpsc::unbounded_channel();
        streams
            .listener("order", done())
            .on_stalled(move |stalled| drop(reported.send(stalled.clone())))
            .start()
            .await
            .unwrap();
        let orders: Vec<_> = (0..700).map(|number| Order { number }).collect();
        for sent in streams.send_batch("order", &orders).await.unwrap() {
            sent.unwrap();
        }
        let mut stalled = next(&mut telling).await;
        while !stalled.blocks_trimming {
            stalled = next(&mut telling).await;
        }
        assert_eq!((stalled.event.as_str(), stalled.group.as_str()), ("order", "slow"));
        wait_until("all are handled", || server.pending("order", "duly-streams") == 0);
        assert_eq!(server.len("order"), 700, "the other group has read nothing");

        // It reads all and acknowledges all but one in the middle.
        let read: Vec<(String, StreamRangeReply)> =
            server.of("order").run(&["XREADGROUP", "GROUP", "slow", "me", "STREAMS", "order", ">"]);
        let ids: Vec<&str> = read[0].1.ids.iter().map(|entry| entry.id.as_str()).collect();
        let others = ids.iter().enumerate().filter(|(at, _)| *at != 600).map(|(_, id)| *id);
        let words: Vec<&str> = ["XACK", "order", "slow"].into_iter().chain(others).collect();
        assert_eq!(server.of("order").run::<usize>(&words), 699);
        wait_until("what both have done is gone", || server.len("order") == 100);
        server.of("order").run::<usize>(&["XACK", "order", "slow", ids[600]]);
        wait_until("the rest went, too", || server.len("order") == 10);
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn of_several_groups_that_need_an_entry_the_one_that_is_furthest_behind_is_named() {
    for server in both() {
        let trim = Trim { max_len: Some(10), ..Trim::default() };
        let settings = Settings { trim, processing_timeout: Duration::from_secs(60), ..quick() };
        let streams = server.connect(settings).await;
        server.of("order").run::<()>(&["XGROUP", "CREATE", "order", "slow", "0", "MKSTREAM"]);
        for number in 0..50 {
            streams.send("order", &Order { number }).await.unwrap();
        }
        let (reported, mut telling) = mpsc::unbounded_channel();
        let (go, removed) = tokio::sync::watch::channel(false);
        // It has the first entry in hand, as a busy one has.
        let busy = move |_: Entry<Order>| {
            let mut removed = removed.clone();
            async move { removed.wait_for(|go| *go).await.map(drop).map_err(|_| "nobody lets it go") }
        };
        streams
            .listener("order", busy)
            .on_stalled(move |stalled| drop(reported.send(stalled.clone())))
            .start()
            .await
            .unwrap();
        let stalled = next(&mut telling).await;
        assert_eq!((stalled.group.as_str(), stalled.entries, stalled.blocks_trimming), ("slow", 40, true));
        server.of("order").run::<()>(&["XGROUP", "SETID", "order", "slow", "$"]);
        let stalled = next(&mut telling).await;
        assert_eq!((stalled.group.as_str(), stalled.blocks_trimming), ("duly-streams", true));
        assert_eq!(server.len("order"), 50);
        go.send_replace(true);
        wait_until("what both have done is gone", || server.len("order") == 10);
        streams.shutdown().await.unwrap();
        assert!(telling.try_recv().is_err(), "once a minute at most");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_stream_is_trimmed_by_age() {
    for server in both() {
        let trim = Trim { max_age: Some(Duration::from_secs(3600)), ..Trim::default() };
        let streams = server.connect(Settings { trim, ..quick() }).await;
        // Sent in 1970, and now.
        for number in 1..=5 {
            let id = format!("{number}-0");
            server.of("order").run::<()>(&["XADD", "order", &id, "body", r#"{"number":1}"#]);
        }
        streams.send("order", &Order { number: 6 }).await.unwrap();
        streams.listener("order", done()).start().await.unwrap();
        wait_until("the old ones are gone", || server.len("order") == 1);
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_trimmed_away_while_it_is_pending_is_reported() {
    for server in both() {
        let trim = Trim { max_len: Some(1), unacknowledged: Unacknowledged::Drop, ..Trim::default() };
        let streams = server.connect(quick()).await;
        let (lost, mut losing) = mpsc::unbounded_channel();
        let (begun, mut beginning) = mpsc::unbounded_channel();
        let fail = move |order: Entry<Order>| {
            let _ = begun.send(order.value.number);
            async { Err::<(), _>("not today") }
        };
        let retry = duly_streams::Retry { min: Duration::from_millis(300), attempts: 0, ..quick().retry };
        streams
            .listener("order", fail)
            .retry(duly_streams::Retry { max: Duration::from_millis(300), ..retry })
            .trim(trim)
            .on_lost(move |reported| drop(lost.send(reported.clone())))
            .start()
            .await
            .unwrap();
        let first = streams.send("order", &Order { number: 1 }).await.unwrap();
        next(&mut beginning).await;
        streams.send("order", &Order { number: 2 }).await.unwrap();
        let reported = next(&mut losing).await;
        assert_eq!(
            (reported.event.as_str(), reported.group.as_str(), reported.ids),
            ("order", "duly-streams", vec![first])
        );
        wait_until("only the other is pending", || server.pending("order", "duly-streams") == 1);
        streams.shutdown().await.unwrap();
    }
}
