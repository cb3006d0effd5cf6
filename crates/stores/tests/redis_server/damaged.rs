//! Messages whose values in Redis something else wrote to: each is a dead letter, and its neighbours are delivered.

use duly_core::{
    Attempt, DeadReason, Lane, MessageId, Outcome, State, Store, StoredMessage, Tag,
    store::{Changed, Claim, Health, Holder, Inserted, Query, Settle, Settled, Settlement, StoreErrorKind},
};
use duly_stores::{RedisStore, redis::Options};
use testkit::{
    block_on,
    servers::redis::{self, Redis},
};

use crate::{
    bed::{claim, deliver, id, insert, lane, message, ms, now, open, single},
    in_store_delivery,
};

const LEASE_MS: u64 = 30_000;

/// What a value is made into, in Lua: `v` is what it was.
const DAMAGES: [(&str, &str); 10] = [
    ("nothing", "false"),
    ("an empty value", "''"),
    ("five bytes", "v:sub(1, 5)"),
    ("a value that is cut off in the middle", "v:sub(1, 40)"),
    ("text of something else", "('{\"hello\": true}'):rep(9)"),
    ("another lane", "(v:gsub('work', 'play'))"),
    ("a history that is too short", "(v:gsub('no answer', 'no'))"),
    ("more tries than its history has", "(v:gsub('\\1(......\\7%z\\9no answer)', '\\200%1'))"),
    ("a tag that is no text", "(v:gsub('red', '\\255\\255\\255'))"),
    ("a state that is none", "string.char(v:byte(1) + 6) .. v:sub(2)"),
];

fn shard_of(text: &str) -> u64 {
    id(text).hash64() % 16
}

/// The ids of messages that are all in one shard.
fn of_one_shard(count: usize) -> Vec<String> {
    let names = (0..).map(|n| format!("m{n:04}"));
    names.filter(|name| shard_of(name) == 3).take(count).collect()
}

fn key(text: &str, name: &str) -> String {
    format!("duly:{{main:{}}}:{name}", shard_of(text))
}

/// Makes the value of this message into another.
fn damage(server: &Redis, text: &str, into: &str) {
    let script = format!(
        "local v = redis.call('HGET', KEYS[1], ARGV[1]) local new = {into} \
         if new then redis.call('HSET', KEYS[1], ARGV[1], new) else redis.call('HDEL', KEYS[1], ARGV[1]) end \
         return new == v and 1 or 0"
    );
    let same: u8 = server.run(&["EVAL", &script, "1", &key(text, "msg"), text]);
    assert_eq!(same, 0, "{into} changes it");
}

fn tagged(text: &str) -> StoredMessage {
    let mut message = message(text, 0);
    message.tag = Some(Tag::parse("red").unwrap());
    message
}

/// Three messages of one shard that failed once, and wait again.
async fn three_that_failed_once(store: &RedisStore) -> Vec<String> {
    let names = of_one_shard(3);
    insert(store, names.iter().map(|name| tagged(name)).collect()).await.unwrap();
    let claimed = claim(store, 1, 10).await.unwrap().messages;
    let attempt = Attempt::new(ms(1), Outcome::Failed, "no answer");
    let settle =
        |receipt| Settle { receipt, settlement: Settlement::Retry { at: ms(10), attempt: attempt.clone() } };
    let batch = claimed.into_iter().map(|leased| settle(leased.receipt)).collect();
    assert_eq!(store.settle(now(1), batch).await.unwrap(), [Settled::Done; 3]);
    names
}

/// Runs `case`, if Redis is installed, on a server of its own and a store in it.
fn with_store(case: impl AsyncFnOnce(Redis, RedisStore)) {
    if redis::installed() {
        block_on(async {
            let (server, store) = single().await;
            case(server, store).await;
        });
    }
}

/// The same, with [three messages](three_that_failed_once) in the store.
fn with_three(case: impl AsyncFnOnce(Redis, RedisStore, Vec<String>)) {
    with_store(async |server, store| {
        let names = three_that_failed_once(&store).await;
        case(server, store, names).await;
    });
}

