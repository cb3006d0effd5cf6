//! The task that trims streams, measures the group and removes consumers that are idle for long.

use std::{
    collections::VecDeque,
    sync::Arc,
    time::{Duration, Instant},
};

use redis::RedisResult;
use tokio::sync::watch;

use super::{
    callbacks::{GroupStalled, notify},
    processor::Processor,
};
use crate::{
    Stats, clock,
    group::{Lane, Watermark},
};

/// Watermarks remembered per stream.
const WATERMARKS_MAX: usize = 64;

/// A stalled group is reported again after this time.
const REPORT_INTERVAL: Duration = Duration::from_secs(60);

/// A report of a stalled group: its name, whether it blocks trimming, and when it was reported.
type Reported = (String, bool, Instant);

/// The state of the janitor between rounds.
#[derive(Default)]
struct JanitorState {
    reported: Vec<Reported>,
    /// Positions of the group in each stream, by priority, oldest first.
    watermarks: [VecDeque<Watermark>; 3],
}

impl JanitorState {
    fn remember(&mut self, lane: &Lane, watermark: Option<Watermark>) {
        let watermarks = &mut self.watermarks[lane.priority as usize];
        let Some(watermark) = watermark else { return watermarks.clear() };
        match watermarks.back() {
            Some(last) if last.id == watermark.id => return,
            // The count of added entries never falls within one stream: this is another stream of the same name.
            Some(last) if last.added > watermark.added => watermarks.clear(),
            _ => {}
        }
        if watermarks.len() == WATERMARKS_MAX {
            watermarks.pop_front();
        }
        watermarks.push_back(watermark);
    }
}

/// Does its round once per maintenance interval, until it is asked to stop.
pub(super) async fn run(processor: Arc<Processor>, mut stop: watch::Receiver<bool>) {
    let mut state = JanitorState::default();
    while !*stop.borrow() {
        if let Err(error) = run_once(&processor, &mut state).await {
            tracing::debug!(%error, "maintenance failed");
        }
        tokio::select! {
            () = clock::sleep(processor.settings.maintenance_interval) => {}
            _ = stop.wait_for(|stop| *stop) => {}
        }
    }
}

async fn run_once(processor: &Processor, state: &mut JanitorState) -> RedisResult<()> {
    let mut all = Stats::default();
    let mut blocked = None;
    for lane in processor.lanes() {
        let link = &mut processor.link.clone();
        for name in lane.remove_idle_consumers(link, processor.settings.consumer_idle_max).await? {
            tracing::info!(topic = lane.topic, group = lane.group, consumer = name, "idle consumer removed");
        }
        blocked = trim(processor, &lane, state).await?.or(blocked);
        let stats = Stats::of(&lane, link).await?;
        all.lag += stats.lag;
        all.pending += stats.pending;
        all.waiting += stats.waiting;
        all.oldest_pending = all.oldest_pending.max(stats.oldest_pending);
        all.dead_letters = stats.dead_letters;
    }
    processor.meter.record_stats(&all);
    processor.meter.record_trim_blocked(blocked.as_ref().map_or(0, |stalled| stalled.entries));
    let is_behind = all.backlog() >= processor.settings.backlog_alert;
    let stalled = blocked.or_else(|| {
        let lane = processor.lanes().into_iter().next()?;
        let (event, group) = (lane.topic.clone(), lane.group.clone());
        is_behind.then(|| GroupStalled { event, group, entries: all.backlog(), blocks_trimming: false })
    });
    report(processor, stalled, &mut state.reported);
    Ok(())
}

/// Trims the stream to its limit. Returns the group that prevents it, if one does.
async fn trim(
    processor: &Processor,
    lane: &Lane,
    state: &mut JanitorState,
) -> RedisResult<Option<GroupStalled>> {
    let trim = &processor.settings.trim;
    if trim.max_len.is_none() && trim.max_age.is_none() {
        return Ok(None);
    }
    loop {
        let watermarks = state.watermarks[lane.priority as usize].iter();
        let trimmed = lane.trim(&mut processor.link.clone(), trim, watermarks).await?;
        state.remember(lane, trimmed.watermark);
        if !trimmed.more {
            let (event, group, entries) = (lane.topic.clone(), trimmed.blocked_by, trimmed.over);
            let stalled = GroupStalled { event, group, entries, blocks_trimming: true };
            return Ok(Some(stalled).filter(|stalled| !stalled.group.is_empty()));
        }
    }
}

/// Reports each stalled group at most once per interval, also if it recovers and falls behind again in between.
fn report(processor: &Processor, stalled: Option<GroupStalled>, reported: &mut Vec<Reported>) {
    reported.retain(|(_, _, at)| clock::instant().saturating_duration_since(*at) < REPORT_INTERVAL);
    let Some(stalled) = stalled else { return };
    let is_same =
        |(group, blocks, _): &Reported| *group == stalled.group && *blocks == stalled.blocks_trimming;
    if reported.iter().any(is_same) {
        return;
    }
    let GroupStalled { event, group, entries, blocks_trimming } = &stalled;
    tracing::warn!(event, group, entries, blocks_trimming, "consumer group stalled");
    notify(&processor.callbacks.stalled, &stalled);
    reported.push((stalled.group, stalled.blocks_trimming, clock::instant()));
}
