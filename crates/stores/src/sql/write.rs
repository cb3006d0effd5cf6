//! Writing rows, many with one statement.

use duly_core::{MessageId, Now, State};

use super::{
    SqlStore,
    connection::{Dialect, ServerRow, Session, Statement},
    fault::Fault,
    redis_index::NEAR,
    row::{Bad, Bodies, Row},
    text::{history_text, kind_word, properties_text, retry_text},
};

/// Statements come in these sizes only, so that the database knows them when they come again.
const SIZES: [usize; 4] = [100, 20, 5, 1];
/// Bytes of bodies and properties in one statement at most: servers refuse packets that are too large.
pub(super) const BYTES_MAX: usize = 4 * 1024 * 1024;

/// Splits items into parts for one statement each.
pub(super) fn parts<T>(items: &[T], bytes: impl Fn(&T) -> usize) -> impl Iterator<Item = &[T]> {
    let mut rest = items;
    std::iter::from_fn(move || {
        let fits = |size: &usize| {
            *size <= rest.len()
                && (*size == 1 || rest[..*size].iter().map(&bytes).sum::<usize>() <= BYTES_MAX)
        };
        let size = SIZES.into_iter().find(fits)?;
        let (part, others) = rest.split_at(size);
        rest = others;
        Some(part)
    })
}

/// Ids for one `IN (...)` each.
pub(super) fn lists<'i>(ids: &'i [&'i MessageId]) -> impl Iterator<Item = Vec<&'i str>> {
    ids.chunks(SIZES[0]).map(|part| filled(&part.iter().map(|id| id.as_str()).collect::<Vec<_>>()))
}

/// Up to a hundred ids, the last one repeated up to the next of the sizes.
pub(super) fn filled<'i>(ids: &[&'i str]) -> Vec<&'i str> {
    let size = SIZES.into_iter().rev().find(|size| ids.len() <= *size).unwrap_or(ids.len());
    let last = ids.last().copied();
    ids.iter().copied().chain(std::iter::repeat_n(last, size - ids.len()).flatten()).collect()
}

/// What to do with rows that another transaction has locked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Locked {
    WaitFor,
    Skip,
}

/// Rows that were read: messages, and unreadable rows.
#[derive(Debug, Default)]
pub(super) struct FoundRows {
    pub(super) rows: Vec<Row>,
    pub(super) bad: Vec<Bad>,
}

/// The beginning of an insertion.
pub(super) const INSERTED: &str = "INSERT INTO delay_message (message_id, sink, topic, tag, message_key, properties, retry, content_kind, \
     body, deliver_time_ms, priority, max_lateness_ms, ready_time_ms, content_hash, lane_no, queue_no, queue_at, queue_rank, \
     unindexed_at";

/// More columns of an insertion, of messages that come from another store, as [`bind_past`] binds them.
const PAST: &str = ", create_time, status, attempts, maybe_delivered, end_time_ms, dead_reason, history";

/// MySQL keeps times of acceptance from 1970 to 2038.
const ACCEPTED_MS: (i64, i64) = (1_000, 2_147_483_647_000);

/// The columns that a change may change, and how each follows.
const CHANGING: [&str; 19] = [
    "deliver_time_ms",
    "status",
    "ready_time_ms",
    "attempts",
    "history",
    "maybe_delivered",
    "lost",
    "end_time_ms",
    "dead_reason",
    "receipt",
    "content_hash",
    "lane_no",
    "queue_no",
    "queue_at",
    "queue_rank",
    "version",
    "token",
    "lease_span_us",
    "holder",
];

impl SqlStore {
    /// Reads rows and keeps others from changing them until the end of the transaction.
    pub(super) async fn lock(
        &self,
        session: &mut Session,
        ids: &[&MessageId],
        bodies: Bodies,
        locked: Locked,
    ) -> Result<FoundRows, Fault> {
        let mut found = FoundRows::default();
        for list in lists(ids) {
            let mut select = Statement::new(self.dialect(), &bodies.select());
            // In a small table MySQL would rather read every row, and wait for those of others that are locked.
            select.push_as("FORCE INDEX (PRIMARY) ", "");
            // All who lock the same rows lock them in the same order, so that none waits for another for ever.
            select.push("WHERE message_id IN (").bind_all(list).push(") ORDER BY message_id FOR UPDATE");
            if locked == Locked::Skip {
                select.push(" SKIP LOCKED");
            }
            found.read(session.rows(select).await?)?;
        }
        Ok(found)
    }

