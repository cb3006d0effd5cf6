//! The task that acknowledges handled entries, many with one call.

use std::sync::Arc;

use tokio::sync::mpsc;

use super::processor::{Acks, Processor};
use crate::group::Lane;

/// Handler calls whose entries are acknowledged together.
const CALLS_MAX: usize = 256;

/// Ids in one call to Redis.
const IDS_MAX: usize = 1_000;

/// Acknowledges whatever arrives, until `None` arrives.
pub(super) async fn run(processor: Arc<Processor>, acks: &mut mpsc::UnboundedReceiver<Acks>) {
    let (mut received, mut is_last) = (Vec::new(), false);
    while !is_last && acks.recv_many(&mut received, CALLS_MAX).await > 0 {
        let mut by_lane: Vec<(Arc<Lane>, Vec<String>)> = Vec::new();
        for acks in received.drain(..) {
            let Some((lane, ids)) = acks else {
                is_last = true;
                continue;
            };
            match by_lane.iter_mut().find(|(known, _)| known.priority == lane.priority) {
                Some((_, all)) => all.extend(ids),
                None => by_lane.push((lane, ids)),
            }
        }
        for (lane, ids) in by_lane {
            for ids in ids.chunks(IDS_MAX) {
                processor.acknowledge(&lane, ids).await;
            }
        }
    }
}
