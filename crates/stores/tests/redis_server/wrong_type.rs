//! Keys of the store that something else made into another type.

use std::sync::Arc;

use duly_core::{
    Lane, SinkName, Store, StoredMessage,
    store::{Claim, Holder, Settle, Settled, Settlement, StoreErrorKind},
};
use duly_stores::redis::{Options, StreamLimits};
use testkit::{block_on, servers::redis};

use crate::bed::{claim, deliver, id, insert, lane, message, message_in, ms, now, open, single};

#[test]
fn lanes_are_claimed_from_though_the_set_of_paused_ones_is_no_set() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        store.set_paused(&lane("held"), true).await.unwrap();
        store.sweep(now(0), &[lane("work"), lane("held")]).await.unwrap();
        insert(&store, (0..50).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        insert(&store, vec![message_in("held", "h", 0)]).await.unwrap();
        server.run::<()>(&["DEL", "duly:{main}:paused"]);
        server.run::<()>(&["XADD", "duly:{main}:paused", "*", "a", "b"]);

        assert_eq!(claim(&store, 1, 100).await.unwrap().messages.len(), 50);
        let swept = store.sweep(now(1), &[lane("work"), lane("held")]).await.unwrap();
        assert_eq!(swept.paused, None, "what it says is not known");
        let held = Claim { lane: lane("held"), limit: 1, lease: LEASE, holder: Holder::Process };
        let held = store.claim(now(1), held).await.unwrap();
        assert!(held.messages.is_empty(), "what was paused before stays so");
        assert_eq!(store.health().await.whole(), Ok(()), "it accepts and delivers");
        let error = store.set_paused(&lane("work"), true).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        assert!(error.what.contains("duly:{main}:paused"), "{error}");
    });
}

#[test]
fn lanes_that_were_paused_stay_so_when_the_damaged_set_is_removed() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        let lanes = [lane("work"), lane("held")];
        store.set_paused(&lane("held"), true).await.unwrap();
        store.sweep(now(0), &lanes).await.unwrap();
        insert(&store, vec![message_in("held", "h", 0), message("m", 0)]).await.unwrap();
        server.run::<()>(&["SET", "duly:{main}:paused", "x"]);
        let swept = store.sweep(now(1), &lanes).await.unwrap();
        assert_eq!(swept.paused, None, "what it says is not known");
        server.run::<()>(&["DEL", "duly:{main}:paused"]);
        let swept = store.sweep(now(2), &lanes).await.unwrap();
        assert_eq!(swept.paused, Some(vec![lane("held")]));
        let held = Claim { lane: lane("held"), limit: 1, lease: LEASE, holder: Holder::Process };
        assert!(store.claim(now(2), held.clone()).await.unwrap().messages.is_empty());
        assert_eq!(server.run::<Vec<String>>(&["SMEMBERS", "duly:{main}:paused"]), ["qheld"]);
        store.set_paused(&lane("held"), false).await.unwrap();
        store.sweep(now(3), &lanes).await.unwrap();
        assert_eq!(store.claim(now(3), held).await.unwrap().messages.len(), 1, "and it is written back once");
    });
}

#[test]
fn a_store_whose_set_of_paused_lanes_is_damaged_is_not_opened() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        store.set_paused(&lane("held"), true).await.unwrap();
        store.close().await.unwrap();
        server.run::<()>(&["SET", "duly:{main}:paused", "x"]);
        let error = open(&server.url(), Options::new(2)).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        assert!(error.what.contains("duly:{main}:paused"), "{error}");
        server.run::<()>(&["DEL", "duly:{main}:paused"]);
        open(&server.url(), Options::new(2)).await.unwrap();
    });
}

const LEASE: std::time::Duration = std::time::Duration::from_secs(30);

#[test]
fn a_sink_is_delivered_to_though_the_set_of_paused_lanes_is_no_set() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let server = redis::Redis::single();
        let store = Arc::new(open(&server.url(), Options::new(1)).await.unwrap());
        let sink = SinkName::parse("events").unwrap();
        let in_store = store.in_store_delivery(sink.clone(), StreamLimits::default()).unwrap();
        insert(&store, vec![StoredMessage::new(id("a"), sink.clone(), "orders".parse().unwrap(), ms(0))])
            .await
            .unwrap();
        server.run::<()>(&["XADD", "duly:{main}:paused", "*", "a", "b"]);
        let moved = in_store.deliver_due(now(1), 100).await.unwrap();
        let claim = Claim { lane: Lane::Sink(sink), limit: 10, lease: LEASE, holder: Holder::Process };
        let claimed = store.claim(now(1), claim).await.unwrap();
        assert_eq!(moved.messages.len() + claimed.messages.len(), 1);
    });
}

