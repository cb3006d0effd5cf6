//! The task that keeps entries in flight from being reclaimed.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::processor::Processor;
use crate::clock;

/// Ids in one call.
const BATCH_MAX: usize = 500;

/// The longest interval: other consumers of the group may have a shorter processing timeout than this one.
const INTERVAL_MAX: Duration = Duration::from_secs(1);

/// Renews the ownership of all entries in flight until the listener has ended.
pub(super) async fn run(processor: Arc<Processor>, mut ended: watch::Receiver<bool>) {
    let interval = processor.settings.abandoned_after() / 5;
    let interval = interval.clamp(Duration::from_millis(1), INTERVAL_MAX);
    while !*ended.borrow() {
        tokio::select! {
            () = clock::sleep(interval) => {}
            _ = ended.wait_for(|ended| *ended) => return,
        }
        for lane in processor.lanes() {
            for ids in processor.in_flight.all(lane.priority).chunks(BATCH_MAX) {
                match lane.heartbeat(&mut processor.link.clone(), ids).await {
                    // An entry that was acknowledged a moment ago is among them; it is no longer in flight either.
                    Ok(lost) => processor.in_flight.remove(lane.priority, lost.iter().map(String::as_str)),
                    Err(error) => {
                        tracing::warn!(topic = lane.topic, %error, "heartbeat failed");
                    }
                }
            }
        }
    }
}
