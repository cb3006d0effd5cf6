//! Which shards of which lanes are to be this node's, and which of them it has: the bookkeeping, without the server.

use std::{
    collections::{BTreeMap, BTreeSet, HashMap},
    sync::{Mutex, MutexGuard, PoisonError},
};

use duly_core::{Lane, NodeStatus, assign_shards};

use super::lane::lane_of;

/// A shard, and the token by which this node may claim from it, where that takes one.
pub(crate) type Owned = (u16, Option<u64>);

/// What this node knows of all of them.
#[derive(Debug, Default)]
pub(crate) struct Nodes {
    state: Mutex<State>,
    /// Held while the server is asked for rights: answers are taken in the order in which it gave them.
    pub(crate) asking: tokio::sync::Mutex<()>,
}

#[derive(Debug, Default)]
pub(crate) struct State {
    /// Those that are there, this one too.
    there: Vec<Member>,
    /// The lanes that this node serves.
    pub(crate) serves: BTreeSet<String>,
    /// Per lane to a sink and shard: what this node has of it.
    rights: HashMap<String, Vec<ShardLease>>,
}

#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct ShardLease {
    /// 0: none.
    token: u64,
    /// It is to be this node's.
    wanted: bool,
    /// The server was asked and its answer did not come: it may have given or taken the right. Until it is asked again, a right that
    /// is not wanted might stay this node's for ever, with nobody to deliver by it.
    unsure: bool,
}

impl ShardLease {
    fn is_settled(self) -> bool {
        self.wanted == (self.token > 0) && !self.unsure
    }
}

/// A node that is there.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Member {
    pub(crate) instance: u64,
    pub(crate) status: NodeStatus,
}

impl Nodes {
    pub(crate) fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The shards of a lane to a sink that this node may claim from, each with its token.
    pub(crate) fn rights(&self, lane: &str) -> Vec<(u16, u64)> {
        let state = self.lock();
        let rights = state.rights.get(lane).into_iter().flatten();
        (0..)
            .zip(rights)
            .filter(|(_, right)| right.wanted && right.token > 0)
            .map(|(s, r)| (s, r.token))
            .collect()
    }

    pub(crate) fn may_claim(&self, lane: &str, shard: u16) -> bool {
        let state = self.lock();
        let right = state.rights.get(lane).and_then(|rights| rights.get(usize::from(shard)));
        right.is_some_and(|right| right.wanted && right.token > 0)
    }

    /// The shards of a lane that this node may claim from, and by which lease where that takes one.
    pub(crate) fn claimable(&self, lane: &Lane, name: &str, shards: u16) -> Vec<Owned> {
        if lane.queue().is_some() {
            return (0..shards).map(|shard| (shard, None)).collect();
        }
        self.rights(name).into_iter().map(|(shard, token)| (shard, Some(token))).collect()
    }

    /// If this node has not told that it serves `lane`, which is to a sink: all the lanes to tell now, and the turn to ask the server.
    pub(crate) async fn unannounced(
        &self,
        lane: &str,
    ) -> Option<(tokio::sync::MutexGuard<'_, ()>, BTreeSet<String>)> {
        if !is_to_a_sink(lane) || self.lock().serves.contains(lane) {
            return None;
        }
        let asking = self.asking.lock().await;
        let mut serves = self.lock().serves.clone();
        // Another call may have announced it while this one waited.
        serves.insert(lane.to_owned()).then_some((asking, serves))
    }

    /// The server says that this token is no right to it any more. A newer one may be.
    pub(crate) fn lost(&self, lane: &str, shard: u16, token: u64) {
        let mut state = self.lock();
        if let Some(right) = state.rights.get_mut(lane).and_then(|rights| rights.get_mut(usize::from(shard)))
            && right.token == token
        {
            *right = ShardLease { token: 0, unsure: true, ..*right };
        }
    }
}

impl State {
    /// Takes note of who is there, and shares the lanes out anew. Gives per shard what is to be asked for or given back.
    pub(crate) fn share_out(
        &mut self,
        there: Vec<Member>,
        serves: BTreeSet<String>,
        shards: u16,
    ) -> BTreeMap<u16, Vec<LeaseRequest>> {
        self.there = there;
        self.serves = serves;
        for lane in &self.serves {
            if is_to_a_sink(lane) && !self.rights.contains_key(lane) {
                self.rights.insert(lane.clone(), vec![ShardLease::default(); usize::from(shards)]);
            }
        }
        let mut requests: BTreeMap<u16, Vec<LeaseRequest>> = BTreeMap::new();
        for (lane, rights) in &mut self.rights {
            let wanted = wanted(lane, &self.there, &self.serves, shards);
            for (shard, (right, wanted)) in (0..).zip(rights.iter_mut().zip(wanted)) {
                right.wanted = wanted;
                if !right.is_settled() {
                    right.unsure = true;
                    requests.entry(shard).or_default().push(LeaseRequest { lane: lane.clone(), wanted });
                }
            }
        }
        requests
    }

    pub(crate) fn apply_tokens(&mut self, shard: u16, requests: &[LeaseRequest], tokens: &[u64]) {
        for (request, token) in requests.iter().zip(tokens) {
            let rights = self.rights.get_mut(&request.lane);
            if let Some(right) = rights.and_then(|rights| rights.get_mut(usize::from(shard))) {
                *right = ShardLease { token: *token, unsure: false, ..*right };
            }
        }
    }

