//! The task that takes over entries of consumers that died.
//!
//! Every reclaimed entry is a suspect: a process died while it had the entry in flight, and the entry may be the cause. One entry that
//! kills its process makes suspects of all entries in flight beside it. So each suspect is handled alone, and only what happens then
//! counts against it.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::processor::{Disposition, Isolation, Processor};
use crate::{
    clock,
    group::{ClaimedEntry, Lane, ReclaimScope},
};

/// Suspects taken with one call: other consumers of the group take their share.
const BATCH_MAX: usize = 64;

/// Entries of this consumer's last run that are kept in memory. Further ones are reclaimed when they are idle, like anybody's.
const LAST_RUN_MAX: usize = 1_024;

/// Entries that this consumer had pending when it last ran under its name. Must be called before the first read: entries read later
/// look the same.
pub(super) async fn pending_from_last_run(processor: &Processor) -> Vec<(Arc<Lane>, Vec<ClaimedEntry>)> {
    let (mut all, mut count) = (Vec::new(), 0);
    for lane in processor.lanes() {
        let mut from = Some("-".to_owned());
        while let Some(start) = from.take_if(|_| count < LAST_RUN_MAX) {
            let link = &mut processor.link.clone();
            let scope = ReclaimScope::Own;
            if let Ok((page, next)) = lane.reclaim(link, scope, Duration::ZERO, &start, BATCH_MAX).await {
                from = next;
                processor.report_lost(&lane, &page.trimmed);
                count += page.entries.len();
                all.push((lane.clone(), page.entries));
            }
        }
    }
    all
}

/// Handles the entries of the last run, then reclaims until it is asked to stop.
pub(super) async fn run(
    processor: Arc<Processor>,
    last_run: Vec<(Arc<Lane>, Vec<ClaimedEntry>)>,
    mut stop: watch::Receiver<bool>,
) {
    let idle = processor.settings.abandoned_after();
    for (lane, suspects) in last_run {
        handle_suspects(&processor, &lane, suspects, &stop).await;
    }
    while !*stop.borrow() {
        for lane in processor.lanes() {
            reclaim(&processor, &lane, &stop).await;
        }
        tokio::select! {
            () = clock::sleep((idle / 4).max(Duration::from_millis(1))) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

async fn reclaim(processor: &Arc<Processor>, lane: &Arc<Lane>, stop: &watch::Receiver<bool>) {
    let idle = processor.settings.abandoned_after();
    let mut from = Some("0-0".to_owned());
    while let Some(start) = from.take_if(|_| !*stop.borrow()) {
        let link = &mut processor.link.clone();
        match lane.reclaim(link, ReclaimScope::Idle, idle, &start, BATCH_MAX).await {
            Ok((page, next)) => {
                from = next;
                processor.report_lost(lane, &page.trimmed);
                handle_suspects(processor, lane, page.entries, stop).await;
            }
            // The reader repairs what can be repaired.
            Err(error) => tracing::debug!(topic = lane.topic, %error, "reclaim failed"),
        }
    }
}

async fn handle_suspects(
    processor: &Arc<Processor>,
    lane: &Arc<Lane>,
    mut suspects: Vec<ClaimedEntry>,
    stop: &watch::Receiver<bool>,
) {
    // An entry in flight here looks abandoned if heartbeats could not reach Redis.
    let in_flight = processor.in_flight.all(lane.priority);
    suspects.retain(|entry| !in_flight.iter().any(|id| id == entry.raw.id.as_str()));
    processor.in_flight.insert(lane.priority, suspects.iter().map(|entry| entry.raw.id.as_str()));
    for suspect in suspects {
        if *stop.borrow() {
            // Another consumer reclaims it.
            processor.in_flight.remove(lane.priority, std::iter::once(suspect.raw.id.as_str()));
        } else {
            handle_suspect(processor, lane, suspect).await;
        }
    }
}

/// Handles one suspect while no other call runs.
pub(super) async fn handle_suspect(
    processor: &Arc<Processor>,
    lane: &Arc<Lane>,
    suspect: ClaimedEntry,
) -> Disposition {
    let ClaimedEntry { failures, crashes, .. } = suspect;
    let id = suspect.raw.id.clone();
    if processor.settings.retry.is_exhausted(failures, crashes) {
        let why = format!("the process that handled it died {crashes} times while it handled nothing else");
        return processor.move_to_dlq(lane, &id, &why).await;
    }
    let permits = processor.permits.clone();
    let Ok(_all) = permits.acquire_many_owned(processor.permits_max()).await else {
        return Disposition::Settled;
    };
    let attempt = processor.new_attempt(Isolation::Alone);
    match lane.begin_attempt(&mut processor.link.clone(), id.as_str(), true, &attempt.id).await {
        Ok(true) => processor.run(lane, vec![suspect], &attempt).await,
        Ok(false) => {
            processor.in_flight.remove(lane.priority, std::iter::once(id.as_str()));
            Disposition::Settled
        }
        Err(error) => {
            tracing::warn!(topic = lane.topic, %id, %error, "attempt of a reclaimed entry not recorded yet");
            processor.abandon(lane, std::iter::once(id.as_str()));
            Disposition::Unsettled
        }
    }
}
