//! What targets answer is text of any kind, and it is kept as it came.

use duly_core::{
    State, Store,
    store::{Settle, Settled, Settlement},
};

use crate::{
    bed::{claim, ids, insert, messages, now},
    server::both,
};

/// Whatever would mean something to a database.
const ANSWERS: [Option<&str>; 8] = [
    Some("it's 'quoted'"),
    Some("back\\slash\\'"),
    Some("'; DELETE FROM delay_message; --"),
    Some("\"double\" ? $1 %s"),
    Some("zwölf 十二 🕛"),
    Some(""),
    None,
    Some("1-1"),
];

both! {
    fn receipts_of_any_text_are_kept_as_they_came(bed: shared) {
        let store = bed.store(1).await;
        insert(&store, messages(ANSWERS.len())).await.unwrap();
        let claimed = claim(&store, 1, 10).await.unwrap().messages;
        let end = |(leased, answer): (&duly_core::store::LeasedMessage, Option<&str>)| Settle {
            receipt: leased.receipt.clone(),
            settlement: Settlement::Delivered { receipt: answer.map(str::to_owned) },
        };
        let settles = claimed.iter().zip(ANSWERS).map(end).collect();
        assert_eq!(store.settle(now(2), settles).await.unwrap(), [Settled::Done; ANSWERS.len()]);
        let records = store.get(&ids(ANSWERS.len())).await.unwrap();
        for (record, answer) in records.into_iter().zip(ANSWERS) {
            let record = record.unwrap();
            assert_eq!((record.state, record.receipt.as_deref()), (State::Delivered, answer));
        }
    }

    fn one_receipt_for_all_is_kept_as_it_came(bed: shared) {
        let store = bed.store(1).await;
        for (round, answer) in ANSWERS.into_iter().enumerate() {
            let mut new = messages(3);
            new.iter_mut().for_each(|message| message.id = crate::bed::id(&format!("{round}-{}", message.id)));
            insert(&store, new).await.unwrap();
            let claimed = claim(&store, 1, 10).await.unwrap().messages;
            let settlement = Settlement::Delivered { receipt: answer.map(str::to_owned) };
            let end = |leased: &duly_core::store::LeasedMessage| Settle { receipt: leased.receipt.clone(), settlement: settlement.clone() };
            let settles = claimed.iter().map(end).collect();
            assert_eq!(store.settle(now(2), settles).await.unwrap(), [Settled::Done; 3]);
            let ids: Vec<_> = claimed.iter().map(|leased| leased.message.id.clone()).collect();
            for record in store.get(&ids).await.unwrap() {
                assert_eq!(record.unwrap().receipt.as_deref(), answer);
            }
        }
    }
}
