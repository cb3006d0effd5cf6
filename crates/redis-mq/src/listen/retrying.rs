//! The task that takes what is to be handled again.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::work::Work;
use crate::{clock, group::Lane};

/// Until it is told to stop.
pub(super) async fn run(work: Arc<Work>, mut stop: watch::Receiver<bool>) {
    while !*stop.borrow() {
        let mut wait = work.settings.poll_interval;
        for lane in work.lanes() {
            if let Some(next) = take(&work, &lane, &mut stop).await {
                wait = wait.min(next);
            }
        }
        tokio::select! {
            () = clock::sleep(wait.max(Duration::from_millis(1))) => {}
            () = work.again.notified() => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

/// All that is due now; and how long until the next.
async fn take(work: &Arc<Work>, lane: &Arc<Lane>, stop: &mut watch::Receiver<bool>) -> Option<Duration> {
    loop {
        let mut room = Some(work.room_for_one(stop).await?);
        let count = work.room.available_permits() + 1;
        let (page, next) = match lane.due(&mut work.link.clone(), count).await {
            Ok(taken) => taken,
            Err(error) => {
                // The reader mends what can be mended.
                tracing::debug!(topic = lane.topic, %error, "retry read failed");
                return None;
            }
        };
        work.lost(lane, &page.trimmed);
        if page.entries.is_empty() {
            return next;
        }
        work.hand.take(lane.priority, page.entries.iter().map(|taken| taken.raw.id.as_str()));
        let mut entries = page.entries.into_iter();
        // One at a time also where the handler takes many: a failure is then its own.
        while let Some(entry) = entries.next() {
            let room = match room.take() {
                Some(first) => Some(first),
                None => work.room_for_one(stop).await,
            };
            let Some(room) = room else {
                let rest = std::iter::once(entry).chain(entries);
                let ids: Vec<_> = rest.map(|taken| taken.raw.id.as_str().to_owned()).collect();
                work.hand_back(lane, &ids).await;
                return None;
            };
            work.begin(lane, vec![entry], room);
        }
    }
}
