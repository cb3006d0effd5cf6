//! Health: whether the store could accept and deliver a message now.

use std::{
    collections::BTreeMap,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use duly_core::store::{Health, StoreError, StoreErrorKind};
use futures_util::future::join_all;

use super::{RedisStore, call::number, connection::Link, scripts};

/// A shard that has not taken a small write within this time counts as failing. A frozen server answers later than whoever asks for the
/// health of the store waits.
const WRITE_WITHIN: Duration = Duration::from_secs(2);

/// What came of the last sweep, and of the small write that goes with it: out of memory, without its master or its disk, Redis answers
/// questions as ever and refuses changes.
#[derive(Debug, Default)]
pub(super) struct LastSweep(Mutex<Option<Failed>>);

#[derive(Debug)]
struct Failed {
    error: StoreError,
    /// It makes the store not ready: a single lost answer does not.
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

/// The shards that fail, each with its error.
type FailingShards = BTreeMap<u16, StoreError>;

impl RedisStore {
    /// A write that Redis refuses whenever it would refuse a message. In a Cluster it goes to every shard that did not fail before. Returns
    /// the shards that refuse it, and an error if all of them do.
    async fn refusing_shards(&self) -> Result<FailingShards, StoreError> {
        if !matches!(self.link, Link::Cluster(..)) {
            return self.check_write(&self.keys.store).await.map(|()| FailingShards::new());
        }
        let shards = self.faults.reachable((0..self.keys.shards()).collect(), |shard| *shard);
        let check = |shard: u16| async move {
            let write = self.check_write(self.keys.one(shard, "meta"));
            (shard, tokio::time::timeout(WRITE_WITHIN, write).await.unwrap_or_else(|_| Err(no_answer(shard))))
        };
        let written = join_all(shards.into_iter().map(check)).await;
        let asked = written.len();
        let refused = |(shard, written): (u16, Result<(), StoreError>)| Some((shard, written.err()?));
        let mut refusing: FailingShards = written.into_iter().filter_map(refused).collect();
        match refusing.pop_first() {
            Some((_, error)) if refusing.len() + 1 == asked => Err(error),
            first => Ok(first.into_iter().chain(refusing).collect()),
        }
    }

    async fn check_write(&self, key: &str) -> Result<(), StoreError> {
        match self.ask::<()>(redis::cmd("HSET").arg(key).arg("checked").arg(1)).await {
            // The key is damaged, and its part says so. Redis takes changes.
            Err(error) if error.kind == StoreErrorKind::Damaged => Ok(()),
            written => written,
        }
    }

    /// Fails if Redis takes changes in no shard.
    pub(super) async fn check_writes(&self) -> Result<(), StoreError> {
        self.refusing_shards().await.map(drop)
    }

    /// The shards that refuse changes, or have a key of another type: that is reported before the next sweep. In a Cluster, where looking at
    /// the keys takes a call for each shard, the next sweep reports it.
    async fn check_shards(&self) -> Result<FailingShards, StoreError> {
        if matches!(self.link, Link::Cluster(..)) {
            return self.refusing_shards().await;
        }
        let keys = || {
            (0..self.keys.shards()).flat_map(|shard| self.keys.of(shard).iter().map(move |key| (shard, key)))
        };
        let mut cmd = redis::cmd("EVALSHA");
        cmd.arg(scripts::CHECK.get_hash()).arg(1 + keys().count()).arg(&self.keys.store);
        keys().for_each(|(_, key)| {
            cmd.arg(key);
        });
        cmd.arg(self.keys.of(0).len());
        let wrong = match self.run(&scripts::CHECK, &cmd).await {
            // The key of the store is damaged, and its part says so. Redis takes changes.
            Err(error) if error.kind == StoreErrorKind::Damaged => return Ok(FailingShards::new()),
            reply => reply?,
        };
        let mut failing = FailingShards::new();
        for (shard, key) in wrong.iter().filter_map(|index| keys().nth(usize::try_from(number(index)?).ok()?))
        {
            failing.entry(shard).or_insert_with(|| {
                let what = format!(
                    "shard {shard}: {key} holds something of another type: something else wrote to it; remove it"
                );
                StoreError::new(StoreErrorKind::Damaged, what)
            });
        }
        Ok(failing)
    }

    /// A store of which a part works is degraded, and its node stays ready: otherwise a load balancer would drop every node at once.
    pub(super) async fn by_part(&self) -> Health {
        // This comes first: only a restart of this process helps then, and its supervisor must see that.
        if let Err(error) = self.check_open() {
            return Health::failing(error);
        }
        if let Some(fault) = self.last_sweep.fault() {
            return self.failing_with(fault);
        }
        // Without the nodes or the set of paused lanes, messages are accepted and delivered as before: those faults are only logged.
        let mut failing = self.faults.failing_shards();
        match self.check_shards().await {
            Ok(more) => more.into_iter().for_each(|(shard, error)| {
                failing.entry(shard).or_insert(error);
            }),
            Err(fault) => return self.failing_with(fault),
        }
        let mut health = Health::healthy();
        let Some((_, first)) = failing.first_key_value() else {
            health.accepting = self.check_replicas().await;
            return health;
        };
        if failing.len() == usize::from(self.keys.shards()) {
            return self.failing_with(first.clone());
        }
        health.degraded = Some(first.clone().in_words(|what| self.degraded_words(&failing, what)));
        health.refuses_some = true;
        health.accepting = self.check_replicas().await;
        health
    }

    fn degraded_words(&self, failing: &FailingShards, first: &str) -> String {
        let numbers: Vec<_> = failing.keys().map(u16::to_string).collect();
        format!(
            "{} of {} shards fail ({}); their messages wait or are refused, all others go on; {first}",
            failing.len(),
            self.keys.shards(),
            numbers.join(", ")
        )
    }

    /// The whole store fails. Without room, stored messages are still delivered.
    fn failing_with(&self, fault: StoreError) -> Health {
        let mut health = Health::healthy();
        if fault.kind != StoreErrorKind::Full {
            health.claiming = Err(fault.clone());
        }
        health.accepting = Err(fault);
        health
    }
}

fn no_answer(shard: u16) -> StoreError {
    let what =
        format!("the server of shard {shard} gave no answer within {WRITE_WITHIN:?}: see whether it is up");
    StoreError::new(StoreErrorKind::Unanswered, what)
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
