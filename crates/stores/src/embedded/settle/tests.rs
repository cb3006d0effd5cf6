use super::*;
use crate::embedded::test_bed::{Bed, message, now, tiny};

/// What a sweep at `at` takes out of the claims to lose it.
fn met(bed: &Bed, at: Now) -> Vec<(u64, Receipt)> {
    let mut engine = bed.shared.engine();
    let tokens = engine.in_flight.ended(at.mono(), 10);
    tokens
        .into_iter()
        .map(|token| {
            let id = engine.in_flight.get_mut(token).unwrap().id.clone();
            (token, Receipt { shard: 0, token, id })
        })
        .collect()
}

#[test]
fn a_claim_extended_while_its_end_cannot_be_written_ends_later() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let bed = Bed::open(folder.path(), tiny());
        bed.insert(0, [message("work", 1, 0, 200_000)]).await;
        assert_eq!(bed.claim(0, "work", 1).await.messages.len(), 1);
        // The lease ends; its holder extends it by a clock that is a little behind; and there is no room to write the end.
        let ended = met(&bed, now(60_000));
        let receipts: Vec<Receipt> = ended.iter().map(|(_, receipt)| receipt.clone()).collect();
        let extended = bed.shared.extend(now(59_000), &receipts, Duration::from_secs(60)).unwrap();
        assert_eq!(extended, [Settled::Done]);
        let spares = {
            let mut engine = bed.shared.engine();
            engine.lifecycle.set_full(true);
            engine.journal.take_spares()
        };
        let error = bed.shared.lose_or_wait(now(60_000), &ended).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Full, "{error}");
        {
            let mut engine = bed.shared.engine();
            engine.lifecycle.set_full(false);
            spares.into_iter().for_each(|spare| engine.journal.add_spare(spare));
        }
        assert_eq!(bed.shared.end_leases(now(60_000)).await.unwrap(), 0);
        assert_eq!(bed.shared.end_leases(now(119_000)).await.unwrap(), 1);
        assert_eq!(bed.claim(119_000, "work", 1).await.messages.len(), 1);
    });
}

#[test]
fn a_claim_met_before_its_end_is_met_again() {
    testkit::block_on(async {
        let folder = tempfile::tempdir().unwrap();
        let bed = Bed::open(folder.path(), tiny());
        bed.insert(0, [message("work", 1, 0, 10)]).await;
        let token = bed.claim(0, "work", 1).await.messages[0].receipt.token;
        bed.shared.engine().in_flight.recheck_at(token, now(30_000).mono());
        bed.shared.end_leases(now(30_000)).await.unwrap();
        assert!(bed.claim(30_000, "work", 1).await.messages.is_empty());
        bed.shared.end_leases(now(60_000)).await.unwrap();
        assert_eq!(bed.claim(60_000, "work", 1).await.messages.len(), 1);
    });
}
