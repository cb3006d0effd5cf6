//! Bugs of a store with several nodes, planted to test the suite.

use std::{
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
use crate::store::homes::{Lab, Wrap};

/// One mistake that a store with several nodes could make.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum NodeBug {
    /// A node claims from the shards of the other nodes, too.
    ClaimsFromEveryShard,
    /// The status of the shards has no owners.
    HidesTheOwners,
    /// Only the first node claims from lanes of the built-in queue.
    OwnsQueues,
    /// A node that lost its lease is told that its messages are settled.
    TrustsEveryReceipt,
    /// Every fencing token is the first.
    RepeatsTheToken,
    /// A node that goes does not say so.
    LeavesSilently,
    /// A process whose place was taken goes on.
    IgnoresItsSuccessor,
    /// A node pauses a lane for itself alone.
    PausesItselfAlone,
}

impl NodeBug {
    /// All of them, each with a case that must catch it.
    pub const ALL: [(Self, &'static str); 9] = [
        (Self::ClaimsFromEveryShard, "nodes_share_the_shards_of_a_lane_and_nothing_is_claimed_twice"),
        (Self::HidesTheOwners, "every_shard_tells_who_delivers_it_and_since_when_something_waits_there"),
        (Self::OwnsQueues, "queue_lanes_have_no_owner"),
        (
            Self::TrustsEveryReceipt,
            "a_node_that_says_nothing_for_a_lease_loses_all_to_the_others_and_gets_nothing_any_more",
        ),
        (Self::RepeatsTheToken, "every_taking_has_a_higher_token"),
        (Self::ClaimsFromEveryShard, "what_is_in_flight_arrives_before_its_shard_changes_hands"),
        (Self::LeavesSilently, "a_node_that_goes_leaves_everything_to_the_others_at_once"),
        (
            Self::IgnoresItsSuccessor,
            "a_node_that_is_started_again_takes_its_own_place_and_the_other_process_stops",
        ),
        (Self::PausesItselfAlone, "a_pause_at_one_node_holds_at_all"),
    ];
}

/// A node with a bug in it, or without one.
pub struct PlantedNode {
    inner: Arc<dyn Store>,
    bug: Option<NodeBug>,
    /// All nodes of the store, and which of them this is.
    nodes: Arc<Mutex<Vec<Arc<dyn Store>>>>,
    place: usize,
    is_paused: AtomicBool,
}

impl PlantedNode {
    /// Plants `bug` in every node of one store.
    pub fn in_every_node(bug: Option<NodeBug>) -> Wrap {
        let nodes: Arc<Mutex<Vec<Arc<dyn Store>>>> = Arc::default();
        Arc::new(move |inner| {
            let mut there = nodes.lock().unwrap();
            let place = there.len();
            there.push(inner.clone());
            Arc::new(Self { inner, bug, nodes: nodes.clone(), place, is_paused: AtomicBool::new(false) })
        })
    }

    fn others(&self) -> Vec<Arc<dyn Store>> {
        let nodes = self.nodes.lock().unwrap().clone();
        nodes
            .into_iter()
            .enumerate()
            .filter(|(place, _)| *place != self.place)
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
        if self.has(NodeBug::OwnsQueues) && claim.lane.queue().is_some() && self.place > 0 {
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

/// Runs every case without a bug and with those that it must catch, in stores of `lab`.
pub fn every_case_catches_a_planted_bug(lab: impl Fn() -> Lab) {
    let fails = |case: &ClusterCase, bug| {
        let lab = lab().wrapped(PlantedNode::in_every_node(bug));
        catch_unwind(AssertUnwindSafe(|| crate::block_on((case.run)(&lab)))).is_err()
    };
    for case in CASES {
        assert!(!fails(case, None), "{} fails with nothing planted", case.name);
        let bugs: Vec<_> = NodeBug::ALL.iter().filter(|(_, caught_by)| *caught_by == case.name).collect();
        assert!(!bugs.is_empty(), "no bug is planted for {}", case.name);
        for (bug, _) in bugs {
            assert!(fails(case, Some(*bug)), "{} does not catch {bug:?}", case.name);
        }
    }
}
