//! How much of what is due one claim gives, by bytes.

use std::collections::{BTreeMap, HashMap};

use duly_core::{
    MessageId,
    store::{ClaimBudget, StoreError},
};
use futures_util::future::try_join_all;

use super::RedisStore;
use crate::server::turn::{Turn, within};

/// Those whose turn it is, by the place of their shard, with their members of `wait`.
type Chosen<'s> = BTreeMap<usize, Vec<&'s (Turn, Vec<u8>)>>;

impl RedisStore {
    /// As many of those whose turn it is as fit into one claim, in their order.
    pub(super) async fn within_budget<'s>(
        &self,
        shards: &[(u16, Option<u64>)],
        chosen: Chosen<'s>,
    ) -> Result<Chosen<'s>, StoreError> {
        if chosen.values().map(Vec::len).sum::<usize>() <= 1 {
            return Ok(chosen);
        }
        let lengths = chosen.iter().map(|(place, turns)| self.lengths(shards[*place].0, turns));
        let lengths: HashMap<MessageId, usize> = try_join_all(lengths).await?.into_iter().flatten().collect();
        let mut budget = ClaimBudget::default();
        Ok(within(chosen, |id| budget.takes(lengths.get(id).copied().unwrap_or_default())))
    }

    /// How many bytes each of these has. Redis knows that without reading them.
    async fn lengths(
        &self,
        shard: u16,
        turns: &[&(Turn, Vec<u8>)],
    ) -> Result<Vec<(MessageId, usize)>, StoreError> {
        let key = self.keys.one(shard, "msg");
        let mut commands = redis::pipe();
        for (turn, _) in turns {
            commands.cmd("HSTRLEN").arg(key).arg(turn.id.as_str());
        }
        let lengths: Vec<usize> = self.ask_all(&commands).await?;
        Ok(turns.iter().map(|(turn, _)| turn.id.clone()).zip(lengths).collect())
    }
}
