//! Outcomes of messages when one shard cannot take its own: those of the others are not held up, and no answer is wrong.

use std::{
    collections::HashMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use duly_core::{
    MessageId, Now, Receipt,
    store::{Settled, StoreError},
};

use super::{RedisStore, call::by_shard, scripts};

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
}

fn lock<T>(what: &Mutex<T>) -> MutexGuard<'_, T> {
    what.lock().unwrap_or_else(PoisonError::into_inner)
}

impl RedisStore {
    /// Records what shards could not take before and can take now.
    pub(super) async fn settle_deferred(&self, now: Now) -> Result<(), StoreError> {
        let deferred = std::mem::take(&mut *lock(&self.outcomes.deferred));
        let (waiting, ready): (Vec<_>, Vec<_>) =
            deferred.into_iter().partition(|one| self.faults.is_failing(one.shard));
        lock(&self.outcomes.deferred).extend(waiting);
        if ready.is_empty() {
            return Ok(());
        }
        let shards = by_shard(&self.keys, &ready, |one| &one.id, |one| one.settlement.len());
        let put = |cmd: &mut redis::Cmd, one: &&Deferred| {
            cmd.arg(one.id.as_str()).arg(one.token).arg(one.settlement.as_slice());
        };
        let read = |reply: &[u8]| self.settle_reply(reply).map(drop);
        let done = self.run_by_shard((&scripts::SETTLE, now), shards, |_| (), put, read).await;
        let mut failed = None;
        for of_shard in done {
            if let Some(error) = of_shard.error {
                let again = ready.iter().filter(|one| one.shard == of_shard.shard).cloned();
                lock(&self.outcomes.deferred).extend(again);
                failed = failed.or(self.faults.record(of_shard.shard, error).err());
            }
        }
        failed.map_or(Ok(()), Err)
    }
}
