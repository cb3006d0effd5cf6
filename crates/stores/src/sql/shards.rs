//! The owners of shards, and the oldest waiting message of each shard.

use std::cmp::Reverse;

use duly_core::{Lane, Now, ShardOwner, ShardStatus, Timestamp, store::StoreError};

use super::{
    SqlStore,
    connection::{Session, Statement},
    count::PENDING_OF_LANE,
    fault::Fault,
    row::queue_no,
};
use crate::shared::lane::lane_of;

/// At most this many lanes are read, each with its queues in every shard: lanes of sinks first, then the fullest.
const LANES_MAX: usize = 100;

impl SqlStore {
    pub(super) async fn shard_statuses(&self, now: Now) -> Result<Vec<ShardStatus>, StoreError> {
        self.check_open()?;
        let shards = self.options.shards;
        let mut statuses: Vec<_> = (0..shards).map(|shard| ShardStatus::new(u32::from(shard))).collect();
        for (shard, owner) in self.read(|borrowed| Box::pin(self.owners(borrowed.session, now))).await? {
            if let Some(status) = statuses.get_mut(shard) {
                status.owners.push(owner);
            }
        }
        let lanes = self.read(|borrowed| Box::pin(self.waiting_lanes(borrowed.session))).await?;
        let due_by = now.wall().as_millis() as i64 * 1000;
        for (queue, at) in self.firsts(&lanes, 0..shards).await? {
            let index = (queue % queue_no(1, 0)) as usize;
            if let Some(status) = statuses.get_mut(index).filter(|_| at <= due_by) {
                let at = Timestamp::from_millis(at as u64 / 1000);
                status.oldest = Some(status.oldest.map_or(at, |oldest| oldest.min(at)));
            }
        }
        for status in &mut statuses {
            status.owners.sort_by(|a, b| a.lane.cmp(&b.lane));
        }
        Ok(statuses)
    }

    /// The lanes and shards of the live nodes.
    async fn owners(&self, session: &mut Session, now: Now) -> Result<Vec<(usize, ShardOwner)>, Fault> {
        let mut select = Statement::new(
            self.dialect(),
            "SELECT r.shard, l.name, n.name, l.lane_no FROM duly_node n JOIN duly_shard_lease r ON r.instance = n.instance \
             JOIN duly_lane l ON l.lane_no = r.lane_no WHERE n.alive_until > ",
        );
        select.bind(self.time.tick(now) as i64);
        let mut owners = Vec::new();
        for row in session.rows(select).await? {
            let Some(lane) = self.lane_in(row.int(3)?, &row.bytes(1)?) else { continue };
            let node = String::from_utf8_lossy(&row.bytes(2)?).into_owned();
            owners.push((row.int(0)? as usize, ShardOwner::new(lane, node)));
        }
        Ok(owners)
    }

    /// The lanes in which something waits and that are not paused, as many as are looked at.
    async fn waiting_lanes(&self, session: &mut Session) -> Result<Vec<i64>, Fault> {
        let mut select = Statement::new(self.dialect(), "SELECT l.lane_no, l.name, CAST(SUM(c.n) AS ");
        select
            .push_as("SIGNED", "BIGINT")
            .push(") FROM duly_count c JOIN duly_lane l ON l.lane_no = c.what ");
        select.push("WHERE c.kind = ").bind(PENDING_OF_LANE);
        select.push(" AND l.paused = 0 GROUP BY l.lane_no, l.name HAVING SUM(c.n) > 0");
        let mut lanes = Vec::new();
        for row in session.rows(select).await? {
            let is_queue = matches!(lane_of(&row.bytes(1)?), Some(Lane::Queue(_)) | None);
            lanes.push((is_queue, Reverse(row.int(2)?), row.int(0)?));
        }
        lanes.sort_unstable();
        lanes.truncate(LANES_MAX);
        Ok(lanes.into_iter().map(|(_, _, number)| number).collect())
    }
}
