//! The nodes that share a store: heartbeats and shard leases.
//!
//! A node writes a heartbeat with every sweep, and counts as alive for as long as a lease lasts. The shards of each lane to a sink are
//! [assigned](duly_core::assign_shards) to the nodes that serve it. Every node computes the same assignment by itself, and acquires its
//! shard leases as soon as they are free: the owner before has released them, or is no longer alive. Each shard lease has a fencing token
//! that every claim is checked by, so a node that was paused without knowing it claims nothing.

use std::{collections::BTreeSet, time::Duration};

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
    membership::{ASK_AGAIN, JoinKind, display_order, read_status, status_text},
    shard_leases::{LeaseRequest, Member},
};

/// Protocol version of nodes; nodes of different versions refuse each other.
const SCRIPTS: u16 = 2;

impl RedisStore {
    /// Writes the heartbeat of this node with the lanes that it serves, and requests its shard leases. Returns when this must be done
    /// again.
    pub(super) async fn announce(&self, now: Now, serves: BTreeSet<String>) -> Result<Duration, StoreError> {
        let _guard = self.nodes.requesting.lock().await;
        self.request_leases(now, serves).await
    }

    async fn request_leases(&self, now: Now, serves: BTreeSet<String>) -> Result<Duration, StoreError> {
        let members = self.heartbeat(now, self.membership.join_kind(), &serves).await?;
        self.membership.joined();
        let instances: Vec<[u8; 8]> = members.iter().map(|member| member.instance.to_be_bytes()).collect();
        let requests = self.nodes.lock().assign(members, serves, self.keys.shards());
        let reachable = requests.iter().filter(|(shard, _)| !self.faults.is_failing(**shard));
        let asking = reachable.map(|(shard, requests)| self.own(now, *shard, &instances, requests));
        // All of them to their ends: an answer that nobody takes is one that did not come. A shard that fails alone is asked again
        // once it works.
        join_all(asking).await.into_iter().collect::<Result<(), _>>()?;
        let mut state = self.nodes.lock();
        state.remove_unserved();
        // A lease is renewed well before it ends, also when one sweep or two fail.
        let often = self.options.lease / 4;
        let is_waiting = state.is_waiting() && !self.faults.any();
        Ok(if is_waiting { ASK_AGAIN.min(often) } else { often })
    }

    /// Announces a lane that is claimed from before a sweep announced it.
    pub(super) async fn serve(&self, now: Now, lane: &str) -> Result<(), StoreError> {
        if let Some((_guard, serves)) = self.nodes.unannounced(lane).await {
            self.request_leases(now, serves).await?;
        }
        Ok(())
    }

    async fn own(
        &self,
        now: Now,
        shard: u16,
        alive: &[[u8; 8]],
        requests: &[LeaseRequest],
    ) -> Result<(), StoreError> {
        let mut cmd = self.call(&scripts::OWN, shard, now);
        cmd.arg(&self.options.instance.to_be_bytes()).arg(alive.len());
        alive.iter().for_each(|instance| {
            cmd.arg(instance);
        });
        for LeaseRequest { lane, wanted } in requests {
            cmd.arg(lane).arg(u8::from(*wanted));
        }
        let reply = match self.run(&scripts::OWN, &cmd).await {
            Ok(reply) => reply,
            Err(error) => return self.faults.record(shard, error),
        };
        let token = |reply: &Vec<u8>| if reply.is_empty() { Some(0) } else { number(reply) };
        let tokens: Option<Vec<_>> = reply.iter().map(token).collect();
        let tokens =
            tokens.filter(|tokens| tokens.len() == requests.len()).ok_or_else(|| garbled("an answer"))?;
        self.nodes.lock().apply_tokens(shard, requests, &tokens);
        Ok(())
    }

