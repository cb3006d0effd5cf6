//! The nodes that share a store: who is there, and who delivers what.
//!
//! A node says that it is there with every sweep, and is taken to be there for as long as a lease lasts. The shards of each lane
//! to a sink are [shared](duly_core::assign_shards) among the nodes that serve it; every node comes to the same answer by itself, and takes
//! what is its own as soon as nobody has it: the node before gave it back, or is there no more. Each taking has a fencing token that every
//! claim is checked by, so a node that was away without knowing it gets nothing.

use std::{collections::BTreeSet, sync::atomic::Ordering::Relaxed, time::Duration};

use duly_core::{
    NodeStatus, Now,
    store::{StoreError, StoreErrorKind},
};
use futures_util::future::join_all;

use super::{
    RedisStore,
    call::number,
    connection::Link,
    fault::{garbled, sorted},
    keys::Keys,
    scripts,
};
use crate::shared::{
    lane::lane_of,
    shard_leases::{Member, Wish, is_to_a_sink},
};

/// The version of what the scripts do to the data. Nodes of different versions do not work on one store together.
const SCRIPTS: u16 = 2;
/// A node tells of so many of its lanes, sinks first.
const LANES_MAX: usize = 200;
/// What is to be this node's and is still another's is asked for again after this.
const ASK_AGAIN: Duration = Duration::from_millis(200);

/// How a node comes: a process that has just started, or one that says that it is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Coming {
    New,
    Again,
}

impl RedisStore {
    /// Says that this node is there and serves these lanes, and sees to it that it delivers its share of them. Gives how soon this
    /// must be done again.
    pub(super) async fn announce(&self, now: Now, serves: BTreeSet<String>) -> Result<Duration, StoreError> {
        let _asking = self.nodes.asking.lock().await;
        self.ask_for_rights(now, serves).await
    }

    async fn ask_for_rights(&self, now: Now, serves: BTreeSet<String>) -> Result<Duration, StoreError> {
        let coming = if self.joined.load(Relaxed) { Coming::Again } else { Coming::New };
        let there = self.be_there(now, coming, &serves).await?;
        self.joined.store(true, Relaxed);
        let instances: Vec<[u8; 8]> = there.iter().map(|member| member.instance.to_be_bytes()).collect();
        let wishes = self.nodes.lock().share_out(there, serves, self.keys.shards());
        let asked = wishes.iter().filter(|(shard, _)| !self.faults.is_failing(**shard));
        let asking = asked.map(|(shard, wishes)| self.own(now, *shard, &instances, wishes));
        // All of them to their ends: an answer that nobody takes is one that did not come. A shard that fails alone is asked again
        // once it works.
        join_all(asking).await.into_iter().collect::<Result<(), _>>()?;
        let mut state = self.nodes.lock();
        state.tidy();
        // A lease is renewed well before it ends, also when one sweep or two fail.
        let often = self.options.lease / 4;
        let is_waiting = state.is_waiting() && !self.faults.any();
        Ok(if is_waiting { ASK_AGAIN.min(often) } else { often })
    }

    /// A lane is claimed from that was not announced: by somebody who does not sweep, or has not yet.
    pub(super) async fn serve(&self, now: Now, lane: &str) -> Result<(), StoreError> {
        if is_to_a_sink(lane) && !self.nodes.serves(lane) {
            let _asking = self.nodes.asking.lock().await;
            let mut serves = self.nodes.lock().serves.clone();
            // Another call may have announced it while this one waited.
            if serves.insert(lane.to_owned()) {
                self.ask_for_rights(now, serves).await?;
            }
        }
        Ok(())
    }

    async fn own(&self, now: Now, shard: u16, there: &[[u8; 8]], wishes: &[Wish]) -> Result<(), StoreError> {
        let mut cmd = self.call(&scripts::OWN, shard, now);
        cmd.arg(&self.options.instance.to_be_bytes()).arg(there.len());
        there.iter().for_each(|instance| {
            cmd.arg(instance);
        });
        for Wish { lane, wanted } in wishes {
            cmd.arg(lane).arg(u8::from(*wanted));
        }
        let said = match self.run(&scripts::OWN, &cmd).await {
            Ok(said) => said,
            Err(error) => return self.faults.note(shard, error),
        };
        let token = |said: &Vec<u8>| if said.is_empty() { Some(0) } else { number(said) };
        let tokens: Option<Vec<_>> = said.iter().map(token).collect();
        let tokens =
            tokens.filter(|tokens| tokens.len() == wishes.len()).ok_or_else(|| garbled("an answer"))?;
        self.nodes.lock().tell(shard, wishes, &tokens);
        Ok(())
    }

    /// Says that this node is there. Gives all that are.
    pub(super) async fn be_there(
        &self,
        now: Now,
        coming: Coming,
        serves: &BTreeSet<String>,
    ) -> Result<Vec<Member>, StoreError> {
        let tick = self.time.tick(now);
        let life = u64::try_from(self.options.lease.as_micros()).unwrap_or(u64::MAX >> 12);
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(scripts::JOIN.get_hash())
            .arg(3)
            .arg(&self.keys.store)
            .arg(&self.keys.nodes)
            .arg(&self.keys.alive);
        let end = self.time.latest_tick(now) + life;
        cmd.arg(&self.generation).arg(tick).arg(end).arg(&self.options.instance.to_be_bytes());
        cmd.arg(if coming == Coming::New { "new" } else { "again" }).arg(self.told(serves));
        let asked = self.time.clock().map(|clock| clock.machine().mono());
        let said = self.run(&scripts::JOIN, &cmd).await?;
        let [seconds, micros, refused, rest @ ..] = said.as_slice() else { return Err(garbled("an answer")) };
        if let (Some(clock), Some(asked)) = (self.time.clock(), asked) {
            let part = |text: &[u8]| number(text).ok_or_else(|| garbled("the time"));
            clock.hear(asked, part(seconds)? * 1_000_000 + part(micros)?);
        }
        if !refused.is_empty() {
            return Err(self.refused(refused, coming));
        }
        let member = |pair: &[Vec<u8>]| read_member(&pair[0], &pair[1], self.options.instance);
        // One that tells what is not understood here came with other scripts, and will not be let in.
        Ok(rest.chunks_exact(2).filter_map(member).collect())
    }

