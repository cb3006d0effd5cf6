//! Which lanes are paused, also while the set in Redis cannot be read.

use std::{
    collections::HashSet,
    sync::{
        Mutex, PoisonError,
        atomic::{AtomicBool, Ordering::Relaxed},
    },
};

use duly_core::{
    Lane,
    store::{StoreError, StoreErrorKind},
};

use super::{RedisStore, fault::for_caller, shard_faults::FailureDomain};
use crate::shared::lane::lane_text;

/// The lanes that were paused when Redis last said so.
#[derive(Debug, Default)]
pub(super) struct Paused {
    names: Mutex<HashSet<Vec<u8>>>,
    /// The key held something else when it was last asked: once it is repaired, what it held before is gone from Redis.
    was_damaged: AtomicBool,
}

impl Paused {
    fn set(&self, lane: &[u8], is_paused: bool) {
        let mut lanes = self.names.lock().unwrap_or_else(PoisonError::into_inner);
        if is_paused {
            lanes.insert(lane.to_vec());
        } else {
            lanes.remove(lane);
        }
    }

    fn set_all(&self, all: &HashSet<Vec<u8>>) {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone_from(all);
    }

    fn names(&self) -> HashSet<Vec<u8>> {
        self.names.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether Redis said it just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum ReadState {
    Current,
    Cached,
}

impl RedisStore {
    pub(super) async fn pause(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        let word = if paused { "SADD" } else { "SREM" };
        let name = lane_text(lane);
        let reply = self.ask::<()>(redis::cmd(word).arg(&self.keys.paused).arg(&name)).await;
        reply.map_err(|error| for_caller(self.of_paused(error)))?;
        self.paused.set(name.as_bytes(), paused);
        Ok(())
    }

    /// The same error, with the name of the key if it is the key's.
    fn of_paused(&self, error: StoreError) -> StoreError {
        if error.kind == StoreErrorKind::Damaged {
            return error.in_words(|what| format!("{}: {what}", self.keys.paused));
        }
        error
    }

    /// Reads which lanes are paused when nothing is known of it yet: without an answer, all of them would be delivered.
    pub(super) async fn begin_paused(&self) -> Result<(), StoreError> {
        let all = self.ask(redis::cmd("SMEMBERS").arg(&self.keys.paused)).await;
        self.paused.set_all(&all.map_err(|error| {
            self.of_paused(error).in_words(|what| {
                format!("it cannot be read which lanes are paused, so none is delivered: {what}")
            })
        })?);
        Ok(())
    }

    /// Records that the set cannot be read. Returns the error if it is not of that key alone.
    fn record_paused_fault(&self, error: StoreError) -> Result<(), StoreError> {
        if error.kind == StoreErrorKind::Damaged {
            self.paused.was_damaged.store(true, Relaxed);
        }
        self.faults.record(FailureDomain::Paused, self.of_paused(error))
    }

    /// Whether this lane is paused; as it was known before, if that key alone cannot be read.
    pub(super) async fn is_paused(&self, lane: &str) -> Result<bool, StoreError> {
        if !self.faults.is_failing(FailureDomain::Paused) {
            match self.ask(redis::cmd("SISMEMBER").arg(&self.keys.paused).arg(lane)).await {
                Ok(is_paused) => {
                    self.paused.set(lane.as_bytes(), is_paused);
                    return Ok(is_paused);
                }
                Err(error) => self.record_paused_fault(error)?,
            }
        }
        Ok(self.paused.names().contains(lane.as_bytes()))
    }

    /// The names of all that are paused; as they were known before, if that key alone cannot be read.
    pub(super) async fn paused_lanes(&self) -> Result<(HashSet<Vec<u8>>, ReadState), StoreError> {
        let reply = self.ask_paused();
        let reply =
            if self.faults.is_failing(FailureDomain::Paused) { self.soon(reply).await } else { reply.await };
        match reply {
            Ok(all) => {
                self.faults.works(FailureDomain::Paused);
                self.paused.set_all(&all);
                Ok((all, ReadState::Current))
            }
            Err(error) => {
                // Without memory what was damaged cannot be written back yet. The next sweep tries again.
                if error.kind != StoreErrorKind::Full {
                    self.record_paused_fault(error)?;
                }
                Ok((self.paused.names(), ReadState::Cached))
            }
        }
    }

    /// Asks for all names. Whoever repairs a damaged key removes it, and with it what it held: that is written back first. Were it not, every
    /// lane that an operator paused would go on.
    async fn ask_paused(&self) -> Result<HashSet<Vec<u8>>, StoreError> {
        let known = if self.paused.was_damaged.load(Relaxed) { self.paused.names() } else { HashSet::new() };
        if !known.is_empty() {
            let names: Vec<_> = known.into_iter().collect();
            self.ask::<()>(redis::cmd("SADD").arg(&self.keys.paused).arg(names)).await?;
        }
        let all = self.ask(redis::cmd("SMEMBERS").arg(&self.keys.paused)).await?;
        self.paused.was_damaged.store(false, Relaxed);
        Ok(all)
    }
}
