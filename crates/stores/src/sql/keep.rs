//! How long ended messages are kept: what is past retention goes in small parts.

use std::time::Duration;

use duly_core::{Now, store::StoreError};

use super::{
    SqlStore,
    count::{BOOKS, Book, HOUR_MS, HOURS, MINUTE_MS, MINUTES, Tally},
    fault::Fault,
    link::{Session, Statement},
    row::ENDED,
    work::{look, transact},
};

/// Counters of minutes and hours that are over for so long are removed once they are nought.
const COUNTERS_KEPT: Duration = Duration::from_secs(2 * 3600);
/// How many of them at once.
const COUNTERS_MAX: i64 = 50;

/// So many rows go in one transaction: nobody waits for long, and the next part is gone a moment later.
const TOGETHER_MAX: i64 = 500;

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
            for row in look!(self, |session| session.rows(select()))? {
                let what = row.int(0)?;
                transact!(self, |session| self.remove_counter(&mut session, kind, what))?;
            }
        }
        Ok(())
    }

    /// Somebody may count there again at this moment: whoever is later begins anew.
    async fn remove_counter(&self, session: &mut Session, kind: i64, what: i64) -> Result<(), Fault> {
        let place = |text: &str| {
            let mut statement = Statement::new(self.dialect(), text);
            statement.push(" FROM duly_count WHERE kind = ").bind(kind).push(" AND what = ").bind(what);
            statement
        };
        let mut select = place("SELECT n");
        select.push(" ORDER BY slot FOR UPDATE");
        let mut sum = 0;
        let rows = session.rows(select).await?;
        for row in &rows {
            sum += row.int(0)?;
        }
        if sum == 0 {
            session.run(place("DELETE")).await?;
        }
        Ok(())
    }

    /// Forgets some of what is past retention, the oldest first. Gives whether there may be more.
    pub(super) async fn forget(&self, now: Now) -> Result<bool, StoreError> {
        let removed = transact!(self, |session| self.forget_in_one(&mut session, now))?;
        Ok(removed == TOGETHER_MAX)
    }

    async fn forget_in_one(&self, session: &mut Session, now: Now) -> Result<i64, Fault> {
        let slot = self.slots.take();
        let mut kept = Statement::new(self.dialect(), "SELECT CAST(COALESCE(SUM(n), 0) AS ");
        kept.push_as("SIGNED", "BIGINT").push(") FROM duly_count WHERE kind = ").bind(BOOKS);
        kept.push(" AND what = ").bind(Book::Kept as i64);
        let kept = session.rows(kept).await?.first().map_or(Ok(0), |row| row.int(0))?;
        let over = kept - i64::try_from(self.options.retention_max).unwrap_or(i64::MAX);
        let before = now.wall().saturating_sub(self.options.retention).as_millis() as i64 * 1000;
        let mut select = Statement::new(
            self.dialect(),
            "SELECT message_id, queue_at FROM delay_message WHERE queue_no = ",
        );
        select.bind(ENDED);
        if over <= 0 {
            select.push(" AND queue_at <= ").bind(before);
        }
        select.push(" ORDER BY queue_at, queue_rank, message_id LIMIT ").bind(TOGETHER_MAX);
        select.push(" FOR UPDATE SKIP LOCKED");
        let mut ids = Vec::new();
        for row in session.rows(select).await? {
            if row.int(1)? <= before || (ids.len() as i64) < over {
                ids.push(row.text(0)?);
            }
        }
        for part in ids.chunks(100) {
            let mut delete =
                Statement::new(self.dialect(), "DELETE FROM delay_message WHERE message_id IN (");
            // Always a hundred, so that the database knows the statement.
            let filled = part.iter().chain(std::iter::repeat_n(&part[0], 100 - part.len()));
            delete.bind_all(filled.map(String::as_str)).push(")");
            session.run(delete).await?;
        }
        let mut tally = Tally::default();
        tally.book(Book::Kept, -(ids.len() as i64));
        self.count(session, &slot, tally).await?;
        Ok(ids.len() as i64)
    }
}