    /// Puts new rows there. If one of the ids is known, that is a [`Fault::DuplicateId`], and some of the others may be there.
    pub(super) async fn put(&self, session: &mut Session, now: Now, rows: &[&Row]) -> Result<(), Fault> {
        for part in parts(rows, |row| row.record.message.bytes()) {
            if session.run(self.insertion(now, part)).await? < part.len() as u64 {
                return Err(Fault::DuplicateId);
            }
        }
        Ok(())
    }

    fn insertion(&self, now: Now, rows: &[&Row]) -> Statement {
        let mut insert = Statement::new(self.dialect(), INSERTED);
        let have_past = rows.iter().any(|row| row.has_past);
        if have_past {
            insert.push(PAST);
        }
        // Written by a claim: where MySQL has room for them from the beginning, a claim changes the row in place, else the row
        // grows, and pages of rows that came one after the other are all split.
        insert.push_as(", lease_span_us, holder, claim_call) VALUES ", ") VALUES ");
        for (index, row) in rows.iter().enumerate() {
            let message = &row.record.message;
            let (queue_no, queue_at, rank) = row.queue_position(self.shard_of(&message.id));
            let properties = properties_text(&message.properties);
            let retry = message.retry.as_deref().and_then(retry_text);
            insert.push(if index == 0 { "(" } else { ", (" });
            insert.bind_all([message.id.as_str(), message.sink.as_str(), message.topic.as_str()]).push(", ");
            insert.bind_all([
                message.tag.as_ref().map(|tag| tag.as_str()),
                message.key.as_ref().map(|key| key.as_str()),
                properties.as_deref(),
                retry.as_deref(),
                Some(kind_word(message.body.kind())),
            ]);
            insert.push(", ").bind(message.body.as_bytes()).push(", ").bind_all([
                Some(message.due.as_millis() as i64),
                Some(i64::from(message.priority.get())),
                row.max_lateness_ms(),
                Some(row.record.ready.as_millis() as i64),
                Some(row.hash),
                Some(row.lane_no),
                Some(queue_no),
                Some(queue_at),
                Some(rank),
                self.unindexed(now, row),
            ]);
            if have_past {
                bind_past(&mut insert, row);
            }
            insert.push_as(", 0, 0, 0)", ")");
        }
        // PostgreSQL would write every known id into its log.
        insert.push_as("", " ON CONFLICT (message_id) DO NOTHING");
        insert
    }

    /// Writes rows that were [locked](Self::lock) and changed.
    pub(super) async fn write(&self, session: &mut Session, now: Now, rows: &[&Row]) -> Result<(), Fault> {
        for part in parts(rows, |_| 1) {
            session.run(self.change_of(now, part)).await?;
        }
        Ok(())
    }

    /// All of them exist: the insertion meets each row and changes it instead, in both databases the quickest way to
    /// write different things to many rows.
    fn change_of(&self, now: Now, rows: &[&Row]) -> Statement {
        let mut change =
            Statement::new(self.dialect(), "INSERT INTO delay_message (message_id, sink, topic, ");
        change.push(&CHANGING.join(", ")).push(", unindexed_at) VALUES ");
        for (index, row) in rows.iter().enumerate() {
            let record = &row.record;
            let message = &record.message;
            let history = history_text(&record.history);
            let (queue_no, queue_at, rank) = row.queue_position(self.shard_of(&message.id));
            let int = |n: i64| Some(n);
            change.push(if index == 0 { "(" } else { ", (" });
            change.bind_all([message.id.as_str(), message.sink.as_str(), message.topic.as_str()]).push(", ");
            change.bind(message.due.as_millis() as i64).push(", ").bind(row.status()).push(", ");
            change
                .bind_all([int(record.ready.as_millis() as i64), int(i64::from(record.attempts))])
                .push(", ");
            change.bind(history.as_deref()).push(", ");
            change.bind_all([
                int(i64::from(record.maybe_delivered)),
                int(row.lost as i64),
                record.ended.map(|at| at.as_millis() as i64),
            ]);
            change.push(", ").bind(record.reason.map(|reason| reason.as_str())).push(", ");
            change.bind(record.receipt.as_deref()).push(", ");
            change.bind_all([
                int(row.hash),
                int(row.lane_no),
                int(queue_no),
                int(queue_at),
                int(rank),
                int(row.version + 1),
                int(row.token as i64),
                int(row.span_us),
                int(row.process.unwrap_or_default()),
                self.unindexed(now, row),
            ]);
            change.push(")");
        }
        change.push_as(" ON DUPLICATE KEY UPDATE ", " ON CONFLICT (message_id) DO UPDATE SET ");
        let new = |column: &str| match self.dialect() {
            Dialect::Mysql => format!("VALUES({column})"),
            Dialect::Postgres => format!("EXCLUDED.{column}"),
        };
        for column in CHANGING.into_iter().chain(["unindexed_at"]) {
            change.push(&format!("{column} = {}, ", new(column)));
        }
        // Delivered and cancelled messages are kept without their bodies.
        let old = if self.dialect() == Dialect::Mysql { "body" } else { "delay_message.body" };
        let status = new("status");
        change.push(&format!(
            "body = CASE WHEN {status} = 'DELIVERED' OR {status} = 'CANCELLED' THEN NULL ELSE {old} END"
        ));
        change.push_as("", ", update_time = CURRENT_TIMESTAMP(3)");
        change
    }

