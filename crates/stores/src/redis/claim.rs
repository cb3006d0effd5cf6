//! Claiming: one read of every shard, then a script in each shard that has selected messages.

use std::sync::Arc;

use bytes::Bytes;
use duly_core::{
    Attempt, Fence, Lane, Now, Receipt, Timestamp,
    store::{Claim, Claimed, Holder, LeasedMessage, StoreError},
};
use futures_util::future::{join_all, try_join};

use super::{
    RedisStore,
    call::{ITEMS_MAX, number, time_in},
    fault::garbled,
    keys::tag,
    packed, scripts,
};
use crate::shared::{
    claim_order::{self, ClaimOrder, each, next_beside, select_claims},
    lane::lane_text,
    shard_leases::Owned,
};

/// The first of one lane in one shard, with their members of `wait`.
type ShardCandidates = claim_order::ShardCandidates<Vec<u8>>;

/// The holder of a claim, as `prelude.lua` packs it.
const HELD_BY_PROCESS: u8 = 0;
const HELD_BY_CLIENT: u8 = 1;
/// A client holds this message and no other of the same claim: if its lease is lost, this message is the cause.
const HELD_BY_CLIENT_ALONE: u8 = 2;

/// The answer for a message that the script could not read and made a dead letter.
const SET_ASIDE: &[u8] = b"\xff";

/// The claims of one shard.
#[derive(Default)]
struct ShardClaims {
    leased: Vec<(ClaimOrder, LeasedMessage)>,
    next: Option<Timestamp>,
    /// The error after which the shard gave no more.
    fault: Option<StoreError>,
}

impl RedisStore {
    pub(super) async fn lease(&self, now: Now, claim: &Claim) -> Result<Claimed, StoreError> {
        let lane = lane_text(&claim.lane);
        self.serve(now, &lane).await?;
        let shards = self.faults.reachable(self.shards_of(&claim.lane, &lane), |(shard, _)| *shard);
        let (paused, seen) = try_join(self.is_paused(&lane), self.peek(&lane, claim.limit, &shards)).await?;
        if paused {
            return Ok(Claimed::default());
        }
        let (shards, seen): (Vec<_>, Vec<_>) = seen.into_iter().unzip();
        let (selected, left_out) =
            self.within_budget(&shards, select_claims(&seen, now.wall(), claim.limit)).await;
        let next = next_beside(&seen, &selected);
        let holder = match claim.holder {
            Holder::Process => HELD_BY_PROCESS,
            holder if holder.holds_alone(selected.values().map(Vec::len).sum()) => HELD_BY_CLIENT_ALONE,
            Holder::Client | Holder::ClientOfMany => HELD_BY_CLIENT,
        };
        let by = (claim, holder);
        let claims = selected
            .into_iter()
            .map(|(shard, candidates)| self.lease_in(now, by, &lane, shards[shard], candidates));
        // Messages that one shard gave are claimed, also if another shard fails.
        let claims = join_all(claims).await;
        if claims.iter().all(|claims| claims.leased.is_empty())
            && let Some(fault) = claims.iter().find_map(|claims| claims.fault.clone()).or(left_out)
        {
            return Err(fault);
        }
        let next = claims.iter().filter_map(|claims| claims.next).chain(next).min();
        let mut leased: Vec<_> = claims.into_iter().flat_map(|claims| claims.leased).collect();
        leased.sort_by(|(a, _), (b, _)| a.cmp(b));
        Ok(Claimed { messages: leased.into_iter().map(|(_, leased)| leased).collect(), next })
    }

    /// The shards of a lane that this node may claim from, each with its shard lease.
    pub(super) fn shards_of(&self, lane: &Lane, name: &str) -> Vec<Owned> {
        self.nodes.claimable(lane, name, self.keys.shards())
    }

    /// The first messages of a lane in each reachable shard, and one more to know when the next is ready.
    async fn peek(
        &self,
        lane: &str,
        limit: usize,
        shards: &[Owned],
    ) -> Result<Vec<(Owned, ShardCandidates)>, StoreError> {
        let tag = tag(lane);
        let (from, to) = ([b"[", tag.as_slice()].concat(), [b"(", tag.as_slice(), b"\xff"].concat());
        let count = each(limit, shards.len().max(1)) + 1;
        let (from, to) = (from.as_slice(), to.as_slice());
        let in_shard = |shard| async move {
            let (candidates, cut) = self.first_waiting(shard, lane, (from, to), count).await?;
            Ok::<_, StoreError>(ShardCandidates { candidates, cut })
        };
        let of_shard = |owned: Owned| async move { (owned, in_shard(owned.0).await) };
        let reply = join_all(shards.iter().map(|owned| of_shard(*owned))).await;
        self.faults.answered(reply, |(shard, _)| *shard)
    }

