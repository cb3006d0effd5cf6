//! `sweep`: one bounded script per shard.

use std::{
    collections::{BTreeSet, HashMap},
    time::Duration,
};

use duly_core::{
    Lane, MessageId, Now, Timestamp,
    store::{StoreError, StoreErrorKind, Sweep},
};
use futures_util::future::{join_all, join3};
use redis::Cmd;

use super::{
    RedisStore,
    call::{number, time_in},
    fault::garbled,
    paused::ReadState,
    scripts,
    shard_faults::FailureDomain,
};
use crate::shared::lane::lane_text;

/// How many leases a sweep ends in a shard; if there are more, it asks to be called again at once.
const LEASES_MAX: usize = 200;
/// Up to so many lanes are asked for by name; of more than that, each shard names those that are next.
const LANES_MAX: usize = 500;

/// The answer of one shard.
#[derive(Debug, Default)]
struct ShardReply {
    ended: usize,
    next_end: Option<u64>,
    held: u64,
    /// Nothing of any lane that is not named is due before then.
    bound: Option<Timestamp>,
    next: HashMap<Vec<u8>, Timestamp>,
    /// The lanes that this node owns there, each with its token.
    owned: HashMap<String, u64>,
    /// Ids of unreadable messages that are dead letters now.
    damaged: Vec<Vec<u8>>,
    /// What failed before the leases were ended.
    failed_chore: Option<FailedChore>,
}

/// What a sweep does in a shard before it ends leases, and why that failed.
#[derive(Debug)]
struct FailedChore {
    chore: &'static str,
    error: StoreError,
}

impl RedisStore {
    pub(super) async fn sweep_all(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let answered_before = self.room.ask();
        let names: Vec<_> = lanes.iter().map(lane_text).collect();
        let announced = self.announce_node(now, names.iter().cloned().collect()).await;
        if let Err(error) = &announced
            && (error.kind.is_transient() || error.kind == StoreErrorKind::Closed)
        {
            return announced.map(|_| Sweep::default());
        }
        let sweeping = (self.paused_lanes(), self.sweep_shards(now, &names), self.check_writes());
        let (paused, reply, writes) = join3(sweeping.0, sweeping.1, sweeping.2).await;
        let ((paused, read_state), reply) = (paused?, reply?);
        self.last_sweep.record(writes);
        self.hints.swept();
        if let Some(FailedChore { chore, error }) =
            reply.iter().find_map(|(_, reply)| reply.failed_chore.as_ref())
        {
            tracing::warn!(chore, %error, "sweep chore failed; tried again at the next sweep");
        }
        let again_within = announced?;
        if reply.len() == usize::from(self.keys.shards()) {
            self.room.update(answered_before, reply.iter().map(|(_, reply)| reply.held).sum());
        }
        for (shard, reply) in &reply {
            self.nodes.lock().compare(*shard, &reply.owned, self.keys.shards());
        }
        let is_paused = |name: &String| paused.contains(name.as_bytes());
        let next = |(lane, name): (&Lane, &String)| {
            let of = |reply: &ShardReply| reply.next.get(name.as_bytes()).copied().or(reply.bound);
            // The lanes that other nodes deliver are theirs to sweep.
            let own = |shard: u16| matches!(lane, Lane::Queue(_)) || self.nodes.may_claim(name, shard);
            let times = reply.iter().filter(|(shard, _)| own(*shard)).filter_map(|(_, reply)| of(reply));
            times.min().filter(|_| !is_paused(name)).map(|next| (lane.clone(), next))
        };
        let all = || lanes.iter().zip(&names);
        Ok(Sweep {
            next: all().filter_map(next).collect(),
            leases_ended: reply.iter().map(|(_, reply)| reply.ended).sum(),
            next_lease_end: reply
                .iter()
                .filter_map(|(_, reply)| reply.next_end)
                .min()
                .map(|end| self.time.mono(now, end)),
            again_within: Some(if reply.iter().any(|(_, reply)| reply.ended >= LEASES_MAX) {
                Duration::ZERO
            } else {
                again_within
            }),
            paused: (read_state == ReadState::Current)
                .then(|| all().filter(|(_, name)| is_paused(name)).map(|(lane, _)| lane.clone()).collect()),
        })
    }

    /// Writes the heartbeat of this node. If only that fails, the node keeps the shards that it has.
    async fn announce_node(&self, now: Now, serves: BTreeSet<String>) -> Result<Duration, StoreError> {
        let announcing = self.announce(now, serves);
        let announced = if self.faults.is_failing(FailureDomain::Nodes) {
            self.soon(announcing).await
        } else {
            announcing.await
        };
        match announced {
            Ok(again_within) => {
                self.faults.works(FailureDomain::Nodes);
                Ok(again_within)
            }
            Err(error) => {
                self.faults.record(FailureDomain::Nodes, error)?;
                Ok(self.options.lease / 4)
            }
        }
    }

    /// The answers of the shards that answer.
    async fn sweep_shards(&self, now: Now, names: &[String]) -> Result<Vec<(u16, ShardReply)>, StoreError> {
        let of_shard = |shard| async move {
            let sweeping = self.sweep_shard(now, shard, names);
            if self.faults.is_failing(shard) {
                (shard, self.soon(sweeping).await)
            } else {
                (shard, sweeping.await)
            }
        };
        let reply = join_all((0..self.keys.shards()).map(of_shard)).await;
        self.faults.answered(reply, |shard| *shard)
    }

