//! Queries: records, lanes, totals, forecast.

use std::collections::{BTreeMap, HashMap};

use bytes::Bytes;
use duly_core::{
    Lane, MessageId, Now, Record, State, Timestamp,
    store::{LaneStatus, StoreError, Totals},
};
use futures_util::future::{join_all, try_join, try_join_all};

use super::{
    RedisStore,
    call::{by_shard, number},
    fault::garbled,
    keys::{six, tag},
    packed, scripts,
};
use crate::shared::lane::lane_of;

/// How much a step of HSCAN or ZSCAN, or a pipeline, reads at once.
pub(super) const STEP: usize = 500;
/// Fields of a hash that are asked for by name; more are found by reading all of them.
const FIELDS_MAX: u64 = 2000;

/// Whether bodies come along.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Bodies {
    With,
    Without,
}

impl RedisStore {
    pub(super) async fn records(
        &self,
        ids: &[MessageId],
        bodies: Bodies,
    ) -> Result<Vec<Option<Record>>, StoreError> {
        self.each_record(ids, bodies).await?.into_iter().collect()
    }

    /// The records of those that can be read.
    pub(super) async fn readable_records(
        &self,
        ids: &[MessageId],
        bodies: Bodies,
    ) -> Result<Vec<Option<Record>>, StoreError> {
        let records = self.each_record(ids, bodies).await?;
        Ok(records.into_iter().map(|record| record.ok().flatten()).collect())
    }

    async fn each_record(
        &self,
        ids: &[MessageId],
        bodies: Bodies,
    ) -> Result<Vec<Result<Option<Record>, StoreError>>, StoreError> {
        // Bodies may be large: fewer of those at once.
        let weight = if bodies == Bodies::With { 4096 } else { 256 };
        let shards = by_shard(&self.keys, ids, |id| id, |_| weight);
        let begin = |cmd: &mut redis::Cmd| {
            cmd.arg(if bodies == Bodies::With { "whole" } else { "head" });
        };
        let put = |cmd: &mut redis::Cmd, id: &&MessageId| {
            cmd.arg(id.as_str());
        };
        let now = Now::new(0, duly_core::Monotonic::default());
        let read = |reply: &[u8]| Some(Bytes::copy_from_slice(reply));
        let reply = self.run_all((&scripts::GET, now), shards, begin, put, read).await?;
        Ok(ids.iter().zip(reply).map(|(id, reply)| record(id, &reply)).collect())
    }

    pub(super) async fn all_totals(&self) -> Result<Totals, StoreError> {
        let shards = (0..self.keys.shards()).map(|shard| self.totals_of(shard));
        Ok(sum_of(try_join_all(shards).await?))
    }

    /// The totals of the shards that answer; the faults of the others are recorded.
    pub(super) async fn reachable_totals(&self) -> Result<Totals, StoreError> {
        let of_shard = |shard| async move { (shard, self.totals_of(shard).await) };
        let reply = join_all((0..self.keys.shards()).map(of_shard)).await;
        let known = self.faults.answered(reply, |shard| *shard)?;
        Ok(sum_of(known.into_iter().map(|(_, totals)| totals)))
    }

    async fn totals_of(&self, shard: u16) -> Result<ShardTotals, StoreError> {
        let mut commands = redis::pipe();
        commands.cmd("HGET").arg(self.keys.one(shard, "meta")).arg("generation");
        commands.cmd("HMGET").arg(self.keys.one(shard, "count")).arg(&TOTAL_FIELDS);
        let (generation, counts): (Option<String>, Vec<Option<u64>>) = self.ask_all(&commands).await?;
        // Without it, a Redis that was emptied would look like a store in which nothing waits.
        if generation.as_ref() != Some(&self.generation.name) {
            return Err(self.data_lost());
        }
        let mut totals = [0; TOTAL_FIELDS.len()];
        totals.iter_mut().zip(counts).for_each(|(total, count)| *total = count.unwrap_or(0));
        Ok(totals)
    }