/// The same, when the messages are claimed.
fn with_three_claimed(case: impl AsyncFnOnce(Redis, RedisStore, Vec<String>)) {
    with_three(async |server, store, names| {
        assert_eq!(claim(&store, 20, 10).await.unwrap().messages.len(), 3);
        case(server, store, names).await;
    });
}

/// Claims and delivers three times: suspects are claimed one at a time. Returns the ids.
async fn deliver_suspects(store: &RedisStore) -> Vec<String> {
    let mut ids = Vec::new();
    for _ in 0..3 {
        let claimed = claim(store, 21 + LEASE_MS, 10).await.unwrap().messages;
        ids.extend(claimed.iter().map(|leased| leased.message.id.to_string()));
        deliver(store, 22 + LEASE_MS, &claimed).await.unwrap();
    }
    ids
}

/// The ids of all pending messages.
async fn pending(store: &RedisStore) -> Vec<String> {
    let records = store.list(&Query::all(State::Pending)).await.unwrap().records;
    records.iter().map(|record| record.message.id.to_string()).collect()
}

/// One message of three is a dead letter that says so; nothing else of it is left.
async fn one_is_set_aside(store: &RedisStore, damaged: &str, what: &str) {
    assert_eq!(store.metrics().damaged, 1, "{what}");
    let dead = store.list(&Query::all(State::Dead)).await.unwrap().records;
    assert_eq!(dead.len(), 1, "{what}");
    assert_eq!(
        (dead[0].message.id.as_str(), dead[0].reason, dead[0].message.lane()),
        (damaged, Some(DeadReason::Damaged), lane("work")),
        "{what}"
    );
    assert!(dead[0].history[0].detail.contains("cannot be read"), "{what}: {:?}", dead[0].history);
    let totals = store.totals().await.unwrap();
    assert!(totals.balance(), "{what}: {totals:?}");
    assert_eq!((totals.accepted, totals.dead, totals.pending, totals.in_flight), (3, 1, 0, 0), "{what}");
    let lanes = store.lanes(now(LEASE_MS * 3)).await.unwrap();
    assert_eq!(lanes.len(), 1, "{what}: {lanes:?}");
    assert_eq!((lanes[0].dead, lanes[0].pending, lanes[0].in_flight), (1, 0, 0), "{what}");
    assert_eq!(store.health().await.whole(), Ok(()), "{what}");

    assert_eq!(
        store.replay(now(1), &[id(damaged)]).await.unwrap(),
        [Changed::TooLate(State::Dead)],
        "{what}: nobody knows what it said"
    );
    assert!(matches!(store.purge(now(1), &[id(damaged)]).await.unwrap()[..], [Changed::Done { .. }]));
    let totals = store.totals().await.unwrap();
    assert!(totals.balance() && totals.purged == 1, "{what}: {totals:?}");
}

#[test]
fn a_message_that_something_else_wrote_to_is_a_dead_letter_and_its_neighbours_are_delivered() {
    for (what, into) in DAMAGES {
        with_three(async |server, store, names| {
            damage(&server, &names[1], into);
            let claimed = claim(&store, 20, 10).await.unwrap().messages;
            let got: Vec<_> = claimed.iter().map(|leased| leased.message.id.as_str()).collect();
            assert_eq!(got, [&names[0], &names[2]], "{what}");
            let swept = store.sweep(now(20), &[lane("work")]).await.unwrap();
            assert_eq!((swept.leases_ended, swept.next.len()), (0, 0), "{what}");
            deliver(&store, 21, &claimed).await.unwrap();
            assert!(claim(&store, LEASE_MS * 2, 10).await.unwrap().messages.is_empty(), "{what}: it is gone");
            one_is_set_aside(&store, &names[1], what).await;
        });
    }
}

#[test]
fn a_message_that_something_else_wrote_to_while_it_was_claimed_keeps_no_lease_from_ending() {
    for (what, into) in DAMAGES {
        with_three_claimed(async |server, store, names| {
            damage(&server, &names[1], into);
            let swept = store.sweep(now(20 + LEASE_MS), &[lane("work")]).await.unwrap();
            assert_eq!((swept.leases_ended, swept.next.len()), (3, 1), "{what}");
            // One that only Rust cannot read is among them.
            let got = deliver_suspects(&store).await;
            assert_eq!(got, [names[0].clone(), names[2].clone()], "{what}");
            one_is_set_aside(&store, &names[1], what).await;
        });
    }
}