    /// Ends leases only after the chores, also in a shard that has just come back. If a chore fails, the shard is swept all the same.
    async fn sweep_shard(&self, now: Now, shard: u16, names: &[String]) -> Result<ShardReply, StoreError> {
        let failed_chore = self.before_leases_end(now, shard).await.err();
        let withheld = self.unconfirmed.ids(shard);
        let sweeping = async {
            if names.len() <= LANES_MAX {
                self.sweep_named(now, shard, &withheld, names).await
            } else {
                self.sweep_soonest(now, shard, &withheld, names).await
            }
        };
        let reply = if failed_chore.is_some() { self.soon(sweeping).await } else { sweeping.await };
        reply.map(|reply| ShardReply { failed_chore, ..reply })
    }

    /// Releases claims without an answer, and records outcomes that were put off. The end of a lease counts an attempt and makes its
    /// message pending: a claim without an answer is no attempt, and a delivered message must not be delivered again.
    async fn before_leases_end(&self, now: Now, shard: u16) -> Result<(), FailedChore> {
        let failed = |chore| move |error| FailedChore { chore, error };
        let settled = self.settle_deferred(now, shard).await;
        let releasing = self.release_unconfirmed(now, shard);
        let released = if settled.is_err() { self.soon(releasing).await } else { releasing.await };
        settled.map_err(failed("settle of deferred outcomes"))?;
        released.map_err(failed("release of unconfirmed claims"))
    }

    /// The call of the script with what all its forms have in common.
    fn sweep_call(&self, now: Now, shard: u16, withheld: &BTreeSet<MessageId>, soonest_max: usize) -> Cmd {
        let mut cmd = self.call(&scripts::SWEEP, shard, now);
        cmd.arg(LEASES_MAX).arg(soonest_max).arg(withheld.len());
        withheld.iter().for_each(|id| {
            cmd.arg(id.as_str());
        });
        cmd
    }

    async fn sweep_named(
        &self,
        now: Now,
        shard: u16,
        withheld: &BTreeSet<MessageId>,
        names: &[String],
    ) -> Result<ShardReply, StoreError> {
        let mut cmd = self.sweep_call(now, shard, withheld, 0);
        cmd.arg(names);
        let answer = self.run(&scripts::SWEEP, &cmd).await?;
        let (mut reply, times) = self.read_sweep(shard, &answer)?;
        for (name, time) in names.iter().zip(times) {
            reply.next.extend(time_in(time)?.map(|time| (name.clone().into_bytes(), time)));
        }
        Ok(reply)
    }

    /// However many lanes there are, only those next in turn are named. If all of those are overdue, and so may be
    /// lanes that nobody serves, the lanes asked for are looked up after all.
    async fn sweep_soonest(
        &self,
        now: Now,
        shard: u16,
        withheld: &BTreeSet<MessageId>,
        names: &[String],
    ) -> Result<ShardReply, StoreError> {
        let cmd = self.sweep_call(now, shard, withheld, LANES_MAX);
        let answer = self.run(&scripts::SWEEP, &cmd).await?;
        let (mut reply, pairs) = self.read_sweep(shard, &answer)?;
        let mut last = None;
        for pair in pairs.chunks_exact(2) {
            last = time_in(&pair[1])?;
            reply.next.extend(last.map(|time| (pair[0].clone(), time)));
        }
        if reply.next.len() < LANES_MAX {
            return Ok(reply);
        }
        reply.bound = last;
        if last.is_some_and(|last| last <= now.wall()) {
            reply.bound = None;
            for part in names.chunks(LANES_MAX) {
                let part = self.sweep_named(now, shard, withheld, part).await?;
                reply.ended += part.ended;
                reply.next.extend(part.next);
            }
        }
        Ok(reply)
    }
}

impl RedisStore {
    fn read_sweep<'a>(
        &self,
        shard: u16,
        answer: &'a [Vec<u8>],
    ) -> Result<(ShardReply, &'a [Vec<u8>]), StoreError> {
        let (reply, rest) = read(answer)?;
        reply.damaged.iter().for_each(|id| self.faults.damaged.record(shard, id));
        Ok((reply, rest))
    }
}

/// The common part of a shard's answer, and the rest.
fn read(answer: &[Vec<u8>]) -> Result<(ShardReply, &[Vec<u8>]), StoreError> {
    let [ended, next_end, pending, in_flight, lanes, damaged, rest @ ..] = answer else {
        return Err(garbled("an answer"));
    };
    let count = |text: &[u8]| number(text).ok_or_else(|| garbled("an answer"));
    let lanes = count(lanes)? as usize;
    let (pairs, rest) = rest.split_at_checked(2 * lanes).ok_or_else(|| garbled("an answer"))?;
    let (damaged, rest) =
        rest.split_at_checked(count(damaged)? as usize).ok_or_else(|| garbled("an answer"))?;
    let owned = pairs.chunks_exact(2).map(|pair| {
        let lane = String::from_utf8(pair[0].clone()).map_err(|_| garbled("a lane"))?;
        Ok((lane, count(&pair[1])?))
    });
    let reply = ShardReply {
        ended: count(ended)? as usize,
        next_end: if next_end.is_empty() { None } else { Some(count(next_end)?) },
        held: count(pending)? + count(in_flight)?,
        owned: owned.collect::<Result<_, StoreError>>()?,
        damaged: damaged.to_vec(),
        ..ShardReply::default()
    };
    Ok((reply, rest))
}
