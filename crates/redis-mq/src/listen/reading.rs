//! The task that reads what is new.

use std::{
    sync::{Arc, PoisonError},
    time::{Duration, Instant},
};

use redis::RedisResult;
use redis_link::Link;
use tokio::sync::watch;

use super::{
    ordered::{Lead, Ordered},
    work::Work,
};
use crate::{
    Priority, clock,
    group::{Lane, Page, Taken, read},
    settings::StartFrom,
};

/// Waits after failures: the first, and the longest.
pub(super) const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Reads for one listener.
pub(super) struct Reader {
    work: Arc<Work>,
    ordered: Option<Arc<Ordered>>,
    /// Waits inside of Redis.
    link: Link,
    stop: watch::Receiver<bool>,
    /// Counts reads, as some of them begin with what is less urgent.
    round: u32,
    /// When to look next for streams of other priorities.
    look: Instant,
    /// Whether this listener knows of all priorities, or of no other.
    knows_all: bool,
}

impl Reader {
    pub(super) fn new(
        work: Arc<Work>,
        ordered: Option<Arc<Ordered>>,
        link: Link,
        stop: watch::Receiver<bool>,
        knows_all: bool,
    ) -> Self {
        Self { work, ordered, link, stop, round: 0, look: clock::instant(), knows_all }
    }

    /// Until it is told to stop.
    pub(super) async fn run(&mut self) {
        // After a panic nobody knows what was read.
        if let Some(ordered) = &self.ordered {
            ordered.doubt();
        }
        let mut wait = BACKOFF.0;
        while !*self.stop.borrow() {
            match self.step().await {
                Ok(()) => wait = BACKOFF.0,
                Err(error) => {
                    if let Some(ordered) = &self.ordered {
                        ordered.doubt();
                    }
                    for lane in self.work.lanes() {
                        self.work.mend(&lane, &error).await;
                    }
                    self.pause(wait).await;
                    wait = (wait * 2).min(BACKOFF.1);
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

    async fn step(&mut self) -> RedisResult<()> {
        let ordered = self.ordered.clone();
        if let Some(ordered) = &ordered {
            match ordered.lead().await? {
                Lead::Leads => {}
                // Whoever worked before may have known of more streams.
                Lead::TookOver => self.look = clock::instant(),
                Lead::StandsBy => {
                    self.pause(self.work.settings.poll_interval).await;
                    return Ok(());
                }
            }
        }
        self.look_for_lanes().await?;
        if let Some(ordered) = &ordered {
            ordered.recover().await?;
        }
        let Some(count) = self.room().await else { return Ok(()) };
        let lanes = self.work.lanes();
        let pages = match &ordered {
            Some(ordered) => {
                self.round = self.round.wrapping_add(1);
                ordered.read(&mut self.link, &lanes, order(&lanes, self.round), count).await?
            }
            None => self.read(&lanes, count).await?,
        };
        for (lane, page) in lanes.iter().zip(pages) {
            self.begin(lane, page).await;
        }
        Ok(())
    }

    /// Somebody may have sent with a priority that nobody listened to before.
    async fn look_for_lanes(&mut self) -> RedisResult<()> {
        if self.knows_all || clock::instant() < self.look {
            return Ok(());
        }
        self.look = clock::instant() + self.work.settings.poll_interval;
        let known = self.work.lanes();
        let Some(first) = known.first() else { return Ok(()) };
        let mut all = Vec::new();
        for priority in Priority::ALL {
            if let Some(lane) = known.iter().find(|lane| lane.priority == priority) {
                all.push(lane.clone());
                continue;
            }
            let lane = first.of_priority(priority);
            let mut link = self.work.link.clone();
            if redis::cmd("EXISTS").arg(&lane.stream).query_async(&mut link).await? {
                lane.create(&mut link, StartFrom::Oldest).await?;
                all.push(Arc::new(lane));
            }
        }
        self.knows_all = all.len() == Priority::ALL.len();
        *self.work.lanes.write().unwrap_or_else(PoisonError::into_inner) = all;
        Ok(())
    }

    /// Waits until at least one call could begin. How many entries there is room for.
    async fn room(&mut self) -> Option<usize> {
        let room = match &self.ordered {
            Some(ordered) => &ordered.hold,
            None => &self.work.room,
        };
        tokio::select! {
            first = room.acquire() => drop(first.ok()?),
            _ = self.stop.wait_for(|stop| *stop) => return None,
        }
        let is_many = self.work.handler.takes_many;
        Some(if is_many { self.work.settings.batch } else { room.available_permits().max(1) })
    }

    /// A page for each lane. Not cut short by a stop: what Redis has handed out would be nobody's for a while.
    async fn read(&mut self, lanes: &[Arc<Lane>], count: usize) -> RedisResult<Vec<Page>> {
        let wait = Some(self.work.settings.poll_interval);
        let all: Vec<&Lane> = lanes.iter().map(|lane| &**lane).collect();
        if all.len() == 1 {
            return read(&all, &mut self.link, count, wait).await;
        }
        let mut pages: Vec<Page> = lanes.iter().map(|_| Page::default()).collect();
        let mut room = count;
        for at in order(lanes, self.round) {
            if room > 0 {
                pages[at] = lanes[at].read_now(&mut self.work.link.clone(), room).await?;
                room -= pages[at].entries.len().min(room);
            }
        }
        self.round = self.round.wrapping_add(1);
        if room < count {
            return Ok(pages);
        }
        // Each of them may answer with so many.
        read(&all, &mut self.link, (count / all.len()).max(1), wait).await
    }

    async fn begin(&mut self, lane: &Arc<Lane>, page: Page) {
        if !page.trimmed.is_empty() {
            self.work.acknowledge(lane, &page.trimmed).await;
            self.work.lost(lane, &page.trimmed);
        }
        let ids = page.entries.iter().map(|taken| taken.raw.id.as_str());
        self.work.hand.take(lane.priority, ids);
        if let Some(ordered) = &self.ordered {
            ordered.push(lane, page.entries, true).await;
            return;
        }
        let together = if self.work.handler.takes_many { self.work.settings.batch } else { 1 };
        let mut entries = page.entries.into_iter();
        loop {
            let some: Vec<Taken> = entries.by_ref().take(together).collect();
            if some.is_empty() {
                return;
            }
            let room = self.work.room_for_one(&mut self.stop).await;
            let Some(room) = room else {
                let rest = some.into_iter().chain(entries);
                let ids: Vec<_> = rest.map(|taken| taken.raw.id.as_str().to_owned()).collect();
                self.work.hand_back(lane, &ids).await;
                return;
            };
            self.work.begin(lane, some, room);
        }
    }
}

/// In which order to read: the most urgent first, but of eight rounds one begins with each of the others.
fn order(lanes: &[Arc<Lane>], round: u32) -> Vec<usize> {
    let first = match round % 8 {
        3 => Priority::Normal,
        7 => Priority::Low,
        _ => Priority::High,
    };
    let mut order: Vec<usize> = (0..lanes.len()).collect();
    order.sort_by_key(|at| (lanes[*at].priority != first, lanes[*at].priority));
    order
}
