//! What Redis does to a store, and what the store makes of it.

use duly_core::{
    LeaseLoss, State, Store,
    store::{Changed, Settle, Settled, Settlement, StoreErrorKind},
};
use duly_stores::{RedisStore, redis::Options};
use testkit::{
    block_on,
    servers::redis::{self, Redis},
};

use crate::{
    bed::{claim, deliver, id, insert, lane, message, now, open, single},
    proxy::Proxy,
};

#[test]
fn forgotten_scripts_are_loaded_again() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        for round in 0..3u64 {
            server.run::<()>(&["SCRIPT", "FLUSH"]);
            insert(&store, vec![message(&format!("m{round}"), 0)]).await.unwrap();
            server.run::<()>(&["SCRIPT", "FLUSH"]);
            let claimed = claim(&store, 1, 10).await.unwrap();
            assert_eq!(claimed.messages.len(), 1);
            server.run::<()>(&["SCRIPT", "FLUSH"]);
            deliver(&store, 2, &claimed.messages).await.unwrap();
            server.run::<()>(&["SCRIPT", "FLUSH"]);
            assert_eq!(store.get(&[id("m0")]).await.unwrap()[0].as_ref().unwrap().state, State::Delivered);
        }
    });
}

#[test]
fn out_of_memory_nothing_new_is_taken_and_what_is_there_goes_out() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let options = redis::Options { maxmemory: Some(8 << 20), ..redis::Options::default() };
        let server = Redis::with(options);
        let store = open(&server.url(), Options::new(1)).await.unwrap();
        let large = |n: usize| {
            let mut message = message(&format!("m{n:05}"), 0);
            message.body = duly_core::Body::bytes(vec![b'x'; 10_000]);
            message
        };
        let mut refused = None;
        for n in 0..10_000 {
            if let Err(error) = insert(&store, vec![large(n)]).await {
                refused = Some((n, error));
                break;
            }
        }
        let (accepted, error) = refused.unwrap();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        assert!(error.what.contains("out of memory"), "{error}");
        let totals = store.totals().await.unwrap();
        assert_eq!((totals.accepted, totals.pending), (accepted as u64, accepted as u64), "no half effect");
        assert_eq!(store.get(&[id(&format!("m{accepted:05}"))]).await.unwrap(), [None]);

        assert_eq!(
            store.cancel(now(1), &[id("m00000")]).await.unwrap(),
            [Changed::Done { maybe_delivered: false }]
        );
        let claimed = claim(&store, 1, 200).await.unwrap();
        assert_eq!(claimed.messages[0].message.id, id("m00001"));
        deliver(&store, 2, &claimed.messages).await.unwrap();
        let totals = store.totals().await.unwrap();
        assert!(totals.balance() && totals.delivered == claimed.messages.len() as u64, "{totals:?}");
        insert(&store, vec![large(accepted)]).await.expect("there is room again");
    });
}

#[test]
fn pausing_while_redis_is_out_of_memory_is_told_as_unavailable_and_keeps_no_sweep_from_its_end() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        let lanes = [lane("work"), lane("held")];
        store.set_paused(&lane("held"), true).await.unwrap();
        store.sweep(now(0), &lanes).await.unwrap();
        server.run::<()>(&["SET", "duly:{main}:paused", "x"]);
        store.sweep(now(1), &lanes).await.unwrap();
        server.run::<()>(&["DEL", "duly:{main}:paused"]);
        server.run::<()>(&["CONFIG", "SET", "maxmemory", "1"]);
        let error = store.set_paused(&lane("work"), true).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable, "{error}");
        assert!(error.what.contains("out of memory"), "{error}");
        let swept = store.sweep(now(2), &lanes).await.unwrap();
        assert_eq!(swept.paused, None, "what was paused cannot be written back yet");
        server.run::<()>(&["CONFIG", "SET", "maxmemory", "0"]);
        let swept = store.sweep(now(3), &lanes).await.unwrap();
        assert_eq!(swept.paused, Some(vec![lane("held")]));
        store.set_paused(&lane("work"), true).await.unwrap();
    });
}

#[test]
fn a_flushed_redis_is_noticed_by_the_next_sweep_and_nothing_is_accepted_as_if_nothing_had_happened() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        insert(&store, vec![message("a", 0)]).await.unwrap();
        server.run::<()>(&["FLUSHALL"]);
        let error = store.totals().await.expect_err("an empty Redis is not a store in which nothing waits");
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        let error = store.sweep(now(1), &[lane("work")]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        assert!(error.what.contains("FLUSHALL"), "{error}");
        let error = insert(&store, vec![message("b", 0)]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged);

        let store = open(&server.url(), Options::new(2)).await.unwrap();
        insert(&store, vec![message("b", 0)]).await.unwrap();
        assert_eq!(store.totals().await.unwrap().pending, 1);
    });
}

