//! Recovery of an ordered group: pending entries that no process has in flight are handled before later entries are
//! read.
//!
//! The leader knows the position of the group in each stream, and a read succeeds only if the group is still there. If
//! the position is unknown, because the consumer was just elected, a call failed or somebody else read, the leader
//! first goes through all pending entries. So no entry is overtaken, whichever process died and whichever reply was
//! lost.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use redis::RedisResult;
use redis_link::Link;

use super::{leader::TAKEN, ordered::Ordered};
use crate::{
    clock,
    group::{ClaimedEntry, Lane, NextRead, Page, ReclaimScope, wait_for_entries},
};

/// Entries reclaimed with one call.
const BATCH_MAX: usize = 64;

/// The position of the group in a stream, as far as the leader knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum GroupPosition {
    /// This consumer was just elected: any entry may be pending from earlier leaders.
    #[default]
    Unknown,
    /// Redis may have assigned entries to this consumer that it does not know of.
    Unsure,
    /// After this entry. All entries up to it are settled or in flight here.
    After(String),
}

impl Ordered {
    fn known_position(&self, lane: &Lane) -> GroupPosition {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)[lane.priority as usize].clone()
    }

    fn set_position(&self, lane: &Lane, position: GroupPosition) {
        self.positions.lock().unwrap_or_else(PoisonError::into_inner)[lane.priority as usize] = position;
    }

    /// Another consumer led the group until now.
    pub(super) fn reset_positions(&self) {
        *self.positions.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }

    /// A call failed, and it is unknown whether Redis executed it.
    pub(super) fn mark_positions_unsure(&self) {
        for position in self.positions.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if matches!(position, GroupPosition::After(_)) {
                *position = GroupPosition::Unsure;
            }
        }
    }

    /// Reclaims pending entries that no process has in flight, where there may be some. Called by the reader before
    /// each read.
    pub(super) async fn recover(self: &Arc<Self>) -> RedisResult<()> {
        if self.processor.has_unsettled.swap(false, Ordering::AcqRel) {
            self.mark_positions_unsure();
        }
        let idle = self.processor.settings.abandoned_after();
        for lane in self.processor.lanes() {
            let (scope, idle) = match self.known_position(&lane) {
                GroupPosition::After(_) => continue,
                GroupPosition::Unknown => (ReclaimScope::Pending, Duration::ZERO),
                GroupPosition::Unsure => (ReclaimScope::Missed, idle),
            };
            // Asked before reclaiming: if the group moves meanwhile, the next read notices it.
            let NextRead::Read(_, position) = lane.group_position(&mut self.processor.link.clone()).await?
            else {
                self.step_down(&lane, TAKEN);
                return Ok(());
            };
            self.reclaim(&lane, scope, idle).await?;
            if self.should_stop() {
                return Ok(());
            }
            self.set_position(&lane, GroupPosition::After(position));
        }
        self.reclaim_idle().await
    }

    /// Now and then, reclaims entries of consumers that read although they do not lead, such as one that is not
    /// ordered.
    async fn reclaim_idle(self: &Arc<Self>) -> RedisResult<()> {
        let idle = self.processor.settings.abandoned_after();
        let now = clock::instant();
        {
            let mut next = self.next_reclaim.lock().unwrap_or_else(PoisonError::into_inner);
            if now < *next {
                return Ok(());
            }
            *next = now + idle;
        }
        for lane in self.processor.lanes() {
            self.reclaim(&lane, ReclaimScope::Idle, idle).await?;
        }
        Ok(())
    }

    async fn reclaim(
        self: &Arc<Self>,
        lane: &Arc<Lane>,
        scope: ReclaimScope,
        idle: Duration,
    ) -> RedisResult<()> {
        let processor = &self.processor;
        let mut from = Some("0-0".to_owned());
        while let Some(start) = from.take_if(|_| !self.should_stop()) {
            self.room_to_park().await;
            // Taken before Redis is asked: an entry that is settled meanwhile would look as if nobody had it in flight.
            let known: HashSet<String> = processor
                .in_flight
                .all(lane.priority)
                .into_iter()
                .chain(self.queued.all(lane.priority))
                .collect();
            let (page, next) =
                lane.reclaim(&mut processor.link.clone(), scope, idle, &start, BATCH_MAX).await?;
            from = next;
            processor.report_lost(lane, &page.trimmed);
            let mut found = page.entries;
            found.retain(|entry| !known.contains(entry.raw.id.as_str()));
            if found.is_empty() {
                continue;
            }
            tracing::info!(
                topic = lane.topic,
                group = lane.group,
                count = found.len(),
                "unowned pending entries found"
            );
            processor
                .in_flight
                .insert(lane.priority, found.iter().map(|entry: &ClaimedEntry| entry.raw.id.as_str()));
            self.push(lane, found, false).await;
        }
        Ok(())
    }

    /// Reads a page for each lane in this order, `count` entries in all at most. If there are none, waits for new ones.
    pub(super) async fn read(
        &self,
        link: &mut Link,
        lanes: &[Arc<Lane>],
        order: Vec<usize>,
        count: usize,
    ) -> RedisResult<Vec<Page>> {
        let mut pages: Vec<Page> = lanes.iter().map(|_| Page::default()).collect();
        let mut room = count;
        for at in order {
            let lane = &lanes[at];
            let (GroupPosition::After(position), true) = (self.known_position(lane), room > 0) else {
                continue;
            };
            match lane.read_next(&mut self.processor.link.clone(), &position, room).await? {
                NextRead::Read(page, position) => {
                    room -= page.entries.len().min(room);
                    self.set_position(lane, GroupPosition::After(position));
                    pages[at] = page;
                }
                NextRead::Moved => {
                    tracing::warn!(
                        topic = lane.topic,
                        group = lane.group,
                        "consumer group moved by another reader"
                    );
                    self.set_position(lane, GroupPosition::Unsure);
                    return Ok(pages);
                }
                NextRead::Lost => {
                    self.step_down(lane, TAKEN);
                    return Ok(pages);
                }
            }
        }
        if room < count {
            return Ok(pages);
        }
        let positions: Vec<(Arc<Lane>, GroupPosition)> =
            lanes.iter().map(|lane| (lane.clone(), self.known_position(lane))).collect();
        let all: Vec<(&str, &str)> = positions
            .iter()
            .filter_map(|(lane, position)| match position {
                GroupPosition::After(id) => Some((lane.stream.as_str(), id.as_str())),
                _ => None,
            })
            .collect();
        if !all.is_empty() {
            wait_for_entries(&all, link, self.processor.settings.poll_interval).await?;
        }
        Ok(pages)
    }
}
