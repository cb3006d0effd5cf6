//! The task that takes over what processes left that are gone.
//!
//! Whatever is found in this way is a suspect: somebody died with it in hand, and perhaps of it. One entry that kills its process
//! makes suspects of all that were in hand with it, so each is handled alone, and only what happens then is held against it.

use std::{sync::Arc, time::Duration};

use tokio::sync::watch;

use super::work::{Left, Manner, Work};
use crate::{
    clock,
    group::{Lane, Taken, Whose},
};

/// How many suspects are taken at once: the others in the group take their share.
const TOGETHER: usize = 64;

/// How many that this consumer left are kept in memory until they are handled; more are found when they are idle, as anybody's are.
const LEFT_HERE_MAX: usize = 1_024;

/// What this consumer left when it was last here under its name. To be asked before anything is read: what is read from then on
/// would look the same.
pub(super) async fn left_here(work: &Work) -> Vec<(Arc<Lane>, Vec<Taken>)> {
    let (mut all, mut count) = (Vec::new(), 0);
    for lane in work.lanes() {
        let mut from = Some("-".to_owned());
        while let Some(begin) = from.take_if(|_| count < LEFT_HERE_MAX) {
            let link = &mut work.link.clone();
            if let Ok((page, next)) = lane.take(link, Whose::Own, Duration::ZERO, &begin, TOGETHER).await {
                from = next;
                work.lost(&lane, &page.trimmed);
                count += page.entries.len();
                all.push((lane.clone(), page.entries));
            }
        }
    }
    all
}

/// Until it is told to stop.
pub(super) async fn run(
    work: Arc<Work>,
    left_here: Vec<(Arc<Lane>, Vec<Taken>)>,
    mut stop: watch::Receiver<bool>,
) {
    let idle = work.settings.abandoned_after();
    for (lane, suspects) in left_here {
        handle_all(&work, &lane, suspects, &stop).await;
    }
    while !*stop.borrow() {
        for lane in work.lanes() {
            take(&work, &lane, &stop).await;
        }
        tokio::select! {
            () = clock::sleep((idle / 4).max(Duration::from_millis(1))) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

async fn take(work: &Arc<Work>, lane: &Arc<Lane>, stop: &watch::Receiver<bool>) {
    let idle = work.settings.abandoned_after();
    let mut from = Some("0-0".to_owned());
    while let Some(begin) = from.take_if(|_| !*stop.borrow()) {
        let taken = lane.take(&mut work.link.clone(), Whose::All, idle, &begin, TOGETHER).await;
        match taken {
            Ok((page, next)) => {
                from = next;
                work.lost(lane, &page.trimmed);
                handle_all(work, lane, page.entries, stop).await;
            }
            // The reader mends what can be mended.
            Err(error) => tracing::debug!(topic = lane.topic, %error, "reclaim failed"),
        }
    }
}

async fn handle_all(
    work: &Arc<Work>,
    lane: &Arc<Lane>,
    mut suspects: Vec<Taken>,
    stop: &watch::Receiver<bool>,
) {
    // What looked abandoned because Redis could not be told that it is not.
    let here = work.hand.all(lane.priority);
    suspects.retain(|taken| !here.iter().any(|id| id == taken.raw.id.as_str()));
    work.hand.take(lane.priority, suspects.iter().map(|taken| taken.raw.id.as_str()));
    for suspect in suspects {
        if *stop.borrow() {
            // Others find it.
            work.hand.release(lane.priority, std::iter::once(suspect.raw.id.as_str()));
        } else {
            handle(work, lane, suspect).await;
        }
    }
}

/// Alone: not before all other calls have ended, and none begins meanwhile.
pub(super) async fn handle(work: &Arc<Work>, lane: &Arc<Lane>, suspect: Taken) -> Left {
    let Taken { failures, crashes, .. } = suspect;
    let id = suspect.raw.id.clone();
    if work.settings.retry.is_over(failures, crashes) {
        let why = format!("the process that handled it died {crashes} times while it handled nothing else");
        return work.bury(lane, &id, &why).await;
    }
    let Ok(_all) = work.room.clone().acquire_many_owned(work.all_room()).await else { return Left::Over };
    let attempt = work.attempt(Manner::Alone);
    match lane.begin(&mut work.link.clone(), id.as_str(), true, &attempt.name).await {
        Ok(true) => work.run(lane, vec![suspect], &attempt).await,
        Ok(false) => {
            work.hand.release(lane.priority, std::iter::once(id.as_str()));
            Left::Over
        }
        Err(error) => {
            tracing::warn!(topic = lane.topic, %id, %error, "attempt of a reclaimed entry not recorded yet");
            work.let_go(lane, std::iter::once(id.as_str()));
            Left::Unsettled
        }
    }
}
