//! The cases of several nodes.

use std::collections::BTreeSet;

use duly_core::{
    Fence, ShardOwner, ShardStatus,
    store::{Claimed, Settled, StoreErrorKind},
};

use super::{ANNOUNCE_MS, LEASE_MS, Lab, Node, SHARDS, SINK, now, settle_down, shards, sink};
use crate::store::harness::{lane, message, ms};

/// Each node claims from its own half of the shards, and all nodes see that.
pub async fn nodes_share_the_shards_of_a_lane_and_nothing_is_claimed_twice(lab: &Lab) {
    let (one, two, at) = lab.cluster().two().await;
    one.fill(0, 400).await;
    let (of_one, of_two) = (one.claim(at).await, two.claim(at).await);
    let halves = (shards(&of_one).len(), shards(&of_two).len());
    assert_eq!(halves, (SHARDS / 2, SHARDS / 2), "each node claims from its half of the shards");
    assert!(shards(&of_one).is_disjoint(&shards(&of_two)));
    assert_eq!(of_one.messages.len() + of_two.messages.len(), 400);
    settle_down(&[&one, &two], at).await;
    let nodes = two.0.nodes().await.unwrap();
    let shown: Vec<_> = nodes.iter().map(|node| (node.name.as_str(), node.this, node.shards)).collect();
    assert_eq!(shown, [("one", false, 8), ("two", true, 8)]);
    assert_eq!(nodes[0].lanes, [SINK]);
}

/// The shards of the shared lane that `name` owns, by their status.
fn owned(status: &[ShardStatus], name: &str) -> BTreeSet<u16> {
    let is_its = |owner: &ShardOwner| owner.lane == sink() && owner.node == name;
    let its = status.iter().filter(|status| status.owners.iter().any(is_its));
    its.map(|status| status.shard as u16).collect()
}

async fn status(node: &Node, at: u64) -> Vec<ShardStatus> {
    node.0.shards(now(at)).await.unwrap()
}

/// The status of a shard has its owner, and the ready time of its oldest unclaimed message.
pub async fn every_shard_tells_who_delivers_it_and_since_when_something_waits_there(lab: &Lab) {
    let (one, two, at) = lab.cluster().two().await;
    let empty = status(&one, at).await;
    let numbers: Vec<_> = empty.iter().map(|status| status.shard as usize).collect();
    assert_eq!(numbers, (0..SHARDS).collect::<Vec<_>>());
    assert!(empty.iter().all(|status| status.oldest.is_none()), "nothing waits: {empty:?}");

    one.fill(0, 400).await;
    one.accept([message("not-yet", at + 60_000)]).await;
    let full = status(&two, at).await;
    assert!(full.iter().all(|status| status.owners.len() == 1), "every shard has one owner: {full:?}");
    assert!(full.iter().all(|status| status.oldest == Some(ms(0))), "{full:?}");
    one.set_paused(true).await;
    let paused = status(&two, at).await;
    assert!(paused.iter().all(|status| status.oldest.is_none()), "it is not to be claimed: {paused:?}");
    one.accept([message("behind", 3)]).await;
    let beside = status(&two, at).await;
    let oldest: Vec<_> = beside.iter().filter_map(|status| status.oldest).collect();
    assert_eq!(oldest, [ms(3)], "beside lanes that are paused");
    assert_eq!(one.claim_of(lane("work"), at, 10).await.messages.len(), 1);
    one.set_paused(false).await;

    let of_one = one.claim(at).await;
    assert_eq!(shards(&of_one), owned(&full, "one"));
    let rest = status(&two, at).await;
    let late = rest.iter().filter(|status| status.oldest.is_some());
    let late: BTreeSet<_> = late.map(|status| status.shard as u16).collect();
    assert_eq!(late, owned(&full, "two"), "what is claimed waits no more");
    assert_eq!(shards(&two.claim(at).await), late);
    assert!(status(&one, at).await.iter().all(|status| status.oldest.is_none()));

    // "two" is silent from here: once its lease has ended nobody owns its shards, until the other takes them.
    let end = at + LEASE_MS;
    one.sweep(end - 1).await;
    let ended = status(&one, end + 1).await;
    assert_eq!((owned(&ended, "one").len(), owned(&ended, "two").len()), (SHARDS / 2, 0));
    one.sweep(end + ANNOUNCE_MS).await;
    assert_eq!(owned(&status(&one, end + ANNOUNCE_MS).await, "one").len(), SHARDS);
}

/// Every node claims from every shard of a lane of the built-in queue.
pub async fn queue_lanes_have_no_owner(lab: &Lab) {
    let cluster = lab.cluster();
    let (one, two) = (cluster.node("one").await, cluster.node("two").await);
    one.accept((0..50).map(|n| message(&format!("q{n}"), 0))).await;
    let of_two = two.claim_of(lane("work"), 0, 20).await.messages.len();
    assert_eq!(of_two, 20, "the second node claims from the lane, too");
    assert_eq!(one.claim_of(lane("work"), 0, 100).await.messages.len(), 30);
}

