//! Who delivers what from which shard, and since when something waits there.

use std::collections::{HashMap, HashSet};

use duly_core::{Now, ShardOwner, ShardStatus, Timestamp, store::StoreError};
use futures_util::future::{try_join, try_join_all};

use super::{RedisStore, nodes::read_member};
use crate::shared::lane::lane_of;

/// So many paused lanes are passed over in search of one that is not.
const PAUSED_MAX: usize = 1000;

/// A hash, a set, and a sorted set in its order, as Redis gives them.
type Fields = HashMap<Vec<u8>, Vec<u8>>;
type Members = HashSet<Vec<u8>>;
type Scores = Vec<(Vec<u8>, f64)>;

impl RedisStore {
    /// Two round trips: who is there, then all shards at once.
    pub(super) async fn shard_statuses(&self, now: Now) -> Result<Vec<ShardStatus>, StoreError> {
        let mut commands = redis::pipe();
        commands.cmd("HGETALL").arg(&self.keys.nodes);
        let after = format!("({}", self.time.tick(now));
        commands.cmd("ZRANGEBYSCORE").arg(&self.keys.alive).arg(after).arg("+inf");
        let reply = self.ask_all::<(Fields, Members)>(&commands);
        let ((status, alive), (paused, _)) = try_join(reply, self.paused_lanes()).await?;
        let live = status.into_iter().filter(|(instance, _)| alive.contains(instance));
        let names: HashMap<_, _> = live
            .filter_map(|(instance, status)| {
                let name = read_member(&instance, &status, 0)?.status.name;
                Some((instance, name))
            })
            .collect();
        try_join_all((0..self.keys.shards()).map(|shard| self.shard_status(shard, now, &names, &paused)))
            .await
    }

    async fn shard_status(
        &self,
        shard: u16,
        now: Now,
        names: &HashMap<Vec<u8>, String>,
        paused: &Members,
    ) -> Result<ShardStatus, StoreError> {
        let mut commands = redis::pipe();
        commands.cmd("HGET").arg(self.keys.one(shard, "meta")).arg("generation");
        commands.cmd("HGETALL").arg(self.keys.one(shard, "owner"));
        commands.cmd("ZRANGEBYSCORE").arg(self.keys.one(shard, "soonest"));
        commands.arg("-inf").arg(now.wall().as_millis());
        commands.arg("WITHSCORES").arg("LIMIT").arg(0).arg(paused.len().min(PAUSED_MAX) + 1);
        let (generation, leases, due): (Option<String>, Fields, Scores) = self.ask_all(&commands).await?;
        if generation.as_ref() != Some(&self.generation.name) {
            return Err(self.data_lost());
        }
        // The instance, then the fencing token.
        let owner = |(lane, lease): (Vec<u8>, Vec<u8>)| {
            let node = names.get(lease.get(..8)?)?.clone();
            Some(ShardOwner::new(lane_of(&lane)?, node))
        };
        let mut owners: Vec<_> = leases.into_iter().filter_map(owner).collect();
        owners.sort_by(|a, b| a.lane.cmp(&b.lane));
        let first = due.into_iter().find(|(lane, _)| !paused.contains(lane));
        let oldest = first.map(|(_, at)| Timestamp::from_millis(at as u64));
        let mut status = ShardStatus::new(u32::from(shard));
        (status.owners, status.oldest) = (owners, oldest);
        Ok(status)
    }
}
