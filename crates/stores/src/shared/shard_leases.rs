//! The shard leases of this node, as assigned and as granted: the bookkeeping, without the server.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use duly_core::{Lane, NodeStatus, assign_shards};

use super::lane::lane_of;

/// A shard, and the token by which this node may claim from it, where that takes one.
pub(crate) type Owned = (u16, Option<u64>);

/// The nodes and the shard leases, as this node knows them.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    state: Mutex<LeaseTable>,
    /// Locked while leases are requested: answers are applied in the order in which the server gave them.
    pub(crate) requesting: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
pub(crate) struct LeaseTable {
    /// The nodes that are alive, this one too.
    members: Vec<Member>,
    /// The lanes that this node serves.
    pub(crate) serves: BTreeSet<String>,
    /// The leases of this node by lane to a sink, then by shard.
    leases: HashMap<String, Vec<ShardLease>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ShardLease {
    /// 0: none.
    token: u64,
    /// The assignment gives the shard to this node.
    wanted: bool,
    /// The server was asked and its answer did not come: it may have granted or released the lease. Until it is asked again, a lease
    /// that is not wanted might stay this node's for ever, and nobody would deliver from the shard.
    unconfirmed: bool,
}

impl ShardLease {
    fn is_settled(self) -> bool {
        self.wanted == (self.token > 0) && !self.unconfirmed
    }
}

/// A node that is alive.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) instance: u64,
    pub(crate) status: NodeStatus,
}

impl Nodes {
    pub(crate) fn lock(&self) -> MutexGuard<'_, LeaseTable> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shards of a lane to a sink that this node may claim from, each with its token.
    pub(crate) fn leases(&self, lane: &str) -> Vec<(u16, u64)> {
        let state = self.lock();
        let leases = state.leases.get(lane).into_iter().flatten();
        (0..)
            .zip(leases)
            .filter(|(_, lease)| lease.wanted && lease.token > 0)
            .map(|(s, r)| (s, r.token))
            .collect()
    }

    pub(crate) fn may_claim(&self, lane: &str, shard: u16) -> bool {
        let state = self.lock();
        let lease = state.leases.get(lane).and_then(|leases| leases.get(usize::from(shard)));
        lease.is_some_and(|lease| lease.wanted && lease.token > 0)
    }

    /// The shards of a lane that this node may claim from, and by which lease where that takes one.
    pub(crate) fn claimable(&self, lane: &Lane, name: &str, shards: u16) -> Vec<Owned> {
        if lane.queue().is_some() {
            return (0..shards).map(|shard| (shard, None)).collect();
        }
        self.leases(name).into_iter().map(|(shard, token)| (shard, Some(token))).collect()
    }

    /// If this node has not announced that it serves `lane`, which is to a sink: all the lanes to announce now, and the lock to request
    /// leases.
    pub(crate) async fn unannounced(
        &self,
        lane: &str,
    ) -> Option<(tokio::sync::MutexGuard<'_, ()>, BTreeSet<String>)> {
        if !is_to_a_sink(lane) || self.lock().serves.contains(lane) {
            return None;
        }
        let guard = self.requesting.lock().await;
        let mut serves = self.lock().serves.clone();
        // Another call may have announced it while this one waited.
        serves.insert(lane.to_owned()).then_some((guard, serves))
    }

    /// The server refused a claim by this token. A newer token may be valid.
    pub(crate) fn lose_lease(&self, lane: &str, shard: u16, token: u64) {
        let mut state = self.lock();
        if let Some(lease) = state.leases.get_mut(lane).and_then(|leases| leases.get_mut(usize::from(shard)))
            && lease.token == token
        {
            *lease = ShardLease { token: 0, unconfirmed: true, ..*lease };
        }
    }
}

impl LeaseTable {
    /// Stores which nodes are alive and assigns the shards again. Returns, per shard, the leases to request or to release.
    pub(crate) fn assign(
        &mut self,
        members: Vec<Member>,
        serves: BTreeSet<String>,
        shards: u16,
    ) -> BTreeMap<u16, Vec<LeaseRequest>> {
        self.members = members;
        self.serves = serves;
        for lane in &self.serves {
            if is_to_a_sink(lane) && !self.leases.contains_key(lane) {
                self.leases.insert(lane.clone(), vec![ShardLease::default(); usize::from(shards)]);
            }
        }
        let mut requests: BTreeMap<u16, Vec<LeaseRequest>> = BTreeMap::new();
        for (lane, leases) in &mut self.leases {
            let wanted = wanted(lane, &self.members, &self.serves, shards);
            for (shard, (lease, wanted)) in (0..).zip(leases.iter_mut().zip(wanted)) {
                lease.wanted = wanted;
                if !lease.is_settled() {
                    lease.unconfirmed = true;
                    requests.entry(shard).or_default().push(LeaseRequest { lane: lane.clone(), wanted });
                }
            }
        }
        requests
    }

    pub(crate) fn apply_tokens(&mut self, shard: u16, requests: &[LeaseRequest], tokens: &[u64]) {
        for (request, token) in requests.iter().zip(tokens) {
            let leases = self.leases.get_mut(&request.lane);
            if let Some(lease) = leases.and_then(|leases| leases.get_mut(usize::from(shard))) {
                *lease = ShardLease { token: *token, unconfirmed: false, ..*lease };
            }
        }
    }

    /// Compares the leases of a shard with those that the server has for this node, by lane. Each difference is requested again: after
    /// a crash the server may have lost the second in which a lease changed its owner. This node might then own a lease that it takes
    /// for released, and nobody would deliver from the shard.
    pub(crate) fn compare(&mut self, shard: u16, owned: &HashMap<String, u64>, shards: u16) {
        for lane in owned.keys().filter(|lane| is_to_a_sink(lane)) {
            if !self.leases.contains_key(lane) {
                self.leases.insert(lane.clone(), vec![ShardLease::default(); usize::from(shards)]);
            }
        }
        for (lane, leases) in &mut self.leases {
            if let Some(lease) = leases.get_mut(usize::from(shard)) {
                lease.unconfirmed |= lease.token != owned.get(lane).copied().unwrap_or_default();
            }
        }
    }

