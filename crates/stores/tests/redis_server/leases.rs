//! What a sweep does before it ends leases: no claim without an answer counts an attempt, and nothing delivered is delivered again.

use duly_core::{
    LeaseLoss, Store,
    store::{Settle, Settled, Settlement, StoreErrorKind, Sweep},
};
use duly_stores::{RedisStore, redis::Options};
use testkit::{
    block_on,
    servers::redis::{self, Redis},
};

use crate::{
    bed::{claim, insert, lane, message, now, open, single},
    faults::{shard_key, with_lost_claim},
    proxy::Proxy,
};

/// When every lease is over that the tests took.
const OVER: u64 = 31_000;

/// A sweep over a connection that may have to come back first.
async fn sweep(store: &RedisStore, at: u64) -> Sweep {
    for _ in 0..100 {
        if let Ok(swept) = store.sweep(now(at), &[lane("work")]).await {
            return swept;
        }
    }
    panic!("no sweep succeeds");
}

/// Something else writes to a key of Duly's, so that the shard of the key fails.
fn damage(server: &Redis, key: &str) {
    server.run::<()>(&["RENAME", key, "kept"]);
    server.run::<()>(&["SET", key, "x"]);
}

fn repair(server: &Redis, key: &str) {
    server.run::<()>(&["RENAME", "kept", key]);
}

#[test]
fn a_claim_without_an_answer_is_released_before_leases_end_in_a_shard_that_has_come_back() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, _proxy, store) = with_lost_claim().await;
        let key = shard_key("b", "claim");
        damage(&server, &key);
        sweep(&store, 2).await;
        assert!(store.health().await.degraded.unwrap().what.contains("1 of 16 shards fail"));
        repair(&server, &key);
        assert_eq!(sweep(&store, OVER).await.leases_ended, 0);
        let again = claim(&store, OVER, 10).await.unwrap().messages;
        assert_eq!((again.len(), again[0].attempt, again[0].lost), (1, 1, LeaseLoss::None));
        assert!(store.totals().await.unwrap().balance());
    });
}

#[test]
fn an_outcome_that_was_put_off_is_recorded_at_once_in_a_shard_that_has_come_back() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        insert(&store, vec![message("b", 0)]).await.unwrap();
        let held = claim(&store, 1, 10).await.unwrap().messages;
        let key = shard_key("b", "claim");
        damage(&server, &key);
        sweep(&store, 2).await;
        let settle =
            Settle { receipt: held[0].receipt.clone(), settlement: Settlement::Delivered { receipt: None } };
        assert_eq!(store.settle(now(3), vec![settle]).await.unwrap(), [Settled::Unknown]);
        repair(&server, &key);
        // The lease is nearly over: the next sweep would come too late.
        sweep(&store, OVER - 2_000).await;
        assert_eq!(sweep(&store, OVER).await.leases_ended, 0);
        let totals = store.totals().await.unwrap();
        assert!(totals.balance() && (totals.delivered, totals.pending) == (1, 0), "{totals:?}");
    });
}

#[test]
fn leases_end_though_claims_without_an_answer_cannot_be_released() {
    /// As many as a script claims, and as a sweep ends in a shard.
    const AT_ONCE: usize = 200;
    if !redis::installed() {
        return;
    }
    block_on(async {
        let server = Redis::single();
        let proxy = Proxy::start(server.port()).await;
        let store = open(&proxy.url(), Options { shards: 1, ..Options::new(1) }).await.unwrap();
        let messages = (0..=AT_ONCE).map(|n| message(&format!("m{n:03}"), 0)).collect();
        insert(&store, messages).await.unwrap();
        // The script is known by then: the next call of one is the claim itself.
        store.sweep(now(0), &[]).await.unwrap();
        let known = claim(&store, 0, 1).await.unwrap().messages;
        let release = Settle { receipt: known[0].receipt.clone(), settlement: Settlement::Release };
        store.settle(now(0), vec![release]).await.unwrap();
        proxy.cut_after("EVALSHA");
        claim(&store, 1, AT_ONCE).await.unwrap_err();
        let mut held = claim(&store, 2, 1).await;
        for _ in 0..100 {
            if held.is_ok() {
                break;
            }
            held = claim(&store, 2, 1).await;
        }
        let held = held.unwrap().messages;
        assert_eq!(held.len(), 1);
        let in_flight = || server.run::<usize>(&["ZCARD", "duly:{main:0}:lease"]);
        assert_eq!(in_flight(), AT_ONCE + 1);

        // A release reads single claims; the end of leases reads many at once.
        let all_but_claims = "(+hget ~duly:{main}:* ~duly:{main:0}:meta)";
        server.run::<()>(&["ACL", "SETUSER", "default", "-hget", all_but_claims]);
        let swept = sweep(&store, OVER).await;
        assert_eq!((swept.leases_ended, in_flight()), (1, AT_ONCE), "only the one with an answer");
        assert_eq!(swept.next_lease_end, None, "no lease ends later");
        server.run::<()>(&["ACL", "SETUSER", "default", "clearselectors", "+hget"]);
        assert_eq!((sweep(&store, OVER).await.leases_ended, in_flight()), (0, 0));
        let again = claim(&store, OVER, 2 * AT_ONCE).await.unwrap().messages;
        assert!(!again.is_empty());
        for leased in again.iter().filter(|leased| leased.message.id != held[0].message.id) {
            assert_eq!((leased.attempt, leased.lost), (1, LeaseLoss::None));
        }
        assert!(store.totals().await.unwrap().balance());
    });
}

#[test]
fn leases_end_though_the_store_has_lost_the_key_by_which_nodes_say_that_they_are_there() {
    if !redis::installed() {
        return;
    }
    block_on(async {
        let (server, store) = single().await;
        insert(&store, vec![message("b", 0)]).await.unwrap();
        assert_eq!(claim(&store, 1, 10).await.unwrap().messages.len(), 1);
        server.run::<()>(&["DEL", "duly:{main}:store"]);
        let error = store.sweep(now(OVER), &[lane("work")]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Damaged, "{error}");
        assert_eq!(server.run::<usize>(&["ZCARD", &shard_key("b", "lease")]), 0);
    });
}