    /// Writes the heartbeat of this node. Returns all live nodes.
    pub(super) async fn heartbeat(
        &self,
        now: Now,
        join_kind: JoinKind,
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
        cmd.arg(&self.generation.name).arg(tick).arg(end).arg(&self.options.instance.to_be_bytes());
        cmd.arg(if join_kind == JoinKind::New { "new" } else { "again" }).arg(self.status_bytes(serves));
        let sent_at = self.time.clock().map(|clock| clock.machine().mono());
        let reply = self.run(&scripts::JOIN, &cmd).await?;
        let [seconds, micros, refused, rest @ ..] = reply.as_slice() else {
            return Err(garbled("an answer"));
        };
        if let (Some(clock), Some(sent_at)) = (self.time.clock(), sent_at) {
            let part = |text: &[u8]| number(text).ok_or_else(|| garbled("the time"));
            clock.record_reply(sent_at, part(seconds)? * 1_000_000 + part(micros)?);
        }
        if !refused.is_empty() {
            return Err(self.refused(refused, join_kind));
        }
        let member = |pair: &[Vec<u8>]| read_member(&pair[0], &pair[1], self.options.instance);
        // A status that cannot be read is of a node with other scripts, which is refused.
        Ok(rest.chunks_exact(2).filter_map(member).collect())
    }

    /// Why the heartbeat of this node was refused.
    fn refused(&self, why: &[u8], join_kind: JoinKind) -> StoreError {
        if let [b'v', status @ ..] = why {
            // What comes behind its name may be written otherwise there.
            let len = status.get(2).map_or(0, |len| usize::from(*len));
            let other = String::from_utf8_lossy(status.get(3..3 + len).unwrap_or_default()).into_owned();
            let what = format!(
                "the node {other:?} works on this store with scripts of another version than this one's; stop the nodes of \
                 one version before those of another are started"
            );
            return StoreError::new(StoreErrorKind::Unavailable, what);
        }
        debug_assert_eq!(join_kind, JoinKind::Again, "a new node takes the place of the one before it");
        self.membership.replaced(&self.options.node)
    }

    /// The status of this node: version of the scripts 2, name 1 + n, then lines.
    fn status_bytes(&self, serves: &BTreeSet<String>) -> Vec<u8> {
        let name = &self.options.node;
        let mut status = SCRIPTS.to_be_bytes().to_vec();
        status.push(name.len() as u8);
        status.extend_from_slice(name.as_bytes());
        let owned = self.nodes.lock().owned();
        status.extend_from_slice(status_text(owned, self.time.skew_us(), serves).as_bytes());
        status
    }

    pub(super) async fn all_nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        let mut cmd = redis::cmd("HGETALL");
        let known: Vec<(Vec<u8>, Vec<u8>)> = self.ask(cmd.arg(&self.keys.nodes)).await?;
        let read =
            |(instance, status): (Vec<u8>, Vec<u8>)| read_member(&instance, &status, self.options.instance);
        Ok(display_order(known.into_iter().filter_map(read).map(|member| member.status).collect()))
    }

    /// Removes this node. If that fails, its heartbeat expires.
    pub(super) async fn leave(&self) {
        let mut call = scripts::LEAVE.key(&self.keys.nodes);
        let call = call.key(&self.keys.alive);
        let call = call.arg(&self.options.instance.to_be_bytes());
        if let Err(error) = call.invoke_async::<u64>(&mut self.link.clone()).await {
            tracing::debug!(%error, "shard lease release failed");
        }
    }
}

/// The names of the live nodes, for a caller that is not a node.
pub(super) async fn names_in(link: &mut Link, keys: &Keys, tick: u64) -> Result<Vec<String>, StoreError> {
    let fault = |error| sorted(&error);
    let alive: Vec<Vec<u8>> = redis::cmd("ZRANGEBYSCORE")
        .arg(&keys.alive)
        .arg(format!("({tick}"))
        .arg("+inf")
        .query_async(link)
        .await
        .map_err(fault)?;
    let status: Vec<(Vec<u8>, Vec<u8>)> =
        redis::cmd("HGETALL").arg(&keys.nodes).query_async(link).await.map_err(fault)?;
    let live = status.into_iter().filter(|(instance, _)| alive.contains(instance));
    let mut names: Vec<_> =
        live.filter_map(|(instance, status)| Some(read_member(&instance, &status, 0)?.status.name)).collect();
    names.sort_unstable();
    Ok(names)
}

/// Reads what [`RedisStore::status`] wrote.
pub(super) fn read_member(instance: &[u8], status: &[u8], this: u64) -> Option<Member> {
    let instance = u64::from_be_bytes(instance.try_into().ok()?);
    let len = usize::from(*status.get(2)?);
    let name = std::str::from_utf8(status.get(3..3 + len)?).ok()?;
    let status = read_status(name, instance == this, std::str::from_utf8(status.get(3 + len..)?).ok()?)?;
    Some(Member { instance, status })
}
