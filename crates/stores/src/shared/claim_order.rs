//! The order in which messages of a lane are claimed, over all its shards.

use std::collections::BTreeMap;

use duly_core::{MessageId, Priority, Timestamp};

/// Priorities as they sort: the higher goes first.
pub(crate) fn rank(priority: Priority) -> u8 {
    9 - priority.get()
}

/// The sort key of one message in its lane: messages are claimed in this order.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct ClaimOrder {
    pub(crate) ready: Timestamp,
    pub(crate) rank: u8,
    pub(crate) id: MessageId,
    /// The lease of its last claim was lost.
    pub(crate) lost: bool,
}

/// The first messages of one lane in one shard, each with what the store knows it by.
pub(crate) struct ShardCandidates<T> {
    pub(crate) candidates: Vec<(ClaimOrder, T)>,
    /// There may be more behind them.
    pub(crate) cut: bool,
}

/// How many to read in each shard, so that together there are surely enough when ids spread evenly. Fewer may be
/// given then; never one out of order.
pub(crate) fn each(limit: usize, shards: usize) -> usize {
    let mean = limit.div_ceil(shards);
    // Four times the deviation of what falls into one of many equal shards by chance, and a few more for small numbers.
    limit.min(mean + 4 * mean.isqrt() + 4)
}

/// Messages to claim now, grouped by index into `seen`. A suspect (lost lease) is claimed alone; otherwise every message before the first
/// suspect.
pub(crate) fn select_claims<T>(
    seen: &[ShardCandidates<T>],
    now: Timestamp,
    limit: usize,
) -> BTreeMap<usize, Vec<&(ClaimOrder, T)>> {
    // Behind the last one seen of a shard there may be others: nothing later than that is claimed yet.
    let horizon =
        seen.iter().filter(|seen| seen.cut).filter_map(|seen| seen.candidates.last()).map(|last| &last.0);
    let horizon = horizon.min();
    let mut due: Vec<_> = (0..)
        .zip(seen)
        .flat_map(|(shard, seen)| seen.candidates.iter().map(move |candidate| (shard, candidate)))
        .filter(|(_, (candidate, _))| {
            candidate.ready <= now && horizon.is_none_or(|horizon| candidate <= horizon)
        })
        .collect();
    due.sort_by(|(_, (a, _)), (_, (b, _))| a.cmp(b));
    due.truncate(limit);
    let together = match due.first() {
        Some((_, (first, _))) if first.lost => 1,
        _ => due.iter().take_while(|(_, (candidate, _))| !candidate.lost).count(),
    };
    let mut selected: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (shard, candidate) in due.into_iter().take(together) {
        selected.entry(shard).or_default().push(candidate);
    }
    selected
}

/// The selected messages that `fits` lets through, asked in claim order.
pub(crate) fn within<'s, T>(
    selected: BTreeMap<usize, Vec<&'s (ClaimOrder, T)>>,
    mut fits: impl FnMut(&MessageId) -> bool,
) -> BTreeMap<usize, Vec<&'s (ClaimOrder, T)>> {
    let of_shard = |(shard, candidates): (usize, Vec<&'s (ClaimOrder, T)>)| {
        candidates.into_iter().map(move |candidate| (shard, candidate))
    };
    let mut all: Vec<_> = selected.into_iter().flat_map(of_shard).collect();
    all.sort_by(|(_, (a, _)), (_, (b, _))| a.cmp(b));
    let mut kept: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (shard, candidate) in all.into_iter().filter(|(_, (candidate, _))| fits(&candidate.id)) {
        kept.entry(shard).or_default().push(candidate);
    }
    kept
}

/// When the first message is ready in the shards of which none was selected; the others say it themselves.
pub(crate) fn next_beside<T>(
    seen: &[ShardCandidates<T>],
    selected: &BTreeMap<usize, Vec<&(ClaimOrder, T)>>,
) -> Option<Timestamp> {
    let beside = (0..).zip(seen).filter(|(shard, _)| !selected.contains_key(shard));
    beside.filter_map(|(_, seen)| seen.candidates.first()).map(|(candidate, _)| candidate.ready).min()
}

/// When the first message is ready behind the selected ones, in their shards.
pub(crate) fn next_behind<T>(
    seen: &[ShardCandidates<T>],
    selected: &BTreeMap<usize, Vec<&(ClaimOrder, T)>>,
) -> Option<Timestamp> {
    let behind = selected.iter().filter_map(|(shard, candidates)| {
        let is_left =
            |(candidate, _): &&(ClaimOrder, T)| candidates.iter().all(|(taken, _)| taken != candidate);
        seen[*shard].candidates.iter().find(is_left).map(|(candidate, _)| candidate.ready)
    });
    behind.min()
}
