//! Bugs of a store with several nodes, planted to test the suite.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{
    Lane, MessageId, NodeStatus, Now, Receipt, Record, ShardStatus, Store, Timestamp,
    store::{
        Changed, Claim, Claimed, Durability, Insert, Inserted, LaneStatus, Page, Query, Settle, Settled,
        StoreError, StoreErrorKind, Sweep, Totals,
    },
};

use super::{CASES, ClusterCase};
use crate::store::lab::{Lab, Wrap};

/// One mistake that a store with several nodes could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeBug {
    /// A node claims from the shards of the other nodes, too.
    ClaimsFromEveryShard,
    /// The status of the shards has no owners.
    HidesTheOwners,
    /// Only the first node claims from lanes of the built-in queue.
    OwnsQueues,
    /// A node that lost its lease gets the answer that its messages are settled.
    TrustsEveryReceipt,
    /// Every fencing token is the first.
    RepeatsTheToken,
    /// A node that closes the store stays among the nodes.
    LeavesSilently,
    /// A process that was replaced goes on.
    IgnoresItsSuccessor,
    /// A node pauses a lane for itself alone.
    PausesItselfAlone,
}

/// A bug, and the case that must catch it: by its name, and by the words of the assertion that must fail.
struct Planted {
    bug: NodeBug,
    case: &'static str,
    assertion: &'static str,
}

const PLANTED: [Planted; 9] = [
    Planted {
        bug: NodeBug::ClaimsFromEveryShard,
        case: "nodes_share_the_shards_of_a_lane_and_nothing_is_claimed_twice",
        assertion: "each node claims from its half of the shards",
    },
    Planted {
        bug: NodeBug::HidesTheOwners,
        case: "every_shard_tells_who_delivers_it_and_since_when_something_waits_there",
        assertion: "every shard has one owner",
    },
    Planted {
        bug: NodeBug::OwnsQueues,
        case: "queue_lanes_have_no_owner",
        assertion: "the second node claims from the lane, too",
    },
    Planted {
        bug: NodeBug::TrustsEveryReceipt,
        case: "a_node_that_says_nothing_for_a_lease_loses_all_to_the_others_and_gets_nothing_any_more",
        assertion: "a lost lease settles nothing",
    },
    Planted {
        bug: NodeBug::RepeatsTheToken,
        case: "every_taking_has_a_higher_token",
        assertion: "the token of a shard grows",
    },
    Planted {
        bug: NodeBug::ClaimsFromEveryShard,
        case: "what_is_in_flight_arrives_before_its_shard_changes_hands",
        assertion: "the first still delivers from there",
    },
    Planted {
        bug: NodeBug::LeavesSilently,
        case: "a_node_that_goes_leaves_everything_to_the_others_at_once",
        assertion: "the other node has all shards at once",
    },
    Planted {
        bug: NodeBug::IgnoresItsSuccessor,
        case: "a_node_that_is_started_again_takes_its_own_place_and_the_other_process_stops",
        assertion: "the old process stops",
    },
    Planted {
        bug: NodeBug::PausesItselfAlone,
        case: "a_pause_at_one_node_holds_at_all",
        assertion: "the other node knows of the pause",
    },
];

/// A node with a bug in it, or without one.
pub struct PlantedNode {
    inner: Arc<dyn Store>,
    bug: Option<NodeBug>,
    /// All nodes of the store, and which of them this is.
    nodes: Arc<Mutex<Vec<Arc<dyn Store>>>>,
    index: usize,
    is_paused: AtomicBool,
}

impl PlantedNode {
    /// Plants `bug` in every node of one store.
    pub fn in_every_node(bug: Option<NodeBug>) -> Wrap {
        let nodes: Arc<Mutex<Vec<Arc<dyn Store>>>> = Arc::default();
        Arc::new(move |inner| {
            let mut known = nodes.lock().unwrap();
            let index = known.len();
            known.push(inner.clone());
            Arc::new(Self { inner, bug, nodes: nodes.clone(), index, is_paused: AtomicBool::new(false) })
        })
    }

    fn others(&self) -> Vec<Arc<dyn Store>> {
        let nodes = self.nodes.lock().unwrap().clone();
        nodes
            .into_iter()
            .enumerate()
            .filter(|(index, _)| *index != self.index)
            .map(|(_, node)| node)
            .collect()
    }

