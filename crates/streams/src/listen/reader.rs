//! The task that reads new entries.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use redis::RedisResult;
use redis_link::Link;
use tokio::sync::watch;

use super::{leader::Leadership, ordered::Ordered, processor::Processor};
use crate::{
    Priority, clock,
    group::{ClaimedEntry, Lane, Page, read},
    settings::StartFrom,
};

/// Waits after a failed read: the first and the longest.
pub(super) const READ_BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Reads the streams of one listener.
pub(super) struct Reader {
    processor: Arc<Processor>,
    ordered: Option<Arc<Ordered>>,
    /// A connection of its own, because reads block it.
    link: Link,
    stop: watch::Receiver<bool>,
    /// Counts reads: some of them begin with a less urgent stream.
    round: u32,
    /// When to check next for streams of other priorities.
    next_discovery: Instant,
    /// Whether all streams of the topic are known, so that discovery is over.
    all_lanes_known: bool,
}

impl Reader {
    pub(super) fn new(
        processor: Arc<Processor>,
        ordered: Option<Arc<Ordered>>,
        link: Link,
        stop: watch::Receiver<bool>,
        all_lanes_known: bool,
    ) -> Self {
        Self { processor, ordered, link, stop, round: 0, next_discovery: clock::instant(), all_lanes_known }
    }

    /// Runs until it is asked to stop.
    pub(super) async fn run(&mut self) {
        // After a panic it is unknown what was read.
        if let Some(ordered) = &self.ordered {
            ordered.mark_positions_unsure();
        }
        let mut wait = READ_BACKOFF.0;
        while !*self.stop.borrow() {
            match self.read_once().await {
                Ok(()) => wait = READ_BACKOFF.0,
                Err(error) => {
                    if let Some(ordered) = &self.ordered {
                        ordered.mark_positions_unsure();
                    }
                    for lane in self.processor.lanes() {
                        self.processor.handle_read_error(&lane, &error).await;
                    }
                    self.pause(wait).await;
                    wait = (wait * 2).min(READ_BACKOFF.1);
                }
            }
        }
    }

    async fn pause(&mut self, wait: Duration) {
        tokio::select! {
            () = clock::sleep(wait) => {}
            _ = self.stop.wait_for(|stop| *stop) => {}
        }
    }

    async fn read_once(&mut self) -> RedisResult<()> {
        let ordered = self.ordered.clone();
        if let Some(ordered) = &ordered {
            match ordered.ensure_leader().await? {
                Leadership::Leader => {}
                // The previous leader may have read from more streams.
                Leadership::Elected => self.next_discovery = clock::instant(),
                Leadership::Standby => {
                    self.pause(self.processor.settings.poll_interval).await;
                    return Ok(());
                }
            }
        }
        self.discover_lanes().await?;
        if let Some(ordered) = &ordered {
            ordered.recover().await?;
        }
        let Some(count) = self.capacity().await else { return Ok(()) };
        let lanes = self.processor.lanes();
        let pages = match &ordered {
            Some(ordered) => {
                self.round = self.round.wrapping_add(1);
                ordered.read(&mut self.link, &lanes, read_order(&lanes, self.round), count).await?
            }
            None => self.read(&lanes, count).await?,
        };
        for (lane, page) in lanes.iter().zip(pages) {
            self.dispatch(lane, page).await;
        }
        Ok(())
    }

