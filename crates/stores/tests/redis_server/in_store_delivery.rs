//! Into streams of the same Redis, in one step.

use std::{sync::Arc, time::Duration};

use duly_core::{
    Attempt, Body, InStoreDelivered, InStoreDelivery, Lane, Outcome, Remaining, SinkName, State, Store,
    StoredMessage, Timestamp,
    store::{Changed, Claim, Holder, Query, Settle, Settlement, StoreErrorKind},
};
use duly_stores::{
    RedisStore,
    redis::{Options, StreamLimits},
};
use testkit::{
    block_on,
    servers::redis::{self, Cluster, Redis, Sentinels},
};

use crate::bed::{id, insert, ms, now, open};

pub(crate) fn sink() -> SinkName {
    SinkName::parse("events").unwrap()
}

pub(crate) fn to(topic: &str, text: &str, due: u64) -> StoredMessage {
    let mut message = StoredMessage::new(id(text), sink(), topic.parse().unwrap(), ms(due));
    message.body = Body::text(format!("body of {text}"));
    message
}

pub(crate) fn in_store(store: &Arc<RedisStore>, limits: StreamLimits) -> Arc<dyn InStoreDelivery> {
    store.in_store_delivery(sink(), limits).unwrap()
}

pub(crate) async fn bed() -> (Redis, Arc<RedisStore>, Arc<dyn InStoreDelivery>) {
    let redis = Redis::single();
    let store = Arc::new(open(&redis.url(), Options::new(1)).await.unwrap());
    let in_store = in_store(&store, StreamLimits::default());
    (redis, store, in_store)
}

fn names(moved: &InStoreDelivered) -> Vec<&str> {
    let mut names: Vec<_> = moved.messages.iter().map(|message| message.id.as_str()).collect();
    names.sort_unstable();
    names
}

fn entries(redis: &Redis, stream: &str) -> Vec<String> {
    let all: Vec<(String, Vec<String>)> = redis.run(&["XRANGE", stream, "-", "+"]);
    all.into_iter().map(|(_, fields)| fields[5].clone()).collect()
}

async fn state(store: &RedisStore, text: &str) -> State {
    store.get(&[id(text)]).await.unwrap()[0].as_ref().unwrap().state
}

#[test]
fn what_is_due_is_moved_and_nothing_before_its_time() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        insert(&store, vec![to("orders", "a", 10), to("mail", "b", 20), to("orders", "c", 30)])
            .await
            .unwrap();
        let moved = in_store.deliver_due(now(9), 1000).await.unwrap();
        assert_eq!((names(&moved), moved.next, moved.remaining), (vec![], Some(ms(10)), Remaining::InStore));

        let moved = in_store.deliver_due(now(20), 1000).await.unwrap();
        assert_eq!((names(&moved), moved.next), (vec!["a", "b"], Some(ms(30))));
        let ready: Vec<_> = moved.messages.iter().map(|one| (one.topic.as_str(), one.ready)).collect();
        assert!(ready.contains(&("orders", ms(10))) && ready.contains(&("mail", ms(20))), "{ready:?}");
        assert_eq!(
            (entries(&redis, "orders"), entries(&redis, "mail")),
            (vec!["a".into()], vec!["b".into()])
        );

        let moved = in_store.deliver_due(now(30), 1000).await.unwrap();
        assert_eq!((names(&moved), moved.next), (vec!["c"], None));
        assert_eq!(in_store.deliver_due(now(99), 1000).await.unwrap(), InStoreDelivered::default());
        let totals = store.totals().await.unwrap();
        assert!(
            totals.balance() && (totals.pending, totals.in_flight, totals.delivered) == (0, 0, 3),
            "{totals:?}"
        );
        assert_eq!(store.forecast(ms(0), ms(60_000), 1).await.unwrap(), [0]);
        assert_eq!(store.sweep(now(99), &[Lane::Sink(sink())]).await.unwrap().next, []);
    });
}

#[test]
fn each_keeps_the_time_at_which_it_was_accepted() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (_redis, store, in_store) = bed().await;
        // The same head but for that time, and one with all that a head can have which is moved.
        for (at, text) in [(1, "a"), (2, "b"), (3, "c")] {
            let mut message = to("orders", text, 50);
            if text == "c" {
                message.tag = Some("red".parse().unwrap());
                message.key = Some("k".parse().unwrap());
                message.properties.set("color", "red").unwrap();
            }
            let batch = vec![duly_core::store::Insert::new(message)];
            store.insert(now(at), batch).await.unwrap();
        }
        assert_eq!(names(&in_store.deliver_due(now(50), 1000).await.unwrap()), ["a", "b", "c"]);
        for (at, text) in [(1, "a"), (2, "b"), (3, "c")] {
            let record = store.get(&[id(text)]).await.unwrap().remove(0).unwrap();
            assert_eq!((record.state, record.accepted), (State::Delivered, Some(ms(at))), "{text}");
            assert_eq!(record.message.properties.len(), usize::from(text == "c"), "{text}");
        }
    });
}

