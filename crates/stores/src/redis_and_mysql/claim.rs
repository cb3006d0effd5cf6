//! Claiming: the index selects the messages, and MySQL confirms each.

use std::collections::{BTreeMap, BTreeSet, HashMap};

use duly_core::{
    Lane, Now, Store, Timestamp,
    store::{Claim, Claimed, StoreError},
};

use super::RedisAndMysqlStore;
use crate::{
    shared::{
        claim_order::{ClaimOrder, ShardCandidates, each, next_behind, next_beside, select_claims},
        lane::lane_text,
    },
    sql::{BATCH_MAX, ClaimRequest, IndexEntry, Owned},
};

/// How often entries that match nothing are swept aside before a claim comes back with nothing.
const ROUNDS_MAX: usize = 4;

impl RedisAndMysqlStore {
    pub(super) async fn lease(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        if !self.health.relied_on(now) {
            return self.sql.claim(now, claim).await;
        }
        let lane = lane_text(&claim.lane);
        let lane_no = self.sql.claim_number(&claim.lane, &lane).await?;
        self.sql.serve(now, &lane).await?;
        for _ in 0..ROUNDS_MAX {
            let shards = self.sql.shards_of(&claim.lane, &lane);
            let limit = claim.limit.min(BATCH_MAX);
            let count = each(limit, shards.len().max(1)) + 1;
            let seen = match self.index.first(lane_no, shards.iter().map(|(shard, _)| *shard), count).await {
                Ok(seen) => seen,
                Err(error) => {
                    self.health.record_failure(&error);
                    return self.sql.claim(now, claim).await;
                }
            };
            let selected = select_claims(&seen, now.wall(), limit);
            let next =
                [next_beside(&seen, &selected), next_behind(&seen, &selected)].into_iter().flatten().min();
            if selected.is_empty() {
                let next = self.next_of_lane(&claim.lane, next).await?;
                return Ok(Claimed { messages: Vec::new(), next });
            }
            if let Some(mut claimed) =
                self.take(now, &claim, (&lane, lane_no), &shards, &seen, selected).await?
            {
                claimed.next = [claimed.next, next].into_iter().flatten().min();
                return Ok(claimed);
            }
        }
        Ok(Claimed { messages: Vec::new(), next: Some(now.wall()) })
    }

    /// When the lane is next due, if the index says `next`: what is further away it need not have.
    async fn next_of_lane(
        &self,
        lane: &Lane,
        next: Option<Timestamp>,
    ) -> Result<Option<Timestamp>, StoreError> {
        let covered = self.health.lock().covered;
        if next.is_some_and(|next| next <= covered) {
            return Ok(next);
        }
        let in_truth = self.sql.next_of(std::slice::from_ref(lane)).await?;
        Ok(in_truth.into_iter().map(|(_, at)| at).chain(next).min())
    }

    /// Claims the selected messages. Returns nothing if none of them was as the index has it.
    async fn take(
        &self,
        now: Now,
        claim: &Claim,
        (lane, lane_no): (&str, i64),
        shards: &[Owned],
        seen: &[ShardCandidates<i64>],
        selected: BTreeMap<usize, Vec<&(ClaimOrder, i64)>>,
    ) -> Result<Option<Claimed>, StoreError> {
        debug_assert_eq!(seen.len(), shards.len());
        let entry = |nth: &usize, (candidate, version): &(ClaimOrder, i64)| IndexEntry {
            lane_no,
            shard: shards[*nth].0,
            candidate: candidate.clone(),
            version: *version,
        };
        let entries: Vec<_> = selected
            .iter()
            .flat_map(|(nth, candidates)| candidates.iter().map(move |candidate| entry(nth, candidate)))
            .collect();
        // Of a message that was moved there may be several: the latest counts.
        let mut versions: HashMap<_, i64> = HashMap::new();
        for entry in &entries {
            let latest = versions.entry(entry.candidate.id.clone()).or_insert(entry.version);
            *latest = entry.version.max(*latest);
        }
        let is_latest =
            |(candidate, version): &&&(ClaimOrder, i64)| versions.get(&candidate.id) == Some(version);
        let candidates = |candidates: &Vec<&(ClaimOrder, i64)>| {
            candidates.iter().filter(is_latest).map(|(candidate, _)| candidate.clone()).collect()
        };
        let of_shards = selected.iter().map(|(nth, of)| (shards[*nth], candidates(of))).collect();
        let call = self.sql.next_call();
        let request =
            ClaimRequest { claim, lane, lane_no, call, shards: of_shards, versions: Some(versions) };
        let claims = self.sql.take(now, &request).await?;
        if claims.paused {
            return Ok(Some(Claimed::default()));
        }
        let leased: BTreeSet<_> = claims.leased.iter().map(|(candidate, _)| candidate).collect();
        let (mut over, left): (Vec<_>, Vec<_>) =
            entries.into_iter().partition(|entry| leased.contains(&entry.candidate));
        let (mut dropped, mut is_left) = (0, false);
        if !left.is_empty() {
            // Somebody may be at work on them; only what is not so any more is dropped.
            let waiting = self.sql.still_waiting(&left).await?;
            is_left = waiting.contains(&true);
            let stale = left.into_iter().zip(waiting).filter(|(_, waits)| !waits).map(|(entry, _)| entry);
            over.extend(stale.inspect(|_| dropped += 1));
        }
        match self.index.remove(&over).await {
            Ok(_) => self.health.dropped(dropped),
            // They stay there, match nothing, and are dropped some other time.
            Err(error) => self.health.record_failure(&error),
        }
        if claims.leased.is_empty() && dropped > 0 {
            return Ok(None);
        }
        let next = claims.again(now).filter(|_| dropped == 0 || is_left);
        Ok(Some(Claimed { messages: claims.leased.into_iter().map(|(_, leased)| leased).collect(), next }))
    }
}
