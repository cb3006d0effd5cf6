//! The suite of a store that several nodes share: who delivers what, and what happens when a node joins, leaves or is silent.

mod cases;
mod planted;

use std::{collections::BTreeSet, future::Future, pin::Pin, sync::Arc, time::Duration};

use duly_core::{
    Lane, Now, SinkName, Store, StoredMessage,
    store::{Claim, Claimed, Holder, Insert, Inserted, Settle, Settled, Settlement, StoreError},
};

pub use self::{
    cases::*,
    planted::{NodeBug, PlantedNode, every_case_catches_a_planted_bug},
};
use super::{
    Lab,
    harness::{BEGIN, message_for, ms},
    lab::{ServerStore, Wrap, fresh_number},
};

/// How long a silent node keeps its shards, and how long a claim lasts.
pub const LEASE: Duration = Duration::from_secs(10);
/// The same in milliseconds.
pub const LEASE_MS: u64 = 10_000;
/// A node announces itself at least this often, if it is swept.
pub const ANNOUNCE_MS: u64 = LEASE_MS / 8;
/// The shards of every store here.
pub const SHARDS: usize = 16;
/// The sink whose lane the nodes share.
pub const SINK: &str = "orders";

/// One case of the suite, by its name.
#[derive(Clone, Copy)]
pub struct ClusterCase {
    /// What it proves.
    pub name: &'static str,
    /// Panics if the store breaks it.
    pub run: for<'a> fn(&'a Lab) -> Pin<Box<dyn Future<Output = ()> + Send + 'a>>,
}

/// Hands the names of all cases to another macro.
#[doc(hidden)]
#[macro_export]
macro_rules! with_cluster_cases {
    ($then:path, $($with:tt)*) => {
        $then! {
            { $($with)* }
            nodes_share_the_shards_of_a_lane_and_nothing_is_claimed_twice
            every_shard_tells_who_delivers_it_and_since_when_something_waits_there
            queue_lanes_have_no_owner
            a_node_that_says_nothing_for_a_lease_loses_all_to_the_others_and_gets_nothing_any_more
            every_taking_has_a_higher_token
            what_is_in_flight_arrives_before_its_shard_changes_hands
            a_node_that_goes_leaves_everything_to_the_others_at_once
            a_node_that_is_started_again_takes_its_own_place_and_the_other_process_stops
            a_pause_at_one_node_holds_at_all
        }
    };
}

macro_rules! table {
    ({} $($case:ident)*) => {
        /// All cases, in their order.
        pub const CASES: &[ClusterCase] =
            &[$(ClusterCase { name: stringify!($case), run: |lab| Box::pin($case(lab)) }),*];
    };
}
with_cluster_cases!(table,);