    pub(super) async fn lane_statuses(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        let shards = try_join_all((0..self.keys.shards()).map(|shard| self.lanes_in(shard, now)));
        let ((paused, _), shards) = try_join(self.paused_lanes(), shards).await?;
        let mut lanes: BTreeMap<Lane, LaneStatus> = BTreeMap::new();
        for name in paused {
            let lane = lane_of(&name).ok_or_else(|| garbled("a lane"))?;
            lanes.entry(lane.clone()).or_insert_with(|| LaneStatus::empty(lane)).paused = true;
        }
        for (name, part) in shards.into_iter().flatten() {
            let Some(lane) = lane_of(&name) else {
                unreadable_field(&name);
                continue;
            };
            let sum = lanes.entry(lane.clone()).or_insert_with(|| LaneStatus::empty(lane));
            sum.pending += part.pending;
            sum.ready += part.ready;
            sum.in_flight += part.in_flight;
            sum.dead += part.dead;
            sum.oldest_ready = [sum.oldest_ready, part.oldest_ready].into_iter().flatten().min();
        }
        Ok(lanes.into_values().collect())
    }

    /// The numbers of every lane in one shard.
    async fn lanes_in(&self, shard: u16, now: Now) -> Result<HashMap<Vec<u8>, Numbers>, StoreError> {
        let mut lanes: HashMap<Vec<u8>, Numbers> = HashMap::new();
        for (field, count) in self.read_all("HSCAN", self.keys.one(shard, "count")).await? {
            let Some((kind, name)) = field.split_first().filter(|(kind, _)| **kind != b'#') else { continue };
            let Some(count) = number(&count) else {
                unreadable_field(&field);
                continue;
            };
            let numbers = lanes.entry(name.to_vec()).or_default();
            match kind {
                b'p' => numbers.pending = count,
                b'f' => numbers.in_flight = count,
                _ => numbers.dead = count,
            }
        }
        let due = self.lanes_due(shard, now).await?;
        for part in due.chunks(STEP) {
            let mut commands = redis::pipe();
            for (name, _) in part {
                let tag = tag(&String::from_utf8_lossy(name));
                let end = now.wall().saturating_add(std::time::Duration::from_millis(1));
                let to = [b"(", tag.as_slice(), &six(end)].concat();
                commands.cmd("ZLEXCOUNT").arg(self.keys.one(shard, "wait"));
                commands.arg([b"[", tag.as_slice()].concat()).arg(to);
            }
            for ((name, oldest), ready) in part.iter().zip(self.ask_all::<Vec<u64>>(&commands).await?) {
                let numbers = lanes.entry(name.clone()).or_default();
                numbers.ready = ready;
                numbers.oldest_ready = (ready > 0).then_some(*oldest);
            }
        }
        Ok(lanes)
    }

    /// The lanes that have something due in one shard, and since when.
    async fn lanes_due(&self, shard: u16, now: Now) -> Result<Vec<(Vec<u8>, Timestamp)>, StoreError> {
        let mut due = Vec::new();
        loop {
            let mut cmd = redis::cmd("ZRANGEBYSCORE");
            cmd.arg(self.keys.one(shard, "soonest")).arg("-inf").arg(now.wall().as_millis());
            cmd.arg("WITHSCORES").arg("LIMIT").arg(due.len()).arg(STEP);
            let page: Vec<(Vec<u8>, f64)> = self.ask(&cmd).await?;
            let last = page.len() < STEP;
            due.extend(page.into_iter().map(|(name, at)| (name, Timestamp::from_millis(at as u64))));
            if last {
                return Ok(due);
            }
        }
    }

