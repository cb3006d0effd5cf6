//! Outcomes of messages when one shard cannot take its own: those of the others are not held up, and no answer is wrong.

use std::{
    collections::{HashMap, HashSet},
    sync::{Mutex, MutexGuard, PoisonError},
};

use duly_core::{
    MessageId, Now, Receipt,
    store::{Settled, StoreError},
};

use super::{
    RedisStore,
    call::{ITEMS_MAX, by_shard},
    scripts,
};

/// More are forgotten: if asked about again, they are answered as lost leases.
const RECORDED_MAX: usize = 10_000;
/// More are left to the ends of their leases, and delivered again.
const DEFERRED_MAX: usize = 10_000;

/// What is known of outcomes besides what Redis says.
#[derive(Debug, Default)]
pub(super) struct Outcomes {
    /// Those that were recorded while others of their batch were not: the batch is asked about again as a whole.
    recorded: Mutex<HashMap<(MessageId, u64), Recorded>>,
    /// Those whose shard failed: recorded once it works again, if their leases last.
    deferred: Mutex<Vec<Deferred>>,
}

#[derive(Debug, Clone, Copy)]
struct Recorded {
    /// The letter of the verdict, as scripts read it.
    settlement: u8,
    settled: Settled,
}

#[derive(Debug, Clone)]
struct Deferred {
    shard: u16,
    id: MessageId,
    token: u64,
    settlement: Vec<u8>,
}

impl Outcomes {
    /// What an earlier call recorded. Another verdict than that one comes too late.
    pub(super) fn take_recorded(&self, receipt: &Receipt, settlement: u8) -> Option<Settled> {
        let mut recorded = lock(&self.recorded);
        if recorded.is_empty() {
            return None;
        }
        let key = (receipt.id.clone(), receipt.token);
        if recorded.get(&key)?.settlement != settlement {
            return Some(Settled::Lost);
        }
        recorded.remove(&key).map(|recorded| recorded.settled)
    }

    pub(super) fn recorded(&self, receipt: &Receipt, settlement: u8, settled: Settled) {
        let mut recorded = lock(&self.recorded);
        if recorded.len() >= RECORDED_MAX {
            recorded.clear();
        }
        recorded.insert((receipt.id.clone(), receipt.token), Recorded { settlement, settled });
    }

    pub(super) fn defer(&self, receipt: &Receipt, settlement: Vec<u8>) {
        let mut deferred = lock(&self.deferred);
        if deferred.len() < DEFERRED_MAX {
            let Receipt { shard, token, id } = receipt.clone();
            deferred.push(Deferred { shard, id, token, settlement });
        }
    }

    /// The first of a shard. They stay until they are [cleared](Self::clear_deferred): whoever records them may give up.
    fn some_deferred(&self, shard: u16) -> Vec<Deferred> {
        let of_shard = |one: &&Deferred| one.shard == shard;
        lock(&self.deferred).iter().filter(of_shard).take(ITEMS_MAX).cloned().collect()
    }

    fn clear_deferred(&self, cleared: &[Deferred]) {
        let cleared: HashSet<_> = cleared.iter().map(|one| (&one.id, one.token)).collect();
        lock(&self.deferred).retain(|one| !cleared.contains(&(&one.id, one.token)));
    }
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RedisStore {
    /// Records what a shard could not take before and can take now.
    pub(super) async fn settle_deferred(&self, now: Now, shard: u16) -> Result<(), StoreError> {
        loop {
            let deferred = self.outcomes.some_deferred(shard);
            if deferred.is_empty() {
                return Ok(());
            }
            let shards = by_shard(&self.keys, &deferred, |one| &one.id, |one| one.settlement.len());
            let put = |cmd: &mut redis::Cmd, one: &&Deferred| {
                cmd.arg(one.id.as_str()).arg(one.token).arg(one.settlement.as_slice());
            };
            let read = |reply: &[u8]| self.settle_reply(reply).map(drop);
            let done = self.run_by_shard((&scripts::SETTLE, now), shards, |_| (), put, read).await;
            // Those that were recorded before the error are asked about again: they are lost then, which nobody is told.
            done.into_iter().find_map(|of_shard| of_shard.error).map_or(Ok(()), Err)?;
            self.outcomes.clear_deferred(&deferred);
        }
    }
}