    /// Whether a lease is not yet as it is assigned.
    pub(crate) fn is_waiting(&self) -> bool {
        self.leases.values().flatten().any(|lease| !lease.is_settled())
    }

    /// How many leases this node has.
    pub(crate) fn owned(&self) -> usize {
        self.leases.values().flatten().filter(|lease| lease.token > 0).count()
    }

    /// Removes lanes that are no longer served, once all their leases are released.
    pub(crate) fn remove_unserved(&mut self) {
        let Self { leases, serves, .. } = self;
        leases.retain(|lane, leases| {
            serves.contains(lane) || leases.iter().any(|lease| lease.token > 0 || lease.unconfirmed)
        });
    }
}

/// A shard lease to acquire, or to release.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) lane: String,
    pub(crate) wanted: bool,
}

/// Which shards of the lane are assigned to this node.
fn wanted(lane: &str, members: &[Member], serves: &BTreeSet<String>, shards: u16) -> Vec<bool> {
    let (Some(name), true) = (lane_of(lane.as_bytes()), serves.contains(lane)) else {
        return vec![false; usize::from(shards)];
    };
    let serving =
        |member: &&Member| member.status.this || member.status.lanes.iter().any(|served| served == lane);
    let nodes: Vec<_> = members.iter().filter(serving).collect();
    let names: Vec<_> = nodes.iter().map(|member| member.status.name.as_str()).collect();
    assign_shards(&name, shards, &names)
        .into_iter()
        .map(|node| nodes.get(node).is_some_and(|node| node.status.this))
        .collect()
}

pub(crate) fn is_to_a_sink(lane: &str) -> bool {
    lane.starts_with('s')
}

#[cfg(test)]
mod tests {
    use super::*;

    const LANE: &str = "shook";

    fn member(name: &str, instance: u64, this: bool) -> Member {
        let mut status = NodeStatus::new(name, this, "1");
        status.lanes = vec![LANE.into()];
        Member { instance, status }
    }

    fn serves() -> BTreeSet<String> {
        BTreeSet::from([LANE.to_owned()])
    }

    fn requested(requests: &BTreeMap<u16, Vec<LeaseRequest>>) -> Vec<(u16, bool)> {
        requests
            .iter()
            .flat_map(|(shard, requests)| requests.iter().map(|request| (*shard, request.wanted)))
            .collect()
    }

    #[test]
    fn a_right_whose_answer_got_lost_is_asked_about_until_the_server_has_answered_wanted_or_not() {
        let mut state = LeaseTable::default();
        let alone = || vec![member("a", 1, true)];
        let many = || (2..9).map(|n| member(&n.to_string(), n, false)).chain(alone()).collect::<Vec<_>>();
        let all: Vec<_> = (0..4).map(|shard| (shard, true)).collect();
        assert_eq!(requested(&state.assign(alone(), serves(), 4)), all);
        // The answer did not come. The server may have granted the leases, so each is released explicitly.
        let requests = state.assign(many(), serves(), 4);
        let back: Vec<_> = requested(&requests).into_iter().filter(|(_, wanted)| !wanted).collect();
        assert!(back.len() >= 2, "{requests:?}");
        assert!(state.is_waiting());
        for (shard, requests) in &requests {
            state.apply_tokens(*shard, requests, &[u64::from(requests[0].wanted)]);
        }
        assert!(!state.is_waiting());
        assert_eq!(requested(&state.assign(many(), serves(), 4)), []);
    }

    #[test]
    fn a_right_that_the_server_knows_otherwise_is_asked_about_again() {
        let mut state = LeaseTable::default();
        let alone = || vec![member("a", 1, true)];
        for (shard, requests) in &state.assign(alone(), serves(), 2) {
            state.apply_tokens(*shard, requests, &[7]);
        }
        let owned = |lane: &str, token| HashMap::from([(lane.to_owned(), token)]);
        state.compare(0, &owned(LANE, 7), 2);
        state.compare(1, &owned(LANE, 7), 2);
        assert_eq!(requested(&state.assign(alone(), serves(), 2)), [], "both know the same");
        state.compare(0, &owned(LANE, 5), 2);
        state.compare(1, &HashMap::new(), 2);
        let requests = state.assign(alone(), serves(), 2);
        assert_eq!(requested(&requests), [(0, true), (1, true)]);
        for (shard, requests) in &requests {
            state.apply_tokens(*shard, requests, &[9]);
        }
        // The lease of a lane that this node does not know any more is released.
        state.compare(1, &HashMap::from([(LANE.to_owned(), 9), ("sgone".to_owned(), 3)]), 2);
        let requests = state.assign(alone(), serves(), 2);
        assert_eq!(requests[&1], [LeaseRequest { lane: "sgone".into(), wanted: false }]);
    }

    #[test]
    fn a_claim_by_an_older_token_does_not_take_the_newer_right_away() {
        let nodes = Nodes::default();
        let requests = nodes.lock().assign(vec![member("a", 1, true)], serves(), 1);
        nodes.lock().apply_tokens(0, &requests[&0], &[7]);
        nodes.lose_lease(LANE, 0, 6);
        assert_eq!(nodes.leases(LANE), [(0, 7)]);
        nodes.lose_lease(LANE, 0, 7);
        assert_eq!(nodes.leases(LANE), []);
        assert!(nodes.lock().is_waiting(), "and the lease is requested again");
    }
}
