//! The end that most claims come to, with one statement and no look before: everything was delivered.

use duly_core::{
    Now, Receipt,
    store::{Settle, Verdict},
};

use super::{
    SqlStore,
    count::{Book, Slot, Tally},
    fault::Fault,
    link::{Session, Statement},
    write::lists,
};

/// What one statement can end: claims of one call that were all delivered.
pub(super) struct Delivered<'b> {
    token: u64,
    ends: Vec<(&'b Receipt, Option<&'b str>)>,
}

impl<'b> Delivered<'b> {
    /// `None` if these ended in different ways, came from different calls, or must be looked at for another reason.
    pub(super) fn of(batch: &'b [Settle]) -> Option<Self> {
        let token = batch.first()?.receipt.token;
        let end = |Settle { receipt, verdict }: &'b Settle| match verdict {
            // PostgreSQL keeps no text with a zero in it.
            Verdict::Delivered { receipt: Some(proof) } if proof.contains('\0') => None,
            Verdict::Delivered { receipt: proof } if receipt.token == token => {
                Some((receipt, proof.as_deref()))
            }
            _ => None,
        };
        batch.iter().map(end).collect::<Option<_>>().map(|ends| Self { token, ends })
    }
}

impl SqlStore {
    /// Ends claims that are all as their receipts say. If one is not, nothing may be committed: gives false.
    pub(super) async fn end_delivered(
        &self,
        session: &mut Session,
        now: Now,
        slot: &Slot<'_>,
        delivered: &Delivered<'_>,
    ) -> Result<bool, Fault> {
        let count = delivered.ends.len();
        if delivered.ends.iter().any(|(receipt, _)| receipt.shard != self.shard_of(&receipt.id)) {
            return Ok(false);
        }
        let mut ended = 0;
        for ends in delivered.ends.chunks(100) {
            ended += session.run(self.end_of(now, delivered.token, ends)).await?;
        }
        if ended != count as u64 {
            return Ok(false);
        }
        let mut tally = Tally::default();
        tally.book(Book::Delivered, count as i64);
        tally.book(Book::Kept, count as i64);
        self.count(session, slot, tally).await?;
        Ok(true)
    }

    fn end_of(&self, now: Now, token: u64, ends: &[(&Receipt, Option<&str>)]) -> Statement {
        let at = now.wall().as_millis() as i64;
        let mut update = Statement::new(self.dialect(), "UPDATE delay_message ");
        update.push_as("FORCE INDEX (PRIMARY) ", "");
        update.push("SET status = 'DELIVERED', attempts = attempts + 1, ");
        update
            .push("body = NULL, queue_no = -2, queue_rank = 0, version = version + 1, queue_at = ")
            .bind(at * 1000);
        update.push(", end_time_ms = ").bind(at).push(", receipt = ");
        let first = ends.first().and_then(|(_, proof)| *proof);
        if ends.iter().all(|(_, proof)| *proof == first) {
            update.bind(first);
        } else {
            update.push("CASE message_id");
            for (receipt, proof) in ends {
                update.push(" WHEN ").bind(receipt.id.as_str()).push(" THEN ").bind(*proof);
            }
            update.push(" END");
        }
        update.push_as("", ", update_time = CURRENT_TIMESTAMP(3)");
        let ids: Vec<_> = ends.iter().map(|(receipt, _)| &receipt.id).collect();
        update.push(" WHERE message_id IN (").bind_all(lists(&ids).next().unwrap_or_default());
        update.push(") AND queue_no = -1 AND token = ").bind(token as i64);
        update.push(" AND queue_at > ").bind(self.time.tick(now) as i64);
        update
    }
}
