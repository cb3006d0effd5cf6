//! The index in Redis: a sorted set for each shard.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use duly_core::Timestamp;
use futures_util::future::try_join_all;
use redis::{Cmd, FromRedisValue, RedisError};
use redis_link::{Address, Link, Reach};

use super::entry;
use crate::{shared::claim_order::ShardCandidates, sql::IndexEntry};

/// An index that does not answer within this is unavailable: messages are found in MySQL.
const REACH: Reach = Reach::within(Duration::from_millis(800));
/// How many entries go with one command.
const BATCH_MAX: usize = 500;

/// Why the index could not be asked.
#[derive(Debug)]
pub(super) struct IndexError(String);

impl std::fmt::Display for IndexError {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&self.0)
    }
}

impl From<RedisError> for IndexError {
    fn from(error: RedisError) -> Self {
        Self(error.to_string())
    }
}

/// The connection to the index, and its keys.
pub(super) struct Index {
    address: Address,
    link: Mutex<Option<Link>>,
    /// Per shard the entries, and the mark that says of which number they are.
    keys: Vec<(String, String)>,
    pub(super) channel: String,
}

impl Index {
    /// The index of the store that was made as `generation`. Nothing is connected yet.
    pub(super) fn new(url: &str, generation: &str, shards: u16) -> Result<Self, String> {
        let key = |shard: u16| {
            let tag = format!("duly:{{{generation}:{shard}}}");
            (format!("{tag}:index"), format!("{tag}:mark"))
        };
        Ok(Self {
            address: Address::parse(url)?,
            link: Mutex::default(),
            keys: (0..shards).map(key).collect(),
            channel: format!("duly:{{{generation}}}:hints"),
        })
    }

    pub(super) async fn link(&self) -> Result<Link, IndexError> {
        let known = || self.link.lock().unwrap_or_else(PoisonError::into_inner).clone();
        if let Some(link) = known() {
            return Ok(link);
        }
        let link = Link::connect(&self.address, &REACH).await?;
        *self.link.lock().unwrap_or_else(PoisonError::into_inner) = Some(link.clone());
        Ok(link)
    }

    async fn ask<T: FromRedisValue>(&self, cmd: &Cmd) -> Result<T, IndexError> {
        Ok(cmd.query_async(&mut self.link().await?).await?)
    }

    /// Puts entries there. Returns how many were not there before.
    pub(super) async fn add(&self, entries: &[IndexEntry]) -> Result<u64, IndexError> {
        let adding = by_shard(entries).into_iter().flat_map(|(shard, entries)| {
            let key = &self.keys[usize::from(shard)].0;
            let commands: Vec<_> = entries
                .chunks(BATCH_MAX)
                .map(|part| {
                    let mut cmd = redis::cmd("ZADD");
                    cmd.arg(key);
                    for entry in part {
                        cmd.arg(0).arg(entry::write(entry));
                    }
                    cmd
                })
                .collect();
            commands
        });
        let commands: Vec<_> = adding.collect();
        let added: Vec<u64> = try_join_all(commands.iter().map(|cmd| self.ask(cmd))).await?;
        Ok(added.into_iter().sum())
    }

    /// Removes entries. Returns how many were there.
    pub(super) async fn remove(&self, entries: &[IndexEntry]) -> Result<u64, IndexError> {
        let commands: Vec<_> = by_shard(entries)
            .into_iter()
            .map(|(shard, entries)| {
                let mut cmd = redis::cmd("ZREM");
                cmd.arg(&self.keys[usize::from(shard)].0);
                for entry in entries {
                    cmd.arg(entry::write(entry));
                }
                cmd
            })
            .collect();
        let removed: Vec<u64> = try_join_all(commands.iter().map(|cmd| self.ask(cmd))).await?;
        Ok(removed.into_iter().sum())
    }

    /// The first `count` of a lane in each of these shards, with their versions.
    pub(super) async fn first(
        &self,
        lane_no: i64,
        shards: impl Iterator<Item = u16>,
        count: usize,
    ) -> Result<Vec<ShardCandidates<i64>>, IndexError> {
        let commands: Vec<_> = shards.map(|shard| (shard, self.range(shard, lane_no, count))).collect();
        let reads = commands.iter().map(|(shard, cmd)| async move {
            let members: Vec<Vec<u8>> = self.ask(cmd).await?;
            let cut = members.len() == count;
            let entries = members.iter().filter_map(|member| entry::read(member, *shard));
            Ok::<_, IndexError>(ShardCandidates {
                candidates: entries.map(|entry| (entry.candidate, entry.version)).collect(),
                cut,
            })
        });
        try_join_all(reads).await
    }