#[test]
fn an_outcome_of_a_message_that_cannot_be_read_keeps_no_other_from_being_recorded() {
    with_three(async |server, store, names| {
        let claimed = claim(&store, 20, 10).await.unwrap().messages;
        damage(&server, &names[1], "v:sub(1, 40)");
        let settle = |receipt| Settle { receipt, settlement: Settlement::Delivered { receipt: None } };
        let batch = claimed.into_iter().map(|leased| settle(leased.receipt)).collect();
        let settled = store.settle(now(21), batch).await.unwrap();
        assert_eq!(settled, [Settled::Done, Settled::Lost, Settled::Done]);
        let dead = store.get(&[id(&names[1])]).await.unwrap().remove(0).unwrap();
        assert!(dead.maybe_delivered, "it may have arrived");
        one_is_set_aside(&store, &names[1], "an outcome").await;
    });
}

#[test]
fn a_message_that_cannot_be_read_fails_no_question_about_others() {
    with_store(async |server, store| {
        let names = of_one_shard(4);
        let ids: Vec<MessageId> = names.iter().map(|name| id(name)).collect();
        let all = || names.iter().map(|name| message(name, 0)).collect();
        insert(&store, all()).await.unwrap();
        damage(&server, &names[1], "''");
        damage(&server, &names[3], "v:sub(1, 20)");
        assert_eq!(pending(&store).await, [names[0].clone(), names[2].clone()]);
        assert!(store.get(&[ids[0].clone(), ids[2].clone()]).await.unwrap().iter().all(Option::is_some));
        for n in [1, 3] {
            for error in [
                store.get(&ids[n..=n]).await.unwrap_err(),
                store.cancel(now(1), &ids[n..=n]).await.unwrap_err(),
            ] {
                assert!(error.kind == StoreErrorKind::Damaged && error.what.contains(&names[n]), "{error}");
            }
        }
        let is_duplicate = |answer: &Inserted| matches!(answer, Inserted::Duplicate { .. });
        let again = insert(&store, all()).await.unwrap();
        assert!(again[1] == Inserted::Conflict, "whether it is the same is not known: {again:?}");
        assert!([0, 2, 3].iter().all(|n| is_duplicate(&again[*n])), "{again:?}");
        let changed = store.cancel(now(1), &ids).await.unwrap();
        for (n, changed) in changed.into_iter().enumerate() {
            let is_damaged = n % 2 == 1;
            assert_eq!(changed == Changed::TooLate(State::Pending), is_damaged, "{n}: {changed:?}");
            assert_eq!(matches!(changed, Changed::Done { .. }), !is_damaged, "{n}: {changed:?}");
        }
        let cancelled = store.list(&Query::all(State::Cancelled)).await.unwrap().records;
        assert_eq!(cancelled.len(), 2);
        assert!(claim(&store, 1, 10).await.unwrap().messages.is_empty());
        assert_eq!(store.metrics().damaged, 2);
        let again = insert(&store, vec![message(&names[3], 0)]).await.unwrap();
        assert!(matches!(again[..], [Inserted::Duplicate { state: State::Dead, .. }]), "{again:?}");
        assert!(store.totals().await.unwrap().balance());
    });
}

#[test]
fn a_message_that_cannot_be_read_keeps_no_other_from_expiring() {
    with_three(async |server, store, names| {
        let batch: Vec<_> = names.iter().map(|name| (id(name), ms(0))).collect();
        // A history with one try less than its bytes have.
        damage(&server, &names[1], "(v:gsub('\\1(......\\7%z\\9no answer)', '\\0%1'))");
        let listed = pending(&store).await;
        assert_eq!(listed, [names[0].clone(), names[2].clone()], "what scripts refuse is not listed");
        assert_eq!(
            store.expire(now(11), &batch[1..2]).await.unwrap(),
            [Changed::TooLate(State::Pending)],
            "alone, it keeps no round from its end"
        );
        let expired = store.expire(now(11), &batch).await.unwrap();
        assert_eq!(expired[1], Changed::TooLate(State::Pending));
        assert!([0, 2].iter().all(|n| matches!(expired[*n], Changed::Done { .. })), "{expired:?}");
        let dead: Vec<_> = names.iter().map(|name| id(name)).collect();
        damage(&server, &names[2], "v:sub(1, 40)");
        let replayed = store.replay(now(12), &dead).await.unwrap();
        assert!(matches!(replayed[0], Changed::Done { .. }), "{replayed:?}");
        assert_eq!(replayed[1..], [Changed::TooLate(State::Dead), Changed::TooLate(State::Dead)]);
    });
}