#[test]
fn a_batch_of_which_one_shard_is_damaged_may_have_been_done_and_a_message_of_that_shard_was_not() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        server.run::<()>(&["SET", "duly:{main:3}:wait", "x"]);
        let is_damaged = |text: &String| id(text).hash64() % 16 == 3;
        let names: Vec<_> = (0..200).map(|n| format!("m{n}")).collect();
        let all = || names.iter().map(|name| message(name, 0)).collect();
        let error = insert(&store, all()).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Damaged && error.is_maybe_done(), "{error}");
        let of_damaged = names.iter().find(|name| is_damaged(name)).unwrap();
        let error = insert(&store, vec![message(of_damaged, 0)]).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Damaged && !error.is_maybe_done(), "{error}");
        let ids: Vec<_> = names.iter().map(|name| id(name)).collect();
        server.run::<()>(&["DEL", "duly:{main:3}:wait"]);
        insert(&store, all()).await.unwrap();
        server.run::<()>(&["DEL", "duly:{main:3}:wait"]);
        server.run::<()>(&["SET", "duly:{main:3}:wait", "x"]);
        let error = store.cancel(now(1), &ids).await.unwrap_err();
        assert!(error.kind == StoreErrorKind::Damaged && error.is_maybe_done(), "{error}");
    });
}

#[test]
fn a_shard_that_is_damaged_keeps_its_own_messages_back_and_no_others() {
    if !redis::installed() {
        return;
    }
    for name in ["wait", "claim", "lease", "count"] {
        block_on(async {
            let (server, store) = single().await;
            insert(&store, (0..200).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
            let key = format!("duly:{{main:3}}:{name}");
            server.run::<()>(&["DEL", &key]);
            server.run::<()>(&["XADD", &key, "*", "a", "b"]);
            let mut got = 0;
            loop {
                let claimed = claim(&store, 1, 50).await.unwrap().messages;
                if claimed.is_empty() {
                    break;
                }
                assert!(claimed.iter().all(|leased| leased.receipt.shard != 3), "{name}");
                got += claimed.len();
            }
            let in_three = (0..200).filter(|n| id(&format!("m{n}")).hash64() % 16 == 3).count();
            assert_eq!(got, 200 - in_three, "{name}");
            let swept = store.sweep(now(1), &[lane("work")]).await.unwrap();
            assert!(swept.again_within.is_some(), "{name}");
            let error = store.health().await.degraded.unwrap();
            assert!(error.what.contains(&key), "{error}");
            insert(&store, vec![message("another", 0)]).await.unwrap();
            assert_ne!(id("another").hash64() % 16, 3);
            assert_eq!(claim(&store, 2, 50).await.unwrap().messages.len(), 1, "{name}");
        });
    }
}

#[test]
fn leases_of_a_shard_that_fails_are_not_told_as_lost_and_others_are_renewed() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        insert(&store, (0..200).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        let held = claim(&store, 1, 200).await.unwrap().messages;
        let receipts: Vec<_> = held.into_iter().map(|leased| leased.receipt).collect();
        server.run::<()>(&["RENAME", "duly:{main:3}:lease", "kept"]);
        server.run::<()>(&["SET", "duly:{main:3}:lease", "x"]);
        for _ in 0..2 {
            let renewed = store.extend(now(2), &receipts, LEASE).await.unwrap();
            for (receipt, renewed) in receipts.iter().zip(renewed) {
                let expected = if receipt.shard == 3 { Settled::Unknown } else { Settled::Done };
                assert_eq!(renewed, expected, "{receipt:?}");
            }
        }
        server.run::<()>(&["RENAME", "kept", "duly:{main:3}:lease"]);
        store.sweep(now(3), &[lane("work")]).await.unwrap();
        let renewed = store.extend(now(3), &receipts, LEASE).await.unwrap();
        assert!(renewed.iter().all(|renewed| *renewed == Settled::Done), "{renewed:?}");
    });
}

#[test]
fn another_verdict_than_the_one_that_was_recorded_comes_too_late() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        insert(&store, (0..200).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        let held = claim(&store, 1, 200).await.unwrap().messages;
        server.run::<()>(&["SET", "duly:{main:3}:lease", "x"]);
        deliver(&store, 2, &held).await.unwrap_err();
        let recorded = held.iter().find(|leased| leased.receipt.shard != 3).unwrap();
        let settle = |settlement| vec![Settle { receipt: recorded.receipt.clone(), settlement }];
        let back = store.settle(now(2), settle(Settlement::Release)).await.unwrap();
        assert_eq!(back, [Settled::Lost], "it is delivered");
        let again = store.settle(now(2), settle(Settlement::Delivered { receipt: None })).await.unwrap();
        assert_eq!(again, [Settled::Done], "the same again is answered as the first time");
    });
}

