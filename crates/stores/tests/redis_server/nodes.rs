//! Several nodes on one store: who delivers what, and what happens when one comes, goes or sleeps.

use std::{
    collections::BTreeSet,
    sync::Arc,
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use duly_core::{
    Clock, Lane, Monotonic, Now, ShardOwner, ShardStatus, SinkName, Sleep, Store, StoredMessage, Topic,
    store::{Claim, Claimed, Holder, Insert, Settle, Settled, Settlement, StoreErrorKind},
};
use duly_stores::{RedisStore, redis::Options};
use testkit::servers::redis::{self, Redis};

use crate::bed::{id, ms, now, open};

const LEASE: Duration = Duration::from_secs(10);
const LEASE_MS: u64 = 10_000;
const SHARDS: usize = 16;

fn options(name: &str, instance: u64) -> Options {
    Options { node: name.into(), lease: LEASE, ..Options::new(instance) }
}

fn sink() -> Lane {
    Lane::Sink(SinkName::parse("orders").unwrap())
}

async fn node(redis: &Redis, name: &str, instance: u64) -> RedisStore {
    open(&redis.url(), options(name, instance)).await.unwrap()
}

async fn sweep(store: &RedisStore, at: u64) {
    store.sweep(now(at), &[sink()]).await.unwrap();
}

/// Both nodes know of each other and have what is theirs.
async fn settle_down(nodes: &[&RedisStore], at: u64) {
    for _ in 0..3 {
        for node in nodes {
            sweep(node, at).await;
        }
    }
}

/// So many messages that every shard has some.
async fn fill(store: &RedisStore, from: usize, count: usize) {
    let message = |n: usize| {
        StoredMessage::new(
            id(&format!("m{n}")),
            SinkName::parse("orders").unwrap(),
            Topic::parse("t").unwrap(),
            ms(0),
        )
    };
    let batch = (from..from + count).map(|n| Insert::new(message(n))).collect();
    store.insert(now(0), batch).await.unwrap();
}

async fn claim(store: &RedisStore, at: u64) -> Claimed {
    let claim = Claim { lane: sink(), limit: 1000, lease: LEASE, holder: Holder::Process };
    store.claim(now(at), claim).await.unwrap()
}

fn shards(claimed: &Claimed) -> BTreeSet<u16> {
    claimed.messages.iter().map(|leased| leased.receipt.shard).collect()
}

async fn deliver(store: &RedisStore, at: u64, claimed: &Claimed) -> Vec<Settled> {
    let settle = |receipt| Settle { receipt, settlement: Settlement::Delivered { receipt: None } };
    let batch = claimed.messages.iter().map(|leased| settle(leased.receipt.clone())).collect();
    store.settle(now(at), batch).await.unwrap()
}

/// Whether Redis is there; it is said out loud if not.
macro_rules! on_redis {
    ($redis:ident, $body:block) => {
        if redis::installed() {
            let $redis = Redis::single();
            tokio::runtime::Runtime::new().unwrap().block_on(async move { $body });
        }
    };
}

#[test]
fn nodes_share_the_shards_of_a_lane_and_nothing_is_claimed_twice() {
    on_redis!(redis, {
        let (one, two) = (node(&redis, "one", 1).await, node(&redis, "two", 2).await);
        settle_down(&[&one, &two], 0).await;
        fill(&one, 0, 400).await;
        let (of_one, of_two) = (claim(&one, 0).await, claim(&two, 0).await);
        assert_eq!((shards(&of_one).len(), shards(&of_two).len()), (SHARDS / 2, SHARDS / 2));
        assert!(shards(&of_one).is_disjoint(&shards(&of_two)));
        assert_eq!(of_one.messages.len() + of_two.messages.len(), 400);
        let nodes = two.nodes().await.unwrap();
        let told: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.this, node.shards)).collect();
        assert_eq!(told, [("one", false, 8), ("two", true, 8)]);
        assert_eq!(nodes[0].lanes, ["orders"]);
    });
}