/// Each byte of a packed message is made into others, and each is taken out: two readers look at the same bytes.
#[test]
fn what_is_listed_of_a_damaged_message_scripts_read_too() {
    with_store(async |server, store| {
        let name = three_that_failed_once(&store).await.remove(0);
        let (key, ids) = (key(&name, "msg"), [id(&name)]);
        server.run::<()>(&[
            "EVAL",
            "redis.call('SET', 'whole', redis.call('HGET', KEYS[1], ARGV[1]))",
            "1",
            &key,
            &name,
        ]);
        let len: usize = server.run(&["STRLEN", "whole"]);
        let (mut read, mut refused) = (0, 0);
        for at in 1..=len {
            let change = |by: u8| format!("string.char((v:byte({at}) + {by}) % 256)");
            for new in [change(1), change(255), change(64), "''".to_owned(), "v:sub(1, 9)".to_owned()] {
                let script = format!(
                    "local v = redis.call('GET', 'whole') \
                     redis.call('HSET', KEYS[1], ARGV[1], v:sub(1, {at} - 1) .. {new} .. v:sub({at} + 1))"
                );
                server.run::<()>(&["EVAL", &script, "1", &key, &name]);
                let is_read = store.get(&ids).await.is_ok();
                // A look by a script: what is pending cannot be purged.
                let by_script = store.purge(now(11), &ids).await;
                assert!(!is_read || by_script.is_ok(), "byte {at} is {new}: {by_script:?}");
                *(if is_read { &mut read } else { &mut refused }) += 1;
            }
        }
        assert!(read > len && refused > len / 2, "{read} were read, {refused} were not");
    });
}

#[test]
fn claims_of_a_process_that_is_gone_are_ended_though_one_cannot_be_read() {
    with_three_claimed(async |server, store, names| {
        store.close().await.unwrap();
        damage(&server, &names[1], "v:sub(1, 40)");
        server.run::<()>(&["HSET", &key(&names[2], "claim"), &names[2], "x"]);
        let store = RedisStore::open(&server.url(), Options::new(2), now(30)).await.unwrap();
        let mut got = Vec::new();
        for at in [30, 31, 30 + LEASE_MS, 31 + LEASE_MS] {
            store.sweep(now(at), &[lane("work")]).await.unwrap();
            let claimed = claim(&store, at, 10).await.unwrap().messages;
            got.extend(claimed.iter().map(|leased| leased.message.id.to_string()));
            deliver(&store, at, &claimed).await.unwrap();
        }
        assert_eq!(
            got,
            [names[0].clone(), names[2].clone()],
            "the one with the damaged claim when its lease ended"
        );
        one_is_set_aside(&store, &names[1], "a restart").await;
    });
}

#[test]
fn a_claim_that_is_text_of_something_else_costs_its_message_nothing_and_its_shard_nothing() {
    // Shorter and longer than a lane may be, behind what is packed of a claim.
    for len in [60, 400] {
        with_three_claimed(async |server, store, names| {
            let text: String = "{\"hello\": \"other\"}".chars().cycle().take(len).collect();
            server.run::<()>(&["HSET", &key(&names[1], "claim"), &names[1], &text]);
            let swept = store.sweep(now(20 + LEASE_MS), &[lane("work")]).await.unwrap();
            assert_eq!(swept.leases_ended, 3, "{len}");
            let got = deliver_suspects(&store).await;
            assert_eq!((got, store.metrics().damaged), (names, 0), "{len}");
            let totals = store.totals().await.unwrap();
            assert!(totals.balance() && totals.delivered == 3, "{len}: {totals:?}");
            let counters: Vec<String> = server.run(&["HKEYS", "duly:{main:3}:count"]);
            assert!(counters.iter().all(|field| field.starts_with('#')), "{len}: {counters:?}");
        });
    }
}