    fn has(&self, bug: NodeBug) -> bool {
        self.bug == Some(bug)
    }
}

#[async_trait]
impl Store for PlantedNode {
    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        self.inner.insert(now, batch).await
    }

    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        if self.is_paused.load(Ordering::Relaxed) {
            return Ok(Claimed::default());
        }
        if self.has(NodeBug::OwnsQueues) && claim.lane.queue().is_some() && self.index > 0 {
            return Ok(Claimed::default());
        }
        let mut claimed = self.inner.claim(now, claim.clone()).await?;
        if self.has(NodeBug::ClaimsFromEveryShard) {
            for other in self.others() {
                claimed.messages.extend(other.claim(now, claim.clone()).await?.messages);
            }
        }
        if self.has(NodeBug::RepeatsTheToken) {
            claimed.messages.iter_mut().filter_map(|leased| leased.fence.as_mut()).for_each(|f| f.token = 1);
        }
        Ok(claimed)
    }

    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        let mut settled = self.inner.settle(now, batch).await?;
        if self.has(NodeBug::TrustsEveryReceipt) {
            settled.fill(Settled::Done);
        }
        Ok(settled)
    }

    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        self.inner.extend(now, receipts, lease).await
    }

    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.inner.cancel(now, ids).await
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        self.inner.reschedule(now, batch).await
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        self.inner.expire(now, batch).await
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.inner.replay(now, ids).await
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.inner.purge(now, ids).await
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.inner.get(ids).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.inner.list(query).await
    }

    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        if self.has(NodeBug::PausesItselfAlone) {
            self.is_paused.store(paused, Ordering::Relaxed);
            return Ok(());
        }
        self.inner.set_paused(lane, paused).await
    }

    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        self.inner.lanes(now).await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.inner.totals().await
    }

    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError> {
        self.inner.forecast(from, to, buckets).await
    }

    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        match self.inner.sweep(now, lanes).await {
            Err(error) if self.has(NodeBug::IgnoresItsSuccessor) && error.kind == StoreErrorKind::Closed => {
                Ok(Sweep::default())
            }
            swept => swept,
        }
    }

    async fn nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        self.inner.nodes().await
    }

    async fn shards(&self, now: Now) -> Result<Vec<ShardStatus>, StoreError> {
        let mut shards = self.inner.shards(now).await?;
        if self.has(NodeBug::HidesTheOwners) {
            shards.iter_mut().for_each(|shard| shard.owners.clear());
        }
        Ok(shards)
    }

    async fn close(&self) -> Result<(), StoreError> {
        if self.has(NodeBug::LeavesSilently) {
            return Ok(());
        }
        self.inner.close().await
    }
}

/// Runs every case without a bug and with those that it must catch, in stores of `lab`. A bug counts as caught only by the assertion
/// that is there for it: a case that fails otherwise, as with a server that was lost, proves nothing.
pub fn every_case_catches_a_planted_bug(lab: impl Fn() -> Lab) {
    let failure = |case: &ClusterCase, bug| {
        let lab = lab().wrapped(PlantedNode::in_every_node(bug));
        let run = catch_unwind(AssertUnwindSafe(|| crate::block_on((case.run)(&lab))));
        run.err().map(|panic| words_of(&*panic))
    };
    for case in CASES {
        assert_eq!(failure(case, None), None, "{} fails with nothing planted", case.name);
        let planted: Vec<_> = PLANTED.iter().filter(|planted| planted.case == case.name).collect();
        assert!(!planted.is_empty(), "no bug is planted for {}", case.name);
        for Planted { bug, assertion, .. } in planted {
            let failure = failure(case, Some(*bug));
            let is_caught = failure.as_ref().is_some_and(|words| words.contains(assertion));
            assert!(is_caught, "{} does not catch {bug:?} by {assertion:?}: {failure:?}", case.name);
        }
    }
}

/// The message of a panic.
fn words_of(panic: &(dyn Any + Send)) -> String {
    let text = panic.downcast_ref::<&str>().map(|text| (*text).to_owned());
    text.or_else(|| panic.downcast_ref::<String>().cloned()).unwrap_or_default()
}