/// The shards of the lane that `name` owns, as they are told.
fn owned(told: &[ShardStatus], name: &str) -> BTreeSet<u16> {
    let is_its = |owner: &ShardOwner| owner.lane == sink() && owner.node == name;
    let its = told.iter().filter(|status| status.owners.iter().any(is_its));
    its.map(|status| status.shard as u16).collect()
}

#[test]
fn every_shard_tells_who_delivers_it_and_since_when_something_waits_there() {
    on_redis!(redis, {
        let (one, two) = (node(&redis, "one", 1).await, node(&redis, "two", 2).await);
        settle_down(&[&one, &two], 0).await;
        let told = one.shards(now(0)).await.unwrap();
        let numbers: Vec<_> = told.iter().map(|status| status.shard as usize).collect();
        assert_eq!(numbers, (0..SHARDS).collect::<Vec<_>>());
        assert!(told.iter().all(|status| status.oldest.is_none()), "nothing waits: {told:?}");

        fill(&one, 0, 400).await;
        let waits = crate::bed::message("not-yet", 60_000);
        crate::bed::insert(&one, vec![waits]).await.unwrap();
        let told = two.shards(now(5)).await.unwrap();
        assert!(told.iter().all(|status| status.owners.len() == 1), "{told:?}");
        assert!(told.iter().all(|status| status.oldest == Some(ms(0))), "{told:?}");
        one.set_paused(&sink(), true).await.unwrap();
        let paused = two.shards(now(5)).await.unwrap();
        assert!(paused.iter().all(|status| status.oldest.is_none()), "it is not to be claimed: {paused:?}");
        crate::bed::insert(&one, vec![crate::bed::message("behind", 3)]).await.unwrap();
        let beside = two.shards(now(5)).await.unwrap();
        let oldest: Vec<_> = beside.iter().filter_map(|status| status.oldest).collect();
        assert_eq!(oldest, [ms(3)], "behind lanes that are paused");
        assert_eq!(crate::bed::claim(&one, 5, 10).await.unwrap().messages.len(), 1);
        one.set_paused(&sink(), false).await.unwrap();

        let of_one = claim(&one, 5).await;
        assert_eq!(shards(&of_one), owned(&told, "one"));
        let rest = two.shards(now(5)).await.unwrap();
        let late = rest.iter().filter(|status| status.oldest.is_some());
        let late: BTreeSet<_> = late.map(|status| status.shard as u16).collect();
        assert_eq!(late, owned(&told, "two"), "what is claimed waits no more");
        assert_eq!(shards(&claim(&two, 5).await), late);
        assert!(one.shards(now(5)).await.unwrap().iter().all(|status| status.oldest.is_none()));

        // "two" says nothing any more: once its time is over nobody has what it had, until that is taken.
        sweep(&one, LEASE_MS - 1).await;
        let told = one.shards(now(LEASE_MS + 1)).await.unwrap();
        assert_eq!((owned(&told, "one").len(), owned(&told, "two").len()), (SHARDS / 2, 0));
        sweep(&one, LEASE_MS + 1).await;
        let told = one.shards(now(LEASE_MS + 1)).await.unwrap();
        assert_eq!(owned(&told, "one").len(), SHARDS);
    });
}

#[test]
fn queue_lanes_have_no_owner() {
    on_redis!(redis, {
        let (one, two) = (node(&redis, "one", 1).await, node(&redis, "two", 2).await);
        let messages = (0..50).map(|n| crate::bed::message(&format!("q{n}"), 0)).collect();
        crate::bed::insert(&one, messages).await.unwrap();
        assert_eq!(crate::bed::claim(&two, 0, 20).await.unwrap().messages.len(), 20);
        assert_eq!(crate::bed::claim(&one, 0, 100).await.unwrap().messages.len(), 30);
    });
}

