//! Claims whose answers were lost: Redis may have made them, and nobody holds them until their leases end.

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{
        Mutex, MutexGuard, PoisonError,
        atomic::{AtomicU64, Ordering},
    },
};

use duly_core::{MessageId, Now, store::StoreError};

use super::{RedisStore, call::ITEMS_MAX, scripts};

/// Max tracked claims. More wait until their leases end.
const UNCONFIRMED_MAX: usize = 10_000;

/// The number of a call, and a message that it may have claimed.
type UnconfirmedClaim = (u64, MessageId);

/// Claims that a failed call may have made.
#[derive(Debug, Default)]
pub(super) struct UnconfirmedCalls {
    last: AtomicU64,
    /// By shard.
    open: Mutex<BTreeMap<u16, BTreeSet<UnconfirmedClaim>>>,
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
        let mut open = self.lock();
        let room = UNCONFIRMED_MAX.saturating_sub(open.values().map(BTreeSet::len).sum());
        open.entry(shard).or_default().extend(ids.take(room).map(|id| (number, id)));
    }

    /// The messages of a shard that were perhaps claimed. Their leases are not to be ended: that would count attempts which nobody made.
    pub(super) fn ids(&self, shard: u16) -> BTreeSet<MessageId> {
        self.lock().get(&shard).into_iter().flatten().map(|(_, id)| id.clone()).collect()
    }

    /// Some of a shard. They stay until they are [cleared](Self::clear): whoever releases them may give up.
    fn some(&self, shard: u16) -> Vec<UnconfirmedClaim> {
        self.lock().get(&shard).into_iter().flatten().take(ITEMS_MAX).cloned().collect()
    }

    fn clear(&self, shard: u16, cleared: &[UnconfirmedClaim]) {
        let mut open = self.lock();
        if let Some(claims) = open.get_mut(&shard) {
            for claim in cleared {
                claims.remove(claim);
            }
            if claims.is_empty() {
                open.remove(&shard);
            }
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<u16, BTreeSet<UnconfirmedClaim>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl RedisStore {
    /// Releases what was claimed in a shard without an answer: no message was delivered, so no attempt counts.
    pub(super) async fn release_unconfirmed(&self, now: Now, shard: u16) -> Result<(), StoreError> {
        loop {
            let claims = self.unconfirmed.some(shard);
            if claims.is_empty() {
                return Ok(());
            }
            let reply = self.run(&scripts::RECOVER, &self.recovery(now, shard, &claims)).await?;
            reply.iter().skip(1).for_each(|id| self.faults.damaged.record(shard, id));
            self.unconfirmed.clear(shard, &claims);
        }
    }

    /// Every process counts its calls from 1: only with the instance a number says whose call it was.
    fn recovery(&self, now: Now, shard: u16, claims: &[UnconfirmedClaim]) -> redis::Cmd {
        let mut cmd = self.call(&scripts::RECOVER, shard, now);
        let instance = self.options.instance.to_be_bytes();
        for (number, id) in claims {
            cmd.arg(id.as_str()).arg(0).arg([b"h", instance.as_slice(), &number.to_be_bytes()].concat());
        }
        cmd
    }
}
