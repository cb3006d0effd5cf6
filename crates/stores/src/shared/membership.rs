//! What a node says of itself to the others, and whether it still belongs to the store.

use std::{
    collections::BTreeSet,
    sync::atomic::{AtomicBool, Ordering},
    time::Duration,
};

use duly_core::{
    NodeStatus,
    store::{StoreError, StoreErrorKind},
};

use super::{lane::lane_of, shard_leases::is_to_a_sink};

/// The most shards of a store.
pub(crate) const SHARDS_MAX: u16 = 256;
/// How often a server is asked for its time before the clock is used: one answer may be slow.
pub(crate) const CLOCK_QUESTIONS: usize = 5;
/// What is to be this node's and is still another's is asked for again after this.
pub(crate) const ASK_AGAIN: Duration = Duration::from_millis(200);
/// A status names so many lanes of its node, sinks first.
const LANES_MAX: usize = 200;

/// How a node comes: a process that has just started, or one that says that it is still there.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum JoinKind {
    New,
    Again,
}

/// Whether this node may use the store. Once it is closed, it stays so.
#[derive(Debug, Default)]
pub(crate) struct Membership {
    /// This node was let in. Until then it comes as one that has just started.
    has_joined: AtomicBool,
    is_closed: AtomicBool,
}

impl Membership {
    pub(crate) fn joined(&self) {
        self.has_joined.store(true, Ordering::Relaxed);
    }

    pub(crate) fn join_kind(&self) -> JoinKind {
        if self.has_joined.load(Ordering::Relaxed) { JoinKind::Again } else { JoinKind::New }
    }

    /// Closes the store for this node. Returns whether it was open.
    pub(crate) fn close(&self) -> bool {
        !self.is_closed.swap(true, Ordering::Relaxed)
    }

    pub(crate) fn check_open(&self) -> Result<(), StoreError> {
        if self.is_closed.load(Ordering::Relaxed) {
            return Err(StoreError::new(StoreErrorKind::Closed, "the store is closed"));
        }
        Ok(())
    }

    /// Another process came with the name of this node, which closes the store for this one.
    pub(crate) fn replaced(&self, name: &str) -> StoreError {
        let what = format!(
            "another node named {name:?} has come to this store, so this one stops: every node needs a name of its own"
        );
        if self.close() {
            tracing::error!(node = name, "node replaced by another of its name; store closed");
        }
        StoreError::new(StoreErrorKind::Closed, what)
    }
}

/// Why no node can be called so, or no store have so many shards.
pub(crate) fn options_fault(shards: u16, node: &str) -> Option<String> {
    if shards == 0 || shards > SHARDS_MAX {
        return Some(format!("a store has 1 to {SHARDS_MAX} shards, not {shards}"));
    }
    if node.is_empty() || node.len() > 255 || node.chars().any(char::is_control) {
        return Some(format!(
            "the name of a node has 1 to 255 bytes and no control characters; {node:?} does not"
        ));
    }
    None
}

/// The status of a node, in lines: its version, how many shards it has, its clock's skew, and its lanes.
pub(crate) fn status_text(owned: usize, skew_us: Option<i64>, serves: &BTreeSet<String>) -> String {
    let skew = skew_us.unwrap_or_default();
    let mut lines = vec![env!("CARGO_PKG_VERSION").to_owned(), owned.to_string(), skew.to_string()];
    let (sinks, queues): (Vec<_>, Vec<_>) = serves.iter().cloned().partition(|lane| is_to_a_sink(lane));
    // Those to sinks must all be there: they are shared out by this.
    let room = LANES_MAX.max(sinks.len());
    lines.extend(sinks.into_iter().chain(queues).take(room));
    lines.join("\n")
}

/// Reads [`status_text`]. A status that cannot be read is of another version.
pub(crate) fn read_status(name: &str, this: bool, text: &str) -> Option<NodeStatus> {
    let mut lines = text.split('\n');
    let mut status = NodeStatus::new(name, this, lines.next()?);
    status.shards = lines.next()?.parse().ok()?;
    status.clock_skew_us = lines.next()?.parse().ok()?;
    status.lanes = lines.map(Into::into).collect();
    Some(status)
}

/// The nodes as they are shown: by name, with their lanes as people write them.
pub(crate) fn display_order(mut nodes: Vec<NodeStatus>) -> Vec<NodeStatus> {
    for lane in nodes.iter_mut().flat_map(|node| &mut node.lanes) {
        *lane = lane_of(lane.as_bytes()).map_or_else(String::new, |lane| lane.to_string());
    }
    nodes.sort_by(|a, b| a.name.cmp(&b.name));
    nodes
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_node_tells_is_read_back_and_every_lane_to_a_sink_is_in_it() {
        let sinks = (0..LANES_MAX + 1).map(|n| format!("ssink-{n}"));
        let serves: BTreeSet<String> = sinks.chain(["qorders".to_owned()]).collect();
        let status = read_status("a", true, &status_text(7, Some(-3), &serves)).unwrap();
        assert_eq!((status.shards, status.clock_skew_us, status.this), (7, -3, true));
        assert_eq!(status.lanes.len(), LANES_MAX + 1, "all lanes to sinks, and no more");
        let few = BTreeSet::from(["qorders".to_owned(), "shook".to_owned()]);
        let nodes = ["b", "a"].map(|name| read_status(name, false, &status_text(0, None, &few)).unwrap());
        let nodes = display_order(nodes.into());
        assert_eq!(nodes[0].name, "a");
        assert!(nodes[0].lanes.iter().all(|lane| !lane.is_empty()), "{:?}", nodes[0].lanes);
        assert_eq!(read_status("a", true, "1\nmany"), None);
    }

    #[test]
    fn a_node_that_was_replaced_stays_closed_and_one_that_joined_comes_again() {
        let membership = Membership::default();
        assert_eq!(membership.join_kind(), JoinKind::New);
        membership.joined();
        assert_eq!(membership.join_kind(), JoinKind::Again);
        assert!(membership.check_open().is_ok());
        assert_eq!(membership.replaced("a").kind, StoreErrorKind::Closed);
        assert!(membership.check_open().is_err() && !membership.close());
    }
}