#[test]
fn a_node_that_says_nothing_for_a_lease_loses_all_to_the_others_and_gets_nothing_any_more() {
    on_redis!(redis, {
        let (one, two) = (node(&redis, "one", 1).await, node(&redis, "two", 2).await);
        settle_down(&[&one, &two], 0).await;
        fill(&one, 0, 200).await;
        let held = claim(&one, 0).await;
        let first = claim(&two, 0).await;
        deliver(&two, 0, &first).await;
        // Not one millisecond before: "one" believes it has them until then.
        sweep(&two, LEASE_MS - 1).await;
        assert!(claim(&two, LEASE_MS - 1).await.messages.is_empty());
        sweep(&two, LEASE_MS).await;
        let mut taken = 0;
        while let claimed = claim(&two, LEASE_MS + 1).await
            && !claimed.messages.is_empty()
        {
            taken += claimed.messages.len();
            assert!(
                deliver(&two, LEASE_MS + 1, &claimed).await.iter().all(|settled| *settled == Settled::Done)
            );
        }
        assert_eq!(taken, held.messages.len(), "what the sleeper held came again");
        // It wakes, and does not know yet.
        fill(&two, 1000, 200).await;
        assert!(claim(&one, LEASE_MS + 2).await.messages.is_empty());
        assert!(deliver(&one, LEASE_MS + 2, &held).await.iter().all(|settled| *settled == Settled::Lost));
        assert_eq!(shards(&claim(&two, LEASE_MS + 2).await).len(), SHARDS);
    });
}

#[test]
fn every_taking_has_a_higher_token() {
    on_redis!(redis, {
        let one = node(&redis, "one", 1).await;
        sweep(&one, 0).await;
        fill(&one, 0, 100).await;
        let fences = |claimed: &Claimed| -> Vec<_> {
            let mut fences: Vec<_> =
                claimed.messages.iter().map(|leased| leased.fence.clone().unwrap()).collect();
            fences.sort_by(|a, b| a.scope.cmp(&b.scope));
            fences.dedup();
            fences
        };
        let before = fences(&claim(&one, 0).await);
        assert_eq!(before.len(), SHARDS, "one for each shard");
        let two = node(&redis, "two", 2).await;
        sweep(&two, 2 * LEASE_MS).await;
        fill(&two, 1000, 100).await;
        // What had been in flight comes one by one; each has the right of its shard, too.
        let mut after = Vec::new();
        while let claimed = claim(&two, 2 * LEASE_MS).await
            && !claimed.messages.is_empty()
        {
            after.extend(fences(&claimed));
        }
        after.sort_by(|a, b| a.scope.cmp(&b.scope));
        after.dedup();
        assert_eq!(after.len(), SHARDS);
        for (before, after) in before.iter().zip(&after) {
            assert!(before.scope == after.scope && before.token < after.token, "{before:?} {after:?}");
        }
    });
}

#[test]
fn what_is_in_flight_arrives_before_its_shard_changes_hands() {
    on_redis!(redis, {
        let one = node(&redis, "one", 1).await;
        sweep(&one, 0).await;
        fill(&one, 0, 200).await;
        let held = claim(&one, 0).await;
        assert_eq!(shards(&held).len(), SHARDS);
        let two = node(&redis, "two", 2).await;
        settle_down(&[&two, &one], 1).await;
        fill(&one, 1000, 200).await;
        assert!(claim(&two, 1).await.messages.is_empty(), "the first still delivers from there");
        let kept = claim(&one, 1).await;
        assert_eq!(shards(&kept).len(), SHARDS / 2, "and takes no more from what it is to give away");
        assert!(deliver(&one, 1, &held).await.iter().all(|settled| *settled == Settled::Done));
        settle_down(&[&one, &two], 2).await;
        let moved = claim(&two, 2).await;
        assert_eq!(shards(&moved).len(), SHARDS / 2);
        assert!(shards(&moved).is_disjoint(&shards(&kept)));
    });
}

