//! The tasks that keep what is in hand, acknowledge what is done, and tidy.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::RedisResult;
use tokio::sync::{mpsc, watch};

use super::{
    notice::{Stalled, tell},
    work::{Acks, Work},
};
use crate::{
    Stats, clock,
    group::{Lane, Mark},
};

/// Says again and again that what is in hand is worked on, until the listener is dropped.
pub(super) async fn beat(work: Arc<Work>, mut ended: watch::Receiver<bool>) {
    const TOGETHER: usize = 500;
    // However patient this one is, others may be less so.
    const OFTEN: Duration = Duration::from_secs(1);
    let pause = (work.settings.abandoned_after() / 5).clamp(Duration::from_millis(1), OFTEN);
    while !*ended.borrow() {
        tokio::select! {
            () = clock::sleep(pause) => {}
            _ = ended.wait_for(|ended| *ended) => return,
        }
        for lane in work.lanes() {
            for ids in work.hand.all(lane.priority).chunks(TOGETHER) {
                match lane.beat(&mut work.link.clone(), ids).await {
                    // Also what was acknowledged a moment ago: that is no longer in hand, and nobody's loss.
                    Ok(lost) => work.hand.release(lane.priority, lost.iter().map(String::as_str)),
                    Err(error) => {
                        tracing::warn!(topic = lane.topic, %error, "heartbeat failed");
                    }
                }
            }
        }
    }
}

/// Acknowledges what is done, as many at once as there are, until it is told that there is no more.
pub(super) async fn acknowledge(work: Arc<Work>, done: &mut mpsc::UnboundedReceiver<Acks>) {
    const TOGETHER: usize = 256;
    const IDS_MAX: usize = 1_000;
    let (mut some, mut is_end) = (Vec::new(), false);
    while !is_end && done.recv_many(&mut some, TOGETHER).await > 0 {
        let mut by_lane: Vec<(Arc<Lane>, Vec<String>)> = Vec::new();
        for acks in some.drain(..) {
            let Some((lane, ids)) = acks else {
                is_end = true;
                continue;
            };
            match by_lane.iter_mut().find(|(known, _)| known.priority == lane.priority) {
                Some((_, all)) => all.extend(ids),
                None => by_lane.push((lane, ids)),
            }
        }
        for (lane, ids) in by_lane {
            for ids in ids.chunks(IDS_MAX) {
                work.acknowledge(&lane, ids).await;
            }
        }
    }
}

/// Trims, measures, and takes out who is gone, until it is told to stop.
pub(super) async fn tidy(work: Arc<Work>, mut stop: watch::Receiver<bool>) {
    let mut known = Known::default();
    while !*stop.borrow() {
        if let Err(error) = tidy_once(&work, &mut known).await {
            tracing::debug!(%error, "maintenance failed");
        }
        tokio::select! {
            () = clock::sleep(work.settings.tidy_interval) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

/// How many places of a stream are remembered.
const MARKS_MAX: usize = 64;

/// A group, whether it holds up trimming, and when that was told.
type Told = (String, bool, Instant);

/// What is kept from one round to the next.
#[derive(Default)]
struct Known {
    /// Which groups were told of, and when: one that falls behind is told of once in a while.
    told: Vec<Told>,
    /// Where the group stood in each stream, by priority, from the oldest on: what is needed that is younger is among the newest.
    marks: [VecDeque<Mark>; 3],
}

impl Known {
    fn remember(&mut self, lane: &Lane, mark: Option<Mark>) {
        let marks = &mut self.marks[lane.priority as usize];
        let Some(mark) = mark else { return marks.clear() };
        match marks.back() {
            Some(last) if last.id == mark.id => return,
            // It counts anew: another stream has the name now.
            Some(last) if last.added > mark.added => marks.clear(),
            _ => {}
        }
        if marks.len() == MARKS_MAX {
            marks.pop_front();
        }
        marks.push_back(mark);
    }
}

async fn tidy_once(work: &Work, known: &mut Known) -> RedisResult<()> {
    let mut all = Stats::default();
    let mut held_up = None;
    for lane in work.lanes() {
        let link = &mut work.link.clone();
        for name in lane.remove_gone(link, work.settings.consumer_gone_after).await? {
            tracing::info!(topic = lane.topic, group = lane.group, consumer = name, "dead consumer removed");
        }
        held_up = trim(work, &lane, known).await?.or(held_up);
        let stats = Stats::of(&lane, link).await?;
        all.lag += stats.lag;
        all.pending += stats.pending;
        all.waiting += stats.waiting;
        all.oldest_pending = all.oldest_pending.max(stats.oldest_pending);
        all.dead_letters = stats.dead_letters;
    }
    work.meter.stands(&all);
    work.meter.held_up(held_up.as_ref().map_or(0, |stalled| stalled.entries));
    let behind = all.backlog() >= work.settings.backlog_alert;
    let stalled = held_up.or_else(|| {
        let lane = work.lanes().into_iter().next()?;
        let (event, group) = (lane.topic.clone(), lane.group.clone());
        behind.then(|| Stalled { event, group, entries: all.backlog(), holds_up_trimming: false })
    });
    report(work, stalled, &mut known.told);
    Ok(())
}

/// Trims what may go. If a group holds it up: which.
async fn trim(work: &Work, lane: &Lane, known: &mut Known) -> RedisResult<Option<Stalled>> {
    let trim = &work.settings.trim;
    if trim.max_len.is_none() && trim.max_age.is_none() {
        return Ok(None);
    }
    loop {
        let marks = known.marks[lane.priority as usize].iter();
        let trimmed = lane.trim(&mut work.link.clone(), trim, marks).await?;
        known.remember(lane, trimmed.mark);
        if !trimmed.more {
            let (event, group, entries) = (lane.topic.clone(), trimmed.held_up_by, trimmed.over);
            let stalled = Stalled { event, group, entries, holds_up_trimming: true };
            return Ok(Some(stalled).filter(|stalled| !stalled.group.is_empty()));
        }
    }
}

fn report(work: &Work, stalled: Option<Stalled>, told: &mut Vec<Told>) {
    const AGAIN_AFTER: Duration = Duration::from_secs(60);
    // Also of one that catches up and falls behind by turns, or by turns with another.
    told.retain(|(_, _, when)| clock::instant().saturating_duration_since(*when) < AGAIN_AFTER);
    let Some(stalled) = stalled else { return };
    let is_it =
        |(group, holds_up, _): &Told| *group == stalled.group && *holds_up == stalled.holds_up_trimming;
    if told.iter().any(is_it) {
        return;
    }
    let Stalled { event, group, entries, holds_up_trimming } = &stalled;
    tracing::warn!(event, group, entries, holds_up_trimming, "consumer group falls behind");
    tell(&work.notices.stalled, &stalled);
    told.push((stalled.group, stalled.holds_up_trimming, clock::instant()));
}