#[test]
fn two_messages_of_the_same_content_are_two_entries() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        let equal = |text: &str| StoredMessage { body: Body::text("equal"), ..to("orders", text, 0) };
        insert(&store, vec![equal("a"), equal("b")]).await.unwrap();
        assert_eq!(names(&in_store.deliver_due(now(0), 1000).await.unwrap()), ["a", "b"]);
        assert_eq!(redis.run::<usize>(&["XLEN", "orders"]), 2);
    });
}

#[test]
fn a_lane_that_is_paused_gives_nothing() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (_redis, store, in_store) = bed().await;
        insert(&store, vec![to("orders", "a", 0)]).await.unwrap();
        store.set_paused(&Lane::Sink(sink()), true).await.unwrap();
        assert_eq!(in_store.deliver_due(now(1), 1000).await.unwrap(), InStoreDelivered::default());
        assert_eq!(in_store.deliver_due(now(1), 1).await.unwrap(), InStoreDelivered::default());
        store.set_paused(&Lane::Sink(sink()), false).await.unwrap();
        assert_eq!(names(&in_store.deliver_due(now(1), 1000).await.unwrap()), ["a"]);
    });
}

#[test]
fn what_was_cancelled_or_rescheduled_is_left_alone() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        insert(&store, vec![to("orders", "a", 0), to("orders", "b", 0), to("orders", "c", 0)]).await.unwrap();
        store.cancel(now(1), &[id("a")]).await.unwrap();
        store.reschedule(now(1), &[(id("b"), ms(50))]).await.unwrap();
        assert_eq!(names(&in_store.deliver_due(now(1), 1000).await.unwrap()), ["c"]);
        assert_eq!(names(&in_store.deliver_due(now(50), 1000).await.unwrap()), ["b"]);
        assert_eq!(entries(&redis, "orders"), ["c", "b"]);
        let fields: Vec<(String, Vec<String>)> = redis.run(&["XREVRANGE", "orders", "+", "-", "COUNT", "1"]);
        assert_eq!(fields[0].1[7], ms(50).as_millis().to_string(), "the time it was moved to");

        let late = store.cancel(now(51), &[id("b"), id("c")]).await.unwrap();
        assert_eq!(late, [Changed::TooLate(State::Delivered); 2]);
        assert!(store.totals().await.unwrap().balance());
    });
}

#[test]
fn a_few_are_those_whose_turn_it_is_in_all_shards() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        let all = (0..100).map(|n| to("orders", &format!("m{n:03}"), n)).collect();
        insert(&store, all).await.unwrap();
        for first in [0, 7, 14] {
            let moved = in_store.deliver_due(now(1000), 7).await.unwrap();
            let want: Vec<_> = (first..first + 7).map(|n| format!("m{n:03}")).collect();
            assert_eq!(
                (names(&moved), moved.next),
                (want.iter().map(String::as_str).collect(), Some(ms(first + 7)))
            );
        }
        assert_eq!(redis.run::<usize>(&["XLEN", "orders"]), 21);
    });
}

#[test]
fn never_more_than_asked_for_however_they_lie() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        insert(&store, (0..3000).map(|n| to("orders", &format!("m{n}"), n % 5)).collect()).await.unwrap();
        let mut all = 0;
        for limit in [1, 255, 256, 300, 1000] {
            let moved = in_store.deliver_due(now(10), limit).await.unwrap();
            assert!(!moved.messages.is_empty() && moved.messages.len() <= limit);
            assert!(moved.next.is_some_and(|next| next <= ms(10)), "there is more, and it says so");
            all += moved.messages.len();
        }
        while all < 3000 {
            let moved = in_store.deliver_due(now(10), 4096).await.unwrap();
            assert!(!moved.messages.is_empty());
            all += moved.messages.len();
        }
        assert_eq!(redis.run::<usize>(&["XLEN", "orders"]), 3000);
        assert_eq!(store.totals().await.unwrap().delivered, 3000);
    });
}

#[test]
fn streams_may_be_many() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        insert(&store, (0..2000).map(|n| to(&format!("topic-{n}"), &format!("m{n}"), 0)).collect())
            .await
            .unwrap();
        let mut all = 0;
        while all < 2000 {
            let moved = in_store.deliver_due(now(0), 4096).await.unwrap();
            assert!(!moved.messages.is_empty(), "each call goes on");
            assert!(moved.messages.iter().all(|one| one.topic.as_str()[6..] == one.id.as_str()[1..]));
            all += moved.messages.len();
        }
        for n in [0, 777, 1999] {
            assert_eq!(entries(&redis, &format!("topic-{n}")), [format!("m{n}")]);
        }
    });
}

