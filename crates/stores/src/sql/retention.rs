//! How long ended messages are kept: what is past retention goes in small parts.

use std::time::Duration;

use duly_core::{Now, store::StoreError};

use super::{
    SqlStore,
    connection::{Session, Statement},
    count::{Counter, CounterDeltas, HOUR_MS, HOURS, MINUTE_MS, MINUTES},
    fault::Fault,
    row::ENDED,
};

/// Counters of minutes and hours that are over for so long are removed once they are nought.
const COUNTERS_KEPT: Duration = Duration::from_secs(2 * 3600);
/// How many of them at once.
const COUNTERS_MAX: i64 = 50;

/// Rows deleted by one transaction: locks are short, and the next part follows a moment later.
const BATCH_MAX: i64 = 500;

/// Delivered and cancelled messages that are still kept.
#[derive(Debug, Clone, Copy, Default)]
pub(super) struct Kept {
    pub(super) count: i64,
    /// When the one ended that ended first, in microseconds.
    pub(super) oldest: Option<i64>,
}

impl SqlStore {
    /// Removes counters that nobody needs: those of times that are over, when nothing is left to count there.
    pub(super) async fn tidy_counters(&self, now: Now) -> Result<(), StoreError> {
        let before = now.wall().saturating_sub(COUNTERS_KEPT).as_millis();
        for (kind, unit) in [(MINUTES, MINUTE_MS), (HOURS, HOUR_MS)] {
            let select = || {
                let mut select = Statement::new(self.dialect(), "SELECT what FROM duly_count WHERE kind = ");
                select.bind(kind).push(" AND what < ").bind((before / unit) as i64);
                select.push(" GROUP BY what HAVING SUM(n) = 0 LIMIT ").bind(COUNTERS_MAX);
                select
            };
            for row in self.read(|borrowed| Box::pin(borrowed.session.rows(select()))).await? {
                let what = row.int(0)?;
                self.transact(|borrowed| Box::pin(self.remove_counter(borrowed.session, kind, what))).await?;
            }
        }
        Ok(())
    }

    /// Somebody may count there again at this moment, in a row of their own: only the rows that were read, and are locked since, go.
    async fn remove_counter(&self, session: &mut Session, kind: i64, what: i64) -> Result<(), Fault> {
        let of_counter = |text: &str| {
            let mut statement = Statement::new(self.dialect(), text);
            statement.push(" FROM duly_count WHERE kind = ").bind(kind).push(" AND what = ").bind(what);
            statement
        };
        let mut select = of_counter("SELECT slot, n");
        select.push(" ORDER BY slot FOR UPDATE");
        let (mut slots, mut sum) = (Vec::new(), 0);
        for row in session.rows(select).await? {
            slots.push(row.int(0)?);
            sum += row.int(1)?;
        }
        if sum == 0 && !slots.is_empty() {
            let mut delete = of_counter("DELETE");
            delete.push(" AND slot IN (").bind_all(slots).push(")");
            session.run(delete).await?;
        }
        Ok(())
    }

    /// Forgets some of what is past retention, the oldest first. Returns whether there may be more.
    pub(super) async fn forget(&self, now: Now, kept: &Kept) -> Result<bool, StoreError> {
        let before = now.wall().saturating_sub(self.options.retention).as_millis() as i64 * 1000;
        // Two who both see that there are too many would remove too many.
        let over = if self.presence.is_first() { self.over(kept.count) } else { 0 };
        if over <= 0 && kept.oldest.is_none_or(|oldest| oldest > before) {
            return Ok(false);
        }
        let removed =
            self.transact(|borrowed| Box::pin(self.forget_in_one(borrowed.session, before, over))).await?;
        Ok(removed == BATCH_MAX)
    }

    /// How many more than allowed these are.
    fn over(&self, count: i64) -> i64 {
        count.saturating_sub(i64::try_from(self.options.retention_max).unwrap_or(i64::MAX))
    }

    async fn forget_in_one(&self, session: &mut Session, before: i64, over: i64) -> Result<i64, Fault> {
        let slot = self.slots.take();
        let mut select = Statement::new(
            self.dialect(),
            "SELECT message_id, queue_at FROM delay_message WHERE queue_no = ",
        );
        select.bind(ENDED);
        if over <= 0 {
            select.push(" AND queue_at <= ").bind(before);
        }
        select.push(" ORDER BY queue_at, queue_rank, message_id LIMIT ").bind(BATCH_MAX);
        select.push(" FOR UPDATE SKIP LOCKED");
        let mut ids = Vec::new();
        for row in session.rows(select).await? {
            if row.int(1)? <= before || (ids.len() as i64) < over {
                ids.push(row.text(0)?);
            }
        }
        if !ids.is_empty() {
            self.remove(session, &ids.iter().map(String::as_str).collect::<Vec<_>>()).await?;
            let mut deltas = CounterDeltas::default();
            deltas.total(Counter::Kept, -(ids.len() as i64));
            self.count(session, &slot, deltas).await?;
        }
        Ok(ids.len() as i64)
    }
}