    /// Removes rows.
    pub(super) async fn remove(&self, session: &mut Session, ids: &[&str]) -> Result<(), Fault> {
        for part in ids.chunks(SIZES[0]) {
            session.run(self.removal(&filled(part))).await?;
        }
        Ok(())
    }

    fn removal(&self, ids: &[&str]) -> Statement {
        if self.dialect() == Dialect::Postgres {
            let mut delete =
                Statement::new(self.dialect(), "DELETE FROM delay_message WHERE message_id IN (");
            delete.bind_all(ids.iter().copied()).push(")");
            return delete;
        }
        // The only words by which MySQL takes the rows by their ids in a small table, too. Else it reads every row, and
        // waits for those of others that are locked.
        let mut delete = Statement::new(self.dialect(), "DELETE delay_message FROM (SELECT CONVERT(");
        for (index, id) in ids.iter().enumerate() {
            delete.push(if index == 0 { "" } else { " UNION ALL SELECT CONVERT(" });
            delete.bind(*id).push(if index == 0 { " USING ascii) AS id" } else { " USING ascii)" });
        }
        delete.push(") AS gone STRAIGHT_JOIN delay_message ON message_id = gone.id");
        delete
    }

    /// Since when the index in Redis is to have it and has not, where there is one.
    pub(super) fn unindexed(&self, now: Now, row: &Row) -> Option<i64> {
        let later = now.wall().saturating_add(NEAR);
        let waits =
            self.redis_index.is_kept && row.record.state == State::Pending && row.record.ready > later;
        waits.then(|| row.record.ready.as_millis() as i64 * 1000)
    }
}

impl FoundRows {
    pub(super) fn read(&mut self, answers: Vec<ServerRow>) -> Result<(), Fault> {
        self.read_by(Row::read, &answers)
    }

    /// Reads rows that also say when they were accepted.
    pub(super) fn read_with_acceptance(&mut self, answers: &[ServerRow]) -> Result<(), Fault> {
        self.read_by(Row::read_with_acceptance, answers)
    }

    fn read_by(
        &mut self,
        read: impl Fn(&ServerRow) -> Result<Result<Row, Bad>, Fault>,
        answers: &[ServerRow],
    ) -> Result<(), Fault> {
        for answer in answers {
            match read(answer)? {
                Ok(row) => self.rows.push(row),
                Err(bad) => self.bad.push(bad),
            }
        }
        Ok(())
    }
}

/// Binds the history that a row had in another store.
fn bind_past(insert: &mut Statement, row: &Row) {
    let record = &row.record;
    let accepted = record.accepted.map(|at| (at.as_millis() as i64).clamp(ACCEPTED_MS.0, ACCEPTED_MS.1));
    // Both are exact to the millisecond: of a quotient MySQL keeps as many digits as a setting says, of a product all. sqlx sets the
    // time zone of MySQL's sessions to UTC, where each instant has one name.
    insert.push_as(", COALESCE(FROM_UNIXTIME(", ", COALESCE(to_timestamp(").bind(accepted);
    insert.push(" * 0.001), CURRENT_TIMESTAMP(3)), ");
    insert.bind(row.status()).push(", ").bind_all([
        Some(i64::from(record.attempts)),
        Some(i64::from(record.maybe_delivered)),
        record.ended.map(|at| at.as_millis() as i64),
    ]);
    let history = history_text(&record.history);
    insert.push(", ").bind(record.reason.map(|reason| reason.as_str()));
    insert.push(", ").bind(history.as_deref());
}
