//! The end that most claims come to, with one statement and no look before: everything was delivered.

use duly_core::{
    Now, Receipt,
    store::{Settle, Settlement},
};

use super::{
    SqlStore,
    connection::{Dialect, Session, Statement},
    count::{Counter, CounterDeltas, Slot},
    fault::Fault,
};

/// Claims of one call that were all delivered: one statement ends them.
pub(super) struct Delivered<'b> {
    token: u64,
    ends: Vec<(&'b Receipt, Option<&'b str>)>,
}

impl<'b> Delivered<'b> {
    /// `None` if these ended in different ways, came from different calls, or must be looked at for another reason.
    pub(super) fn of(batch: &'b [Settle]) -> Option<Self> {
        let token = batch.first()?.receipt.token;
        let end = |Settle { receipt, settlement }: &'b Settle| match settlement {
            // PostgreSQL keeps no text with a zero in it.
            Settlement::Delivered { receipt: Some(proof) } if proof.contains('\0') => None,
            Settlement::Delivered { receipt: proof } if receipt.token == token => {
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
        let mut deltas = CounterDeltas::default();
        deltas.total(Counter::Delivered, count as i64);
        deltas.total(Counter::Kept, count as i64);
        if self.dialect() == Dialect::Postgres {
            let mut update = self.with_counts(session, slot, deltas);
            self.end_arrays(&mut update, now, delivered);
            return Ok(session.run(update).await? == count as u64);
        }
        let parts = delivered.ends.chunks(100);
        let mut script: Vec<_> = parts.map(|ends| self.end_of(now, delivered.token, ends)).collect();
        let updates = script.len();
        script.extend(self.counting(session, slot, deltas));
        let replies = session.script(script).await?;
        let ended: u64 = replies[..updates].iter().map(|reply| reply.touched).sum();
        Ok(ended == count as u64)
    }

    /// One statement for any number of them, planned once: PostgreSQL only.
    fn end_arrays(&self, update: &mut Statement, now: Now, delivered: &Delivered<'_>) {
        update.push("UPDATE delay_message SET ");
        delivered_at(update, now);
        update.push("ended.receipt, update_time = CURRENT_TIMESTAMP(3) FROM unnest(");
        let ids: Vec<_> = delivered.ends.iter().map(|(receipt, _)| receipt.id.as_str()).collect();
        let proofs: Vec<_> = delivered.ends.iter().map(|(_, proof)| *proof).collect();
        update.bind_array(ids).push(", ").bind_array(proofs);
        update.push(") AS ended (id, receipt) WHERE message_id = ended.id");
        self.push_lease_condition(update, now, delivered.token);
    }

    fn end_of(&self, now: Now, token: u64, ends: &[(&Receipt, Option<&str>)]) -> Statement {
        let mut update =
            Statement::written(self.dialect(), "UPDATE delay_message FORCE INDEX (PRIMARY) SET ");
        delivered_at(&mut update, now);
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
        update.push(" WHERE message_id IN (").bind_all(ends.iter().map(|(receipt, _)| receipt.id.as_str()));
        update.push(")");
        self.push_lease_condition(&mut update, now, token);
        update
    }

    /// Only what is held by this token.
    fn push_lease_condition(&self, update: &mut Statement, now: Now, token: u64) {
        // PostgreSQL would rather find them by their place, among many that have left it.
        update.push(" AND queue_no + 0 = -1 AND token = ").bind(token as i64);
        update.push(" AND queue_at + 0 > ").bind(self.time.tick(now) as i64);
    }
}

/// The columns that an end writes, up to the receipt.
fn delivered_at(update: &mut Statement, now: Now) {
    let at = now.wall().as_millis() as i64;
    update
        .push("status = 'DELIVERED', attempts = attempts + 1, body = NULL, queue_no = -2, queue_rank = 0, ");
    update.push("version = version + 1, queue_at = ").bind(at * 1000);
    update.push(", end_time_ms = ").bind(at).push(", receipt = ");
}
