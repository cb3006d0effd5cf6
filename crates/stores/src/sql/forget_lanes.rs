//! Topics without messages are forgotten.
//!
//! A topic is free text, so `duly_lane` would grow without end. Whoever counts a message in or out of a lane writes a counter of that
//! lane. So the first node by name removes the counters of lanes that add up to nought, and later the rows of those lanes that have had
//! no counter for a whole round: nobody used them meanwhile.
//!
//! A node that knew the number from before may still put a message there. That is no harm: the number follows from the name
//! ([`lanes`](super::lanes)), so claims find the message without the row, and the row is put back here. Lanes with a number of another
//! kind, and those to a sink, are kept.

use std::collections::{BTreeMap, BTreeSet};

use duly_core::store::StoreError;

use super::{
    SqlStore,
    connection::{Session, Statement},
    count::{DEAD_OF_LANE, PENDING_OF_LANE},
    fault::Fault,
    lanes::{HASHED, is_of_its_name},
    row::{DEAD, IN_FLIGHT, queue_no},
};

/// Lanes removed by one transaction.
const BATCH_MAX: usize = 100;
/// Lanes checked in one round.
const ROUND_MAX: usize = 2_000;

/// A lane that adds up to nought.
struct Empty {
    number: i64,
    has_counters: bool,
}

impl SqlStore {
    /// One round. Every node forgets what it knows of topics but those that it `serves`; the first one removes their rows.
    pub(super) async fn forget_lanes(&self, serves: &[String]) -> Result<(), StoreError> {
        let serves: BTreeSet<_> = serves.iter().map(String::as_str).collect();
        self.lanes.forget_topics(&serves);
        if !self.presence.is_first() {
            self.lanes.clear_bare();
            return Ok(());
        }
        let served: BTreeSet<_> = serves.iter().filter_map(|name| self.lanes.number(name)).collect();
        let busy = self.read(|borrowed| Box::pin(self.lanes_in_flight(borrowed.session))).await?;
        let (empty, to) = self.read(|borrowed| Box::pin(self.empty_lanes(borrowed.session))).await?;
        let (counted, bare): (Vec<_>, Vec<_>) = empty
            .into_iter()
            .filter(|lane| !busy.contains(&lane.number) && !served.contains(&lane.number))
            .partition(|lane| lane.has_counters);
        let counted: Vec<_> = counted.into_iter().map(|lane| lane.number).collect();
        let bare: BTreeSet<_> = bare.into_iter().map(|lane| lane.number).collect();
        for some in counted.chunks(BATCH_MAX) {
            self.transact(|borrowed| Box::pin(self.remove_counters(borrowed.session, some))).await?;
        }
        let over = self.lanes.update_bare(to, &bare);
        for some in over.chunks(BATCH_MAX) {
            self.transact(|borrowed| Box::pin(self.remove_lanes(borrowed.session, some))).await?;
        }
        Ok(())
    }

    async fn lanes_in_flight(&self, session: &mut Session) -> Result<BTreeSet<i64>, Fault> {
        let mut select =
            Statement::new(self.dialect(), "SELECT DISTINCT lane_no FROM delay_message WHERE queue_no = ");
        select.bind(IN_FLIGHT);
        let mut lanes = BTreeSet::new();
        for row in session.rows(select).await? {
            lanes.extend(row.maybe_int(0)?);
        }
        Ok(lanes)
    }

    /// Some topics whose counters add up to nought, or that have none, and up to which number these are all.
    async fn empty_lanes(&self, session: &mut Session) -> Result<(Vec<Empty>, i64), Fault> {
        let mut select = Statement::new(
            self.dialect(),
            "SELECT l.lane_no, l.name, COUNT(c.n) FROM duly_lane l LEFT JOIN duly_count c ON c.kind IN (",
        );
        select.bind_all([PENDING_OF_LANE, DEAD_OF_LANE]).push(") AND c.what = l.lane_no WHERE l.paused = 0");
        select.push(" AND l.lane_no > ").bind(self.lanes.scanned_to().max(HASHED - 1));
        select.push(" GROUP BY l.lane_no, l.name HAVING COALESCE(SUM(c.n), 0) = 0 ORDER BY l.lane_no LIMIT ");
        select.bind(ROUND_MAX as i64);
        let (mut empty, mut to) = (Vec::new(), i64::MAX);
        let rows = session.rows(select).await?;
        for row in &rows {
            let number = row.int(0)?;
            if rows.len() == ROUND_MAX {
                to = number;
            }
            if is_of_its_name(&row.bytes(1)?, number) {
                empty.push(Empty { number, has_counters: row.int(2)? > 0 });
            }
        }
        Ok((empty, to))
    }