#[test]
fn what_was_tried_before_is_left_to_a_claim() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        let late = StoredMessage { max_lateness: Some(Duration::from_secs(60)), ..to("orders", "late", 0) };
        insert(&store, vec![to("orders", "tried", 0), late, to("orders", "new", 0)]).await.unwrap();
        let claim = Claim {
            lane: Lane::Sink(sink()),
            limit: 10,
            lease: Duration::from_secs(30),
            holder: Holder::Process,
        };
        let leased = store.claim(now(0), claim.clone()).await.unwrap().messages;
        assert_eq!(
            in_store.deliver_due(now(0), 1000).await.unwrap(),
            InStoreDelivered::default(),
            "all is in flight"
        );
        let settle = |leased: &duly_core::store::LeasedMessage| {
            let attempt = Attempt::new(ms(0), Outcome::Unknown, "no answer");
            let tried = leased.message.id == id("tried");
            let settlement =
                if tried { Settlement::Retry { at: ms(0), attempt } } else { Settlement::Release };
            Settle { receipt: leased.receipt.clone(), settlement }
        };
        store.settle(now(0), leased.iter().map(settle).collect()).await.unwrap();

        let moved = in_store.deliver_due(now(1), 1000).await.unwrap();
        assert_eq!((names(&moved), moved.remaining), (vec!["new"], Remaining::ToClaim));
        let again = in_store.deliver_due(now(1), 1000).await.unwrap();
        assert_eq!((names(&again), again.remaining), (vec![], Remaining::ToClaim));
        let left = store.claim(now(1), claim).await.unwrap().messages;
        let mut left: Vec<_> = left.iter().map(|one| one.message.id.as_str()).collect();
        left.sort_unstable();
        assert_eq!((left, entries(&redis, "orders")), (vec!["late", "tried"], vec!["new".into()]));
    });
}

#[test]
fn where_there_is_no_stream_a_claim_finds_out_and_the_neighbours_go() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        redis.run::<()>(&["SET", "no-stream", "x"]);
        insert(&store, vec![to("no-stream", "bad", 0), to("orders", "good", 0)]).await.unwrap();
        let moved = in_store.deliver_due(now(0), 1000).await.unwrap();
        assert_eq!((names(&moved), moved.remaining), (vec!["good"], Remaining::ToClaim));
        assert_eq!(
            (state(&store, "bad").await, state(&store, "good").await),
            (State::Pending, State::Delivered)
        );
        assert!(store.totals().await.unwrap().balance());
    });
}

#[test]
fn out_of_memory_nothing_is_half_done_and_all_goes_on_when_there_is_room() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        insert(&store, (0..100).map(|n| to("orders", &format!("m{n}"), 0)).collect()).await.unwrap();
        redis.run::<()>(&["CONFIG", "SET", "maxmemory", "1000000"]);
        let error = in_store.deliver_due(now(0), 1000).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
        assert_eq!(redis.run::<usize>(&["EXISTS", "orders"]), 0);
        let totals = store.totals().await.unwrap();
        assert!(totals.balance() && totals.pending == 100, "{totals:?}");
        redis.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        assert_eq!(in_store.deliver_due(now(0), 1000).await.unwrap().messages.len(), 100);
        assert_eq!(redis.run::<usize>(&["XLEN", "orders"]), 100);
    });
}

#[test]
fn large_bodies_are_moved_a_few_at_a_time() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        let large = |n: usize| StoredMessage {
            body: Body::bytes(vec![b'x'; 200_000]),
            ..to("orders", &format!("m{n}"), 0)
        };
        for part in 0..10 {
            insert(&store, (part * 20..part * 20 + 20).map(large).collect()).await.unwrap();
        }
        redis.run::<()>(&["CONFIG", "RESETSTAT"]);
        let mut all = 0;
        while all < 200 {
            let moved = in_store.deliver_due(now(0), 4096).await.unwrap();
            assert!(!moved.messages.is_empty());
            all += moved.messages.len();
        }
        let stats: String = redis.run(&["INFO", "commandstats"]);
        let calls = stats.lines().find_map(|line| line.strip_prefix("cmdstat_evalsha:calls=")).unwrap();
        let calls: usize = calls.split(',').next().unwrap().parse().unwrap();
        assert!(calls >= 40, "forty megabytes in {calls} scripts");
        assert_eq!(redis.run::<usize>(&["XLEN", "orders"]), 200);
    });
}