#[test]
fn a_shard_that_does_not_tell_how_large_its_messages_are_gives_none() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        insert(&store, (0..100).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        // Of all shards but the third.
        let but_one = "(+hstrlen ~duly:{main:[0-24-9]}:* ~duly:{main:1?}:*)";
        server.run::<()>(&["ACL", "SETUSER", "default", "-hstrlen", but_one]);
        let some = claim(&store, 1, 100).await.unwrap().messages;
        assert!(!some.is_empty() && some.iter().all(|leased| leased.receipt.shard != 3));
        let error = claim(&store, 1, 100).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unavailable);
        server.run::<()>(&["ACL", "SETUSER", "default", "clearselectors", "+hstrlen"]);
        let rest = claim(&store, 1, 100).await.unwrap().messages;
        assert_eq!(some.len() + rest.len(), 100);
    });
}

#[test]
fn a_shard_that_was_removed_is_noticed_too() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        server.run::<()>(&["DEL", "duly:{main:3}:meta"]);
        store.sweep(now(1), &[]).await.expect("the other shards go on");
        let error = store.health().await.degraded.unwrap();
        assert_eq!(error.kind, StoreErrorKind::Damaged);
        let store = open(&server.url(), Options::new(2)).await.unwrap();
        store.sweep(now(1), &[]).await.unwrap();
    });
}

#[test]
fn a_redis_that_was_killed_comes_back_with_what_was_accepted() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        server.run::<()>(&["CONFIG", "SET", "appendfsync", "always"]);
        insert(&store, (0..100).map(|n| message(&format!("m{n:02}"), 0)).collect()).await.unwrap();
        let held = claim(&store, 1, 10).await.unwrap().messages;
        server.kill();
        let error = insert(&store, vec![message("z", 0)]).await.unwrap_err();
        assert!(error.kind.is_transient(), "{error}");
        assert!(claim(&store, 1, 10).await.is_err());
        server.start();
        // The connection comes back by itself; the first calls may still find the old one.
        let mut answer = store.totals().await;
        for _ in 0..100 {
            if answer.is_ok() {
                break;
            }
            answer = store.totals().await;
        }
        let totals = answer.unwrap();
        assert_eq!((totals.pending, totals.in_flight), (90, 10));
        deliver(&store, 2, &held).await.unwrap();
        assert_eq!(claim(&store, 2, 200).await.unwrap().messages.len(), 90);
    });
}

#[test]
fn an_insert_that_was_cut_off_may_have_been_done_and_one_that_found_no_redis_was_not() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let server = Redis::single();
        let proxy = Proxy::start(server.port()).await;
        let (cut, direct) = (
            open(&proxy.url(), Options::new(1)).await.unwrap(),
            open(&server.url(), Options::new(2)).await.unwrap(),
        );
        insert(&cut, vec![message("a", 0)]).await.unwrap();
        proxy.cut_after("EVALSHA");
        let error = insert(&cut, vec![message("b", 0)]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unanswered, "{error}");
        assert_eq!(direct.totals().await.unwrap().pending, 2, "Redis had done it");
        server.kill();
        let mut kinds = Vec::new();
        // The first may have been written to the connection that is lost; the next ones find none.
        while kinds.len() < 100 && kinds.last() != Some(&StoreErrorKind::Unavailable) {
            kinds.push(insert(&direct, vec![message("c", 0)]).await.unwrap_err().kind);
        }
        assert_eq!(kinds.pop(), Some(StoreErrorKind::Unavailable), "{kinds:?}");
        assert!(kinds.iter().all(|kind| *kind == StoreErrorKind::Unanswered), "{kinds:?}");
    });
}

/// A server, a store that reaches it through a proxy, and a message "b" whose claim Redis made and whose answer was lost.
pub(crate) async fn with_lost_claim() -> (Redis, Proxy, RedisStore) {
    let server = Redis::single();
    let proxy = Proxy::start(server.port()).await;
    let store = open(&proxy.url(), Options::new(1)).await.unwrap();
    insert(&store, vec![message("a", 0)]).await.unwrap();
    // The scripts are known by then: the next call of one is the claim itself.
    let claimed = claim(&store, 1, 10).await.unwrap().messages;
    deliver(&store, 1, &claimed).await.unwrap();
    insert(&store, vec![message("b", 0)]).await.unwrap();
    store.sweep(now(1), &[]).await.unwrap();
    proxy.cut_after("EVALSHA");
    assert_eq!(claim(&store, 1, 10).await.unwrap_err().kind, StoreErrorKind::Unanswered);
    (server, proxy, store)
}

#[test]
fn a_claim_whose_answer_was_lost_is_handed_back_and_counts_nothing() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, _proxy, store) = with_lost_claim().await;
        let claims = || server.run::<u64>(&["HLEN", &shard_key("b", "claim")]);
        assert_eq!(claims(), 1, "Redis made the claim");
        let mut swept = store.sweep(now(2), &[]).await;
        for _ in 0..100 {
            if swept.is_ok() {
                break;
            }
            swept = store.sweep(now(2), &[]).await;
        }
        assert_eq!(swept.unwrap().leases_ended, 0);
        assert_eq!(claims(), 0);
        let again = claim(&store, 3, 10).await.unwrap().messages;
        assert_eq!((again.len(), again[0].attempt, again[0].lost), (1, 1, LeaseLoss::None));
        assert!(store.totals().await.unwrap().balance());
    });
}

