//! Leases that end beside claims without an answer, and beside rows that others hold or that the database refuses to change.

use duly_core::{
    LeaseLoss, Store,
    store::{LeasedMessage, Sweep},
};
use duly_stores::SqlStore;

use crate::{
    bed::{LEASE, claim, ids, insert, lane, messages, now, totals},
    commits::{at_the_wire, give_up_a_claim},
    contention::Other,
    server::{Bed, both},
};

/// When every lease is over that the tests took.
const OVER: u64 = LEASE.as_millis() as u64 + 1_000;

async fn sweep(store: &SqlStore) -> Sweep {
    store.sweep(now(OVER), &[lane("work")]).await.unwrap()
}

/// Has the database refuse changes of rows for which this holds. `NEW` is the row.
fn refuse_changes(bed: &Bed, of: &str) {
    let in_mysql = format!(
        "CREATE TRIGGER stuck BEFORE UPDATE ON delay_message FOR EACH ROW \
         SET NEW.lost = IF({of}, (SELECT 1 UNION SELECT 2), NEW.lost)"
    );
    let in_postgres = format!(
        "CREATE FUNCTION stuck() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {of} THEN \
         RAISE EXCEPTION 'stuck'; END IF; RETURN NEW; END $$; \
         CREATE TRIGGER stuck BEFORE UPDATE ON delay_message FOR EACH ROW EXECUTE FUNCTION stuck()"
    );
    bed.sql(bed.words(&in_mysql, &in_postgres));
}

fn allow_changes(bed: &Bed) {
    bed.sql(bed.words("DROP TRIGGER stuck", "DROP TRIGGER stuck ON delay_message"));
}

/// Claims all that waits, except for the two messages of [`at_the_wire`].
async fn claim_all(store: &SqlStore) -> Vec<LeasedMessage> {
    let mut all = Vec::new();
    loop {
        let some = claim(store, OVER, 500).await.unwrap().messages;
        if some.is_empty() {
            return all;
        }
        all.extend(some.into_iter().filter(|leased| leased.message.id.as_str().starts_with('m')));
    }
}

/// Those of the messages whose attempts count.
fn counted(all: &[LeasedMessage]) -> Vec<&str> {
    let counted = all.iter().filter(|leased| (leased.attempt, leased.lost) != (1, LeaseLoss::None));
    counted.map(|leased| leased.message.id.as_str()).collect()
}

both! {
    fn claims_without_an_answer_take_no_places_of_leases_that_end(bed: shared) {
        // A sweep looks at 501 leases.
        const UNANSWERED: usize = 600;
        let (wire, store) = at_the_wire(&bed).await;
        insert(&store, messages(UNANSWERED + 1)).await.unwrap();
        for _ in 0..2 {
            give_up_a_claim(&wire, &store, UNANSWERED / 2).await;
        }
        // The last to end.
        let held = claim(&store, 2, 10).await.unwrap().messages;
        assert_eq!(held.len(), 1);
        // A release changes rows that lost nothing; the end of a lease makes suspects of them.
        refuse_changes(&bed, "NEW.lost = 0");
        let swept = sweep(&store).await;
        assert_eq!((swept.leases_ended, totals(&store).await.in_flight), (1, UNANSWERED as u64));
        allow_changes(&bed);
        assert_eq!(sweep(&store).await.leases_ended, 0);
        assert_eq!(totals(&store).await.in_flight, 0);
        let all = claim_all(&store).await;
        assert_eq!((all.len(), counted(&all)), (UNANSWERED + 1, vec![held[0].message.id.as_str()]));
    }

    fn a_row_that_somebody_holds_keeps_no_other_claim_without_an_answer_from_its_release(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        insert(&store, messages(10)).await.unwrap();
        give_up_a_claim(&wire, &store, 10).await;
        let mut other = Other::begin(&bed).await;
        other.run("UPDATE delay_message SET tag = 'x' WHERE message_id = 'm003'").await;
        let swept = sweep(&store).await;
        assert_eq!((swept.leases_ended, totals(&store).await.in_flight), (0, 1), "all but the one");
        other.run("COMMIT").await;
        assert_eq!((sweep(&store).await.leases_ended, totals(&store).await.in_flight), (0, 0));
        let all = claim_all(&store).await;
        assert_eq!((all.len(), counted(&all)), (10, vec![]));
    }

    fn a_row_that_the_database_refuses_to_change_keeps_its_own_lease_and_no_other(bed: shared) {
        let (wire, store) = at_the_wire(&bed).await;
        insert(&store, messages(20)).await.unwrap();
        let held = claim(&store, 1, 10).await.unwrap().messages;
        give_up_a_claim(&wire, &store, 10).await;
        let unanswered = ids(20).into_iter().find(|id| held.iter().all(|leased| leased.message.id != *id));
        let (stuck, unanswered) = (held[4].message.id.as_str(), unanswered.unwrap());
        refuse_changes(&bed, &format!("NEW.message_id IN ('{stuck}', '{unanswered}')"));
        let swept = sweep(&store).await;
        assert_eq!((swept.leases_ended, totals(&store).await.in_flight), (9, 2), "all but the two");
        allow_changes(&bed);
        assert_eq!((sweep(&store).await.leases_ended, totals(&store).await.in_flight), (1, 0));
        let all = claim_all(&store).await;
        let mut counted = counted(&all);
        counted.sort_unstable();
        let mut held: Vec<_> = held.iter().map(|leased| leased.message.id.as_str()).collect();
        held.sort_unstable();
        assert_eq!((all.len(), counted), (20, held));
    }
}
