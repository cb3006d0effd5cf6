//! Looks that change nothing: records, lanes, books, forecast.

use std::collections::{BTreeMap, HashMap, HashSet};

use duly_core::{
    MessageId, Now, Record, Timestamp,
    store::{LaneStatus, StoreError, Totals},
};

use super::{
    SqlStore,
    connection::{Dialect, Session, Statement},
    count::{Counter, DEAD_OF_LANE, HOUR_MS, HOURS, MINUTE_MS, MINUTES, PENDING_OF_LANE, TOTALS},
    fault::Fault,
    row::{Bodies, IN_FLIGHT, queue_no},
    write::{FoundRows, lists},
};

/// Due messages of a lane are counted up to this in every shard. A higher number helps nobody.
const READY_MAX: i64 = 10_000;
/// At most this many queues are read by number; of more, all queues with messages are read.
pub(crate) const ASKED_MAX: usize = 2_000;
/// How many of them with one statement.
const WALKED_MAX: usize = 5_000;
/// Ids that are looked up at once: their bodies may be large.
const STEP: usize = 100;

impl SqlStore {
    pub(super) async fn records(
        &self,
        ids: &[MessageId],
        bodies: Bodies,
    ) -> Result<Vec<Option<Record>>, StoreError> {
        self.check_open()?;
        let mut known: HashMap<MessageId, Record> = HashMap::new();
        for part in ids.chunks(STEP) {
            let found = self.read(|borrowed| Box::pin(self.find(borrowed.session, part, bodies))).await?;
            known.extend(found.rows.into_iter().map(|row| (row.id().clone(), row.record)));
        }
        Ok(ids.iter().map(|id| known.get(id).cloned()).collect())
    }

    async fn find(
        &self,
        session: &mut Session,
        ids: &[MessageId],
        bodies: Bodies,
    ) -> Result<FoundRows, Fault> {
        let ids: Vec<_> = ids.iter().collect();
        let mut found = FoundRows::default();
        for list in lists(&ids) {
            let mut select = Statement::new(self.dialect(), &bodies.select_with_acceptance(self.dialect()));
            select.push("WHERE message_id IN (").bind_all(list).push(")");
            found.read_with_acceptance(&session.rows(select).await?)?;
        }
        Ok(found)
    }

    /// One statement, so one moment.
    pub(super) async fn all_totals(&self) -> Result<Totals, StoreError> {
        self.check_open()?;
        let select = || {
            let mut select = Statement::new(self.dialect(), "SELECT kind, what, CAST(SUM(n) AS ");
            select.push_as("SIGNED", "BIGINT").push(") FROM duly_count WHERE kind = ").bind(TOTALS);
            select
                .push(" GROUP BY kind, what UNION ALL SELECT kind, 0, CAST(SUM(n) AS ")
                .push_as("SIGNED", "BIGINT");
            select.push(") FROM duly_count WHERE kind = ").bind(PENDING_OF_LANE);
            select
                .push(" GROUP BY kind UNION ALL SELECT -1, 0, COUNT(*) FROM delay_message WHERE queue_no = ");
            select.bind(IN_FLIGHT);
            select
        };
        let mut totals = Totals::default();
        for row in self.read(|borrowed| Box::pin(borrowed.session.rows(select()))).await? {
            let n = u64::try_from(row.int(2)?).unwrap_or_default();
            match (row.int(0)?, row.int(1)?) {
                (-1, _) => totals.in_flight = n,
                (PENDING_OF_LANE, _) => totals.pending = n,
                (_, what) if what == Counter::Accepted as i64 => totals.accepted = n,
                (_, what) if what == Counter::Delivered as i64 => totals.delivered = n,
                (_, what) if what == Counter::Cancelled as i64 => totals.cancelled = n,
                (_, what) if what == Counter::Dead as i64 => totals.dead = n,
                (_, what) if what == Counter::Purged as i64 => totals.purged = n,
                _ => {}
            }
        }
        Ok(totals)
    }

