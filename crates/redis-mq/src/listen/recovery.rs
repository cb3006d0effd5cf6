//! What is pending in a group that keeps order and in nobody's hand: it is handled before anything behind it is read.
//!
//! The consumer that works knows where the group stands in each stream, and reads only if it still stands there. Where it does not know,
//! because it has just begun, a call failed or the group was moved on, it first goes through all that is pending. So nothing is overtaken,
//! whoever died and whichever answer was lost.

use std::{
    collections::HashSet,
    sync::{Arc, PoisonError, atomic::Ordering},
    time::Duration,
};

use redis::RedisResult;
use redis_link::Link;

use super::ordered::Ordered;
use crate::{
    clock,
    group::{Lane, NextRead, Page, Taken, Whose, wait_for_any},
};

/// How many entries are found at once.
const TOGETHER: usize = 64;

/// Where the group stands in a stream, as far as the consumer that works in it knows.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum GroupPosition {
    /// This consumer has just begun: whoever worked before may have left anything.
    #[default]
    Unknown,
    /// There may be entries that this consumer was given and does not have.
    Unsure,
    /// After this entry, and all before it is settled or in hand.
    After(String),
}

impl Ordered {
    fn place(&self, lane: &Lane) -> GroupPosition {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)[lane.priority as usize].clone()
    }

    fn set_place(&self, lane: &Lane, place: GroupPosition) {
        self.places.lock().unwrap_or_else(PoisonError::into_inner)[lane.priority as usize] = place;
    }

    /// Another consumer worked until now.
    pub(super) fn forget_all(&self) {
        *self.places.lock().unwrap_or_else(PoisonError::into_inner) = Default::default();
    }

    /// A call failed: what Redis has done is not known.
    pub(super) fn doubt(&self) {
        for place in self.places.lock().unwrap_or_else(PoisonError::into_inner).iter_mut() {
            if matches!(place, GroupPosition::After(_)) {
                *place = GroupPosition::Unsure;
            }
        }
    }

    /// Finds all that is pending and in nobody's hand, where there may be any. To be called by the task that reads, before it does.
    pub(super) async fn recover(self: &Arc<Self>) -> RedisResult<()> {
        if self.work.unsettled.swap(false, Ordering::AcqRel) {
            self.doubt();
        }
        let idle = self.work.settings.abandoned_after();
        for lane in self.work.lanes() {
            let (whose, idle) = match self.place(&lane) {
                GroupPosition::After(_) => continue,
                GroupPosition::Unknown => (Whose::Every, Duration::ZERO),
                GroupPosition::Unsure => (Whose::Missed, idle),
            };
            // Asked before: if the group is moved on meanwhile, that is noticed by the next read.
            let NextRead::Read(_, place) = lane.place(&mut self.work.link.clone()).await? else {
                self.lost_lead(&lane);
                return Ok(());
            };
            self.find(&lane, whose, idle).await?;
            if self.is_over() {
                return Ok(());
            }
            self.set_place(&lane, GroupPosition::After(place));
        }
        self.sweep().await
    }

    /// What is left by others although they should not have it, such as one that does not keep order: now and then.
    async fn sweep(self: &Arc<Self>) -> RedisResult<()> {
        let idle = self.work.settings.abandoned_after();
        let now = clock::instant();
        {
            let mut next = self.sweep.lock().unwrap_or_else(PoisonError::into_inner);
            if now < *next {
                return Ok(());
            }
            *next = now + idle;
        }
        for lane in self.work.lanes() {
            self.find(&lane, Whose::All, idle).await?;
        }
        Ok(())
    }

    async fn find(self: &Arc<Self>, lane: &Arc<Lane>, whose: Whose, idle: Duration) -> RedisResult<()> {
        let work = &self.work;
        let mut from = Some("0-0".to_owned());
        while let Some(begin) = from.take_if(|_| !self.is_over()) {
            // Known before Redis is asked: what is settled meanwhile would look as if nobody had it.
            let known: HashSet<String> =
                work.hand.all(lane.priority).into_iter().chain(self.held.all(lane.priority)).collect();
            let (page, next) = lane.take(&mut work.link.clone(), whose, idle, &begin, TOGETHER).await?;
            from = next;
            work.lost(lane, &page.trimmed);
            let mut found = page.entries;
            found.retain(|taken| !known.contains(taken.raw.id.as_str()));
            if found.is_empty() {
                continue;
            }
            tracing::info!(
                topic = lane.topic,
                group = lane.group,
                count = found.len(),
                "unowned pending entries found"
            );
            work.hand.take(lane.priority, found.iter().map(|taken: &Taken| taken.raw.id.as_str()));
            self.push(lane, found, false).await;
        }
        Ok(())
    }

    /// A page for each lane, read in this order, at most so many entries in all. If there are none, waits for some.
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
            let (GroupPosition::After(place), true) = (self.place(lane), room > 0) else { continue };
            match lane.next(&mut self.work.link.clone(), &place, room).await? {
                NextRead::Read(page, place) => {
                    room -= page.entries.len().min(room);
                    self.set_place(lane, GroupPosition::After(place));
                    pages[at] = page;
                }
                NextRead::Moved => {
                    tracing::warn!(
                        topic = lane.topic,
                        group = lane.group,
                        "consumer group moved by another reader"
                    );
                    self.set_place(lane, GroupPosition::Unsure);
                    return Ok(pages);
                }
                NextRead::Lost => {
                    self.lost_lead(lane);
                    return Ok(pages);
                }
            }
        }
        if room < count {
            return Ok(pages);
        }
        let places: Vec<(Arc<Lane>, GroupPosition)> =
            lanes.iter().map(|lane| (lane.clone(), self.place(lane))).collect();
        let all: Vec<(&str, &str)> = places
            .iter()
            .filter_map(|(lane, place)| match place {
                GroupPosition::After(id) => Some((lane.stream.as_str(), id.as_str())),
                _ => None,
            })
            .collect();
        if !all.is_empty() {
            wait_for_any(&all, link, self.work.settings.poll_interval).await?;
        }
        Ok(pages)
    }
}
