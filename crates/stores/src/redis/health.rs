//! Whether the store could take a message, and give out what is due.

use std::sync::{Mutex, PoisonError};

use duly_core::store::{Health, StoreError, StoreErrorKind};
use futures_util::future::try_join_all;

use super::{RedisStore, call::number, connection::Link, scripts};

/// What came of the last sweep, and of the small write that goes with it: out of memory, without its master or its disk, Redis answers
/// questions as ever and refuses changes.
#[derive(Debug, Default)]
pub(super) struct LastSweep(Mutex<Option<Failed>>);

#[derive(Debug)]
struct Failed {
    error: StoreError,
    /// It is no accident.
    counts: bool,
}

impl LastSweep {
    pub(super) fn record(&self, outcome: Result<(), StoreError>) {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        // One answer may get lost on the way. The second time in a row it is no accident.
        let counts = |error: &StoreError| !error.kind.is_transient() || last.is_some();
        *last = outcome.err().map(|error| Failed { counts: counts(&error), error });
    }

    fn fault(&self) -> Option<StoreError> {
        let last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        last.as_ref().filter(|failed| failed.counts).map(|failed| failed.error.clone())
    }
}

impl RedisStore {
    /// A write that Redis refuses whenever it would refuse a message.
    pub(super) async fn check_writes(&self) -> Result<(), StoreError> {
        let keys = match self.link {
            Link::Cluster(..) => {
                let shards = self.faults.reachable((0..self.keys.shards()).collect(), |shard| *shard);
                shards.into_iter().map(|shard| self.keys.one(shard, "meta")).collect()
            }
            _ => vec![self.keys.store.as_str()],
        };
        let write =
            |key| async move { self.ask::<()>(redis::cmd("HSET").arg(key).arg("checked").arg(1)).await };
        match try_join_all(keys.into_iter().map(write)).await {
            // The key is damaged, and its part says so. Redis takes changes.
            Err(error) if error.kind == StoreErrorKind::Damaged => Ok(()),
            written => written.map(drop),
        }
    }

    /// The same, and a check of the type of every key of every shard: a key of another type is reported before the next sweep. In a
    /// Cluster, where that takes a call for each shard, the next sweep reports it.
    async fn check_parts(&self) -> Result<(), StoreError> {
        if matches!(self.link, Link::Cluster(..)) {
            return self.check_writes().await;
        }
        let shards = || {
            (0..self.keys.shards()).flat_map(|shard| self.keys.of(shard).iter().map(move |key| (shard, key)))
        };
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(scripts::CHECK.get_hash()).arg(1 + shards().count()).arg(&self.keys.store);
        shards().for_each(|(_, key)| {
            cmd.arg(key);
        });
        cmd.arg(self.keys.of(0).len());
        let wrong = match self.run(&scripts::CHECK, &cmd).await {
            // The key of the store is damaged, and its part says so. Redis takes changes.
            Err(error) if error.kind == StoreErrorKind::Damaged => return Ok(()),
            reply => reply?,
        };
        let first = wrong.first().and_then(|index| shards().nth(usize::try_from(number(index)?).ok()?));
        first.map_or(Ok(()), |(shard, key)| {
            let what = format!(
                "shard {shard}: {key} holds something of another type: something else wrote to it; remove it"
            );
            Err(StoreError::new(StoreErrorKind::Damaged, what))
        })
    }

    pub(super) async fn by_part(&self) -> Health {
        // This comes first: only a restart of this process helps then, and its supervisor must see that.
        if let Err(error) = self.check_open() {
            return Health::failing(error);
        }
        let mut health = Health::healthy();
        // Without the nodes or the set of paused lanes, messages are accepted and delivered as before: those faults are only logged.
        let fault = match self.faults.first_shard().or_else(|| self.last_sweep.fault()) {
            Some(fault) => Some(fault),
            None => self.check_parts().await.err(),
        };
        let Some(fault) = fault else {
            health.accepting = self.check_replicas().await;
            return health;
        };
        // Without room, stored messages are still delivered.
        if fault.kind != StoreErrorKind::Full {
            health.claiming = Err(fault.clone());
        }
        health.accepting = Err(fault);
        health
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_lost_answer_is_an_accident_and_two_in_a_row_are_none() {
        let sweep = LastSweep::default();
        let failed = |kind| Err(StoreError::new(kind, "it"));
        sweep.record(failed(StoreErrorKind::Unavailable));
        assert_eq!(sweep.fault(), None);
        sweep.record(Ok(()));
        sweep.record(failed(StoreErrorKind::Unavailable));
        assert_eq!(sweep.fault(), None, "it worked in between");
        sweep.record(failed(StoreErrorKind::Unavailable));
        assert!(sweep.fault().is_some());
        sweep.record(Ok(()));
        assert_eq!(sweep.fault(), None);
        sweep.record(failed(StoreErrorKind::Full));
        assert!(sweep.fault().is_some(), "that is no accident");
    }
}
