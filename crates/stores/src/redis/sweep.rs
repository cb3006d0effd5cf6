//! The bounded look that backs up wake-ups: one script per shard.

use std::{collections::HashMap, time::Duration};

use duly_core::{
    Lane, Now, Timestamp,
    store::{StoreError, Sweep},
};
use futures_util::future::{try_join, try_join_all};

use super::{
    RedisStore,
    call::{number, time_in},
    fault::garbled,
    scripts,
};
use crate::server::lane::lane_text;

/// How many leases a sweep ends in a shard; if there are more, it asks to be called again at once.
const LEASES_MAX: usize = 200;
/// Up to so many lanes are asked for by name; of more than that, each shard names those that are next.
const LANES_MAX: usize = 500;

/// What one shard said.
#[derive(Debug, Default)]
struct Said {
    ended: usize,
    next_end: Option<u64>,
    held: u64,
    /// Nothing of any lane that is not named is due before then.
    bound: Option<Timestamp>,
    next: HashMap<Vec<u8>, Timestamp>,
}

impl RedisStore {
    pub(super) async fn sweep_all(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        let asked = self.room.ask();
        self.clear_doubts(now).await?;
        let names: Vec<_> = lanes.iter().map(lane_text).collect();
        let again_within = self.announce(now, names.iter().cloned().collect()).await?;
        let paused = redis::cmd("SMEMBERS").arg(&self.keys.paused).to_owned();
        let (paused, said) =
            try_join(self.ask::<Vec<Vec<u8>>>(&paused), self.sweep_shards(now, &names)).await?;
        self.hints.swept();
        self.room.tell(asked, said.iter().map(|said| said.held).sum());
        let is_paused = |name: &String| paused.iter().any(|paused| paused == name.as_bytes());
        let next = |(lane, name): (&Lane, &String)| {
            let of = |said: &Said| said.next.get(name.as_bytes()).copied().or(said.bound);
            // What other nodes deliver is theirs to look at.
            let own = |shard: &u16| matches!(lane, Lane::Queue(_)) || self.nodes.may_claim(name, *shard);
            let times = (0..).zip(&said).filter(|(shard, _)| own(shard)).filter_map(|(_, said)| of(said));
            times.min().filter(|_| !is_paused(name)).map(|next| (lane.clone(), next))
        };
        let all = || lanes.iter().zip(&names);
        Ok(Sweep {
            next: all().filter_map(next).collect(),
            leases_ended: said.iter().map(|said| said.ended).sum(),
            next_lease_end: said
                .iter()
                .filter_map(|said| said.next_end)
                .min()
                .map(|end| self.time.mono(now, end)),
            again_within: Some(if said.iter().any(|said| said.ended == LEASES_MAX) {
                Duration::ZERO
            } else {
                again_within
            }),
            paused: Some(all().filter(|(_, name)| is_paused(name)).map(|(lane, _)| lane.clone()).collect()),
        })
    }

    async fn sweep_shards(&self, now: Now, names: &[String]) -> Result<Vec<Said>, StoreError> {
        if names.len() <= LANES_MAX {
            return try_join_all((0..self.keys.shards()).map(|shard| self.sweep_named(now, shard, names)))
                .await;
        }
        try_join_all((0..self.keys.shards()).map(|shard| self.sweep_soonest(now, shard, names))).await
    }

    async fn sweep_named(&self, now: Now, shard: u16, names: &[String]) -> Result<Said, StoreError> {
        let mut cmd = self.call(&scripts::SWEEP, shard, now);
        cmd.arg(LEASES_MAX).arg(0).arg(names);
        let answer = self.run(&scripts::SWEEP, &cmd).await?;
        let (mut said, times) = read(&answer)?;
        for (name, time) in names.iter().zip(times) {
            said.next.extend(time_in(time)?.map(|time| (name.clone().into_bytes(), time)));
        }
        Ok(said)
    }

    /// However many lanes there are, only those next in turn are named. If all of those are overdue, and so may be
    /// lanes that nobody serves, the lanes asked for are looked up after all.
    async fn sweep_soonest(&self, now: Now, shard: u16, names: &[String]) -> Result<Said, StoreError> {
        let mut cmd = self.call(&scripts::SWEEP, shard, now);
        cmd.arg(LEASES_MAX).arg(LANES_MAX);
        let answer = self.run(&scripts::SWEEP, &cmd).await?;
        let (mut said, pairs) = read(&answer)?;
        let mut last = None;
        for pair in pairs.chunks_exact(2) {
            last = time_in(&pair[1])?;
            said.next.extend(last.map(|time| (pair[0].clone(), time)));
        }
        if said.next.len() < LANES_MAX {
            return Ok(said);
        }
        said.bound = last;
        if last.is_some_and(|last| last <= now.wall()) {
            said.bound = None;
            for part in names.chunks(LANES_MAX) {
                let part = self.sweep_named(now, shard, part).await?;
                said.ended += part.ended;
                said.next.extend(part.next);
            }
        }
        Ok(said)
    }
}

/// What every shard says, and what follows it.
fn read(answer: &[Vec<u8>]) -> Result<(Said, &[Vec<u8>]), StoreError> {
    let [ended, next_end, pending, in_flight, rest @ ..] = answer else { return Err(garbled("an answer")) };
    let count = |text: &[u8]| number(text).ok_or_else(|| garbled("an answer"));
    let said = Said {
        ended: count(ended)? as usize,
        next_end: if next_end.is_empty() { None } else { Some(count(next_end)?) },
        held: count(pending)? + count(in_flight)?,
        ..Said::default()
    };
    Ok((said, rest))
}