#[test]
fn a_damaged_message_whose_claim_names_no_lane_is_no_longer_counted_as_in_flight_in_its_own() {
    with_three_claimed(async |server, store, names| {
        // As older versions packed it.
        let cut = "redis.call('HSET', KEYS[1], ARGV[1], redis.call('HGET', KEYS[1], ARGV[1]):sub(1, 48))";
        server.run::<()>(&["EVAL", cut, "1", &key(&names[1], "claim"), &names[1]]);
        damage(&server, &names[1], "v:sub(1, 40)");
        store.sweep(now(20 + LEASE_MS), &[lane("work")]).await.unwrap();
        deliver_suspects(&store).await;
        let counters: Vec<String> = server.run(&["HKEYS", "duly:{main:3}:count"]);
        assert!(counters.iter().all(|field| !field.starts_with('f')), "{counters:?}");
        one_is_set_aside(&store, &names[1], "a claim without a lane").await;
    });
}

#[test]
fn a_message_sent_again_after_its_value_was_removed_is_listed_once() {
    with_three(async |server, store, names| {
        // Nobody knows then by which due time it lies among those that were retried.
        damage(&server, &names[1], "false");
        let claimed = claim(&store, 20, 10).await.unwrap().messages;
        deliver(&store, 21, &claimed).await.unwrap();
        assert_eq!(pending(&store).await, [""; 0]);
        assert!(matches!(store.purge(now(22), &[id(&names[1])]).await.unwrap()[..], [Changed::Done { .. }]));
        insert(&store, vec![message(&names[1], 5_000)]).await.unwrap();
        let listed = store.list(&Query::all(State::Pending)).await.unwrap().records;
        let listed: Vec<_> =
            listed.into_iter().map(|record| (record.message.id, record.message.due)).collect();
        assert_eq!(listed, [(id(&names[1]), ms(5_000))]);
    });
}

#[test]
fn lanes_are_told_though_a_counter_beside_theirs_cannot_be_read() {
    with_store(async |server, store| {
        insert(&store, vec![message("m", 0)]).await.unwrap();
        for (field, count) in [("f{\"hello\"", "-1"), ("d{\"hello\"", "1"), ("fqplay", "many")] {
            server.run::<()>(&["HSET", "duly:{main:3}:count", field, count]);
        }
        let lanes = store.lanes(now(1)).await.unwrap();
        assert_eq!(lanes.iter().map(|status| status.lane.clone()).collect::<Vec<_>>(), [lane("work")]);
        assert_eq!(lanes[0].pending, 1);
    });
}

#[test]
fn what_goes_into_streams_goes_there_once_though_a_message_beside_it_cannot_be_read() {
    if !redis::installed() {
        return;
    }
    for (what, into) in DAMAGES.into_iter().filter(|(_, into)| !into.contains("gsub")) {
        block_on(async {
            let (server, store, in_store) = in_store_delivery::bed().await;
            // The stream is known from then on.
            insert(&store, vec![in_store_delivery::to("orders", "first", 0)]).await.unwrap();
            assert_eq!(in_store.deliver_due(now(0), 100).await.unwrap().messages.len(), 1);
            let names = of_one_shard(5);
            let all = names.iter().map(|name| in_store_delivery::to("orders", name, 0)).collect();
            insert(&store, all).await.unwrap();
            damage(&server, &names[2], into);
            let mut moved = 0;
            for at in 1..4 {
                moved += in_store.deliver_due(now(at), 100).await.unwrap().messages.len();
                let claim = Claim {
                    lane: Lane::Sink(in_store_delivery::sink()),
                    limit: 10,
                    lease: std::time::Duration::from_millis(LEASE_MS),
                    holder: Holder::Process,
                };
                assert!(store.claim(now(at), claim).await.unwrap().messages.is_empty(), "{what}");
            }
            assert_eq!((moved, server.run::<usize>(&["XLEN", "orders"])), (4, 5), "{what}");
            let dead = store.list(&Query::all(State::Dead)).await.unwrap().records;
            assert_eq!((dead.len(), dead[0].reason), (1, Some(DeadReason::Damaged)), "{what}");
            assert_eq!(dead[0].message.lane(), Lane::Sink(in_store_delivery::sink()), "{what}");
            let totals = store.totals().await.unwrap();
            assert!(totals.balance() && totals.delivered == 5, "{what}: {totals:?}");
        });
    }
}

