//! Messages that replicas must have before they are accepted.

use std::{sync::Arc, time::Duration};

use duly_core::{
    Store,
    store::{Changed, Settled, StoreErrorKind},
};
use duly_stores::{RedisStore, redis::Options};
use testkit::{
    block_on,
    servers::{
        redis::{self, Redis},
        wait_until,
    },
};

use crate::{
    bed::{claim, deliver, id, insert, lane, message, ms, now, open},
    proxy::Proxy,
};

const PATIENCE: Duration = Duration::from_secs(20);

/// Makes a server the replica of another, and returns when it has all that the other has.
pub(crate) fn follow(replica: &Redis, master: &Redis) {
    replica.run::<()>(&["REPLICAOF", "127.0.0.1", &master.port().to_string()]);
    wait_until("the replica follows", PATIENCE, || {
        replica.run::<String>(&["INFO", "replication"]).contains("master_link_status:up")
    });
    wait_until("the master knows it", PATIENCE, || {
        master.run::<String>(&["INFO", "replication"]).contains("state=online")
    });
}

fn options(name: &str, instance: u64) -> Options {
    Options { wait_replicas: 1, node: name.into(), ..Options::new(instance) }
}

#[test]
fn delivery_goes_on_while_a_message_waits_for_a_replica_that_hangs() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (master, replica) = (Redis::single(), Redis::single());
        follow(&replica, &master);
        let store = Arc::new(open(&master.url(), options("one", 1)).await.unwrap());
        insert(&store, (0..5).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        replica.pause();
        let accepting = {
            let store = store.clone();
            tokio::spawn(async move { insert(&store, vec![message("late", 0)]).await })
        };
        wait_until("Redis waits for the replica", PATIENCE, || {
            master.run::<String>(&["INFO", "clients"]).contains("blocked_clients:1")
        });
        let claimed = claim(&store, 1, 5).await.unwrap().messages;
        assert_eq!(claimed.len(), 5);
        deliver(&store, 1, &claimed).await.unwrap();
        store.sweep(now(1), &[lane("work")]).await.unwrap();
        assert!(!accepting.is_finished(), "delivery waited for the replica, too");
        replica.cont();
        // Whether the replica was in time or not: the message is there.
        let _ = accepting.await.unwrap();
        assert_eq!(claim(&store, 1, 5).await.unwrap().messages.len(), 1);
    });
}

/// A machine that is busy may need more time for some calls than Redis waits for a replica: then they are tried again.
const TRIES_MAX: u64 = 10;

fn blocked_clients(server: &Redis) -> usize {
    let clients: String = server.run(&["INFO", "clients"]);
    let line = clients.lines().find_map(|line| line.strip_prefix("blocked_clients:"));
    line.unwrap().parse().unwrap()
}

/// What a node does besides taking messages.
#[derive(Debug, Clone, Copy)]
enum NodeTask {
    Health,
    Delivery,
    Changes,
    Upkeep,
}

impl NodeTask {
    async fn do_on(self, store: &RedisStore, number: u64) {
        match self {
            Self::Health => {
                let health = store.health().await;
                assert_eq!(health.accepting.unwrap_err().kind, StoreErrorKind::Unanswered);
                assert_eq!((health.claiming, health.background, health.degraded), (Ok(()), Ok(()), None));
            }
            Self::Delivery => {
                let held = claim(store, 1, 1).await.unwrap().messages;
                let receipts: Vec<_> = held.iter().map(|leased| leased.receipt.clone()).collect();
                assert_eq!(store.extend(now(1), &receipts, PATIENCE).await.unwrap(), [Settled::Done]);
                deliver(store, 1, &held).await.unwrap();
            }
            Self::Changes => {
                // From behind, where no claim has come.
                let ids = [0, 1].map(|n| id(&format!("m{:03}", 4 * TRIES_MAX - 1 - 2 * number - n)));
                let done = Changed::Done { maybe_delivered: false };
                assert_eq!(store.cancel(now(1), &ids[..1]).await.unwrap(), [done]);
                assert_eq!(store.reschedule(now(1), &[(ids[1].clone(), ms(5))]).await.unwrap(), [done]);
                assert!(store.get(&ids).await.unwrap().iter().all(Option::is_some));
            }
            Self::Upkeep => {
                store.sweep(now(1), &[lane("work")]).await.unwrap();
                assert!(store.totals().await.unwrap().balance());
                assert_eq!(store.lanes(now(1)).await.unwrap().len(), 1);
                store.set_paused(&lane("work"), number.is_multiple_of(2)).await.unwrap();
            }
        }
    }
}

