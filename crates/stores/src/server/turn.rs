//! Whose turn it is when a lane is claimed from, over all its shards.

use std::collections::BTreeMap;

use duly_core::{MessageId, Priority, Timestamp};

/// Priorities as they sort: the higher goes first.
pub(crate) fn rank(priority: Priority) -> u8 {
    9 - priority.get()
}

/// The place of one message in its lane. Ordered as a lane gives its messages out.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Turn {
    pub(crate) ready: Timestamp,
    pub(crate) rank: u8,
    pub(crate) id: MessageId,
    /// Its last claim was lost.
    pub(crate) lost: bool,
}

/// The first of one lane in one shard, each with what the store knows it by.
pub(crate) struct Seen<T> {
    pub(crate) turns: Vec<(Turn, T)>,
    /// There may be more behind them.
    pub(crate) cut: bool,
}

/// How many to look at in each shard, so that together there are surely enough when ids spread evenly. Fewer may be
/// given then; never one before its turn.
pub(crate) fn each(limit: usize, shards: usize) -> usize {
    let mean = limit.div_ceil(shards);
    // Four times the deviation of what falls into one of many equal shards by chance, and a few more for small numbers.
    limit.min(mean + 4 * mean.isqrt() + 4)
}

/// Those whose turn it is, by the place of their shard among those seen: never lost up to the first that was, or that one alone.
pub(crate) fn chosen<T>(seen: &[Seen<T>], now: Timestamp, limit: usize) -> BTreeMap<usize, Vec<&(Turn, T)>> {
    // Behind the last one seen of a shard there may be others: nothing later than that has its turn yet.
    let horizon =
        seen.iter().filter(|seen| seen.cut).filter_map(|seen| seen.turns.last()).map(|last| &last.0);
    let horizon = horizon.min();
    let mut due: Vec<_> = (0..)
        .zip(seen)
        .flat_map(|(shard, seen)| seen.turns.iter().map(move |turn| (shard, turn)))
        .filter(|(_, (turn, _))| turn.ready <= now && horizon.is_none_or(|horizon| turn <= horizon))
        .collect();
    due.sort_by(|(_, (a, _)), (_, (b, _))| a.cmp(b));
    due.truncate(limit);
    let together = match due.first() {
        Some((_, (first, _))) if first.lost => 1,
        _ => due.iter().take_while(|(_, (turn, _))| !turn.lost).count(),
    };
    let mut chosen: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (shard, turn) in due.into_iter().take(together) {
        chosen.entry(shard).or_default().push(turn);
    }
    chosen
}

/// Those of the chosen that `fits` lets through, asked in the order in which a lane gives its messages out.
pub(crate) fn within<'s, T>(
    chosen: BTreeMap<usize, Vec<&'s (Turn, T)>>,
    mut fits: impl FnMut(&MessageId) -> bool,
) -> BTreeMap<usize, Vec<&'s (Turn, T)>> {
    let of_shard =
        |(shard, turns): (usize, Vec<&'s (Turn, T)>)| turns.into_iter().map(move |turn| (shard, turn));
    let mut all: Vec<_> = chosen.into_iter().flat_map(of_shard).collect();
    all.sort_by(|(_, (a, _)), (_, (b, _))| a.cmp(b));
    let mut kept: BTreeMap<usize, Vec<_>> = BTreeMap::new();
    for (shard, turn) in all.into_iter().filter(|(_, (turn, _))| fits(&turn.id)) {
        kept.entry(shard).or_default().push(turn);
    }
    kept
}

/// When the first is ready in the shards of which nothing was chosen; the others say it themselves.
pub(crate) fn next_beside<T>(
    seen: &[Seen<T>],
    chosen: &BTreeMap<usize, Vec<&(Turn, T)>>,
) -> Option<Timestamp> {
    let beside = (0..).zip(seen).filter(|(shard, _)| !chosen.contains_key(shard));
    beside.filter_map(|(_, seen)| seen.turns.first()).map(|(turn, _)| turn.ready).min()
}

/// When the first is ready behind those that were chosen, in their shards.
pub(crate) fn next_behind<T>(
    seen: &[Seen<T>],
    chosen: &BTreeMap<usize, Vec<&(Turn, T)>>,
) -> Option<Timestamp> {
    let behind = chosen.iter().filter_map(|(shard, turns)| {
        let is_left = |(turn, _): &&(Turn, T)| turns.iter().all(|(taken, _)| taken != turn);
        seen[*shard].turns.iter().find(is_left).map(|(turn, _)| turn.ready)
    });
    behind.min()
}
