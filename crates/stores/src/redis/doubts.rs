//! Claims whose answer got lost on the way: Redis may have made them, and nobody would work on them until their leases end.

use std::sync::{
    Mutex, PoisonError,
    atomic::{AtomicU64, Ordering},
};

use duly_core::{MessageId, Now, store::StoreError};

use super::{RedisStore, call::ITEMS_MAX, scripts};

/// More are left to the ends of their leases.
const DOUBTS_MAX: usize = 10_000;

/// What may be claimed by a call that failed.
#[derive(Debug, Default)]
pub(super) struct Doubts {
    last: AtomicU64,
    open: Mutex<Vec<Doubt>>,
}

#[derive(Debug, Clone)]
struct Doubt {
    shard: u16,
    number: u64,
    id: MessageId,
}

impl Doubts {
    /// The number of a call that claims, different from every other of this process.
    pub(super) fn number(&self) -> u64 {
        self.last.fetch_add(1, Ordering::Relaxed) + 1
    }

    /// A call failed. If Redis refused it, nothing is in doubt.
    pub(super) fn doubt(
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
        let room = DOUBTS_MAX.saturating_sub(open.len());
        open.extend(ids.take(room).map(|id| Doubt { shard, number, id }));
    }

    fn take(&self) -> Vec<Doubt> {
        std::mem::take(&mut self.open.lock().unwrap_or_else(PoisonError::into_inner))
    }

    fn put_back(&self, doubts: &[Doubt]) {
        self.open.lock().unwrap_or_else(PoisonError::into_inner).extend_from_slice(doubts);
    }
}

impl RedisStore {
    /// Hands back what was claimed without anybody knowing: it never went anywhere, so nothing counts.
    pub(super) async fn clear_doubts(&self, now: Now) -> Result<(), StoreError> {
        let mut doubts = self.doubts.take();
        doubts.sort_by_key(|doubt| doubt.shard);
        let parts = doubts.chunk_by(|a, b| a.shard == b.shard).flat_map(|shard| shard.chunks(ITEMS_MAX));
        let mut failed = None;
        for part in parts {
            let shard = part[0].shard;
            if failed.is_some() || self.faults.is_failing(shard) {
                self.doubts.put_back(part);
                continue;
            }
            if let Err(error) = self.run(&scripts::RECOVER, &self.recovery(now, shard, part)).await {
                self.doubts.put_back(part);
                failed = self.faults.note(shard, error).err();
            }
        }
        failed.map_or(Ok(()), Err)
    }

    /// Every process counts its calls from 1: only with the instance a number says whose call it was.
    fn recovery(&self, now: Now, shard: u16, part: &[Doubt]) -> redis::Cmd {
        let mut cmd = self.call(&scripts::RECOVER, shard, now);
        let instance = self.options.instance.to_be_bytes();
        for Doubt { id, number, .. } in part {
            cmd.arg(id.as_str()).arg(0).arg([b"h", instance.as_slice(), &number.to_be_bytes()].concat());
        }
        cmd
    }
}