/// Every case of several nodes as a test of its own, in a module named after the store.
#[macro_export]
macro_rules! cluster_suite {
    ($name:ident, $lab:expr) => {
        mod $name {
            $crate::with_cluster_cases!($crate::cluster_tests, $lab);
        }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! cluster_tests {
    ({ $lab:expr } $($case:ident)*) => {
        $(
            #[test]
            fn $case() {
                let lab = $lab;
                if lab.is_installed() {
                    $crate::block_on($crate::store::cluster::$case(&lab));
                }
            }
        )*
    };
}

/// One store that several nodes open.
pub struct Cluster {
    at: Box<dyn ServerStore>,
    wrap: Wrap,
}

impl Cluster {
    pub(super) fn new(at: Box<dyn ServerStore>, wrap: Wrap) -> Self {
        Self { at, wrap }
    }

    /// A process that has just started as the node `name`.
    pub async fn node(&self, name: &str) -> Node {
        Node((self.wrap)(self.at.open(name, fresh_number(), now(0)).await))
    }

    /// The nodes `one` and `two`, each with its half of the shards, and when that is.
    pub async fn two(&self) -> (Node, Node, u64) {
        let (one, two) = (self.node("one").await, self.node("two").await);
        let at = settle_down(&[&one, &two], 0).await;
        (one, two, at)
    }
}

/// `after` milliseconds after the start.
pub(super) fn now(after: u64) -> Now {
    let span = Duration::from_millis(after);
    Now::new(ms(after).as_millis() * 1000, BEGIN.mono().saturating_add(span))
}

/// The lane that the nodes share.
pub(super) fn sink() -> Lane {
    Lane::Sink(SinkName::parse(SINK).unwrap())
}

/// Lets so much time go by that all nodes know each other and own their shards. Returns when that is.
pub(super) async fn settle_down(nodes: &[&Node], from: u64) -> u64 {
    let mut at = from;
    for _ in 0..3 {
        at += ANNOUNCE_MS;
        for node in nodes {
            node.sweep(at).await;
        }
    }
    at
}

/// The shards that the messages of a claim are in.
pub(super) fn shards(claimed: &Claimed) -> BTreeSet<u16> {
    claimed.messages.iter().map(|leased| leased.receipt.shard).collect()
}

/// A process that has the store open as one of its nodes. The totals must balance after every step.
pub struct Node(pub Arc<dyn Store>);

impl Node {
    async fn check_totals(&self) {
        let totals = self.0.totals().await.unwrap();
        assert!(totals.balance(), "the totals do not balance: {totals:?}");
    }

    /// One sweep of the shared lane.
    pub async fn sweep(&self, at: u64) {
        self.0.sweep(now(at), &[sink()]).await.unwrap();
    }

    /// Inserts what must be accepted.
    pub async fn accept(&self, messages: impl IntoIterator<Item = StoredMessage>) {
        let batch: Vec<_> = messages.into_iter().map(Insert::new).collect();
        let expected = vec![Inserted::Accepted; batch.len()];
        assert_eq!(self.0.insert(now(0), batch).await.unwrap(), expected);
        self.check_totals().await;
    }

    /// `count` messages of the shared lane that are due: with a hundred or more, every shard has some.
    pub async fn fill(&self, from: usize, count: usize) {
        let message = |n: usize| message_for(SINK, "t", &format!("m{n}"), 0);
        self.accept((from..from + count).map(message)).await;
    }

    /// What one claim of `lane` gives.
    pub async fn claim_of(&self, lane: Lane, at: u64, limit: usize) -> Claimed {
        let claim = Claim { lane, limit, lease: LEASE, holder: Holder::Process };
        let claimed = self.0.claim(now(at), claim).await.unwrap();
        self.check_totals().await;
        claimed
    }

    /// What one claim of the shared lane gives.
    pub async fn claim(&self, at: u64) -> Claimed {
        self.claim_of(sink(), at, 1000).await
    }

    /// The claims of the shared lane, until one gives nothing.
    pub async fn claim_all(&self, at: u64) -> Vec<Claimed> {
        let mut all = Vec::new();
        while let claimed = self.claim(at).await
            && !claimed.messages.is_empty()
        {
            all.push(claimed);
            assert!(all.len() < 1000, "a lane without end");
        }
        all
    }

    /// The target took all of it.
    pub async fn deliver(&self, at: u64, claimed: &Claimed) -> Vec<Settled> {
        let settle = |receipt| Settle { receipt, settlement: Settlement::Delivered { receipt: None } };
        let batch = claimed.messages.iter().map(|leased| settle(leased.receipt.clone())).collect();
        let settled = self.0.settle(now(at), batch).await.unwrap();
        self.check_totals().await;
        settled
    }

    /// One claim is released.
    pub async fn release(&self, at: u64, claimed: &Claimed) -> Result<Vec<Settled>, StoreError> {
        let receipt = claimed.messages[0].receipt.clone();
        self.0.settle(now(at), vec![Settle { receipt, settlement: Settlement::Release }]).await
    }

    /// Pauses the shared lane, or resumes it.
    pub async fn set_paused(&self, paused: bool) {
        self.0.set_paused(&sink(), paused).await.unwrap();
    }
}
