//! Looking at messages, and changing one's mind.

use duly_core::{
    ErrorCode, Invalid, Lane, MessageId, Record, SinkName, State, Timestamp, Topic,
    schedule::LaneSnapshot,
    store::{Changed, Durability, LaneStatus, Page, Query, Totals},
};

use tokio::sync::oneshot;

use crate::{Duly, Error, IntoMessageId, engine::Command, events::Event, into_message_id, tally::add};

impl Duly {
    /// All that is known of a message.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get(&self, id: impl IntoMessageId) -> Result<Option<Record>, Error> {
        Ok(self.store()?.get(&[id.id()?]).await?.pop().flatten())
    }

    /// All that is known of many; one answer each, in their order.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get_many(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Option<Record>>, Error> {
        Ok(self.store()?.get(&into_message_id::ids(ids)?).await?)
    }

    /// The same without the bodies, for whoever decides by the rest.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get_many_without_bodies(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Option<Record>>, Error> {
        let mut records = self.store()?.get_without_bodies(&into_message_id::ids(ids)?).await?;
        records.iter_mut().flatten().for_each(body_left_out);
        Ok(records)
    }

    /// A page of messages in one state, by due time. Bodies are left out, and [`Record::body_left_out`] says so; [`get`](Self::get) has them.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn list(&self, query: &Query) -> Result<Page, Error> {
        let mut page = self.store()?.list(query).await?;
        page.records.iter_mut().for_each(body_left_out);
        Ok(page)
    }

    /// Cancels a message that waits. Done means: it will not be delivered, unless the answer says that an earlier try
    /// may have arrived.
    ///
    /// Cancel safety: dropped midway, or after an error that [may have been done](Error::is_maybe_done), ask again: if it was cancelled, the answer
    /// is [`Changed::TooLate`] with [`State::Cancelled`].
    pub async fn cancel(&self, id: impl IntoMessageId) -> Result<Changed, Error> {
        one(self.cancel_many([id]).await?)
    }

    /// Cancels many; one answer each, in their order.
    ///
    /// Cancel safety: dropped midway, any of them may have been done; ask again for all: what was done already answers
    /// [`Changed::TooLate`] with the state it is in.
    pub async fn cancel_many(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Changed>, Error> {
        self.check_open()?;
        let ids = into_message_id::ids(ids)?;
        let parts = &self.inner.parts;
        let changes = self.store()?.cancel(parts.clock.now(), &ids).await?;
        for id in done(ids.iter(), &changes) {
            add(&parts.events.tally.cancelled, 1);
            if parts.events.has_subscribers() {
                parts.events.publish(Event::Cancelled { id: id.clone() });
            }
        }
        Ok(changes)
    }

    /// Gives a message that waits another due time.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again with the same time, which changes nothing if it was done.
    pub async fn reschedule(
        &self,
        id: impl IntoMessageId,
        due: impl Into<Timestamp>,
    ) -> Result<Changed, Error> {
        one(self.reschedule_many([(id, due)]).await?)
    }

    /// Gives many another due time; one answer each, in their order.
    ///
    /// Cancel safety: dropped midway, any of them may have been done; ask again with the same times, which changes nothing where it was
    /// done.
    pub async fn reschedule_many(
        &self,
        batch: impl IntoIterator<Item = (impl IntoMessageId, impl Into<Timestamp>)>,
    ) -> Result<Vec<Changed>, Error> {
        self.check_open()?;
        let (ids, times): (Vec<_>, Vec<Timestamp>) =
            batch.into_iter().map(|(id, due)| (id, due.into())).unzip();
        let batch: Vec<_> = into_message_id::ids(ids)?.into_iter().zip(times).collect();
        let (parts, limits) = (&self.inner.parts, &self.inner.limits);
        let now = parts.clock.now();
        let due_max = self.due_max();
        if batch.iter().any(|(_, due)| *due > due_max) {
            let detail = format!("due more than {} days from now", limits.delay_max.as_secs() / 86_400);
            return Err(Invalid::new(ErrorCode::TooFar, "deliver_at", detail).into());
        }
        let changes = self.store()?.reschedule(now, &batch).await?;
        let told = |id, lane, due| Event::Rescheduled { id, lane, due };
        self.tell(batch.iter().map(|(id, _)| id), &changes, told).await;
        Ok(changes)
    }

    /// Delivers a message that waits now rather than later.
    ///
    /// Cancel safety: dropped midway, it may be due now or not; ask again.
    pub async fn fire(&self, id: impl IntoMessageId) -> Result<Changed, Error> {
        self.reschedule(id, self.now()).await
    }

    /// Delivers many now; one answer each, in their order.
    ///
    /// Cancel safety: dropped midway, any of them may be due now; ask again for all.
    pub async fn fire_many(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Changed>, Error> {
        let now = self.now();
        self.reschedule_many(ids.into_iter().map(|id| (id, now))).await
    }

    /// The first hundred dead letters, as [`list`](Self::list) gives them: without bodies.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn dead(&self) -> Result<Page, Error> {
        self.list(&Query::all(State::Dead)).await
    }

    /// Delivers dead letters afresh: due now, attempts from the beginning, same ids.
    ///
    /// Cancel safety: dropped midway, any of them may be pending again, found by the sweep at the latest; ask again for all: what was
    /// done already answers [`Changed::TooLate`] with the state it is in.
    pub async fn replay(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Changed>, Error> {
        self.check_open()?;
        let ids = into_message_id::ids(ids)?;
        let parts = &self.inner.parts;
        let changes = self.store()?.replay(parts.clock.now(), &ids).await?;
        self.tell(ids.iter(), &changes, |id, lane, _| Event::Replayed { id, lane }).await;
        Ok(changes)
    }

    /// Forgets dead letters for good.
    ///
    /// Cancel safety: dropped midway, any of them may be gone; ask again for all: what was done already answers [`Changed::Unknown`].
    pub async fn purge(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Changed>, Error> {
        self.check_open()?;
        let ids = into_message_id::ids(ids)?;
        let parts = &self.inner.parts;
        let changes = self.store()?.purge(parts.clock.now(), &ids).await?;
        if parts.events.has_subscribers() {
            for id in done(ids.iter(), &changes) {
                parts.events.publish(Event::Purged { id: id.clone() });
            }
        }
        Ok(changes)
    }

    /// Wakes whoever serves the lanes of what changed, and tells who listens. Only a hint: the change is done whether
    /// this succeeds or not, and the sweep finds it too.
    async fn tell(
        &self,
        ids: impl Iterator<Item = &MessageId>,
        changes: &[Changed],
        event: impl Fn(MessageId, Lane, Timestamp) -> Event,
    ) {
        let ids: Vec<_> = done(ids, changes).cloned().collect();
        if ids.is_empty() {
            return;
        }
        let parts = &self.inner.parts;
        for record in parts.store.get_without_bodies(&ids).await.into_iter().flatten().flatten() {
            let lane = record.message.lane();
            if parts.events.has_subscribers() {
                parts.events.publish(event(record.message.id, lane.clone(), record.message.due));
            }
            parts.hints.tell(lane, record.ready);
        }
    }

    /// Stops deliveries of a sink, durably and on every node; what is under way finishes.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again, which is the same if it was done.
    pub async fn pause_sink(&self, sink: &str) -> Result<(), Error> {
        self.set_paused(Lane::Sink(SinkName::parse(sink)?), true).await
    }

    /// Lets a sink go on.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again, which is the same if it was done.
    pub async fn resume_sink(&self, sink: &str) -> Result<(), Error> {
        self.set_paused(Lane::Sink(SinkName::parse(sink)?), false).await
    }

    /// Stops a queue, durably and on every node: nothing is handled or received until it is resumed.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again, which is the same if it was done.
    pub async fn pause_queue(&self, queue: &str) -> Result<(), Error> {
        self.set_paused(Lane::Queue(Topic::parse(queue)?), true).await
    }

    /// Lets a queue go on.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again, which is the same if it was done.
    pub async fn resume_queue(&self, queue: &str) -> Result<(), Error> {
        self.set_paused(Lane::Queue(Topic::parse(queue)?), false).await
    }

    async fn set_paused(&self, lane: Lane, paused: bool) -> Result<(), Error> {
        self.check_open()?;
        let parts = &self.inner.parts;
        self.store()?.set_paused(&lane, paused).await?;
        if !paused {
            parts.hints.tell(lane.clone(), self.now());
        }
        let _ = parts.inputs.send(Command::Pause { lane: lane.clone(), paused }.into());
        parts.events.publish(if paused { Event::Paused { lane } } else { Event::Resumed { lane } });
        Ok(())
    }

    /// Tries a target that is away now rather than at its next time. A sink that this Duly does not have is refused.
    pub fn probe(&self, sink: &str) -> Result<(), Error> {
        self.check_accepting()?;
        let sink = SinkName::parse(sink)?;
        if !self.inner.sinks.contains_key(&sink) {
            let detail = format!("no sink {:?} is configured", sink.as_str());
            return Err(Invalid::new(ErrorCode::UnknownSink, "sink", detail).into());
        }
        let lane = Lane::Sink(sink);
        let _ = self.inner.parts.inputs.send(Command::Probe { lane }.into());
        Ok(())
    }

    /// The sinks and queues that this process serves, each at a glance.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn served(&self) -> Result<Vec<(Lane, LaneSnapshot)>, Error> {
        self.store()?;
        let (answer, looks) = oneshot::channel();
        let command = Command::Snapshot { answer };
        self.inner.parts.inputs.send(command.into()).map_err(|_| Error::Closed)?;
        let mut looks = looks.await.map_err(|_| Error::Closed)?;
        looks.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        Ok(looks)
    }

    /// Every lane that holds something or is paused.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn lanes(&self) -> Result<Vec<LaneStatus>, Error> {
        let parts = &self.inner.parts;
        Ok(self.store()?.lanes(parts.clock.now()).await?)
    }

    /// The totals since the store was made.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn totals(&self) -> Result<Totals, Error> {
        Ok(self.store()?.totals().await?)
    }

    /// How many messages come due in each of `buckets` equal parts of `from..to`.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, Error> {
        Ok(self.store()?.forecast(from, to, buckets).await?)
    }

    /// What an accepted message survives.
    pub fn durability(&self) -> Durability {
        self.inner.parts.store.durability()
    }

    /// The named delays.
    pub fn levels(&self) -> &crate::Levels {
        &self.inner.levels
    }
}

/// Those of them that were changed.
fn done<'a>(
    ids: impl Iterator<Item = &'a MessageId>,
    changes: &[Changed],
) -> impl Iterator<Item = &'a MessageId> {
    ids.zip(changes).filter(|(_, change)| matches!(change, Changed::Done { .. })).map(|(id, _)| id)
}

/// The store keeps bodies of what may still be delivered.
fn body_left_out(record: &mut Record) {
    record.body_left_out = matches!(record.state, State::Pending | State::InFlight | State::Dead);
}

fn one(mut changes: Vec<Changed>) -> Result<Changed, Error> {
    Ok(changes.pop().unwrap_or(Changed::Unknown))
}