    async fn lease_in(
        &self,
        now: Now,
        by: (&Claim, u8),
        lane: &str,
        owned: Owned,
        candidates: Vec<&(ClaimOrder, Vec<u8>)>,
    ) -> ShardClaims {
        let (shard, mut claims) = (owned.0, ShardClaims::default());
        if let Err(fault) = self.lease_parts(now, by, lane, owned, &candidates, &mut claims).await {
            // The shard is left out until a sweep reaches it. If the whole store fails, the next claim reports that.
            let _ = self.faults.record(shard, fault.clone());
            claims = ShardClaims { next: Some(now.wall()), fault: Some(fault), ..claims };
        }
        claims
    }

    async fn lease_parts(
        &self,
        now: Now,
        (claim, holder): (&Claim, u8),
        lane: &str,
        (shard, lease): Owned,
        candidates: &[&(ClaimOrder, Vec<u8>)],
        claims: &mut ShardClaims,
    ) -> Result<(), StoreError> {
        let fence = lease.map(|token| Fence { scope: self.scope(lane, shard), token });
        let (end, span) = self.lease_end(now, claim.lease);
        for part in candidates.chunks(ITEMS_MAX) {
            let mut cmd = self.call(&scripts::CLAIM, shard, now);
            let call = self.unconfirmed.number();
            cmd.arg(lane).arg(end).arg(span).arg(holder);
            cmd.arg(&self.options.instance.to_be_bytes()).arg(&call.to_be_bytes());
            cmd.arg(lease.map_or_else(String::new, |token| token.to_string()));
            part.iter().for_each(|(_, member)| {
                cmd.arg(member.as_slice());
            });
            let reply = self.run(&scripts::CLAIM, &cmd).await.inspect_err(|error| {
                let ids = part.iter().map(|(candidate, _)| candidate.id.clone());
                self.unconfirmed.unconfirmed_call(error, shard, call, ids);
            })?;
            if reply.is_empty() {
                self.nodes.lose_lease(lane, shard, lease.unwrap_or_default());
                return Ok(());
            }
            let [token, next, packed @ ..] = reply.as_slice() else { return Err(garbled("an answer")) };
            let token = number(token).ok_or_else(|| garbled("an answer"))?;
            claims.next = time_in(next)?;
            let mut unreadable = Vec::new();
            for ((candidate, _), packed) in part.iter().zip(packed).filter(|(_, packed)| !packed.is_empty()) {
                if packed == SET_ASIDE {
                    self.faults.damaged.record(shard, candidate.id.as_str().as_bytes());
                    continue;
                }
                match read_leased(candidate, shard, token, packed, fence.as_ref()) {
                    Some(leased) => claims.leased.push(leased),
                    None => unreadable.push((candidate.id.clone(), token)),
                }
            }
            self.set_aside(now, shard, &unreadable).await;
        }
        Ok(())
    }

    /// The scope of the fencing tokens of a lane and shard, as targets see it.
    fn scope(&self, lane: &str, shard: u16) -> Arc<str> {
        format!("{}/{}/{shard}", self.generation.name, lane).into()
    }
}

/// Decodes a claimed message. `None` for one that cannot be decoded.
fn read_leased(
    candidate: &ClaimOrder,
    shard: u16,
    token: u64,
    packed: &[u8],
    fence: Option<&Fence>,
) -> Option<(ClaimOrder, LeasedMessage)> {
    let packed::Unpacked { record, lost } =
        packed::unpack(candidate.id.clone(), &Bytes::copy_from_slice(packed)).ok()?;
    let receipt = Receipt { shard, token, id: candidate.id.clone() };
    let (attempt, lost_at) = (record.attempts.saturating_add(1), Attempt::lost_at(&record.history));
    let (message, ready, fence) = (record.message, record.ready, fence.cloned());
    Some((candidate.clone(), LeasedMessage { message, receipt, ready, attempt, lost, lost_at, fence }))
}
