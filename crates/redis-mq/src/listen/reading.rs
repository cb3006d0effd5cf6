//! The loop that reads: what this consumer left, what others left, and what is new.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use redis::{RedisError, RedisResult};
use redis_link::Link;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};

use super::{
    group::{Group, Page},
    handling::Handling,
};
use crate::{Settings, StartFrom, clock};

/// Waits after failures: the first, and the longest.
const BACKOFF: (Duration, Duration) = (Duration::from_millis(50), Duration::from_secs(1));

/// Reads for one listener.
pub(super) struct Reader {
    group: Group,
    /// Waits inside of Redis.
    link: Link,
    /// Never waits.
    shared: Link,
    settings: Settings,
    handling: Handling,
    /// Room for as many handlers as may run at once.
    room: Arc<Semaphore>,
    /// After which entry to go on with what this consumer left at its last end; none: all was seen.
    unfinished: Option<String>,
    /// When to look next for what others left, and from which entry on.
    look: (Instant, String),
}

impl Reader {
    pub(super) fn new(
        group: Group,
        link: Link,
        shared: Link,
        settings: Settings,
        handling: Handling,
    ) -> Self {
        let room = Arc::new(Semaphore::new(settings.batch));
        let look = (clock::instant(), "0-0".to_owned());
        Self { group, link, shared, settings, handling, room, unfinished: Some("0".into()), look }
    }

    /// Until it is told to stop; then until the last handler has ended.
    pub(super) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut wait = BACKOFF.0;
        while !*stop.borrow() {
            let Some(room) = self.room_for_some(&mut stop).await else { break };
            match self.read(room).await {
                Ok(()) => wait = BACKOFF.0,
                Err(error) => {
                    self.mend(&error).await;
                    tokio::select! {
                        () = clock::sleep(wait) => {}
                        _ = stop.wait_for(|stop| *stop) => {}
                    }
                    wait = (wait * 2).min(BACKOFF.1);
                }
            }
        }
        // All the room there is again: nobody is at work any more.
        let all = u32::try_from(self.settings.batch).unwrap_or(u32::MAX);
        let _ = self.room.acquire_many(all).await;
    }

    /// Waits until at least one handler could begin, and takes all the room there is.
    async fn room_for_some(&self, stop: &mut watch::Receiver<bool>) -> Option<Vec<OwnedSemaphorePermit>> {
        let first = tokio::select! {
            room = self.room.clone().acquire_owned() => room.ok()?,
            _ = stop.wait_for(|stop| *stop) => return None,
        };
        let mut room = vec![first];
        while let Ok(more) = self.room.clone().try_acquire_owned() {
            room.push(more);
        }
        Some(room)
    }

    /// One read, of what is most urgent. Not cut short by a stop: what Redis has handed out would be nobody's for a while.
    async fn read(&mut self, room: Vec<OwnedSemaphorePermit>) -> RedisResult<()> {
        let count = room.len();
        if let Some(after) = &self.unfinished {
            let page = self.group.unfinished(&mut self.shared, count, after).await?;
            let last = page.entries.last().map(|entry| entry.id.as_str().to_owned());
            self.unfinished = last.filter(|_| page.entries.len() + page.trimmed.len() >= count);
            return self.begin(page, room).await;
        }
        if clock::instant() >= self.look.0 {
            let idle = self.settings.abandoned_after();
            let (page, next) = self.group.take_over(&mut self.shared, count, idle, &self.look.1).await?;
            match next {
                Some(next) => self.look.1 = next,
                None => self.look = (clock::instant() + self.settings.processing_timeout / 4, "0-0".into()),
            }
            return self.begin(page, room).await;
        }
        let left = self.look.0.saturating_duration_since(clock::instant());
        let wait = self.settings.poll_interval.min(left);
        let page = self.group.read(&mut self.link, count, wait).await?;
        self.begin(page, room).await
    }

    async fn begin(&mut self, page: Page, room: Vec<OwnedSemaphorePermit>) -> RedisResult<()> {
        for (entry, room) in page.entries.into_iter().zip(room) {
            self.handling.begin(entry, room);
        }
        if page.trimmed.is_empty() {
            return Ok(());
        }
        let (event, count) = (&self.group.event, page.trimmed.len());
        tracing::error!(event, count, "entries were trimmed away before they were handled: they are lost");
        self.group.ack(&mut self.shared, &page.trimmed).await
    }

    async fn mend(&mut self, error: &RedisError) {
        let event = &self.group.event;
        // Somebody deleted the stream, or all of Redis: what is sent from here on is heard again.
        if error.code() == Some("NOGROUP") {
            tracing::error!(event, "the group is gone from Redis, and is made anew: {error}");
            // Whatever stands there by now was sent since.
            if let Err(error) = self.group.create(&mut self.shared, StartFrom::Oldest).await {
                tracing::warn!(event, "cannot make the group: {error}");
            }
            return;
        }
        tracing::warn!(event, "cannot read, trying again: {error}");
    }
}
