//! Claims whose answers were lost: Redis may have made them, and nobody holds them until their leases end.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use duly_core::{MessageId, Now, store::StoreError};

use super::{RedisStore, call::ITEMS_MAX, scripts};

/// Max tracked claims. More wait until their leases end.
const UNCONFIRMED_MAX: usize = 10_000;

/// Claims that a failed call may have made.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedCalls {
    last: AtomicU64,
    open: Mutex<Vec<UnconfirmedCall>>,
}

#[derive(Debug, Clone)]
struct UnconfirmedCall {
    shard: u16,
    number: u64,
    id: MessageId,
}

impl UnconfirmedCalls {
    /// The number of a call that claims, different from every other of this process.
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// Records a failed call. One that Redis refused claimed nothing.
    pub(super) fn unconfirmed_call(
        &self,
        error: &StoreError,
        shard: u16,
        number: u64,
        ids: impl Iterator<Item = MessageId>,
    ) {
        if !error.kind.is_transient() {
            return;
        }
        let mut open = self.open.lock().unwrap_or_else(PoisonError::into_inner);
        let room = UNCONFIRMED_MAX.saturating_sub(open.len());
        open.extend(ids.take(room).map(|id| UnconfirmedCall { shard, number, id }));
    }

    fn take(&self) -> Vec<UnconfirmedCall> {
        std::mem::take(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_back(&self, unconfirmed: &[UnconfirmedCall]) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(unconfirmed);
    }
}

impl RedisStore {
    /// Releases what was claimed without an answer: no message was delivered, so no attempt counts.
    pub(super) async fn release_unconfirmed(&self, now: Now) -> Result<(), StoreError> {
        let mut unconfirmed = self.unconfirmed.take();
        unconfirmed.sort_by_key(|unconfirmed_call| unconfirmed_call.shard);
        let parts = unconfirmed.chunk_by(|a, b| a.shard == b.shard).flat_map(|shard| shard.chunks(ITEMS_MAX));
        let mut failed = None;
        for part in parts {
            let shard = part[0].shard;
            if failed.is_some() || self.faults.is_failing(shard) {
                self.unconfirmed.put_back(part);
                continue;
            }
            match self.run(&scripts::RECOVER, &self.recovery(now, shard, part)).await {
                Ok(reply) => reply.iter().skip(1).for_each(|id| self.faults.damaged.record(shard, id)),
                Err(error) => {
                    self.unconfirmed.put_back(part);
                    failed = self.faults.record(shard, error).err();
                }
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Every process counts its calls from 1: only with the instance a number says whose call it was.
    fn recovery(&self, now: Now, shard: u16, part: &[UnconfirmedCall]) -> redis::Cmd {
        let mut cmd = self.call(&scripts::RECOVER, shard, now);
        let instance = self.options.instance.to_be_bytes();
        for UnconfirmedCall { id, number, .. } in part {
            cmd.arg(id.as_str()).arg(0).arg([b"h", instance.as_slice(), &number.to_be_bytes()].concat());
        }
        cmd
    }
}