    pub(super) async fn upcoming(
        &self,
        from: Timestamp,
        to: Timestamp,
        buckets: usize,
    ) -> Result<Vec<u64>, StoreError> {
        let mut counts = vec![0; buckets];
        let span = u64::try_from(to.since(from).as_millis()).unwrap_or(u64::MAX);
        if span == 0 || buckets == 0 {
            return Ok(counts);
        }
        // Counted by the hour where that is fine enough, else by the minute.
        let (name, unit) =
            if span / buckets as u64 >= 3_600_000 { ("hour", 3_600_000) } else { ("minute", 60_000) };
        let units = from.as_millis() / unit..to.as_millis().div_ceil(unit);
        let shards =
            (0..self.keys.shards()).map(|shard| self.counters(self.keys.one(shard, name), units.clone()));
        for (at, count) in try_join_all(shards).await?.into_iter().flatten() {
            // What began in the unit before `from` counts where the range begins.
            let into = (at * unit).saturating_sub(from.as_millis());
            let bucket = u128::from(into) * buckets as u128 / u128::from(span);
            if let Some(sum) = counts.get_mut(bucket as usize) {
                *sum += count;
            }
        }
        Ok(counts)
    }

    async fn counters(&self, key: &str, units: std::ops::Range<u64>) -> Result<Vec<(u64, u64)>, StoreError> {
        if units.end - units.start <= FIELDS_MAX {
            let wanted: Vec<_> = units.collect();
            let cmd = redis::cmd("HMGET").arg(key).arg(&wanted).to_owned();
            let counts: Vec<Option<u64>> = self.ask(&cmd).await?;
            return Ok(wanted.into_iter().zip(counts).filter_map(|(at, count)| Some((at, count?))).collect());
        }
        let all = self.read_all("HSCAN", key).await?;
        let read = |(field, count): (Vec<u8>, Vec<u8>)| Some((number(&field)?, number(&count)?));
        let counts = all.into_iter().filter_map(read);
        Ok(counts.filter(|(at, _)| units.contains(at)).collect())
    }

    /// All of a hash or a sorted set, in bounded steps, each field once.
    pub(super) async fn read_all(
        &self,
        command: &str,
        key: &str,
    ) -> Result<HashMap<Vec<u8>, Vec<u8>>, StoreError> {
        let mut all = HashMap::new();
        let mut cursor = b"0".to_vec();
        loop {
            let cmd = redis::cmd(command).arg(key).arg(&cursor).arg("COUNT").arg(STEP).to_owned();
            let (next, pairs) = self.ask::<(Vec<u8>, Vec<FieldAndValue>)>(&cmd).await?;
            all.extend(pairs);
            cursor = next;
            if cursor == b"0" {
                return Ok(all);
            }
        }
    }
}

/// What is counted in a shard over all lanes.
const TOTAL_FIELDS: [&str; 7] =
    ["#accepted", "#pending", "#in_flight", "#delivered", "#cancelled", "#dead", "#purged"];
type ShardTotals = [u64; TOTAL_FIELDS.len()];

fn sum_of(shards: impl IntoIterator<Item = ShardTotals>) -> Totals {
    let mut sums = ShardTotals::default();
    for totals in shards {
        sums.iter_mut().zip(totals).for_each(|(sum, count)| *sum += count);
    }
    let [accepted, pending, in_flight, delivered, cancelled, dead, purged] = sums;
    Totals::ever(accepted, delivered, cancelled, purged).now(pending, in_flight, dead)
}

/// A field and its value, a member and its score.
type FieldAndValue = (Vec<u8>, Vec<u8>);

/// One lane in one shard.
#[derive(Debug, Default)]
struct Numbers {
    pending: u64,
    ready: u64,
    in_flight: u64,
    dead: u64,
    oldest_ready: Option<Timestamp>,
}

/// Something else wrote a counter or its name: it counts as none, and the other lanes are returned.
fn unreadable_field(field: &[u8]) {
    tracing::warn!(field = %String::from_utf8_lossy(field), "counter of a lane unreadable; left out");
}

/// Reads an answer of `get.lua`.
fn record(id: &MessageId, reply: &Bytes) -> Result<Option<Record>, StoreError> {
    let Some(in_flight) = reply.first() else { return Ok(None) };
    let unpacked = packed::unpack(id.clone(), &reply.slice(1..));
    let mut record = unpacked.map_err(|_| garbled(&format!("the message {id}")))?.record;
    if *in_flight == b'1' {
        record.state = State::InFlight;
    }
    Ok(Some(record))
}
