//! A consumer group from outside: its entries by their ids, and how it stands.

mod lane;

use std::time::Duration;

use redis_link::Link;

use crate::{DeadLetterPolicy, Error, Priority, RedisMq, keys::Keys, settings::check_event};

pub(crate) use lane::{
    Failed, Fate, Lane, Mark, NextRead, Page, Taken, Whose, dead_words, read, shorten, wait_for_any,
};

/// Entries of one group by their ids, as text or as an [`EntryId`](crate::EntryId), and how the group stands: for operators, and for handlers that leave the answer to
/// somebody else. Made by [`RedisMq::group`].
#[derive(Clone)]
pub struct Group {
    mq: RedisMq,
    link: Link,
    lane: Lane,
    dead: DeadLetterPolicy,
}

/// What became of an entry that was named by its id.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum Settled {
    /// It is done as asked.
    Done,
    /// The group has no such entry: it was never read, or is settled already.
    NotPending,
}

impl Settled {
    fn of(count: usize) -> Self {
        if count > 0 { Self::Done } else { Self::NotPending }
    }
}

/// How a group stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[non_exhaustive]
pub struct Stats {
    /// Entries in the stream, handled or not.
    pub length: u64,
    /// Entries that the group has not read yet. Where Redis does not know, as after entries
    /// were deleted by their ids, the most that it can be.
    pub lag: u64,
    /// Entries that were read and are not settled.
    pub pending: u64,
    /// Of those, how many wait for their next try.
    pub waiting: u64,
    /// How long ago the oldest of those that are pending was sent.
    pub oldest_pending: Option<Duration>,
    /// Consumers that the group has.
    pub consumers: u64,
    /// Dead letters of the topic, of all groups.
    pub dead_letters: u64,
}

impl Stats {
    /// All that is still to be done.
    pub fn backlog(&self) -> u64 {
        self.lag + self.pending
    }

    pub(crate) async fn of(lane: &Lane, link: &mut Link) -> redis::RedisResult<Self> {
        let (length, lag, pending, oldest, waiting, consumers, dead_letters) = lane.stats(link).await?;
        let oldest_pending = u64::try_from(oldest).ok().map(Duration::from_millis);
        Ok(Self { length, lag, pending, waiting, oldest_pending, consumers, dead_letters })
    }
}

impl RedisMq {
    /// A group of a topic, to settle its entries by their ids or to ask how it stands.
    pub fn group(&self, topic: &str, group: &str) -> Result<Group, Error> {
        self.check_open()?;
        check_event(topic)?;
        let keys = Keys::new(topic, &self.inner.address);
        let lane = Lane::new(&keys, group, &self.inner.consumer, Priority::Normal);
        Ok(Group {
            mq: self.clone(),
            link: self.inner.link.clone(),
            lane,
            dead: self.inner.settings.dead_letters.clone(),
        })
    }
}

impl Group {
    /// The same group in the stream of another priority. Each has ids of its own.
    pub fn of_priority(&self, priority: Priority) -> Self {
        let lane = self.lane.of_priority(priority);
        Self { lane, ..self.clone() }
    }

    /// This one is done, whoever has it.
    ///
    /// Cancel safety: dropped midway, it may be done or not; call it again: [`Settled::NotPending`] if it was.
    pub async fn ack(&self, id: impl AsRef<str>) -> Result<Settled, Error> {
        self.mq.check_usable()?;
        let ids = [id.as_ref().to_owned()];
        let count = self.lane.ack(&mut self.link.clone(), &ids).await;
        count.map(Settled::of).map_err(|error| Error::over(&self.link, &error))
    }

    /// This one is handled again, so long from now, by whoever is there then. That does not count as a failure. If a handler is at
    /// work on it, it may be handled twice.
    ///
    /// Cancel safety: dropped midway, it may be handed back or not; call it again, which begins the wait anew.
    pub async fn retry(&self, id: impl AsRef<str>, after: Duration) -> Result<Settled, Error> {
        self.mq.check_usable()?;
        let ids = [id.as_ref().to_owned()];
        let count = self.lane.again(&mut self.link.clone(), "", after, &ids).await;
        count.map(Settled::of).map_err(|error| Error::over(&self.link, &error))
    }

    /// This one is given up: written to the dead letters with the reason, and acknowledged, in one.
    ///
    /// Cancel safety: dropped midway, it may be given up or not, never half; call it again: [`Settled::NotPending`] if it was.
    pub async fn move_to_dlq(&self, id: impl AsRef<str>, reason: &str) -> Result<Settled, Error> {
        self.mq.check_usable()?;
        let (fate, _) = self
            .lane
            .bury(&mut self.link.clone(), "", (id.as_ref(), reason, 0), &self.dead)
            .await
            .map_err(|error| Error::over(&self.link, &error))?;
        Ok(if fate == Fate::Dead { Settled::Done } else { Settled::NotPending })
    }

    /// How it stands.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn stats(&self) -> Result<Stats, Error> {
        self.mq.check_usable()?;
        Stats::of(&self.lane, &mut self.link.clone()).await.map_err(|error| Error::over(&self.link, &error))
    }
}