#[test]
fn a_claim_that_the_client_sends_twice_gives_the_same_messages_again() {
    use std::io::{Read, Write};
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, proxy, store) = with_lost_claim().await;
        let claims = || server.run::<Vec<Vec<u8>>>(&["HVALS", &shard_key("b", "claim")]);
        let made = claims();
        assert_eq!(made.len(), 1, "Redis made the claim");

        // So a client of a Cluster does by itself when a connection breaks: the same bytes again.
        let mut wire = std::net::TcpStream::connect(("127.0.0.1", server.port())).unwrap();
        wire.write_all(&proxy.caught()).unwrap();
        wire.write_all(b"*1\r\n$4\r\nQUIT\r\n").unwrap();
        let mut answer = Vec::new();
        wire.read_to_end(&mut answer).unwrap();
        let has = |word: &[u8]| answer.windows(word.len()).any(|part| part == word);
        assert!(has(b"body"), "the message is in the second answer: {:?}", String::from_utf8_lossy(&answer));
        let token = u64::from_be_bytes(made[0][..8].try_into().unwrap()).to_string();
        assert!(has(token.as_bytes()), "with the token of the first");
        assert_eq!(claims(), made);
        let totals = store.totals().await.unwrap();
        assert!(totals.balance() && (totals.pending, totals.in_flight) == (0, 1), "{totals:?}");
    });
}

#[test]
fn a_claim_in_doubt_takes_nothing_from_another_node_whose_call_had_the_same_number() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let server = Redis::single();
        let proxy = testkit::servers::proxy::Proxy::to(server.port());
        let named = |name: &str, instance| Options { node: name.into(), ..Options::new(instance) };
        let through = format!("redis://127.0.0.1:{}", proxy.port());
        let (one, two) = (
            open(&through, named("one", 1)).await.unwrap(),
            open(&server.url(), named("two", 2)).await.unwrap(),
        );
        insert(&two, vec![message("a", 0)]).await.unwrap();
        // The first call of one process never arrives; that of the other has the same number.
        proxy.cut_before(b"EVALSHA", 1);
        assert_eq!(claim(&one, 1, 10).await.unwrap_err().kind, StoreErrorKind::Unanswered);
        let held = claim(&two, 1, 10).await.unwrap().messages;
        assert_eq!(held.len(), 1);
        let mut swept = one.sweep(now(2), &[]).await;
        for _ in 0..100 {
            if swept.is_ok() {
                break;
            }
            swept = one.sweep(now(2), &[]).await;
        }
        swept.unwrap();
        assert!(claim(&one, 3, 10).await.unwrap().messages.is_empty(), "it is with the other node");
        let settlement = Settlement::Delivered { receipt: None };
        let settle = Settle { receipt: held[0].receipt.clone(), settlement };
        assert_eq!(two.settle(now(3), vec![settle]).await.unwrap(), [Settled::Done]);
    });
}

#[test]
fn a_master_that_was_demoted_behind_its_address_is_left_for_the_new_one() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (old, new) = (Redis::single(), Redis::single());
        let proxy = Proxy::start(old.port()).await;
        let store = open(&proxy.url(), Options::new(1)).await.unwrap();
        insert(&store, vec![message("a", 0)]).await.unwrap();
        crate::replicas::follow(&new, &old);
        // The address moves; the connection to the old master stands, and that is a replica now.
        new.run::<()>(&["REPLICAOF", "NO", "ONE"]);
        proxy.move_to(new.port());
        crate::replicas::follow(&old, &new);
        let mut answer = insert(&store, vec![message("b", 0)]).await;
        for _ in 0..20 {
            if answer.is_ok() {
                break;
            }
            answer = insert(&store, vec![message("b", 0)]).await;
        }
        answer.unwrap();
        store.sweep(now(1), &[lane("work")]).await.unwrap();
        assert_eq!(claim(&store, 1, 10).await.unwrap().messages.len(), 2);
    });
}

pub(crate) fn shard_key(text: &str, name: &str) -> String {
    format!("duly:{{main:{}}}:{name}", id(text).hash64() % 16)
}

#[test]
fn a_hint_tells_other_processes_of_what_is_due_soon() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, one) = single().await;
        let other = open(&server.url(), Options::new(2)).await.unwrap();
        let hint = tokio::spawn(async move { one.hint().await });
        // No event says when the subscription is active: send hints until one is received.
        let mut sent = 0;
        while !hint.is_finished() && sent < 10_000 {
            insert(&other, vec![message(&format!("m{sent}"), 1000)]).await.unwrap();
            sent += 1;
        }
        let hint = hint.await.unwrap();
        assert_eq!((hint.lane, hint.due), (lane("work"), crate::bed::ms(1000)));
    });
}
