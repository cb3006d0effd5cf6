//! A consumer group as operators use it: settle entries by id, and read its statistics.

mod lane;

use std::time::Duration;

use redis_link::Link;

use crate::{DeadLetterPolicy, Error, Priority, Streams, keys::Keys, settings::check_event};

pub(crate) use lane::{
    ClaimedEntry, FailedAttempt, FailureOutcome, Lane, NextRead, Page, ReclaimScope, Watermark,
    dead_letter_args, read, truncate_reason, wait_for_entries,
};

/// A consumer group, for operators and for handlers that leave settling to somebody else. Entries are named by their
/// ids, as text or as an [`EntryId`](crate::EntryId). Created by [`Streams::group`].
#[derive(Clone)]
pub struct Group {
    streams: Streams,
    link: Link,
    lane: Lane,
    dead: DeadLetterPolicy,
}

/// The result of settling an entry by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// Done.
    Done,
    /// The entry is not pending in the group: it was never read, or it is settled.
    NotPending,
}

impl Settled {
    fn of(count: usize) -> Self {
        if count > 0 { Self::Done } else { Self::NotPending }
    }
}

/// Statistics of a group.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Entries in the stream, handled or not.
    pub length: u64,
    /// Entries that the group has not read yet. An upper bound where Redis does not know it, such as after entries were
    /// deleted by id.
    pub lag: u64,
    /// Entries that were read and are not settled.
    pub pending: u64,
    /// Pending entries that wait for their retry, or, in an ordered listener, for others of their key.
    pub waiting: u64,
    /// Age of the oldest pending entry.
    pub oldest_pending: Option<Duration>,
    /// Consumers in the group.
    pub consumers: u64,
    /// Dead letters of the topic, from all groups.
    pub dead_letters: u64,
}

impl Stats {
    /// Entries that are not settled, read or not.
    pub fn backlog(&self) -> u64 {
        self.lag + self.pending
    }

    pub(crate) async fn of(lane: &Lane, link: &mut Link) -> redis::RedisResult<Self> {
        let (length, lag, pending, oldest, waiting, consumers, dead_letters) = lane.stats(link).await?;
        let oldest_pending = u64::try_from(oldest).ok().map(Duration::from_millis);
        Ok(Self { length, lag, pending, waiting, oldest_pending, consumers, dead_letters })
    }
}

impl Streams {
    /// A consumer group of a topic, to settle its entries by id or to read its statistics.
    pub fn group(&self, topic: &str, group: &str) -> Result<Group, Error> {
        self.check_open()?;
        check_event(topic)?;
        let keys = Keys::new(topic, &self.inner.address);
        let lane = Lane::new(&keys, group, &self.inner.consumer, Priority::Normal);
        Ok(Group {
            streams: self.clone(),
            link: self.inner.link.clone(),
            lane,
            dead: self.inner.settings.dead_letters.clone(),
        })
    }
}

impl Group {
    /// The same group in the stream of another priority. Each stream has its own ids.
    pub fn with_priority(&self, priority: Priority) -> Self {
        let lane = self.lane.with_priority(priority);
        Self { lane, ..self.clone() }
    }

    /// Acknowledges an entry, whichever consumer has it.
    ///
    /// Cancel safety: dropped midway, it may be done or not; call it again: [`Settled::NotPending`] if it was.
    pub async fn ack(&self, id: impl AsRef<str>) -> Result<Settled, Error> {
        self.streams.check_usable()?;
        let ids = [id.as_ref().to_owned()];
        let count = self.lane.ack(&mut self.link.clone(), &ids).await;
        count.map(Settled::of).map_err(|error| Error::from_link(&self.link, &error))
    }

    /// Makes an entry available again after a wait, to any consumer. No attempt counts. If a handler has the entry in
    /// flight, it may be handled twice.
    ///
    /// Cancel safety: dropped midway, it may be done or not; call it again, which starts the wait anew.
    pub async fn retry(&self, id: impl AsRef<str>, after: Duration) -> Result<Settled, Error> {
        self.streams.check_usable()?;
        let ids = [id.as_ref().to_owned()];
        let count = self.lane.requeue(&mut self.link.clone(), "", after, &ids).await;
        count.map(Settled::of).map_err(|error| Error::from_link(&self.link, &error))
    }

    /// Moves an entry to the dead letters with this reason, and acknowledges it, atomically.
    ///
    /// Cancel safety: dropped midway, it may be given up or not, never half; call it again: [`Settled::NotPending`] if it was.
    pub async fn move_to_dlq(&self, id: impl AsRef<str>, reason: &str) -> Result<Settled, Error> {
        self.streams.check_usable()?;
        let (outcome, _) = self
            .lane
            .move_to_dlq(&mut self.link.clone(), "", (id.as_ref(), reason, 0), &self.dead)
            .await
            .map_err(|error| Error::from_link(&self.link, &error))?;
        Ok(if outcome == FailureOutcome::Dead { Settled::Done } else { Settled::NotPending })
    }

    /// Reads the statistics of the group.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.streams.check_usable()?;
        Stats::of(&self.lane, &mut self.link.clone())
            .await
            .map_err(|error| Error::from_link(&self.link, &error))
    }
}