#[test]
fn a_shard_whose_hand_over_redis_forgot_is_handed_over_again() {
    on_redis!(redis, {
        let one = node(&redis, "one", 1).await;
        sweep(&one, 0).await;
        let owner = |shard: usize| format!("duly:{{main:{shard}}}:owner");
        let before: Vec<Vec<u8>> =
            (0..SHARDS).map(|shard| redis.run(&["HGET", &owner(shard), "sorders"])).collect();
        let two = node(&redis, "two", 2).await;
        settle_down(&[&one, &two], 1).await;
        assert_eq!(owned(&two.shards(now(1)).await.unwrap(), "two").len(), SHARDS / 2);
        // Redis was killed and lost the second in which shards changed hands: the first node has all of them, and takes
        // itself to have given half of them back.
        let mut connection = redis.connection();
        for (shard, right) in before.iter().enumerate() {
            let mut cmd = ::redis::cmd("HSET");
            cmd.arg(owner(shard)).arg("sorders").arg(right).exec(&mut connection).unwrap();
        }
        fill(&one, 0, 400).await;
        claim(&two, 1).await;
        settle_down(&[&two, &one], 2).await;
        settle_down(&[&two, &one], 3).await;
        let (of_one, of_two) = (claim(&one, 3).await, claim(&two, 3).await);
        assert_eq!((shards(&of_one).len(), shards(&of_two).len()), (SHARDS / 2, SHARDS / 2));
        assert_eq!(of_one.messages.len() + of_two.messages.len(), 400);
    });
}

#[test]
fn a_node_that_goes_leaves_everything_to_the_others_at_once() {
    on_redis!(redis, {
        let (one, two) = (node(&redis, "one", 1).await, node(&redis, "two", 2).await);
        settle_down(&[&one, &two], 0).await;
        fill(&one, 0, 200).await;
        one.close().await.unwrap();
        sweep(&two, 1).await;
        assert_eq!(shards(&claim(&two, 1).await).len(), SHARDS);
        assert_eq!(two.nodes().await.unwrap().len(), 1);
    });
}

#[test]
fn a_node_that_is_started_again_takes_its_own_place_and_the_other_process_stops() {
    on_redis!(redis, {
        let old = node(&redis, "one", 1).await;
        sweep(&old, 0).await;
        fill(&old, 0, 100).await;
        let held = claim(&old, 0).await;
        let new = node(&redis, "one", 2).await;
        sweep(&new, 1).await;
        assert_eq!(new.totals().await.unwrap().in_flight, 0, "what the old process held is lost with it");
        let error = old.sweep(now(1), &[sink()]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Closed);
        assert!(error.what.contains("needs a name of its own"), "{error}");
        let settle = Settle { receipt: held.messages[0].receipt.clone(), settlement: Settlement::Release };
        assert_eq!(old.settle(now(1), vec![settle]).await.unwrap_err().kind, StoreErrorKind::Closed);
        assert_eq!(new.nodes().await.unwrap().len(), 1);
    });
}

#[test]
fn a_node_with_other_scripts_is_refused_while_one_is_there() {
    on_redis!(redis, {
        let one = node(&redis, "one", 1).await;
        // A node of a later version: its number stands first in what it tells.
        let mut told = vec![0, 99, 5];
        told.extend_from_slice(b"later9.9.9\nwho knows what");
        let (later, far) = (7u64.to_be_bytes(), (crate::bed::START + 3_600_000) * 1000);
        let mut connection = redis.connection();
        ::redis::cmd("HSET").arg("duly:{main}:nodes").arg(&later).arg(told).exec(&mut connection).unwrap();
        ::redis::cmd("ZADD").arg("duly:{main}:alive").arg(far).arg(&later).exec(&mut connection).unwrap();
        let error = open(&redis.url(), options("two", 2)).await.unwrap_err();
        assert!(error.what.contains("\"later\"") && error.what.contains("version"), "{error}");
        // Those that are there go on.
        sweep(&one, 1).await;
        // Once it is gone, there is nothing to refuse.
        open(&redis.url(), options("two", 2)).await.unwrap_err();
        RedisStore::open(&redis.url(), options("two", 2), now(3_600_001)).await.unwrap();
    });
}

#[test]
fn data_of_another_format_is_refused() {
    on_redis!(redis, {
        node(&redis, "one", 1).await.close().await.unwrap();
        redis.run::<()>(&["HSET", "duly:{main}:store", "format", "9"]);
        let error = open(&redis.url(), options("one", 2)).await.unwrap_err();
        assert!(error.what.contains("format 9"), "{error}");
    });
}

