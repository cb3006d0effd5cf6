//! How long ended messages are kept: what is past retention goes in small parts.

use duly_core::{Now, store::StoreError};

use super::{
    SqlStore,
    count::{BOOKS, Book, Tally},
    fault::Fault,
    link::{Session, Statement},
    row::ENDED,
    work::transact,
};

/// So many rows go in one transaction: nobody waits for long, and the next part is gone a moment later.
const TOGETHER_MAX: i64 = 500;

impl SqlStore {
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
