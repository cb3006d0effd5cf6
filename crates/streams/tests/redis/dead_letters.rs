//! D7: what was given up, and its way back.

use std::sync::{
    Arc,
    atomic::{AtomicBool, Ordering},
};

use duly_streams::{DeadLetterPolicy, Entry, Message, ReplayFor, Settings};
use tokio::sync::mpsc;

use crate::{Order, next, quick, server::both, wait_until};

/// Fails until it is mended.
fn until_mended(
    mended: &Arc<AtomicBool>,
    received: mpsc::UnboundedSender<u64>,
) -> impl Fn(Entry<Order>) -> std::future::Ready<Result<(), &'static str>> + Send + Sync + 'static {
    let mended = mended.clone();
    move |order: Entry<Order>| {
        if !mended.load(Ordering::Relaxed) {
            return std::future::ready(Err("out of order"));
        }
        std::future::ready(received.send(order.value.number).map_err(|_| "nobody listens"))
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_tell_what_happened_and_are_replayed_once_it_is_mended() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let (received, mut inbox) = mpsc::unbounded_channel();
        let mended = Arc::new(AtomicBool::new(false));
        streams.listener("order", until_mended(&mended, received)).attempts(2).start().await.unwrap();
        // Another group has handled them all, and must not get them again.
        let (other, mut others) = mpsc::unbounded_channel();
        let once =
            move |order: Entry<Order>| std::future::ready(other.send(order.value.number).map_err(|_| "gone"));
        streams.listener("order", once).group("other").start().await.unwrap();
        for number in 0..6 {
            streams.send("order", &Order { number }).await.unwrap();
        }
        let dead = streams.dead_letters("order").unwrap();
        assert_eq!(dead.stream(), server.dead("order"));
        wait_until("all are dead letters", || server.len(&dead.stream()) == 6);

        let mut letters = dead.list(None, 10).await.unwrap();
        assert_eq!(letters.len(), 6);
        assert_eq!(dead.list(Some(&letters[3].entry.id), 10).await.unwrap().len(), 2);
        let number = |letter: &duly_streams::DeadLetter| letter.entry.json::<Order>().unwrap().number;
        // They fail at the same time, so their order is not that in which they were sent.
        letters.sort_by_key(number);
        let first = &letters[0];
        assert_eq!(
            (first.reason.as_str(), first.attempts, first.group.as_str()),
            ("out of order", 2, "duly-streams")
        );
        assert_eq!((first.stream.as_str(), first.consumer.is_empty()), ("order", false));
        assert!(first.at.elapsed().unwrap_or_default().as_secs() < 60);

        mended.store(true, Ordering::Relaxed);
        let even = move |letter: &duly_streams::DeadLetter| number(letter) % 2 == 0;
        let dry = dead.replay_all().only(even).dry_run().run().await.unwrap();
        assert_eq!((dry.entries.len(), server.len(&dead.stream())), (3, 6), "a dry run changes nothing");
        assert!(dead.replay(&first.entry.id).await.unwrap().is_some());
        assert!(dead.replay(&first.entry.id).await.unwrap().is_none(), "it is gone");
        let some = dead.replay_all().only(even).run().await.unwrap();
        assert_eq!(some.entries.len(), 2);
        assert!(dead.remove(&letters[1].entry.id).await.unwrap());
        assert_eq!(dead.replay_all().run().await.unwrap().entries.len(), 2);
        assert!(dead.is_empty().await.unwrap());

        let mut all = Vec::new();
        for _ in 0..5 {
            all.push(next(&mut inbox).await);
        }
        all.sort_unstable();
        assert_eq!(all, [0, 2, 3, 4, 5]);
        wait_until("all is done", || {
            server.pending("order", "duly-streams") == 0 && server.pending("order", "other") == 0
        });
        streams.shutdown().await.unwrap();
        assert_eq!(
            std::iter::from_fn(|| others.try_recv().ok()).count(),
            6,
            "a replay is for the group that gave it up"
        );
        assert!(inbox.try_recv().is_err(), "none twice");
        let replayed = server.entries("order").pop().unwrap();
        assert!(replayed.keys().all(|name| !name.starts_with("duly-dead-")), "{replayed:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_have_a_producer_and_a_consumer_of_their_own() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let dead = streams.dead_letters("order").unwrap();
        dead.send(&Message::json(&Order { number: 1 }).unwrap(), "sent by hand").await.unwrap();
        let (reported, mut telling) = mpsc::unbounded_channel();
        let tried = AtomicBool::new(false);
        let see = move |order: Entry<Order>| {
            let letter = order.dead_letter().expect("it is one");
            // A failure here makes no dead letter of a dead letter.
            if !tried.swap(true, Ordering::Relaxed) {
                return std::future::ready(Err("not yet"));
            }
            std::future::ready(
                reported.send((order.value.number, letter.reason)).map_err(|_| "nobody listens"),
            )
        };
        dead.listener("operators", see).start().await.unwrap();
        assert_eq!(next(&mut telling).await, (1, "sent by hand".to_owned()));
        streams.send("order", &Order { number: 2 }).await.unwrap();
        streams
            .listener("order", |_: Entry<Order>| async { Err::<(), _>("no") })
            .attempts(1)
            .start()
            .await
            .unwrap();
        assert_eq!(next(&mut telling).await, (2, "no".to_owned()));
        wait_until("both are seen", || server.pending(&dead.stream(), "operators") == 0);
        assert_eq!(server.len(&dead.stream()), 2, "they stay");
        streams.shutdown().await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn dead_letters_may_be_few_or_none() {
    for server in both() {
        let streams = server.connect(quick()).await;
        let fail = |_: Entry<Order>| async { Err::<(), _>("no") };
        let none = DeadLetterPolicy { keep: false, max_len: None };
        streams.listener("none", fail).attempts(1).dead_letters(none).start().await.unwrap();
        streams.send("none", &Order { number: 1 }).await.unwrap();
        wait_until("it was given up", || {
            server.of("none").run::<Vec<Vec<redis::Value>>>(&["XINFO", "GROUPS", "none"]).len() == 1
                && server.pending("none", "duly-streams") == 0
                && mq_lag(&server, "none") == 0
        });
        assert_eq!(server.len(&server.dead("none")), 0);
        streams.shutdown().await.unwrap();
    }
}

fn mq_lag(server: &crate::server::Server, stream: &str) -> u64 {
    let groups: Vec<std::collections::HashMap<String, redis::Value>> =
        server.of(stream).run(&["XINFO", "GROUPS", stream]);
    redis::from_redis_value(groups[0]["lag"].clone()).unwrap()
}

#[tokio::test(flavor = "multi_thread")]
async fn a_replay_may_be_for_everybody() {
    for server in both() {
        let streams = server.connect(Settings { concurrency: 1, ..quick() }).await;
        let (received, mut inbox) = mpsc::unbounded_channel();
        let mended = Arc::new(AtomicBool::new(false));
        for group in ["a", "b"] {
            streams
                .listener("order", until_mended(&mended, received.clone()))
                .group(group)
                .attempts(1)
                .start()
                .await
                .unwrap();
        }
        streams.send("order", &Order { number: 1 }).await.unwrap();
        wait_until("both have given up", || server.len(&server.dead("order")) == 2);
        mended.store(true, Ordering::Relaxed);
        let dead = streams.dead_letters("order").unwrap();
        let replayed = dead
            .replay_all()
            .only(|letter| letter.group == "a")
            .to(ReplayFor::AllGroups)
            .run()
            .await
            .unwrap();
        assert_eq!(replayed.entries.len(), 1);
        assert_eq!([next(&mut inbox).await, next(&mut inbox).await], [1, 1]);
        streams.shutdown().await.unwrap();
    }
}