    /// Adds the streams of priorities that somebody has sent with since the last check.
    async fn discover_lanes(&mut self) -> RedisResult<()> {
        if self.all_lanes_known || clock::instant() < self.next_discovery {
            return Ok(());
        }
        self.next_discovery = clock::instant() + self.processor.settings.poll_interval;
        let known = self.processor.lanes();
        let Some(first) = known.first() else { return Ok(()) };
        let mut all = Vec::new();
        for priority in Priority::ALL {
            if let Some(lane) = known.iter().find(|lane| lane.priority == priority) {
                all.push(lane.clone());
                continue;
            }
            let lane = first.with_priority(priority);
            let mut link = self.processor.link.clone();
            if redis::cmd("EXISTS").arg(&lane.stream).query_async(&mut link).await? {
                lane.create(&mut link, StartFrom::Oldest).await?;
                all.push(Arc::new(lane));
            }
        }
        self.all_lanes_known = all.len() == Priority::ALL.len();
        *self.processor.lanes.write().unwrap_or_else(PoisonError::into_inner) = all;
        Ok(())
    }

    /// Waits until at least one call can begin. Returns how many entries to read.
    async fn capacity(&mut self) -> Option<usize> {
        let permits = match &self.ordered {
            Some(ordered) => {
                ordered.room_to_park().await;
                &ordered.slots
            }
            None => &self.processor.permits,
        };
        tokio::select! {
            first = permits.acquire() => drop(first.ok()?),
            _ = self.stop.wait_for(|stop| *stop) => return None,
        }
        let takes_batches = self.processor.target.handler.takes_batches;
        Some(if takes_batches { self.processor.settings.batch } else { permits.available_permits().max(1) })
    }

    /// Reads a page for each lane. A stop does not cancel it: entries that Redis has assigned already would stay idle
    /// until they are reclaimed.
    async fn read(&mut self, lanes: &[Arc<Lane>], count: usize) -> RedisResult<Vec<Page>> {
        let wait = Some(self.processor.settings.poll_interval);
        let all: Vec<&Lane> = lanes.iter().map(|lane| &**lane).collect();
        if all.len() == 1 {
            return read(&all, &mut self.link, count, wait).await;
        }
        let mut pages: Vec<Page> = lanes.iter().map(|_| Page::default()).collect();
        let mut room = count;
        for at in read_order(lanes, self.round) {
            if room > 0 {
                pages[at] = lanes[at].read_now(&mut self.processor.link.clone(), room).await?;
                room -= pages[at].entries.len().min(room);
            }
        }
        self.round = self.round.wrapping_add(1);
        if room < count {
            return Ok(pages);
        }
        // `COUNT` is per stream.
        read(&all, &mut self.link, (count / all.len()).max(1), wait).await
    }

    async fn dispatch(&mut self, lane: &Arc<Lane>, page: Page) {
        if !page.trimmed.is_empty() {
            self.processor.acknowledge(lane, &page.trimmed).await;
            self.processor.report_lost(lane, &page.trimmed);
        }
        let ids = page.entries.iter().map(|entry| entry.raw.id.as_str());
        self.processor.in_flight.insert(lane.priority, ids);
        if let Some(ordered) = &self.ordered {
            ordered.push(lane, page.entries, true).await;
            return;
        }
        let batch =
            if self.processor.target.handler.takes_batches { self.processor.settings.batch } else { 1 };
        let mut entries = page.entries.into_iter();
        loop {
            let some: Vec<ClaimedEntry> = entries.by_ref().take(batch).collect();
            if some.is_empty() {
                return;
            }
            let permit = self.processor.acquire_permit(&mut self.stop).await;
            let Some(permit) = permit else {
                let rest = some.into_iter().chain(entries);
                let ids: Vec<_> = rest.map(|entry| entry.raw.id.as_str().to_owned()).collect();
                self.processor.release(lane, &ids).await;
                return;
            };
            self.processor.spawn(lane, some, permit);
        }
    }
}

/// The order in which lanes are read: most urgent first, except that two of eight rounds begin with the normal and the
/// low one.
fn read_order(lanes: &[Arc<Lane>], round: u32) -> Vec<usize> {
    let first = match round % 8 {
        3 => Priority::Normal,
        7 => Priority::Low,
        _ => Priority::High,
    };
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    order.sort_by_key(|at| (lanes[*at].priority != first, lanes[*at].priority));
    order
}