#[test]
fn a_replica_that_hangs_stops_no_call_but_those_that_wait_for_it() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (master, replica) = (Redis::single(), Redis::single());
        follow(&replica, &master);
        let store = Arc::new(open(&master.url(), options("one", 1)).await.unwrap());
        insert(&store, (0..4 * TRIES_MAX).map(|n| message(&format!("m{n:03}"), 0)).collect()).await.unwrap();
        store.sweep(now(0), &[lane("work")]).await.unwrap();
        store.health().await.whole().unwrap();
        replica.pause();
        for work in [NodeTask::Health, NodeTask::Delivery, NodeTask::Changes, NodeTask::Upkeep] {
            let mut tries = 0..TRIES_MAX;
            let is_first = loop {
                let Some(number) = tries.next() else { break false };
                let late = message(&format!("late-{work:?}-{number}"), 0);
                let accepting = {
                    let store = store.clone();
                    tokio::spawn(async move { insert(&store, vec![late]).await })
                };
                wait_until("Redis waits for the replica", PATIENCE, || blocked_clients(&master) == 1);
                work.do_on(&store, number).await;
                let is_first = !accepting.is_finished();
                assert_eq!(accepting.await.unwrap().unwrap_err().kind, StoreErrorKind::Unanswered);
                wait_until("Redis waits no more", PATIENCE, || blocked_clients(&master) == 0);
                if is_first {
                    break true;
                }
            };
            assert!(is_first, "{work:?} waits for the replica, too");
        }
        replica.cont();
    });
}

#[test]
fn a_message_that_is_known_already_is_confirmed_only_by_replicas_that_have_it() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (master, replica) = (Redis::single(), Redis::single());
        follow(&replica, &master);
        let one = open(&master.url(), options("one", 1)).await.unwrap();
        let two = open(&master.url(), options("two", 2)).await.unwrap();
        insert(&one, vec![message("a", 0)]).await.unwrap();
        insert(&two, vec![message("b", 0)]).await.unwrap();
        replica.pause();
        let refused = insert(&one, vec![message("c", 0)]).await.unwrap_err();
        assert_eq!(refused.kind, StoreErrorKind::Unanswered);
        // Over another connection nothing of it was written: what came over that one the replica has.
        let refused = insert(&two, vec![message("c", 0)]).await.unwrap_err();
        assert!(refused.what.contains("0 of 1 replicas"), "{refused}");
        replica.cont();
        insert(&two, vec![message("c", 0)]).await.unwrap();
    });
}

#[test]
fn what_is_known_already_is_waited_for_behind_a_change_over_the_same_connection() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (master, replica) = (Redis::single(), Redis::single());
        follow(&replica, &master);
        let store = open(&master.url(), options("one", 1)).await.unwrap();
        let mark = || master.run::<u64>(&["DEL", "duly:{main}:mark"]);
        insert(&store, vec![message("a", 0)]).await.unwrap();
        assert_eq!(mark(), 1);
        // From Redis 7.2 on, a connection that changed nothing would be told what held for an earlier change.
        insert(&store, vec![message("a", 0)]).await.unwrap();
        assert_eq!(mark(), 1, "a duplicate was confirmed without a change of its own");
        store.health().await.whole().unwrap();
        assert_eq!(mark(), 1, "health was told without a change of its own");
    });
}

#[test]
fn a_connection_whose_server_has_no_replicas_any_more_is_not_used_again() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (old, replica) = (Redis::single(), Redis::single());
        follow(&replica, &old);
        let proxy = Proxy::start(old.port()).await;
        let store = open(&proxy.url(), options("one", 1)).await.unwrap();
        insert(&store, vec![message("a", 0)]).await.unwrap();
        // The replica takes over and the old one does not hear of it, so connections to it stand.
        replica.run::<()>(&["REPLICAOF", "NO", "ONE"]);
        let new_replica = Redis::single();
        follow(&new_replica, &replica);
        proxy.move_to(replica.port());
        let refused = insert(&store, vec![message("b", 0)]).await.unwrap_err();
        assert!(refused.what.contains("0 of 1 replicas"), "{refused}");
        insert(&store, vec![message("b", 0)]).await.unwrap();
        assert_eq!(replica.run::<u64>(&["EXISTS", "duly:{main}:mark"]), 1, "it went to the new master");
    });
}