#[test]
fn streams_keep_to_their_limits() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, _) = bed().await;
        let limits = StreamLimits {
            max_len: Some(500),
            max_age: Some(Duration::from_secs(3600)),
            ..StreamLimits::default()
        };
        let in_store = in_store(&store, limits);
        for n in 1..=500 {
            redis.run::<()>(&["XADD", "old", &format!("{n}-0"), "body", "x"]);
        }
        insert(&store, (0..3000).map(|n| to("orders", &format!("m{n}"), 0)).collect()).await.unwrap();
        insert(&store, vec![to("old", "new", 0)]).await.unwrap();
        while store.totals().await.unwrap().pending > 0 {
            in_store.deliver_due(now(0), 4096).await.unwrap();
        }
        let len = redis.run::<usize>(&["XLEN", "orders"]);
        assert!((500..700).contains(&len), "about 500: {len}");
        assert!(redis.run::<usize>(&["XLEN", "old"]) < 110, "what is too old goes");
        assert_eq!(
            redis.run::<Vec<(String, Vec<String>)>>(&["XREVRANGE", "old", "+", "-", "COUNT", "1"])[0].1[5],
            "new"
        );
    });
}

#[test]
fn what_was_moved_is_listed_and_forgotten_like_what_was_settled() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let redis = Redis::single();
        let retention = Duration::from_secs(60);
        let options = Options { retention, retention_max: 320, shards: 4, ..Options::new(1) };
        let store = Arc::new(open(&redis.url(), options).await.unwrap());
        let in_store = in_store(&store, StreamLimits::default());
        insert(&store, (0..200).map(|n| to("orders", &format!("a{n:03}"), n)).collect()).await.unwrap();
        in_store.deliver_due(now(1000), 4096).await.unwrap();
        let mut query = Query { limit: 150, ..Query::all(State::Delivered) };
        let first = store.list(&query).await.unwrap();
        query.after = first.next.clone();
        let second = store.list(&query).await.unwrap();
        let listed: Vec<_> = first.records.iter().chain(&second.records).map(|one| one.message.due).collect();
        assert_eq!(listed, (0..200).map(ms).collect::<Vec<Timestamp>>(), "each once, by due time");

        insert(&store, (0..1000).map(|n| to("orders", &format!("b{n:03}"), 2000)).collect()).await.unwrap();
        for at in 2000..2010 {
            in_store.deliver_due(now(at), 400).await.unwrap();
        }
        assert_eq!(store.totals().await.unwrap().pending, 0);
        let many = records(&redis, 4);
        assert!((320..320 + 4 * 200).contains(&many), "about as many as are to be kept: {many}");
        assert_eq!(store.get(&[id("a000")]).await.unwrap(), [None], "the oldest go first");
        assert_eq!(state(&store, "b999").await, State::Delivered);

        for _ in 0..10 {
            store.sweep(now(62_010), &[]).await.unwrap();
        }
        assert_eq!(records(&redis, 4), 0, "all are past retention");
        assert!(store.totals().await.unwrap().balance());
        assert_eq!(redis.run::<usize>(&["XLEN", "orders"]), 1200);
    });
}

fn records(redis: &Redis, shards: u16) -> usize {
    (0..shards).map(|shard| redis.run::<usize>(&["HLEN", &format!("duly:{{main:{shard}}}:msg")])).sum()
}

#[test]
fn behind_sentinels_it_moves_and_in_a_cluster_there_is_none() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let cluster = Cluster::of_three();
        let store = Arc::new(open(&cluster.url(), Options::new(1)).await.unwrap());
        assert!(store.in_store_delivery(sink(), StreamLimits::default()).is_none());

        let sentinels = Sentinels::start();
        let store = Arc::new(open(&sentinels.url(), Options::new(1)).await.unwrap());
        let in_store = in_store(&store, StreamLimits::default());
        insert(&store, vec![to("orders", "a", 0)]).await.unwrap();
        assert_eq!(names(&in_store.deliver_due(now(0), 1000).await.unwrap()), ["a"]);
        assert_eq!(entries(&sentinels.pair()[sentinels.master()], "orders"), ["a"]);
    });
}

#[test]
fn a_node_that_lost_its_right_moves_nothing() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (redis, store, in_store) = bed().await;
        insert(&store, vec![to("orders", "a", 0)]).await.unwrap();
        assert_eq!(names(&in_store.deliver_due(now(0), 1000).await.unwrap()), ["a"]);
        for shard in 0..16 {
            redis.run::<()>(&[
                "HSET",
                &format!("duly:{{main:{shard}}}:owner"),
                "sevents",
                "sixteen-bytes-of",
            ]);
        }
        insert(&store, vec![to("orders", "b", 0)]).await.unwrap();
        for limit in [1, 1000] {
            assert_eq!(in_store.deliver_due(now(1), limit).await.unwrap(), InStoreDelivered::default());
        }
        assert_eq!((entries(&redis, "orders"), state(&store, "b").await), (vec!["a".into()], State::Pending));
    });
}
