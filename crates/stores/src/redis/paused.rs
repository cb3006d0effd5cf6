//! Which lanes are paused, and what is known of that while Redis cannot tell.

use std::{
    collections::HashSet,
    sync::{Mutex, PoisonError},
};

use duly_core::{
    Lane,
    store::{StoreError, StoreErrorKind},
};

use super::{RedisStore, shard_faults::Part};
use crate::server::lane::lane_text;

/// The names of the lanes that were paused when Redis last said so.
#[derive(Debug, Default)]
pub(super) struct Paused(Mutex<HashSet<Vec<u8>>>);

impl Paused {
    fn tell(&self, lane: &[u8], is_paused: bool) {
        let mut lanes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if is_paused {
            lanes.insert(lane.to_vec());
        } else {
            lanes.remove(lane);
        }
    }

    fn tell_all(&self, all: &HashSet<Vec<u8>>) {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone_from(all);
    }

    fn known(&self) -> HashSet<Vec<u8>> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// Whether Redis said it just now.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Told {
    Now,
    Before,
}

impl RedisStore {
    pub(super) async fn pause(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        let word = if paused { "SADD" } else { "SREM" };
        let name = lane_text(lane);
        self.ask::<()>(redis::cmd(word).arg(&self.keys.paused).arg(&name)).await.map_err(|error| {
            if error.kind == StoreErrorKind::Damaged {
                return StoreError::new(error.kind, format!("{}: {}", self.keys.paused, error.what));
            }
            error
        })?;
        self.paused.tell(name.as_bytes(), paused);
        Ok(())
    }

    /// Whether this lane is paused; as it was known before, if that key alone cannot be read.
    pub(super) async fn is_paused(&self, lane: &str) -> Result<bool, StoreError> {
        if !self.faults.is_failing(Part::Paused) {
            match self.ask(redis::cmd("SISMEMBER").arg(&self.keys.paused).arg(lane)).await {
                Ok(is_paused) => {
                    self.paused.tell(lane.as_bytes(), is_paused);
                    return Ok(is_paused);
                }
                Err(error) => self.faults.note(Part::Paused, error)?,
            }
        }
        Ok(self.paused.known().contains(lane.as_bytes()))
    }

    /// The names of all that are paused; as they were known before, if that key alone cannot be read.
    pub(super) async fn paused_lanes(&self) -> Result<(HashSet<Vec<u8>>, Told), StoreError> {
        let mut cmd = redis::cmd("SMEMBERS");
        let asked = self.ask(cmd.arg(&self.keys.paused));
        let asked = if self.faults.is_failing(Part::Paused) { self.soon(asked).await } else { asked.await };
        match asked {
            Ok(all) => {
                self.faults.works(Part::Paused);
                self.paused.tell_all(&all);
                Ok((all, Told::Now))
            }
            Err(error) => {
                self.faults.note(Part::Paused, error)?;
                Ok((self.paused.known(), Told::Before))
            }
        }
    }
}