#[test]
fn a_message_accepted_by_one_node_wakes_the_one_that_delivers_it() {
    on_redis!(redis, {
        let (one, two) = (node(&redis, "one", 1).await, Arc::new(node(&redis, "two", 2).await));
        settle_down(&[&one, &two], 0).await;
        fill(&one, 0, 200).await;
        let of_two = claim(&two, 0).await;
        let theirs = of_two.messages[0].message.clone();
        let listening = two.clone();
        let heard = tokio::spawn(async move { listening.hint().await });
        while redis.run::<Vec<String>>(&["PUBSUB", "CHANNELS", "duly:*"]).is_empty() {
            tokio::task::yield_now().await;
        }
        // Ids that hash into shards of the first are not told to the second: only the last one is.
        let new = |text: &str| StoredMessage {
            due: ms(5),
            ..StoredMessage::new(id(text), theirs.sink.clone(), theirs.topic.clone(), ms(5))
        };
        for text in (0..).map(|n| format!("new{n}")) {
            let message = new(&text);
            let is_theirs = shards(&of_two).contains(&shard_of(&message));
            one.insert(now(1), vec![Insert::new(message)]).await.unwrap();
            if is_theirs {
                break;
            }
        }
        let hint = heard.await.unwrap();
        assert_eq!((hint.lane, hint.due), (sink(), ms(5)));
    });
}

fn shard_of(message: &StoredMessage) -> u16 {
    (message.id.hash64() % SHARDS as u64) as u16
}

#[test]
fn a_pause_at_one_node_holds_at_all() {
    on_redis!(redis, {
        let (one, two) = (node(&redis, "one", 1).await, node(&redis, "two", 2).await);
        settle_down(&[&one, &two], 0).await;
        fill(&one, 0, 100).await;
        one.set_paused(&sink(), true).await.unwrap();
        assert_eq!(two.sweep(now(1), &[sink()]).await.unwrap().paused, Some(vec![sink()]));
        assert!(claim(&two, 1).await.messages.is_empty());
        one.set_paused(&sink(), false).await.unwrap();
        assert_eq!(two.sweep(now(1), &[sink()]).await.unwrap().paused, Some(vec![]));
        assert!(!claim(&two, 1).await.messages.is_empty());
    });
}

#[test]
fn an_accepted_message_waits_for_replicas_if_that_is_asked_for() {
    on_redis!(redis, {
        let options = Options { wait_replicas: 1, ..options("one", 1) };
        let store = open(&redis.url(), options).await.unwrap();
        let error = crate::bed::insert(&store, vec![crate::bed::message("a", 0)]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unanswered);
        assert!(error.what.contains("0 of 1 replicas"), "{error}");
    });
}

/// A machine whose wall clock is an hour ahead.
struct Ahead(Instant);

impl Clock for Ahead {
    #[expect(clippy::disallowed_methods, reason = "a clock of this test's own")]
    fn now(&self) -> Now {
        let wall = SystemTime::now().duration_since(UNIX_EPOCH).unwrap().as_micros() as u64;
        Now::new(wall + 3_600_000_000, Monotonic::from_micros(self.0.elapsed().as_micros() as u64))
    }

    fn sleep_until(&self, _: Monotonic) -> Sleep {
        Box::pin(std::future::pending())
    }
}

#[test]
#[expect(clippy::disallowed_methods, reason = "a clock of this test's own")]
fn time_is_that_of_redis_whatever_the_machine_says() {
    on_redis!(redis, {
        let (store, clock) =
            RedisStore::join(&redis.url(), options("one", 1), Arc::new(Ahead(Instant::now()))).await.unwrap();
        let [seconds, _] = redis.run::<[u64; 2]>(&["TIME"]);
        let now = clock.now();
        assert!(now.wall().as_millis().abs_diff(seconds * 1000) < 60_000, "an hour off is more than that");
        assert!(now.latest_micros() >= now.wall_micros());
        store.sweep(now, &[]).await.unwrap();
        store.sweep(clock.now(), &[]).await.unwrap();
        let skew = store.nodes().await.unwrap()[0].clock_skew_us;
        assert!(skew.abs_diff(3_600_000_000) < 60_000_000, "{skew}");
        assert!(store.metrics().clock_skew_us.is_some());
    });
}
