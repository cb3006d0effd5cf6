//! Commits whose answers get lost: whatever was asked for is done once, and answered as if nothing had happened.

use duly_core::{
    LeaseLoss, State, Store,
    store::{Changed, Inserted, Settled, StoreErrorKind},
};
use duly_stores::{SqlStore, sql::Options};
use sqlx::Connection;
use testkit::servers::proxy::Proxy;

use crate::{
    bed::{LEASE, bury, claim, deliver, id, ids, insert, lane, message, messages, ms, now, state, totals},
    server::{Bed, both, until},
};

const DONE: Changed = Changed::Done { maybe_delivered: false };

/// A store at the end of a wire, with two messages in it, so that the lane is known and the connection is there.
pub(crate) async fn at_the_wire(bed: &Bed) -> (Proxy, SqlStore) {
    let wire = bed.wire();
    let store = bed.store_over(&wire, Options::new(1)).await;
    insert(&store, vec![message("known", 10_000), message("late", 20_000)]).await.unwrap();
    (wire, store)
}

/// The database makes a claim, and its caller gives up before the answer.
pub(crate) async fn give_up_a_claim(wire: &Proxy, store: &SqlStore, limit: usize) {
    let met = wire.needles_met();
    wire.cut_after(b"COMMIT", 1);
    wire.then_hold();
    tokio::select! {
        _ = claim(store, 1, limit) => panic!("the wire is held"),
        () = async {
            // The database makes the claim a moment before the wire breaks and is held.
            while wire.needles_met() == met {
                tokio::task::yield_now().await;
            }
        } => {}
    }
    wire.release();
}

/// How the wire breaks at a commit.
type Break = fn(&Proxy);
const BREAKS: [Break; 2] = [|wire| wire.cut_after(b"COMMIT", 1), |wire| wire.cut_before(b"COMMIT", 1)];