#[test]
fn a_counter_that_is_no_number_stops_its_shard_and_no_other() {
    with_store(async |server, store| {
        insert(&store, (0..200).map(|n| message(&format!("m{n}"), 0)).collect()).await.unwrap();
        server.run::<()>(&["HSET", "duly:{main:3}:count", "#in_flight", "many"]);
        let mut got = 0;
        for at in 1..20 {
            let claimed = claim(&store, at, 100).await.unwrap().messages;
            assert!(claimed.iter().all(|leased| leased.receipt.shard != 3));
            got += claimed.len();
        }
        assert_eq!(got, (0..200).filter(|n| shard_of(&format!("m{n}")) != 3).count());
        store.sweep(now(20 + LEASE_MS), &[lane("work")]).await.unwrap();
        store.close().await.unwrap();
        let store = open(&server.url(), Options::new(2)).await.unwrap();
        let error = store.health().await.degraded.unwrap();
        assert!(error.kind == StoreErrorKind::Damaged && error.what.contains("shard 3"), "{error}");
        let insert = insert(&store, vec![message("another", 0)]).await.unwrap();
        assert_eq!((insert, shard_of("another") == 3), (vec![Inserted::Accepted], false));
    });
}

/// Members of `wait` of the lane `queue/work` that name no message, in Lua: `tag` is that of the lane.
const UNREADABLE_MEMBERS: [(&str, &str); 5] = [
    ("nothing behind the tag", "tag"),
    ("a time that is cut off", "tag .. 'abc'"),
    ("no id", "tag .. '\\0\\0\\0\\0\\0\\1\\5'"),
    ("an id that is none", "tag .. '\\0\\0\\0\\0\\0\\1\\5a b'"),
    ("bytes that are no text", "tag .. '\\0\\0\\0\\0\\0\\1\\5\\255\\254'"),
];

#[test]
fn a_waiting_entry_that_cannot_be_read_is_removed_and_its_shard_works_on() {
    for (what, member) in UNREADABLE_MEMBERS {
        with_store(async |server, store| {
            let names = of_one_shard(3);
            insert(&store, names.iter().map(|name| message(name, 0)).collect()).await.unwrap();
            let script = format!("local tag = 'qwork\\0' return redis.call('ZADD', KEYS[1], 0, {member})");
            let added: u8 = server.run(&["EVAL", &script, "1", &key(&names[0], "wait")]);
            assert_eq!(added, 1, "{what}");
            let listed = pending(&store).await;
            assert_eq!(listed, names, "{what}: it is in no list");
            store.sweep(now(1), &[lane("work")]).await.unwrap();
            let claimed = claim(&store, 2, 10).await.unwrap().messages;
            let ids: Vec<_> = claimed.iter().map(|leased| leased.message.id.to_string()).collect();
            assert_eq!(ids, names, "{what}");
            assert_eq!(store.metrics().damaged, 1, "{what}");
            assert_eq!(store.health().await, Health::healthy(), "{what}");
            deliver(&store, 3, &claimed).await.unwrap();
            let swept = store.sweep(now(4), &[lane("work")]).await.unwrap();
            assert_eq!(swept.next, [], "{what}: nothing waits");
            let totals = store.totals().await.unwrap();
            assert!(totals.balance() && totals.delivered == 3, "{what}: {totals:?}");
        });
    }
}

#[test]
fn more_unreadable_waiting_entries_than_a_claim_reads_hold_up_no_message_behind_them() {
    with_store(async |server, store| {
        let names = of_one_shard(3);
        insert(&store, names.iter().map(|name| message(name, 0)).collect()).await.unwrap();
        let script =
            "for i = 1, 40 do redis.call('ZADD', KEYS[1], 0, 'qwork\\0\\0\\0\\0\\0\\0\\1\\5 ' .. i) end";
        server.run::<()>(&["EVAL", script, "1", &key(&names[0], "wait")]);
        let claimed = claim(&store, 1, 3).await.unwrap().messages;
        assert_eq!(claimed.len(), 3);
        assert_eq!(store.metrics().damaged, 40);
    });
}