/// The lease of a silent node ends to the millisecond; its shards and its claims go to the others, and it changes nothing more.
pub async fn a_node_that_says_nothing_for_a_lease_loses_all_to_the_others_and_gets_nothing_any_more(
    lab: &Lab,
) {
    let (one, two, at) = lab.cluster().two().await;
    one.fill(0, 100).await;
    let (held, first) = (one.claim(at).await, two.claim(at).await);
    assert_eq!((shards(&held).len(), shards(&first).len()), (SHARDS / 2, SHARDS / 2));
    two.deliver(at, &first).await;
    // Not one millisecond before: "one" relies on its lease until then.
    let end = at + LEASE_MS;
    two.sweep(end - 1).await;
    assert!(two.claim(end - 1).await.messages.is_empty());
    let end = end + ANNOUNCE_MS;
    two.sweep(end).await;
    let mut taken = 0;
    for claimed in two.claim_all(end + 1).await {
        taken += claimed.messages.len();
        let settled = two.deliver(end + 1, &claimed).await;
        assert!(settled.iter().all(|settled| *settled == Settled::Done));
    }
    assert_eq!(taken, held.messages.len(), "what the sleeper held came again");
    // It wakes, and does not know yet.
    two.fill(1000, 200).await;
    assert!(one.claim(end + 2).await.messages.is_empty(), "a lease that was lost claims nothing");
    let late = one.deliver(end + 2, &held).await;
    assert!(late.iter().all(|settled| *settled == Settled::Lost), "a lost lease settles nothing: {late:?}");
    assert_eq!(shards(&two.claim(end + 2).await).len(), SHARDS);
}

/// The fencing tokens of these claims, one per shard, by shard.
fn fences<'c>(claims: impl IntoIterator<Item = &'c Claimed>) -> Vec<Fence> {
    let messages = claims.into_iter().flat_map(|claimed| &claimed.messages);
    let mut fences: Vec<_> = messages.map(|leased| leased.fence.clone().unwrap()).collect();
    fences.sort_by(|a, b| (&a.scope, a.token).cmp(&(&b.scope, b.token)));
    fences.dedup();
    fences
}

/// The fencing token of a shard grows with every node that gets it.
pub async fn every_taking_has_a_higher_token(lab: &Lab) {
    let cluster = lab.cluster();
    let one = cluster.node("one").await;
    one.sweep(0).await;
    one.fill(0, 100).await;
    let before = fences([&one.claim(0).await]);
    assert_eq!(before.len(), SHARDS, "one for each shard");
    let two = cluster.node("two").await;
    two.sweep(2 * LEASE_MS).await;
    // What was in flight comes one by one, each with the token of its shard.
    let after = fences(&two.claim_all(2 * LEASE_MS).await);
    assert_eq!(after.len(), SHARDS);
    for (before, after) in before.iter().zip(&after) {
        let grows = before.scope == after.scope && before.token < after.token;
        assert!(grows, "the token of a shard grows: {before:?} {after:?}");
    }
}

/// A shard goes to a node that joined once what its owner had claimed from it is settled.
pub async fn what_is_in_flight_arrives_before_its_shard_changes_hands(lab: &Lab) {
    let cluster = lab.cluster();
    let one = cluster.node("one").await;
    one.sweep(0).await;
    one.fill(0, 200).await;
    let held = one.claim(0).await;
    assert_eq!(shards(&held).len(), SHARDS);
    let two = cluster.node("two").await;
    let at = settle_down(&[&two, &one], 0).await;
    one.fill(1000, 200).await;
    assert!(two.claim(at).await.messages.is_empty(), "the first still delivers from there");
    let kept = one.claim(at).await;
    assert_eq!(shards(&kept).len(), SHARDS / 2, "and claims no more from what it is to give away");
    assert!(one.deliver(at, &held).await.iter().all(|settled| *settled == Settled::Done));
    let at = settle_down(&[&one, &two], at).await;
    let moved = two.claim(at).await;
    assert_eq!(shards(&moved).len(), SHARDS / 2);
    assert!(shards(&moved).is_disjoint(&shards(&kept)));
}

/// A node that closes the store is no longer waited for.
pub async fn a_node_that_goes_leaves_everything_to_the_others_at_once(lab: &Lab) {
    let (one, two, at) = lab.cluster().two().await;
    one.fill(0, 200).await;
    one.0.close().await.unwrap();
    two.sweep(at + ANNOUNCE_MS).await;
    let of_two = shards(&two.claim(at + ANNOUNCE_MS).await);
    assert_eq!(of_two.len(), SHARDS, "the other node has all shards at once");
    assert_eq!(two.0.nodes().await.unwrap().len(), 1);
}

/// A process that joins with the name of another takes its shards and ends its claims; the other gets an error.
pub async fn a_node_that_is_started_again_takes_its_own_place_and_the_other_process_stops(lab: &Lab) {
    let cluster = lab.cluster();
    let old = cluster.node("one").await;
    old.sweep(0).await;
    old.fill(0, 100).await;
    let held = old.claim(0).await;
    let new = cluster.node("one").await;
    new.sweep(1).await;
    let totals = new.0.totals().await.unwrap();
    assert_eq!(totals.in_flight, 0, "what the old process held is lost with it");
    let error = old.0.sweep(now(ANNOUNCE_MS), &[sink()]).await.expect_err("the old process stops");
    assert_eq!(error.kind, StoreErrorKind::Closed);
    assert!(error.what.contains("needs a name of its own"), "{error}");
    assert_eq!(old.release(1, &held).await.unwrap_err().kind, StoreErrorKind::Closed);
    assert_eq!(new.0.nodes().await.unwrap().len(), 1);
}

/// A pause and its end reach every node with its next sweep.
pub async fn a_pause_at_one_node_holds_at_all(lab: &Lab) {
    let (one, two, at) = lab.cluster().two().await;
    one.fill(0, 100).await;
    one.set_paused(true).await;
    let paused = two.0.sweep(now(at), &[sink()]).await.unwrap().paused;
    assert_eq!(paused, Some(vec![sink()]), "the other node knows of the pause");
    assert!(two.claim(at).await.messages.is_empty());
    one.set_paused(false).await;
    assert_eq!(two.0.sweep(now(at), &[sink()]).await.unwrap().paused, Some(vec![]));
    assert!(!two.claim(at).await.messages.is_empty());
}