both! {
    fn an_insert_is_accepted_and_counted_once(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        for (round, breaks) in BREAKS.into_iter().enumerate() {
            let before = totals(&store).await;
            breaks(&wire);
            let new = |n: u64| message(&format!("{round}-{n}"), 0);
            let mut other = message("late", 0);
            other.body = duly_core::Body::text("other");
            let answers = insert(&store, vec![new(1), message("known", 0), other, new(0)]).await.unwrap();
            let duplicate = Inserted::Duplicate { due: ms(10_000), state: State::Pending };
            assert_eq!(answers, [Inserted::Accepted, duplicate, Inserted::Conflict, Inserted::Accepted]);
            assert_eq!(wire.needles_met(), round + 1);
            let after = totals(&store).await;
            assert_eq!((after.accepted, after.pending), (before.accepted + 2, before.pending + 2));
        }
    }

    fn what_is_claimed_is_in_hand_and_counted_once(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        insert(&store, messages(20)).await.unwrap();
        for (round, breaks) in BREAKS.into_iter().enumerate() {
            breaks(&wire);
            let claimed = claim(&store, 1, 10).await.unwrap().messages;
            assert_eq!((claimed.len(), wire.needles_met()), (10, round + 1));
            assert!(claimed.iter().all(|leased| leased.attempt == 1 && leased.lost == LeaseLoss::None));
            let held = totals(&store).await;
            assert_eq!((held.in_flight, held.pending), (10, 12 - 10 * round as u64));
            assert_eq!(deliver(&store, 2, &claimed).await.unwrap(), [Settled::Done; 10]);
        }
        assert_eq!(totals(&store).await.delivered, 20);
    }

    fn settles_are_done_and_counted_once(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        insert(&store, messages(20)).await.unwrap();
        for (round, breaks) in BREAKS.into_iter().enumerate() {
            let claimed = claim(&store, 1, 10).await.unwrap().messages;
            breaks(&wire);
            let mut held = claimed.clone();
            held.push(claimed[0].clone());
            let settled = deliver(&store, 2, &held).await.unwrap();
            assert_eq!(settled[..10], [Settled::Done; 10]);
            assert_eq!(settled[10], Settled::Lost, "twice in one call is lost the second time");
            assert_eq!(wire.needles_met(), round + 1);
            assert_eq!(totals(&store).await.delivered, 10 * (round as u64 + 1));
        }
        let record = store.get(&[id("m000")]).await.unwrap().remove(0).unwrap();
        assert_eq!((record.attempts, record.history.len()), (1, 1));
    }

    fn changes_of_mind_are_done_and_counted_once(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        for (round, breaks) in BREAKS.into_iter().enumerate() {
            let (a, b) = (format!("a{round}"), format!("b{round}"));
            insert(&store, vec![message(&a, 0), message(&b, 0)]).await.unwrap();
            breaks(&wire);
            let stranger = id("stranger");
            assert_eq!(store.cancel(now(1), &[id(&a), stranger.clone()]).await.unwrap(), [DONE, Changed::Unknown]);
            assert_eq!(state(&store, &a).await, Some(State::Cancelled));
            breaks(&wire);
            assert_eq!(store.reschedule(now(1), &[(id(&b), ms(5))]).await.unwrap(), [DONE]);
            assert_eq!(store.get(&[id(&b)]).await.unwrap()[0].as_ref().unwrap().ready, ms(5));

            bury(&store, 5, &claim(&store, 5, 1).await.unwrap().messages).await;
            breaks(&wire);
            assert_eq!(store.replay(now(6), &[id(&b)]).await.unwrap(), [DONE]);
            assert_eq!(state(&store, &b).await, Some(State::Pending));
            bury(&store, 7, &claim(&store, 7, 1).await.unwrap().messages).await;
            breaks(&wire);
            assert_eq!(store.purge(now(8), &[id(&b), stranger]).await.unwrap(), [DONE, Changed::Unknown]);
            assert_eq!(state(&store, &b).await, None);
            assert_eq!(wire.needles_met(), 4 * (round + 1));
            let totals = totals(&store).await;
            assert_eq!((totals.cancelled, totals.purged, totals.dead), (round as u64 + 1, round as u64 + 1, 0));
        }
    }

    fn a_sweep_ends_leases_and_takes_strangers_in_once(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        let over = LEASE.as_millis() as u64 + 1;
        for (round, breaks) in BREAKS.into_iter().enumerate() {
            let lost = format!("lost{round}");
            insert(&store, vec![message(&lost, 0)]).await.unwrap();
            let at = 100_000 * round as u64;
            claim(&store, at, 1).await.unwrap();
            store.sweep(now(at), &[lane("work")]).await.unwrap();
            bed.sql(&format!(
                "INSERT INTO delay_message (message_id, topic, deliver_time_ms) VALUES ('strange{round}', 'work', 0)"
            ));
            breaks(&wire);
            let ended = store.sweep(now(at + over), &[lane("work")]).await.unwrap().leases_ended;
            assert_eq!((ended, wire.needles_met()), (1, 2 * round + 1));
            let record = store.get(&[id(&lost)]).await.unwrap().remove(0).unwrap();
            assert_eq!((record.state, record.attempts), (State::Pending, 1));
            assert_eq!(state(&store, &format!("strange{round}")).await, Some(State::Pending));
            assert_eq!(totals(&store).await.accepted, 4 + 2 * round as u64);
            // Those that were claimed before do not stand in the way of the next round.
            breaks(&wire);
            store.cancel(now(at + over), &[id(&lost), id(&format!("strange{round}"))]).await.unwrap();
        }
    }

    fn answers_are_those_of_the_first_try_whatever_others_did_since(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        let other = bed.store(2).await;
        let break_and_hold = || {
            wire.cut_after(b"COMMIT", 1);
            wire.then_hold();
        };
        let wire_met = || wire.needles_met();
        let met = |count| until("the wire breaks", move || wire_met() == count);

        break_and_hold();
        let (answer, ()) = tokio::join!(insert(&store, vec![message("a", 0)]), async {
            met(1).await;
            assert_eq!(other.cancel(now(1), &[id("a")]).await.unwrap(), [DONE]);
            wire.release();
        });
        assert_eq!(answer.unwrap(), [Inserted::Accepted]);
        assert_eq!(state(&store, "a").await, Some(State::Cancelled), "it was accepted once, and cancelled");

        insert(&store, vec![message("b", 15_000)]).await.unwrap();
        break_and_hold();
        let fire = [(id("b"), ms(1))];
        let (answer, held) = tokio::join!(store.reschedule(now(1), &fire), async {
            met(2).await;
            // The database has been sent the commit, and may still be at it.
            let mut held = Vec::new();
            for _ in 0..10_000 {
                held = claim(&other, 1, 10).await.unwrap().messages;
                if !held.is_empty() {
                    break;
                }
            }
            wire.release();
            held
        });
        assert_eq!((answer.unwrap(), held.len()), (vec![DONE], 1));

        bury(&other, 2, &held).await;
        break_and_hold();
        let purged = [id("b")];
        let (answer, ()) = tokio::join!(store.purge(now(3), &purged), async {
            met(3).await;
            // The database has been sent the commit, and may still be at it.
            for _ in 0..10_000 {
                if state(&other, "b").await.is_none() {
                    break;
                }
            }
            insert(&other, vec![message("b", 0)]).await.unwrap();
            wire.release();
        });
        assert_eq!(answer.unwrap(), [DONE]);
        assert_eq!(state(&store, "b").await, Some(State::Pending), "that is the next one of this name");
        totals(&store).await;
    }

    fn a_commit_that_comes_true_later_than_the_second_try_begins_is_waited_for(bed: own) {
        let (wire, store) = at_the_wire(&bed).await;
        insert(&store, messages(5)).await.unwrap();
        // Begins while commits are held up; they come about once the second try waits to hear of the first.
        async fn late<T>(bed: &Bed, wire: &Proxy, work: impl Future<Output = T>) -> T {
            let blocked = Blocked::commits(bed).await;
            wire.cut_on(b"COMMIT", 1);
            let (done, ()) = tokio::join!(work, async {
                // In PostgreSQL the commit itself waits for a lock, too.
                bed.are_waiting(if bed.is_mysql() { 1 } else { 2 }).await;
                blocked.release().await;
            });
            done
        }
        let claimed = late(&bed, &wire, claim(&store, 1, 5)).await.unwrap().messages;
        assert_eq!(claimed.len(), 5, "they are in hand, not in flight with nobody knowing");
        assert_eq!(totals(&store).await.in_flight, 5);
        assert_eq!(late(&bed, &wire, deliver(&store, 1, &claimed)).await.unwrap(), [Settled::Done; 5]);
        assert_eq!(totals(&store).await.delivered, 5);
        let inserted = late(&bed, &wire, insert(&store, vec![message("new", 0)])).await.unwrap();
        assert_eq!((inserted, wire.needles_met()), (vec![Inserted::Accepted], 3));
        assert_eq!(totals(&store).await.accepted, 8);
    }

    fn what_a_claim_without_an_answer_took_is_handed_back_by_the_next_sweep_and_counts_nothing(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        let ids = ids(10);
        insert(&store, messages(10)).await.unwrap();
        wire.cut_after(b"COMMIT", 1);
        wire.then_hold();
        let error = claim(&store, 1, 10).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Unanswered, "it was done");
        assert!(error.what.contains("within 10s"), "{error}");
        let other = bed.store(2).await;
        assert_eq!(totals(&other).await.in_flight, 10, "the database made the claim");
        wire.release();
        assert_eq!(store.sweep(now(2), &[lane("work")]).await.unwrap().leases_ended, 0);
        assert_eq!(totals(&store).await.in_flight, 0);
        let again = claim(&store, 3, 10).await.unwrap().messages;
        assert_eq!(again.iter().map(|leased| leased.message.id.clone()).collect::<Vec<_>>(), ids);
        assert!(again.iter().all(|leased| leased.attempt == 1 && leased.lost == LeaseLoss::None));
    }

    fn claims_without_an_answer_that_cannot_be_released_yet_count_no_attempt_when_their_leases_end(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        insert(&store, messages(10)).await.unwrap();
        let held = claim(&store, 1, 1).await.unwrap().messages;
        give_up_a_claim(&wire, &store, 10).await;
        // A release changes rows that lost nothing; the end of a lease makes suspects of them.
        bed.sql(bed.words(
            "CREATE TRIGGER stuck BEFORE UPDATE ON delay_message FOR EACH ROW \
             SET NEW.lost = IF(NEW.lost = 0, (SELECT 1 UNION SELECT 2), NEW.lost)",
            "CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF NEW.lost = 0 THEN \
             RAISE EXCEPTION 'stuck'; END IF; RETURN NEW; END $$; \
             CREATE TRIGGER stuck BEFORE UPDATE ON delay_message FOR EACH ROW EXECUTE FUNCTION stuck()",
        ));
        let over = LEASE.as_millis() as u64 + 1_000;
        let swept = store.sweep(now(over), &[lane("work")]).await.unwrap();
        assert_eq!((swept.leases_ended, totals(&store).await.in_flight), (1, 9), "only the one with an answer");
        bed.sql(bed.words("DROP TRIGGER stuck", "DROP TRIGGER stuck ON delay_message"));
        assert_eq!(store.sweep(now(over), &[lane("work")]).await.unwrap().leases_ended, 0);
        for _ in 0..3 {
            let again = claim(&store, over, 10).await.unwrap().messages;
            for leased in again {
                let was_held = held[0].message.id == leased.message.id;
                let expected = if was_held { (2, LeaseLoss::InBatch) } else { (1, LeaseLoss::None) };
                assert_eq!((leased.attempt, leased.lost), expected);
            }
        }
        assert_eq!(totals(&store).await.in_flight, 12, "with the two that were there");
    }

    fn a_claim_that_its_caller_gave_up_is_handed_back_too(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        insert(&store, messages(10)).await.unwrap();
        let other = bed.store(2).await;
        give_up_a_claim(&wire, &store, 10).await;
        assert_eq!(totals(&other).await.in_flight, 10, "the database made the claim");
        store.sweep(now(2), &[lane("work")]).await.unwrap();
        let again = claim(&other, 3, 10).await.unwrap().messages;
        assert_eq!(again.len(), 10);
        assert!(again.iter().all(|leased| leased.attempt == 1 && leased.lost == LeaseLoss::None));
    }
}