    /// Removes the counters of lanes that add up to nought. Others may count there at the same moment, in rows of their own: only the rows
    /// that were read, and are locked since, are removed.
    async fn remove_counters(&self, session: &mut Session, lanes: &[i64]) -> Result<(), Fault> {
        let mut over = Vec::new();
        for kind in [PENDING_OF_LANE, DEAD_OF_LANE] {
            let mut select =
                Statement::new(self.dialect(), "SELECT what, slot, n FROM duly_count WHERE kind = ");
            select.bind(kind).push(" AND what IN (").bind_all(lanes.iter().copied());
            select.push(") ORDER BY what, slot FOR UPDATE");
            let mut read: BTreeMap<i64, (i64, Vec<i64>)> = BTreeMap::new();
            for row in session.rows(select).await? {
                let (sum, slots) = read.entry(row.int(0)?).or_default();
                *sum += row.int(2)?;
                slots.push(row.int(1)?);
            }
            let is_nought = read.into_iter().filter(|(_, (sum, _))| *sum == 0);
            over.extend(is_nought.map(|(lane, (_, slots))| (kind, lane, slots)));
        }
        for (kind, lane, slots) in over {
            let mut delete = Statement::new(self.dialect(), "DELETE FROM duly_count WHERE kind = ");
            delete
                .bind(kind)
                .push(" AND what = ")
                .bind(lane)
                .push(" AND slot IN (")
                .bind_all(slots)
                .push(")");
            session.run(delete).await?;
        }
        Ok(())
    }

    /// Removes the rows of lanes that still have no counter and no pause.
    async fn remove_lanes(&self, session: &mut Session, lanes: &[i64]) -> Result<(), Fault> {
        let mut delete =
            Statement::new(self.dialect(), "DELETE FROM duly_lane WHERE paused = 0 AND lane_no IN (");
        delete
            .bind_all(lanes.iter().copied())
            .push(") AND NOT EXISTS (SELECT 1 FROM duly_count c WHERE c.kind IN (");
        delete.bind_all([PENDING_OF_LANE, DEAD_OF_LANE]).push(") AND c.what = duly_lane.lane_no)");
        session.run(delete).await?;
        Ok(())
    }

    /// Puts back the rows of lanes that hold something: it was put there by a node that knew the number from before.
    pub(super) async fn restore_lanes(&self) -> Result<(), StoreError> {
        let lost = self.read(|borrowed| Box::pin(self.lanes_without_rows(borrowed.session))).await?;
        for number in lost {
            let Some(name) =
                self.read(|borrowed| Box::pin(self.name_by_message(borrowed.session, number))).await?
            else {
                continue;
            };
            let lane = [(name, number)];
            self.transact(|borrowed| Box::pin(self.give_numbers(borrowed.session, &lane))).await?;
        }
        Ok(())
    }

    async fn lanes_without_rows(&self, session: &mut Session) -> Result<Vec<i64>, Fault> {
        let mut select = Statement::new(self.dialect(), "SELECT c.what FROM duly_count c WHERE c.kind IN (");
        select.bind_all([PENDING_OF_LANE, DEAD_OF_LANE]);
        select.push(") AND NOT EXISTS (SELECT 1 FROM duly_lane l WHERE l.lane_no = c.what)");
        select.push(" GROUP BY c.what HAVING SUM(c.n) <> 0 LIMIT ").bind(BATCH_MAX as i64);
        let rows = session.rows(select).await?;
        rows.iter().map(|row| row.int(0)).collect()
    }

    /// The name of a lane, from a message that waits in it or is dead.
    async fn name_by_message(&self, session: &mut Session, number: i64) -> Result<Option<String>, Fault> {
        let select =
            || Statement::new(self.dialect(), "SELECT sink, topic FROM delay_message WHERE queue_no ");
        let mut pending = select();
        pending.push("BETWEEN ").bind(queue_no(number, 0)).push(" AND ").bind(queue_no(number, 255));
        let mut dead = select();
        dead.push("= ").bind(DEAD).push(" AND lane_no = ").bind(number);
        for mut select in [pending, dead] {
            select.push(" LIMIT 1");
            if let Some(row) = session.rows(select).await?.first() {
                let (sink, topic) = (row.text(0)?, row.text(1)?);
                return Ok(Some(if sink == "queue" { format!("q{topic}") } else { format!("s{sink}") }));
            }
        }
        Ok(None)
    }
}