    /// What the server says that this node has of a shard, by lane. Where that is not what is known here, the server is asked about it
    /// again: after a crash it may have forgotten the second in which a right changed hands, and then this node may have one that it
    /// takes to be given back, so that nobody would deliver by it.
    pub(crate) fn compare(&mut self, shard: u16, owned: &HashMap<String, u64>, shards: u16) {
        for lane in owned.keys().filter(|lane| is_to_a_sink(lane)) {
            if !self.rights.contains_key(lane) {
                self.rights.insert(lane.clone(), vec![ShardLease::default(); usize::from(shards)]);
            }
        }
        for (lane, rights) in &mut self.rights {
            if let Some(right) = rights.get_mut(usize::from(shard)) {
                right.unsure |= right.token != owned.get(lane).copied().unwrap_or_default();
            }
        }
    }

    /// Whether something is not yet as it is to be.
    pub(crate) fn is_waiting(&self) -> bool {
        self.rights.values().flatten().any(|right| !right.is_settled())
    }

    /// How many this node has.
    pub(crate) fn owned(&self) -> usize {
        self.rights.values().flatten().filter(|right| right.token > 0).count()
    }

    /// Forgets lanes that are served no more, once everything of them was given back.
    pub(crate) fn tidy(&mut self) {
        let Self { rights, serves, .. } = self;
        rights.retain(|lane, rights| {
            serves.contains(lane) || rights.iter().any(|right| right.token > 0 || right.unsure)
        });
    }
}

/// A lane of one shard that is to become this node's, or to be given back.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LeaseRequest {
    pub(crate) lane: String,
    pub(crate) wanted: bool,
}

/// Which shards of the lane are to be this node's.
fn wanted(lane: &str, there: &[Member], serves: &BTreeSet<String>, shards: u16) -> Vec<bool> {
    let (Some(name), true) = (lane_of(lane.as_bytes()), serves.contains(lane)) else {
        return vec![false; usize::from(shards)];
    };
    let serving =
        |member: &&Member| member.status.this || member.status.lanes.iter().any(|served| served == lane);
    let nodes: Vec<_> = there.iter().filter(serving).collect();
    let names: Vec<_> = nodes.iter().map(|member| member.status.name.as_str()).collect();
    assign_shards(&name, shards, &names)
        .into_iter()
        .map(|place| nodes.get(place).is_some_and(|node| node.status.this))
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
        let mut state = State::default();
        let alone = || vec![member("a", 1, true)];
        let many = || (2..9).map(|n| member(&n.to_string(), n, false)).chain(alone()).collect::<Vec<_>>();
        let all: Vec<_> = (0..4).map(|shard| (shard, true)).collect();
        assert_eq!(requested(&state.share_out(alone(), serves(), 4)), all);
        // Nobody tells what the server said. It may have given the rights, so they are given back by name.
        let requests = state.share_out(many(), serves(), 4);
        let back: Vec<_> = requested(&requests).into_iter().filter(|(_, wanted)| !wanted).collect();
        assert!(back.len() >= 2, "{requests:?}");
        assert!(state.is_waiting());
        for (shard, requests) in &requests {
            state.apply_tokens(*shard, requests, &[u64::from(requests[0].wanted)]);
        }
        assert!(!state.is_waiting());
        assert_eq!(requested(&state.share_out(many(), serves(), 4)), []);
    }

    #[test]
    fn a_right_that_the_server_knows_otherwise_is_asked_about_again() {
        let mut state = State::default();
        let alone = || vec![member("a", 1, true)];
        for (shard, requests) in &state.share_out(alone(), serves(), 2) {
            state.apply_tokens(*shard, requests, &[7]);
        }
        let owned = |lane: &str, token| HashMap::from([(lane.to_owned(), token)]);
        state.compare(0, &owned(LANE, 7), 2);
        state.compare(1, &owned(LANE, 7), 2);
        assert_eq!(requested(&state.share_out(alone(), serves(), 2)), [], "both know the same");
        state.compare(0, &owned(LANE, 5), 2);
        state.compare(1, &HashMap::new(), 2);
        let requests = state.share_out(alone(), serves(), 2);
        assert_eq!(requested(&requests), [(0, true), (1, true)]);
        for (shard, requests) in &requests {
            state.apply_tokens(*shard, requests, &[9]);
        }
        // A lane that this node does not know of any more is given back.
        state.compare(1, &HashMap::from([(LANE.to_owned(), 9), ("sgone".to_owned(), 3)]), 2);
        let requests = state.share_out(alone(), serves(), 2);
        assert_eq!(requests[&1], [LeaseRequest { lane: "sgone".into(), wanted: false }]);
    }

    #[test]
    fn a_claim_by_an_older_token_does_not_take_the_newer_right_away() {
        let nodes = Nodes::default();
        let requests = nodes.lock().share_out(vec![member("a", 1, true)], serves(), 1);
        nodes.lock().apply_tokens(0, &requests[&0], &[7]);
        nodes.lost(LANE, 0, 6);
        assert_eq!(nodes.rights(LANE), [(0, 7)]);
        nodes.lost(LANE, 0, 7);
        assert_eq!(nodes.rights(LANE), []);
        assert!(nodes.lock().is_waiting(), "and the server is asked again");
    }
}