/// While this is there, commits do not come about, and other statements do.
enum Blocked {
    Mysql(sqlx::MySqlConnection),
    Postgres(sqlx::PgConnection),
}

impl Blocked {
    async fn commits(bed: &Bed) -> Self {
        if bed.is_mysql() {
            let mut connection = sqlx::MySqlConnection::connect(bed.url()).await.unwrap();
            for stage in ["BACKUP STAGE START", "BACKUP STAGE BLOCK_COMMIT"] {
                sqlx::raw_sql(stage).execute(&mut connection).await.unwrap();
            }
            return Self::Mysql(connection);
        }
        // A trigger that waits until the commit, and then for us.
        bed.sql(
            "CREATE OR REPLACE FUNCTION wait_for_us() RETURNS trigger LANGUAGE plpgsql AS \
             'BEGIN PERFORM pg_advisory_xact_lock(42); RETURN NULL; END'; \
             DROP TRIGGER IF EXISTS waits ON duly_count; \
             CREATE CONSTRAINT TRIGGER waits AFTER INSERT OR UPDATE ON duly_count DEFERRABLE INITIALLY DEFERRED \
             FOR EACH ROW EXECUTE FUNCTION wait_for_us();",
        );
        let mut connection = sqlx::PgConnection::connect(bed.url()).await.unwrap();
        sqlx::raw_sql("SELECT pg_advisory_lock(42)").execute(&mut connection).await.unwrap();
        Self::Postgres(connection)
    }

    async fn release(self) {
        match self {
            Self::Mysql(mut connection) => {
                sqlx::raw_sql("BACKUP STAGE END").execute(&mut connection).await.unwrap();
            }
            Self::Postgres(connection) => connection.close().await.unwrap(),
        }
    }
}