    pub(super) async fn lane_statuses(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        self.check_open()?;
        let mut lanes = self.read(|borrowed| Box::pin(self.lanes_at_a_glance(borrowed.session))).await?;
        let waiting: Vec<_> =
            lanes.iter().filter(|(_, status)| status.pending > 0).map(|(no, _)| *no).collect();
        let firsts = self.firsts(&waiting, 0..self.options.shards).await?;
        let due_by = now.wall().as_millis() as i64 * 1000;
        let due: Vec<_> = firsts.into_iter().filter(|(_, at)| *at <= due_by).collect();
        for part in due.chunks(100) {
            for (queue, ready) in
                self.read(|borrowed| Box::pin(self.count_due(borrowed.session, part, due_by))).await?
            {
                let Some(status) = lanes.get_mut(&(queue / 256)) else { continue };
                let at = part.iter().find(|(no, _)| *no == queue).map_or(due_by, |(_, at)| *at);
                let at = Timestamp::from_millis(at as u64 / 1000);
                status.ready += ready;
                status.oldest_ready = Some(status.oldest_ready.map_or(at, |oldest| oldest.min(at)));
            }
        }
        let is_there = |status: &LaneStatus| {
            status.paused || status.pending > 0 || status.in_flight > 0 || status.dead > 0
        };
        let mut lanes: Vec<_> = lanes.into_values().filter(is_there).collect();
        lanes.sort_by(|a, b| a.lane.cmp(&b.lane));
        Ok(lanes)
    }

    /// Every lane with what is counted of it.
    async fn lanes_at_a_glance(&self, session: &mut Session) -> Result<BTreeMap<i64, LaneStatus>, Fault> {
        let mut lanes: BTreeMap<_, _> = self
            .every_lane(session)
            .await?
            .into_iter()
            .map(|(no, lane, paused)| {
                let mut status = LaneStatus::empty(lane);
                status.paused = paused;
                (no, status)
            })
            .collect();
        let mut select = Statement::new(self.dialect(), "SELECT kind, what, CAST(SUM(n) AS ");
        select.push_as("SIGNED", "BIGINT").push(") FROM duly_count WHERE kind IN (");
        select.bind_all([PENDING_OF_LANE, DEAD_OF_LANE]).push(") GROUP BY kind, what UNION ALL ");
        select.push("SELECT -1, lane_no, COUNT(*) FROM delay_message WHERE queue_no = ").bind(IN_FLIGHT);
        select.push(" GROUP BY lane_no");
        for row in session.rows(select).await? {
            let Some(status) = lanes.get_mut(&row.maybe_int(1)?.unwrap_or_default()) else { continue };
            let n = u64::try_from(row.int(2)?).unwrap_or_default();
            match row.int(0)? {
                PENDING_OF_LANE => status.pending = n,
                DEAD_OF_LANE => status.dead = n,
                _ => status.in_flight = n,
            }
        }
        Ok(lanes)
    }

    /// When the first is ready of each queue of these lanes and shards that holds something.
    pub(super) async fn firsts(
        &self,
        lanes: &[i64],
        shards: std::ops::Range<u16>,
    ) -> Result<Vec<(i64, i64)>, StoreError> {
        let queues: Vec<_> =
            lanes.iter().flat_map(|lane| shards.clone().map(move |shard| queue_no(*lane, shard))).collect();
        self.firsts_of(&queues).await
    }

    /// The same of queues by their numbers. The number of statements grows with the queues that hold something, not with those that are
    /// asked for.
    pub(super) async fn firsts_of(&self, queues: &[i64]) -> Result<Vec<(i64, i64)>, StoreError> {
        let mut firsts = Vec::new();
        if queues.len() > ASKED_MAX {
            let requested: HashSet<_> = queues.iter().copied().collect();
            let mut after = 0;
            loop {
                let page = self.queues_after(after, WALKED_MAX).await?;
                firsts.extend(page.iter().filter(|(queue, _)| requested.contains(queue)));
                match page.last().filter(|_| page.len() == WALKED_MAX) {
                    Some((last, _)) => after = *last,
                    None => return Ok(firsts),
                }
            }
        }
        for part in queues.chunks(200) {
            let rows =
                self.read(|borrowed| Box::pin(borrowed.session.rows(self.first_of_each(part)))).await?;
            for row in rows {
                firsts.push((row.int(0)?, row.int(1)?));
            }
        }
        Ok(firsts)
    }

