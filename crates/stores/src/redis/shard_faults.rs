//! Parts of the store that fail while others work.

use std::{
    collections::BTreeMap,
    sync::{Mutex, MutexGuard, PoisonError},
};

use duly_core::store::{StoreError, StoreErrorKind};

use super::{damaged::DamagedMessages, fault::is_gone};

/// A part of the store whose keys may fail alone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FailureDomain {
    /// The node list.
    Nodes,
    /// The set of paused lanes.
    Paused,
    /// One shard.
    Shard(u16),
}

impl From<u16> for FailureDomain {
    fn from(shard: u16) -> Self {
        Self::Shard(shard)
    }
}

impl std::fmt::Display for FailureDomain {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Nodes => f.write_str("the nodes of the store"),
            Self::Paused => f.write_str("the set of paused lanes"),
            Self::Shard(shard) => write!(f, "shard {shard}"),
        }
    }
}

/// The parts that failed when they were last asked. Claims leave them out; the sweep asks them again.
#[derive(Debug)]
pub(super) struct ShardFaults {
    /// Shards may be on several servers, as in a Cluster. Otherwise an unreachable server fails the whole store.
    by_server: bool,
    failing: Mutex<BTreeMap<FailureDomain, Failing>>,
    /// Messages that could not be read, in whichever shard.
    pub(super) damaged: DamagedMessages,
}

#[derive(Debug)]
struct Failing {
    error: StoreError,
    /// How often it failed since it was last logged.
    unlogged: u32,
}

/// A failing part is logged again after so many failures, about once a minute.
const LOG_EVERY: u32 = 30;

impl ShardFaults {
    pub(super) fn new(by_server: bool) -> Self {
        Self { by_server, failing: Mutex::default(), damaged: DamagedMessages::default() }
    }

    /// Records a fault of one part. Returns the error if it concerns the whole store.
    pub(super) fn record(&self, part: impl Into<FailureDomain>, error: StoreError) -> Result<(), StoreError> {
        let part = part.into();
        let is_alone = match error.kind {
            StoreErrorKind::Damaged => matches!(part, FailureDomain::Shard(_)) || !is_gone(&error),
            StoreErrorKind::Unavailable | StoreErrorKind::Unanswered => self.by_server,
            _ => false,
        };
        if !is_alone {
            return Err(error);
        }
        let error = error.in_words(|what| format!("{part}: {what}"));
        let unlogged = self.lock().get(&part).map_or(LOG_EVERY, |before| before.unlogged + 1);
        if unlogged >= LOG_EVERY {
            tracing::error!(%error, "store part failed");
        }
        self.lock().insert(part, Failing { error, unlogged: unlogged % LOG_EVERY });
        Ok(())
    }

    /// A part answered.
    pub(super) fn works(&self, part: impl Into<FailureDomain>) {
        let part = part.into();
        if self.lock().remove(&part).is_some() {
            tracing::info!(%part, "store part recovered");
        }
    }

    pub(super) fn is_failing(&self, part: impl Into<FailureDomain>) -> bool {
        self.lock().contains_key(&part.into())
    }

    /// Whether any part fails.
    pub(super) fn any(&self) -> bool {
        !self.lock().is_empty()
    }

    /// The shards that fail, each with its error.
    pub(super) fn failing_shards(&self) -> BTreeMap<u16, StoreError> {
        let of_shard = |(part, failing): (&FailureDomain, &Failing)| match part {
            FailureDomain::Shard(shard) => Some((*shard, failing.error.clone())),
            FailureDomain::Nodes | FailureDomain::Paused => None,
        };
        self.lock().iter().filter_map(of_shard).collect()
    }

    /// Entries of reachable shards; all entries if no shard is reachable.
    pub(super) fn reachable<T>(&self, all: Vec<T>, shard: impl Fn(&T) -> u16) -> Vec<T> {
        let failing = self.lock();
        let works = |one: &T| !failing.contains_key(&FailureDomain::Shard(shard(one)));
        if failing.is_empty() || !all.iter().any(works) {
            return all;
        }
        all.into_iter().filter(works).collect()
    }

    /// The answers of the shards that answered. An error if none did, or if an error concerns the whole store.
    pub(super) fn answered<S, T>(
        &self,
        reply: Vec<(S, Result<T, StoreError>)>,
        shard: impl Fn(&S) -> u16,
    ) -> Result<Vec<(S, T)>, StoreError> {
        let (mut answers, mut failed) = (Vec::with_capacity(reply.len()), None);
        for (of, reply) in reply {
            match reply {
                Ok(reply) => {
                    self.works(shard(&of));
                    answers.push((of, reply));
                }
                Err(error) => {
                    self.record(shard(&of), error.clone())?;
                    failed = Some(error);
                }
            }
        }
        match failed {
            Some(error) if answers.is_empty() => Err(error),
            _ => Ok(answers),
        }
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<FailureDomain, Failing>> {
        self.failing.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::redis::fault::data_lost;

    fn error(kind: StoreErrorKind) -> StoreError {
        StoreError::new(kind, "it")
    }

    #[test]
    fn what_cannot_be_reached_is_a_shards_alone_only_where_servers_are_many() {
        let (one, many) = (ShardFaults::new(false), ShardFaults::new(true));
        one.record(3, error(StoreErrorKind::Unavailable)).unwrap_err();
        many.record(3, error(StoreErrorKind::Unavailable)).unwrap();
        assert_eq!(one.reachable(vec![1, 3], |shard| *shard), [1, 3]);
        assert_eq!(many.reachable(vec![1, 3], |shard| *shard), [1]);
        assert_eq!(many.reachable(vec![3], |shard| *shard), [3], "there is nobody else to ask");
        many.works(3);
        assert_eq!((many.reachable(vec![1, 3], |shard| *shard), many.any()), (vec![1, 3], false));
    }

    #[test]
    fn a_damaged_key_is_of_its_part_alone_and_data_that_is_gone_is_not() {
        let faults = ShardFaults::new(false);
        faults.record(FailureDomain::Paused, error(StoreErrorKind::Damaged)).unwrap();
        faults.record(FailureDomain::Nodes, data_lost("x")).unwrap_err();
        assert_eq!((faults.any(), faults.failing_shards().len()), (true, 0));
        faults.record(0, data_lost("x")).unwrap();
        assert!(faults.failing_shards().get(&0).is_some_and(is_gone), "also with the part named before it");
        let reply = vec![(0u16, Err(data_lost("x"))), (1, Ok(7))];
        assert_eq!(faults.answered(reply, |shard| *shard).unwrap(), [(1, 7)]);
        let reply = vec![(0u16, Err::<u8, _>(data_lost("x"))), (1, Err(data_lost("x")))];
        assert!(is_gone(&faults.answered(reply, |shard| *shard).unwrap_err()), "all of them");
    }
}
