//! The task that hands entries to the handler whose retry is due.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::processor::Processor;
use crate::{clock, group::Lane};

/// Runs until it is asked to stop.
pub(super) async fn run(processor: Arc<Processor>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let mut wait = processor.settings.poll_interval;
        for lane in processor.lanes() {
            if let Some(next) = retry_due(&processor, &lane, &mut stop).await {
                wait = wait.min(next);
            }
        }
        tokio::select! {
            () = clock::sleep(wait.max(Duration::from_millis(1))) => {}
            () = processor.retry_scheduled.notified() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

/// Starts all retries that are due now. Returns the time until the next one.
async fn retry_due(
    processor: &Arc<Processor>,
    lane: &Arc<Lane>,
    stop: &mut watch::Receiver<bool>,
) -> Option<Duration> {
    loop {
        let mut permit = Some(processor.acquire_permit(stop).await?);
        let count = processor.permits.available_permits() + 1;
        let (page, next) = match lane.due(&mut processor.link.clone(), count).await {
            Ok(due) => due,
            Err(error) => {
                // The reader repairs what can be repaired.
                tracing::debug!(topic = lane.topic, %error, "retry read failed");
                return None;
            }
        };
        processor.report_lost(lane, &page.trimmed);
        if page.entries.is_empty() {
            return next;
        }
        processor.in_flight.insert(lane.priority, page.entries.iter().map(|entry| entry.raw.id.as_str()));
        let mut entries = page.entries.into_iter();
        // One entry per call also for handlers of batches, so that a failure belongs to one entry.
        while let Some(entry) = entries.next() {
            let permit = match permit.take() {
                Some(first) => Some(first),
                None => processor.acquire_permit(stop).await,
            };
            let Some(permit) = permit else {
                let rest = std::iter::once(entry).chain(entries);
                let ids: Vec<_> = rest.map(|entry| entry.raw.id.as_str().to_owned()).collect();
                processor.release(lane, &ids).await;
                return None;
            };
            processor.spawn(lane, vec![entry], permit);
        }
    }
}
