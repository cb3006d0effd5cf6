//! Assignment of shards to nodes.

use rapidhash::v3::rapidhash_v3;

use crate::Lane;

/// Assigns the shards of a lane to the nodes that serve it: per shard the index of its node in `nodes`.
///
/// Fair: no two nodes differ by more than one shard. Stable: when a node joins or leaves, few other shards move. Every
/// node computes the same assignment, because only the names of the nodes count, not their order.
///
/// ```
/// use duly_core::{Lane, SinkName, assign_shards};
///
/// let lane = Lane::Sink(SinkName::parse("orders").unwrap());
/// let assignment = assign_shards(&lane, 16, &["a", "b"]);
/// assert_eq!(assignment.iter().filter(|node| **node == 0).count(), 8);
/// ```
pub fn assign_shards(lane: &Lane, shards: u16, nodes: &[&str]) -> Vec<usize> {
    let lane = lane.to_string();
    let score = |node: &str, shard: u16| {
        let text = format!("{lane}\0{shard}\0{node}");
        rapidhash_v3(text.as_bytes())
    };
    let mut capacity = capacities(&lane, usize::from(shards), nodes);
    // Rendezvous hashing with a capacity per node: the highest score goes first.
    let mut ranking: Vec<_> = (0..shards)
        .flat_map(|shard| {
            nodes.iter().enumerate().map(move |(place, node)| (score(node, shard), shard, place))
        })
        .collect();
    ranking.sort_unstable_by(|a, b| b.cmp(a));
    let mut assignment = vec![None; usize::from(shards)];
    for (_, shard, place) in ranking {
        let assigned = &mut assignment[usize::from(shard)];
        if assigned.is_none() && capacity[place] > 0 {
            capacity[place] -= 1;
            *assigned = Some(place);
        }
    }
    assignment.into_iter().map(Option::unwrap_or_default).collect()
}

/// The capacity of each node. Which nodes take one more differs from lane to lane.
fn capacities(lane: &str, shards: usize, nodes: &[&str]) -> Vec<usize> {
    let count = nodes.len().max(1);
    let mut order: Vec<_> = (0..nodes.len()).collect();
    order.sort_unstable_by_key(|place| rapidhash_v3(format!("{lane}\0{}", nodes[*place]).as_bytes()));
    let mut capacities = vec![shards / count; nodes.len()];
    order.into_iter().take(shards % count).for_each(|place| capacities[place] += 1);
    capacities
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::SinkName;

    const NAMES: [&str; 6] = ["a", "b", "c", "node-4", "node-5", "x.example:7380"];

    fn lane(name: &str) -> Lane {
        Lane::Sink(SinkName::parse(name).unwrap())
    }

    fn by_name(lane: &Lane, nodes: &[&'static str]) -> Vec<&'static str> {
        assign_shards(lane, 16, nodes).into_iter().map(|place| nodes[place]).collect()
    }

    #[test]
    fn no_two_nodes_differ_by_more_than_one_shard() {
        for count in 1..=NAMES.len() {
            for shards in [1, 2, 16, 64] {
                let assignment = assign_shards(&lane("orders"), shards, &NAMES[..count]);
                let counts =
                    (0..count).map(|node| assignment.iter().filter(|assigned| **assigned == node).count());
                let (min, max) = (counts.clone().min().unwrap(), counts.max().unwrap());
                assert!(max - min <= 1, "{shards} shards over {count} nodes: {min} to {max}");
            }
        }
    }

    #[test]
    fn the_order_in_which_nodes_are_known_does_not_matter() {
        let turned: Vec<_> = NAMES.iter().rev().copied().collect();
        assert_eq!(by_name(&lane("orders"), &NAMES), by_name(&lane("orders"), &turned));
    }

    #[test]
    fn few_shards_change_hands_when_a_node_comes() {
        let mut moved = 0;
        for count in 2..NAMES.len() {
            for sink in ["orders", "mail", "sms", "a", "b"] {
                let before = by_name(&lane(sink), &NAMES[..count]);
                let after = by_name(&lane(sink), &NAMES[..=count]);
                let others = before.iter().zip(&after).filter(|(a, b)| a != b && **b != NAMES[count]).count();
                moved += others;
            }
        }
        // Twenty comings of 16 shards each. Dealing them out afresh would move some 200 between nodes that were there before.
        assert!(moved <= 60, "{moved} moved between nodes that stayed");
    }

    #[test]
    fn nobody_serves_nothing() {
        assert_eq!(assign_shards(&lane("orders"), 3, &[]), [0, 0, 0]);
    }
}