    /// When the first is ready in each of these queues.
    pub(super) async fn firsts(&self, queues: &[(i64, u16)]) -> Result<Vec<Option<Timestamp>>, IndexError> {
        let mut firsts = Vec::with_capacity(queues.len());
        for part in queues.chunks(BATCH_MAX) {
            let commands: Vec<_> =
                part.iter().map(|(lane_no, shard)| self.range(*shard, *lane_no, 1)).collect();
            let replies: Vec<Vec<Vec<u8>>> = try_join_all(commands.iter().map(|cmd| self.ask(cmd))).await?;
            let ready = |members: &Vec<Vec<u8>>| Some(entry::read(members.first()?, 0)?.candidate.ready);
            firsts.extend(replies.iter().map(ready));
        }
        Ok(firsts)
    }

    fn range(&self, shard: u16, lane_no: i64, count: usize) -> Cmd {
        let bound = |sign: &[u8], lane_no: i64| [sign, &entry::lane(lane_no)].concat();
        let mut cmd = redis::cmd("ZRANGEBYLEX");
        cmd.arg(&self.keys[usize::from(shard)].0);
        cmd.arg(bound(b"[", lane_no)).arg(bound(b"(", lane_no + 1)).arg("LIMIT").arg(0).arg(count);
        cmd
    }

    /// A page of the entries of one shard after `after`, in their order.
    pub(super) async fn page(
        &self,
        shard: u16,
        after: &[u8],
        count: usize,
    ) -> Result<Vec<IndexEntry>, IndexError> {
        let mut cmd = redis::cmd("ZRANGEBYLEX");
        let from = if after.is_empty() { b"-".to_vec() } else { [b"(", after].concat() };
        cmd.arg(&self.keys[usize::from(shard)].0).arg(from).arg("+").arg("LIMIT").arg(0).arg(count);
        let members: Vec<Vec<u8>> = self.ask(&cmd).await?;
        Ok(members.iter().filter_map(|member| entry::read(member, shard)).collect())
    }

    /// How many entries there are.
    pub(super) async fn len(&self) -> Result<u64, IndexError> {
        let count = |(key, _): &(String, String)| redis::cmd("ZCARD").arg(key).to_owned();
        let commands: Vec<_> = self.keys.iter().map(count).collect();
        let counts: Vec<u64> = try_join_all(commands.iter().map(|cmd| self.ask(cmd))).await?;
        Ok(counts.into_iter().sum())
    }

    /// The number of the index, if all shards have the same; and the run id of the server, where there is one.
    pub(super) async fn mark(&self) -> Result<(Option<u64>, String), IndexError> {
        let get = |(_, mark): &(String, String)| redis::cmd("GET").arg(mark).to_owned();
        let commands: Vec<_> = self.keys.iter().map(get).collect();
        let marks: Vec<Option<u64>> = try_join_all(commands.iter().map(|cmd| self.ask(cmd))).await?;
        let first = marks.first().copied().flatten();
        Ok((first.filter(|_| marks.iter().all(|mark| *mark == first)), self.run().await?))
    }

    async fn run(&self) -> Result<String, IndexError> {
        // In a cluster, or behind sentinels, several servers answer.
        if !matches!(self.link().await?, Link::Single(..)) {
            return Ok(String::new());
        }
        let info: String = self.ask(redis::cmd("INFO").arg("server")).await?;
        let run = info.lines().find_map(|line| line.strip_prefix("run_id:"));
        Ok(run.unwrap_or_default().trim().to_owned())
    }

    /// From now on it is the index of this number.
    pub(super) async fn set_mark(&self, epoch: u64) -> Result<(), IndexError> {
        let set = |(_, mark): &(String, String)| redis::cmd("SET").arg(mark).arg(epoch).to_owned();
        let commands: Vec<_> = self.keys.iter().map(set).collect();
        try_join_all(commands.iter().map(|cmd| self.ask::<()>(cmd))).await?;
        Ok(())
    }

    /// Publishes hints to the other nodes.
    pub(super) async fn publish(&self, hints: &[String]) -> Result<(), IndexError> {
        let publish = |hint: &String| redis::cmd("PUBLISH").arg(&self.channel).arg(hint).to_owned();
        let commands: Vec<_> = hints.iter().map(publish).collect();
        try_join_all(commands.iter().map(|cmd| self.ask::<u64>(cmd))).await?;
        Ok(())
    }
}

fn by_shard(entries: &[IndexEntry]) -> BTreeMap<u16, Vec<&IndexEntry>> {
    let mut shards: BTreeMap<u16, Vec<_>> = BTreeMap::new();
    for entry in entries {
        shards.entry(entry.shard).or_default().push(entry);
    }
    shards
}
