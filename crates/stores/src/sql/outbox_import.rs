//! Rows that somebody else put into `delay_message`, by an `INSERT` of their own: looked at, and imported in or buried.

use duly_core::{
    Attempt, DeadReason, Now, Outcome,
    store::{ClaimBudget, StoreError},
};

use super::{
    SqlStore,
    connection::{Session, Statement},
    count::{Counter, CounterDeltas},
    fault::Fault,
    row::{Bad, Bodies, DEAD, NO_MESSAGE, Row, millis},
    text::history_text,
    write::{FoundRows, filled},
};
use crate::shared::lane::lane_text;

/// Rows that one transaction imports at most.
const BATCH_MAX: usize = 200;

impl SqlStore {
    /// Imports rows of the outbox. Returns whether there may be more.
    pub(super) async fn import_outbox_rows(&self, now: Now) -> Result<bool, StoreError> {
        let (ids, is_cut) = self.read(|borrowed| Box::pin(self.outbox_ids(borrowed.session))).await?;
        // Their lanes get numbers in transactions of their own, so nothing waits for this one.
        let seen = self.read(|borrowed| Box::pin(self.raw_rows(borrowed.session, &ids, ""))).await?;
        let good = seen.rows.iter().map(|row| row.record.message.lane());
        let bad = seen.bad.iter().filter_map(|bad| bad.lane.clone());
        self.number_lanes(good.chain(bad).map(|lane| lane_text(&lane)).collect::<Vec<_>>()).await?;
        let seen =
            self.transact(|borrowed| Box::pin(self.import_in_one(borrowed.session, now, &ids))).await?;
        Ok(is_cut && seen > 0)
    }

    /// Some of those rows, as many as fit into memory, by what stands there as their ids; and whether there may be more.
    async fn outbox_ids(&self, session: &mut Session) -> Result<(Vec<String>, bool), Fault> {
        let mut select = Statement::new(self.dialect(), "SELECT message_id, CAST(OCTET_LENGTH(body) AS ");
        select.push_as("SIGNED", "BIGINT").push(") FROM delay_message WHERE queue_no IS NULL LIMIT ");
        select.bind(BATCH_MAX as i64);
        let rows = session.rows(select).await?;
        let (mut budget, mut ids) = (ClaimBudget::default(), Vec::new());
        for row in &rows {
            let bytes = usize::try_from(row.maybe_int(1)?.unwrap_or_default()).unwrap_or(usize::MAX);
            if budget.takes(bytes) {
                ids.push(row.text(0)?);
            }
        }
        let is_cut = rows.len() == BATCH_MAX || ids.len() < rows.len();
        ids.sort_unstable();
        Ok((ids, is_cut))
    }

    async fn raw_rows(
        &self,
        session: &mut Session,
        ids: &[String],
        locking: &str,
    ) -> Result<FoundRows, Fault> {
        let mut found = FoundRows::default();
        let ids: Vec<_> = ids.iter().map(String::as_str).collect();
        for part in ids.chunks(100) {
            let mut select = Statement::new(self.dialect(), &Bodies::With.select());
            select.push_as("FORCE INDEX (PRIMARY) ", "").push("WHERE message_id IN (").bind_all(filled(part));
            select.push(") AND queue_no IS NULL ORDER BY message_id").push(locking);
            found.read(session.rows(select).await?)?;
        }
        Ok(found)
    }

    async fn import_in_one(&self, session: &mut Session, now: Now, ids: &[String]) -> Result<usize, Fault> {
        let slot = self.slots.take();
        // Whoever has not committed them yet is left alone.
        let FoundRows { rows, mut bad } = self.raw_rows(session, ids, " FOR UPDATE SKIP LOCKED").await?;
        let (mut deltas, mut imported, seen) = (CounterDeltas::default(), Vec::new(), rows.len() + bad.len());
        for mut row in rows {
            let message = &row.record.message;
            // Inserted since the lanes were looked at: the next sweep takes it.
            let Some(lane_no) = self.lanes.number(&lane_text(&message.lane())) else { continue };
            if let Err(why) = message.check(now.wall(), &self.options.limits) {
                bad.push(Bad::of(&row, why));
                continue;
            }
            row.lane_no = lane_no;
            row.is_raw = false;
            deltas.total(Counter::Accepted, 1);
            deltas.pending(lane_no, row.record.ready, 1);
            imported.push(row);
        }
        imported.sort_by(|a, b| a.id().cmp(b.id()));
        self.write(session, now, &imported.iter().collect::<Vec<_>>()).await?;
        for bad in &bad {
            self.bury(session, now, bad, &mut deltas).await?;
        }
        self.send_hints(session, now, imported.iter()).await?;
        self.count(session, &slot, deltas).await?;
        Ok(seen)
    }

    /// Makes a row that is no message a dead letter which says why. Where it waited, it is counted no more.
    pub(super) async fn bury(
        &self,
        session: &mut Session,
        now: Now,
        bad: &Bad,
        deltas: &mut CounterDeltas,
    ) -> Result<(), Fault> {
        let id = &bad.id;
        if bad.queue_no.is_some_and(|queue| queue > 0) {
            deltas.pending(bad.lane_no, bad.ready, -1);
        }
        let was_counted = bad.queue_no.is_some();
        let (queue_no, lane_no) = match &bad.lane {
            None => {
                deltas.total(Counter::Accepted, -i64::from(was_counted));
                (NO_MESSAGE, 0)
            }
            Some(lane) => {
                let new = || self.lanes.number(&lane_text(lane));
                let lane_no = if was_counted { Some(bad.lane_no) } else { new() };
                // Inserted since the lanes were looked at: the next sweep takes it.
                let Some(lane_no) = lane_no else { return Ok(()) };
                deltas.total(Counter::Accepted, i64::from(!was_counted));
                deltas.dead(lane_no, 1);
                (DEAD, lane_no)
            }
        };
        if was_counted {
            tracing::error!(id, error = %bad.why, "stored message unreadable; made a dead letter");
        } else {
            tracing::error!(id, error = %bad.why, "outbox row invalid; made a dead letter");
        }
        let history = history_text(&[Attempt::new(now.wall(), Outcome::Refused, bad.why.to_string())]);
        let due = millis(bad.due_ms).as_millis() as i64;
        let mut update =
            Statement::new(self.dialect(), "UPDATE delay_message SET status = 'FAILED', dead_reason = ");
        update
            .bind(DeadReason::Invalid.as_str())
            .push(", end_time_ms = ")
            .bind(now.wall().as_millis() as i64);
        // Lists go by it, and so must everybody who reads it be able to.
        update.push(", deliver_time_ms = ").bind(due).push(", queue_at = ").bind(due * 1000);
        update
            .push(", queue_no = ")
            .bind(queue_no)
            .push(", lane_no = ")
            .bind(lane_no)
            .push(", queue_rank = 0");
        update
            .push(", history = ")
            .bind(history.as_deref())
            .push(", version = version + 1, unindexed_at = NULL");
        update.push_as("", ", update_time = CURRENT_TIMESTAMP(3)");
        update.push(" WHERE message_id = ").bind(id.as_str());
        session.run(update).await?;
        Ok(())
    }
}

impl Bad {
    /// A row that is readable and no valid message.
    fn of(row: &Row, why: duly_core::Invalid) -> Self {
        let message = &row.record.message;
        Self {
            id: message.id.to_string(),
            why,
            queue_no: None,
            due_ms: message.due.as_millis() as i64,
            ready: row.record.ready,
            lane_no: 0,
            lane: Some(message.lane()),
        }
    }
}
