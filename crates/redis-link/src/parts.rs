//! The servers that hold keys, one at a time: for what no key says where to ask.

use std::collections::BTreeMap;

use redis::{
    Cmd, FromRedisValue, RedisResult, Value,
    aio::ConnectionLike,
    cluster_routing::{Route, RoutingInfo, SingleNodeRoutingInfo, SlotAddr},
};

use crate::Link;

/// A part of a Redis that one server holds.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum KeyspacePart {
    /// All of it.
    Whole,
    /// What the master of this slot holds.
    MasterOf(u16),
}

impl Link {
    /// The parts that together are everything: as many as there are masters.
    pub async fn parts(&mut self) -> RedisResult<Vec<KeyspacePart>> {
        let Self::Cluster(_, cluster) = self else { return Ok(vec![KeyspacePart::Whole]) };
        let mut slots = redis::cmd("CLUSTER");
        slots.arg("SLOTS");
        let anywhere = RoutingInfo::SingleNode(SingleNodeRoutingInfo::Random);
        let answer = cluster.route_command(slots, anywhere).await?;
        // Per range: its first slot, its last, and the servers that have it, the master first.
        let ranges: Vec<Vec<Value>> = FromRedisValue::from_redis_value(answer)?;
        let mut masters = BTreeMap::new();
        for range in ranges {
            let mut range = range.into_iter();
            let (Some(first), Some(_), Some(master)) = (range.next(), range.next(), range.next()) else {
                continue;
            };
            let who = match master {
                Value::Array(words) => format!("{:?}", words.get(..2)),
                other => format!("{other:?}"),
            };
            masters.entry(who).or_insert(u16::from_redis_value(first)?);
        }
        Ok(masters.into_values().map(KeyspacePart::MasterOf).collect())
    }

    /// Asks the server that holds `part`.
    pub async fn ask_part(&mut self, part: KeyspacePart, command: Cmd) -> RedisResult<Value> {
        let answer = match (self, part) {
            (Self::Cluster(_, cluster), KeyspacePart::MasterOf(slot)) => {
                let route = SingleNodeRoutingInfo::SpecificNode(Route::new(slot, SlotAddr::Master));
                cluster.route_command(command, RoutingInfo::SingleNode(route)).await
            }
            (link, _) => link.req_packed_command(&command).await,
        };
        answer?.extract_error()
    }
}