    /// Redis let this node not be there.
    fn refused(&self, why: &[u8], coming: Coming) -> StoreError {
        let name = &self.options.node;
        if let [b'v', told @ ..] = why {
            // What comes behind its name may be written otherwise there.
            let len = told.get(2).map_or(0, |len| usize::from(*len));
            let other = String::from_utf8_lossy(told.get(3..3 + len).unwrap_or_default()).into_owned();
            let what = format!(
                "the node {other:?} works on this store with scripts of another version than this one's; stop the nodes of \
                 one version before those of another are started"
            );
            return StoreError::new(StoreErrorKind::Unavailable, what);
        }
        debug_assert_eq!(coming, Coming::Again, "a new node takes the place of the one before it");
        let what = format!(
            "another node named {name:?} has come to this store, so this one stops: every node needs a name of its own"
        );
        if !self.closed.swap(true, std::sync::atomic::Ordering::Relaxed) {
            tracing::error!("{what}");
        }
        StoreError::new(StoreErrorKind::Closed, what)
    }

    /// What this node tells of itself: version of the scripts 2, name 1 + n, then lines.
    fn told(&self, serves: &BTreeSet<String>) -> Vec<u8> {
        let name = &self.options.node;
        let owned = self.nodes.lock().owned();
        let skew = self.time.skew_us().unwrap_or_default();
        let mut told = SCRIPTS.to_be_bytes().to_vec();
        told.push(name.len() as u8);
        told.extend_from_slice(name.as_bytes());
        let mut lines = vec![env!("CARGO_PKG_VERSION").to_owned(), owned.to_string(), skew.to_string()];
        let (sinks, queues): (Vec<_>, Vec<_>) = serves.iter().cloned().partition(|lane| is_to_a_sink(lane));
        // Those to sinks must all be there: they are shared out by this.
        let room = LANES_MAX.max(sinks.len());
        lines.extend(sinks.into_iter().chain(queues).take(room));
        told.extend_from_slice(lines.join("\n").as_bytes());
        told
    }

    pub(super) async fn all_nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        let mut cmd = redis::cmd("HGETALL");
        let known: Vec<(Vec<u8>, Vec<u8>)> = self.ask(cmd.arg(&self.keys.nodes)).await?;
        let read =
            |(instance, told): (Vec<u8>, Vec<u8>)| read_member(&instance, &told, self.options.instance);
        let mut nodes: Vec<_> = known.into_iter().filter_map(read).map(|member| member.status).collect();
        for lane in nodes.iter_mut().flat_map(|node| &mut node.lanes) {
            // The letter of its kind is for scripts.
            *lane = lane_of(lane.as_bytes()).map_or_else(String::new, |lane| lane.to_string());
        }
        nodes.sort_by(|a, b| a.name.cmp(&b.name));
        Ok(nodes)
    }

    /// This node goes. What it did not say, others find out when its time is over.
    pub(super) async fn leave(&self) {
        let mut call = scripts::LEAVE.key(&self.keys.nodes);
        let call = call.key(&self.keys.alive);
        let call = call.arg(&self.options.instance.to_be_bytes());
        if let Err(error) = call.invoke_async::<u64>(&mut self.link.clone()).await {
            tracing::debug!(%error, "shard lease release failed");
        }
    }
}

/// The names of the nodes that are there, to somebody who is none of them.
pub(super) async fn names_in(link: &mut Link, keys: &Keys, tick: u64) -> Result<Vec<String>, StoreError> {
    let fault = |error| sorted(&error);
    let alive: Vec<Vec<u8>> = redis::cmd("ZRANGEBYSCORE")
        .arg(&keys.alive)
        .arg(format!("({tick}"))
        .arg("+inf")
        .query_async(link)
        .await
        .map_err(fault)?;
    let told: Vec<(Vec<u8>, Vec<u8>)> =
        redis::cmd("HGETALL").arg(&keys.nodes).query_async(link).await.map_err(fault)?;
    let there = told.into_iter().filter(|(instance, _)| alive.contains(instance));
    let mut names: Vec<_> =
        there.filter_map(|(instance, told)| Some(read_member(&instance, &told, 0)?.status.name)).collect();
    names.sort_unstable();
    Ok(names)
}

/// Reads what [`RedisStore::told`] wrote.
pub(super) fn read_member(instance: &[u8], told: &[u8], this: u64) -> Option<Member> {
    let instance = u64::from_be_bytes(instance.try_into().ok()?);
    let len = usize::from(*told.get(2)?);
    let name = std::str::from_utf8(told.get(3..3 + len)?).ok()?;
    let mut lines = std::str::from_utf8(told.get(3 + len..)?).ok()?.split('\n');
    let mut status = NodeStatus::new(name, instance == this, lines.next()?);
    status.shards = lines.next()?.parse().ok()?;
    status.clock_skew_us = lines.next()?.parse().ok()?;
    status.lanes = lines.map(Into::into).collect();
    Some(Member { instance, status })
}
