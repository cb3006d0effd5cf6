//! Pages by due time and id.

use duly_core::{
    State,
    store::{Page, Query, StoreError},
};

use super::{
    SqlStore,
    connection::{Session, Statement},
    fault::Fault,
    row::{Bodies, DEAD, IN_FLIGHT},
    write::FoundRows,
};

/// How many rows a page may read before it ends early and says where to go on.
const READ_MAX: usize = 5000;
/// Rows that are read first, as they may be large. The next steps follow from their bytes.
const STEP_FIRST: usize = 128;

impl SqlStore {
    pub(super) async fn page(&self, query: &Query) -> Result<Page, StoreError> {
        self.check_open()?;
        let limit = query.limit.clamp(1, READ_MAX);
        // A search for few messages among many reads more rows than fit on a page.
        let filters = query.sink.is_some() || query.topic.is_some();
        let read = if filters { READ_MAX } else { limit + 1 };
        let mut records = Vec::new();
        let (mut part, mut left, mut step) = (query.clone(), read, STEP_FIRST.min(read));
        let last = loop {
            let asked = &part;
            let (found, end) =
                self.read(|borrowed| Box::pin(self.read_page(borrowed.session, asked, step))).await?;
            let bytes: usize = found.rows.iter().map(|row| row.record.listed_bytes()).sum();
            left -= step;
            step = (Page::BYTES_MAX / (bytes / step).max(1)).clamp(16, READ_MAX).min(left);
            records
                .extend(found.rows.into_iter().map(|row| row.record).filter(|r| query.matches(&r.message)));
            let is_full = records.len() > limit || Page::fitting(&records) < records.len();
            if is_full || end.is_none() || step == 0 {
                break end;
            }
            part.after = end;
        };
        let next = if records.len() > limit {
            records.truncate(limit);
            records.last().map(|record| (record.message.due, record.message.id.clone()))
        } else {
            last
        };
        for record in &mut records {
            record.message.body = Default::default();
        }
        Ok(Page::new(records, next))
    }

    /// Up to `read` rows in order, and the place of the last of them if there may be more.
    async fn read_page(
        &self,
        session: &mut Session,
        query: &Query,
        read: usize,
    ) -> Result<(FoundRows, Option<(duly_core::Timestamp, duly_core::MessageId)>), Fault> {
        let mut select =
            Statement::new(self.dialect(), &Bodies::Without.select_with_acceptance(self.dialect()));
        match query.state {
            State::Pending => select.push("WHERE status = ").bind("PENDING").push(" AND queue_no > 0"),
            // Few among all that are pending: these are read and sorted.
            State::InFlight => select.push("WHERE queue_no = ").bind(IN_FLIGHT),
            State::Delivered => select.push("WHERE status = ").bind("DELIVERED"),
            State::Dead => select.push("WHERE status = ").bind("FAILED").push(" AND queue_no = ").bind(DEAD),
            State::Cancelled => select.push("WHERE status = ").bind("CANCELLED"),
            // A state that is not written here has no rows.
            _ => select.push("WHERE 1 = 0"),
        };
        let after = query.after.as_ref();
        let from = query.due_from.into_iter().chain(after.map(|(due, _)| *due)).max();
        if let Some(from) = from {
            select.push(" AND deliver_time_ms >= ").bind(from.as_millis() as i64);
        }
        if let Some((due, id)) = after {
            select.push(" AND (deliver_time_ms > ").bind(due.as_millis() as i64);
            select.push(" OR message_id > ").bind(id.as_str()).push(")");
        }
        if let Some(to) = query.due_to {
            select.push(" AND deliver_time_ms < ").bind(to.as_millis() as i64);
        }
        select.push(" ORDER BY deliver_time_ms, message_id LIMIT ").bind(read as i64);
        let answers = session.rows(select).await?;
        let is_cut = answers.len() == read;
        let mut found = FoundRows::default();
        found.read_with_acceptance(&answers)?;
        let last = found.rows.last().map(|row| (row.record.message.due, row.id().clone()));
        Ok((found, last.filter(|_| is_cut)))
    }
}