#[test]
fn a_node_delivers_what_is_its_own_though_the_list_of_nodes_is_damaged() {
    if !redis::installed() {
        return;
    }
    for name in ["nodes", "alive", "store"] {
        block_on(async {
            let (server, store) = single().await;
            let sink = SinkName::parse("events").unwrap();
            let lanes = [Lane::Sink(sink.clone())];
            store.sweep(now(0), &lanes).await.unwrap();
            let key = format!("duly:{{main}}:{name}");
            server.run::<()>(&["DEL", &key]);
            server.run::<()>(&["XADD", &key, "*", "a", "b"]);
            let to =
                |text: &str| StoredMessage::new(id(text), sink.clone(), "orders".parse().unwrap(), ms(0));
            insert(&store, vec![to("a"), to("b")]).await.unwrap();
            let swept = store.sweep(now(1), &lanes).await.unwrap();
            assert_eq!(swept.next, [(lanes[0].clone(), ms(0))], "{name}");
            let claim = Claim { lane: lanes[0].clone(), limit: 10, lease: LEASE, holder: Holder::Process };
            assert_eq!(store.claim(now(1), claim).await.unwrap().messages.len(), 2, "{name}");
            assert_eq!(store.health().await.whole(), Ok(()), "{name}: it accepts and delivers");
        });
    }
}

#[test]
fn a_store_that_another_node_took_the_name_of_says_so_though_a_shard_fails() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        server.run::<()>(&["SET", "duly:{main:3}:wait", "x"]);
        insert(&store, (0..50).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap_err();
        assert!(claim(&store, 1, 50).await.is_ok());
        assert_eq!(store.health().await.degraded.unwrap().kind, StoreErrorKind::Damaged);
        let _other = open(&server.url(), Options::new(2)).await.unwrap();
        assert_eq!(store.sweep(now(1), &[]).await.unwrap_err().kind, StoreErrorKind::Closed);
        assert_eq!(store.health().await.whole().unwrap_err().kind, StoreErrorKind::Closed);
    });
}

#[test]
fn a_store_opens_though_the_counters_of_a_shard_are_damaged_and_serves_the_others() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        insert(&store, (0..200).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        store.close().await.unwrap();
        server.run::<()>(&["SET", "duly:{main:3}:count", "x"]);
        let store = open(&server.url(), Options::new(2)).await.unwrap();
        let error = store.health().await.degraded.unwrap();
        assert!(error.kind == StoreErrorKind::Damaged && error.what.contains("shard 3"), "{error}");
        let is_damaged = |text: &str| id(text).hash64() % 16 == 3;
        let others = (0..200).filter(|n| !is_damaged(&format!("m{n}"))).count();
        let claimed = claim(&store, 1, 500).await.unwrap().messages;
        assert_eq!(claimed.len(), others);
        let fresh = (0..).map(|n| format!("f{n}")).find(|name| !is_damaged(name)).unwrap();
        insert(&store, vec![message(&fresh, 0)]).await.unwrap();
    });
}

#[test]
fn a_store_opens_though_the_list_of_nodes_is_damaged_and_joins_once_it_is_repaired() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        insert(&store, vec![message("held", 0), message("m", 1)]).await.unwrap();
        let held = claim(&store, 0, 1).await.unwrap().messages.remove(0);
        server.run::<()>(&["RENAME", "duly:{main}:nodes", "kept"]);
        server.run::<()>(&["SET", "duly:{main}:nodes", "x"]);
        let again = open(&server.url(), Options::new(2)).await.unwrap();
        assert_eq!(again.health().await.whole(), Ok(()), "it accepts and delivers");
        // Nobody knows whether the first process is there: what it holds stays its own.
        let claimed = claim(&again, 1, 10).await.unwrap().messages;
        assert_eq!(claimed.iter().map(|leased| leased.message.id.as_str()).collect::<Vec<_>>(), ["m"]);
        deliver(&store, 1, &[held]).await.unwrap();
        again.sweep(now(2), &[lane("work")]).await.unwrap();
        server.run::<()>(&["RENAME", "kept", "duly:{main}:nodes"]);
        // The process before had the same name, and has ended.
        again.sweep(now(3), &[lane("work")]).await.unwrap();
        assert_eq!(again.nodes().await.unwrap().len(), 1);
    });
}

#[test]
fn a_store_whose_meta_key_is_damaged_names_it_and_how_to_repair_it() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        insert(&store, (0..200).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        store.close().await.unwrap();
        server.run::<()>(&["SET", "duly:{main:3}:meta", "x"]);
        let error = open(&server.url(), Options::new(2)).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        assert!(error.what.contains("DEL duly:{main:3}:meta"), "{error}");
        server.run::<()>(&["DEL", "duly:{main:3}:meta"]);
        let store = open(&server.url(), Options::new(2)).await.unwrap();
        assert_eq!(claim(&store, 1, 500).await.unwrap().messages.len(), 200);
        server.run::<()>(&["RENAME", "duly:{main}:store", "kept"]);
        server.run::<()>(&["SET", "duly:{main}:store", "x"]);
        let error = open(&server.url(), Options::new(3)).await.unwrap_err();
        assert!(error.what.contains("the key duly:{main}:store is damaged"), "{error}");
    });
}