    /// Reads the first entry of each queue, and nothing else.
    fn first_of_each(&self, queues: &[i64]) -> Statement {
        let mut select = Statement::new(self.dialect(), "");
        for (index, queue) in queues.iter().enumerate() {
            select.push(if index == 0 { "" } else { " UNION ALL " });
            select.push("(SELECT queue_no, queue_at FROM delay_message WHERE queue_no = ").bind(*queue);
            select.push(" ORDER BY queue_at, queue_rank, message_id LIMIT 1)");
        }
        select
    }

    /// The next queues behind `after` that hold something, by their numbers, each with the time of its first entry.
    pub(super) async fn queues_after(&self, after: i64, limit: usize) -> Result<Vec<(i64, i64)>, StoreError> {
        let rows = self.read(|borrowed| Box::pin(borrowed.session.rows(self.walk(after, limit)))).await?;
        Ok(rows.iter().map(|row| Ok((row.int(0)?, row.int(1)?))).collect::<Result<_, Fault>>()?)
    }

    /// One seek in the index for each queue, however much waits there.
    fn walk(&self, after: i64, limit: usize) -> Statement {
        let mut select = Statement::new(self.dialect(), "");
        if self.dialect() == Dialect::Mysql {
            // A loose index scan.
            select
                .push("SELECT queue_no, MIN(queue_at) FROM delay_message FORCE INDEX (delay_message_queue) ");
            select.push("WHERE queue_no > ").bind(after).push(" GROUP BY queue_no ORDER BY queue_no LIMIT ");
        } else {
            // PostgreSQL does not skip from group to group of an index, unless it is made to.
            let first = "SELECT queue_no, queue_at FROM delay_message WHERE queue_no > ";
            let in_order = " ORDER BY queue_no, queue_at LIMIT 1";
            select.push("WITH RECURSIVE walk AS ((").push(first).bind(after).push(in_order);
            select.push(") UNION ALL SELECT next.* FROM walk CROSS JOIN LATERAL (").push(first);
            select.push("walk.queue_no").push(in_order);
            select.push(") AS next) SELECT queue_no, queue_at FROM walk LIMIT ");
        }
        select.bind(limit as i64);
        select
    }

    async fn count_due(
        &self,
        session: &mut Session,
        queues: &[(i64, i64)],
        due_by: i64,
    ) -> Result<Vec<(i64, u64)>, Fault> {
        let mut select = Statement::new(self.dialect(), "");
        for (index, (queue, _)) in queues.iter().enumerate() {
            select.push(if index == 0 { "" } else { " UNION ALL " });
            select
                .push("SELECT queue_no, COUNT(*) FROM (SELECT queue_no FROM delay_message WHERE queue_no = ");
            select.bind(*queue).push(" AND queue_at <= ").bind(due_by);
            select.push(" LIMIT ").bind(READY_MAX).push(") AS due GROUP BY queue_no");
        }
        session.rows(select).await?.iter().map(|row| Ok((row.int(0)?, row.int(1)? as u64))).collect()
    }

    pub(super) async fn upcoming(
        &self,
        from: Timestamp,
        to: Timestamp,
        buckets: usize,
    ) -> Result<Vec<u64>, StoreError> {
        self.check_open()?;
        let mut counts = vec![0; buckets];
        let span = u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX);
        if span == 0 || buckets == 0 {
            return Ok(counts);
        }
        // Counted by the hour where that is fine enough, else by the minute.
        let (kind, unit) =
            if span / buckets as u64 >= HOUR_MS { (HOURS, HOUR_MS) } else { (MINUTES, MINUTE_MS) };
        let (first, end) = ((from.as_millis() / unit) as i64, to.as_millis().div_ceil(unit) as i64);
        let select = || {
            let mut select = Statement::new(self.dialect(), "SELECT what, CAST(SUM(n) AS ");
            select.push_as("SIGNED", "BIGINT").push(") FROM duly_count WHERE kind = ").bind(kind);
            select.push(" AND what >= ").bind(first).push(" AND what < ").bind(end).push(" GROUP BY what");
            select
        };
        for row in self.read(|borrowed| Box::pin(borrowed.session.rows(select()))).await? {
            // The unit that `from` lies in counts from the begin of the range.
            let into = (row.int(0)? as u64 * unit).saturating_sub(from.as_millis());
            let bucket = u128::from(into) * buckets as u128 / u128::from(span);
            if let Some(sum) = counts.get_mut(bucket as usize) {
                *sum += u64::try_from(row.int(1)?).unwrap_or_default();
            }
        }
        Ok(counts)
    }
}
