//! The byte budget of a claim.

use std::collections::{BTreeMap, HashMap};

use duly_core::{
    MessageId,
    store::{ClaimBudget, StoreError},
};
use futures_util::future::join_all;

use super::RedisStore;
use crate::shared::claim_order::{ClaimOrder, within};

/// The selected candidates by the index of their shard, with their members of `wait`.
type Selected<'s> = BTreeMap<usize, Vec<&'s (ClaimOrder, Vec<u8>)>>;

impl RedisStore {
    /// Cuts the selection to the byte budget of one claim, in claim order. Also returns the error of a shard that was skipped.
    pub(super) async fn within_budget<'s>(
        &self,
        shards: &[(u16, Option<u64>)],
        mut selected: Selected<'s>,
    ) -> (Selected<'s>, Option<StoreError>) {
        if selected.values().map(Vec::len).sum::<usize>() <= 1 {
            return (selected, None);
        }
        let of_shard = |index: usize, candidates: Vec<&'s (ClaimOrder, Vec<u8>)>| async move {
            (index, self.lengths(shards[index].0, &candidates).await)
        };
        let replies =
            join_all(selected.iter().map(|(index, candidates)| of_shard(*index, candidates.clone()))).await;
        let (mut lengths, mut fault) = (HashMap::<MessageId, usize>::new(), None);
        for (index, reply) in replies {
            match reply {
                Ok(reply) => lengths.extend(reply),
                // The lengths are unknown, so its messages cannot be budgeted: the shard is skipped.
                Err(error) => {
                    let _ = self.faults.record(shards[index].0, error.clone());
                    selected.remove(&index);
                    fault = Some(error);
                }
            }
        }
        let mut budget = ClaimBudget::default();
        (within(selected, |id| budget.takes(lengths.get(id).copied().unwrap_or_default())), fault)
    }

    /// How many bytes each of these has. Redis knows that without reading them.
    async fn lengths(
        &self,
        shard: u16,
        candidates: &[&(ClaimOrder, Vec<u8>)],
    ) -> Result<Vec<(MessageId, usize)>, StoreError> {
        let key = self.keys.one(shard, "msg");
        let mut commands = redis::pipe();
        for (candidate, _) in candidates {
            commands.cmd("HSTRLEN").arg(key).arg(candidate.id.as_str());
        }
        let lengths: Vec<usize> = self.ask_all(&commands).await?;
        Ok(candidates.iter().map(|(candidate, _)| candidate.id.clone()).zip(lengths).collect())
    }
}
