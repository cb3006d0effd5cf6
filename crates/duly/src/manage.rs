//! Reading messages, and cancel, reschedule, replay, purge, pause.

use duly_core::{
    ErrorCode, Invalid, Lane, MessageId, Record, SinkName, State, Timestamp, Topic,
    schedule::LaneSnapshot,
    store::{Changed, Durability, LaneStatus, Page, Query, Totals},
};

use tokio::sync::oneshot;

use crate::{
    Duly, Error, IntoMessageId,
    counters::add,
    engine::{Command, EngineHandles},
    events::Event,
    into_message_id,
};

impl Duly {
    /// The record of a message.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get(&self, id: impl IntoMessageId) -> Result<Option<Record>, Error> {
        Ok(self.store()?.get(&[id.to_message_id()?]).await?.pop().flatten())
    }

    /// The records of many messages, in order.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get_many(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Option<Record>>, Error> {
        Ok(self.store()?.get(&into_message_id::parse_all(ids)?).await?)
    }

    /// The records of many messages without their bodies.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn get_many_without_bodies(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Option<Record>>, Error> {
        let mut records = self.store()?.get_without_bodies(&into_message_id::parse_all(ids)?).await?;
        records.iter_mut().flatten().for_each(mark_body_left_out);
        Ok(records)
    }

    /// A page of messages in one state, by due time. Bodies are left out, and [`Record::body_left_out`] says so; [`get`](Self::get) has them.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn list(&self, query: &Query) -> Result<Page, Error> {
        let mut page = self.store()?.list(query).await?;
        page.records.iter_mut().for_each(mark_body_left_out);
        Ok(page)
    }

    /// Cancels a pending message. `Done` means that it will not be delivered, unless the answer says that an earlier
    /// attempt may have arrived.
    ///
    /// Cancel safety: dropped midway, or after an error that [may have been done](Error::is_maybe_done), ask again: if it was cancelled, the answer
    /// is [`Changed::TooLate`] with [`State::Cancelled`].
    pub async fn cancel(&self, id: impl IntoMessageId) -> Result<Changed, Error> {
        single(self.cancel_many([id.to_message_id()?]).await?)
    }

    /// Cancels many messages; one result each, in order.
    ///
    /// Cancel safety: dropped midway, any of them may have been done; ask again for all: what was done already answers
    /// [`Changed::TooLate`] with the state it is in.
    pub async fn cancel_many(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Changed>, Error> {
        self.check_open()?;
        let ids = into_message_id::parse_all(ids)?;
        self.finish_of(ids.len(), |parts| async move {
            let lanes = parts.lanes_for_events(&ids).await;
            let changes = parts.store.cancel(parts.clock.now(), &ids).await?;
            let count = changed_ids(ids.iter(), &changes).count();
            add(&parts.events.counters.messages.cancelled, count);
            parts.publish_ends(&ids, &changes, lanes, |id, lane| Event::Cancelled { id, lane });
            Ok(changes)
        })
        .await
    }

    /// Changes the due time of a pending message.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again with the same time, which changes nothing if it was done.
    pub async fn reschedule(
        &self,
        id: impl IntoMessageId,
        due: impl Into<Timestamp>,
    ) -> Result<Changed, Error> {
        single(self.reschedule_many([(id.to_message_id()?, due)]).await?)
    }

    /// Changes the due times of many messages; one result each, in order.
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
        let batch: Vec<_> = into_message_id::parse_all(ids)?.into_iter().zip(times).collect();
        let (parts, limits) = (&self.inner.parts, &self.inner.options.limits);
        let now = parts.clock.now();
        let due_max = self.due_max();
        if batch.iter().any(|(_, due)| *due > due_max) {
            return Err(limits.too_far("deliver_at").into());
        }
        self.finish_of(batch.len(), |parts| async move {
            let changes = parts.store.reschedule(now, &batch).await?;
            let event = |id, lane, due| Event::Rescheduled { id, lane, due };
            parts.publish_changes(batch.iter().map(|(id, _)| id), &changes, event).await;
            Ok(changes)
        })
        .await
    }

    /// Makes a pending message due now.
    ///
    /// Cancel safety: dropped midway, it may be due now or not; ask again.
    pub async fn fire(&self, id: impl IntoMessageId) -> Result<Changed, Error> {
        self.reschedule(id, self.now()).await
    }

    /// Makes many messages due now; one result each, in order.
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

    /// Replays dead letters: due now, no attempts, same ids.
    ///
    /// Cancel safety: dropped midway, any of them may be pending again, found by the sweep at the latest; ask again for all: what was
    /// done already answers [`Changed::TooLate`] with the state it is in.
    pub async fn replay(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Changed>, Error> {
        self.check_open()?;
        let ids = into_message_id::parse_all(ids)?;
        self.finish_of(ids.len(), |parts| async move {
            let changes = parts.store.replay(parts.clock.now(), &ids).await?;
            parts.publish_changes(ids.iter(), &changes, |id, lane, _| Event::Replayed { id, lane }).await;
            Ok(changes)
        })
        .await
    }

    /// Deletes dead letters.
    ///
    /// Cancel safety: dropped midway, any of them may be gone; ask again for all: what was done already answers [`Changed::Unknown`].
    pub async fn purge(
        &self,
        ids: impl IntoIterator<Item = impl IntoMessageId>,
    ) -> Result<Vec<Changed>, Error> {
        self.check_open()?;
        let ids = into_message_id::parse_all(ids)?;
        self.finish_of(ids.len(), |parts| async move {
            let lanes = parts.lanes_for_events(&ids).await;
            let changes = parts.store.purge(parts.clock.now(), &ids).await?;
            parts.publish_ends(&ids, &changes, lanes, |id, lane| Event::Purged { id, lane });
            Ok(changes)
        })
        .await
    }

    /// Pauses a sink, durably and on every node; running deliveries finish.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again, which is the same if it was done.
    pub async fn pause_sink(&self, sink: &str) -> Result<(), Error> {
        self.set_paused(Lane::Sink(SinkName::parse(sink)?), true).await
    }

    /// Resumes a sink.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again, which is the same if it was done.
    pub async fn resume_sink(&self, sink: &str) -> Result<(), Error> {
        self.set_paused(Lane::Sink(SinkName::parse(sink)?), false).await
    }

    /// Pauses a queue, durably and on every node: nothing is handled or received until it is resumed.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again, which is the same if it was done.
    pub async fn pause_queue(&self, queue: &str) -> Result<(), Error> {
        self.set_paused(Lane::Queue(Topic::parse_new(queue)?), true).await
    }

    /// Resumes a queue.
    ///
    /// Cancel safety: dropped midway, it may have been done or not; ask again, which is the same if it was done.
    pub async fn resume_queue(&self, queue: &str) -> Result<(), Error> {
        self.set_paused(Lane::Queue(Topic::parse(queue)?), false).await
    }

    async fn set_paused(&self, lane: Lane, paused: bool) -> Result<(), Error> {
        self.check_open()?;
        self.finish_of(1, |parts| async move {
            parts.store.set_paused(&lane, paused).await?;
            if !paused {
                parts.hints.push(lane.clone(), parts.clock.now().wall());
            }
            let _ = parts.inputs.send(Command::Pause { lane: lane.clone(), paused }.into());
            parts.events.publish(if paused { Event::Paused { lane } } else { Event::Resumed { lane } });
            Ok(())
        })
        .await
    }

    /// Probes an unreachable sink now instead of at its next time. An unknown sink is refused.
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

    /// The state of the sinks and queues that this process serves.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn served(&self) -> Result<Vec<(Lane, LaneSnapshot)>, Error> {
        self.store()?;
        let (answer, snapshots) = oneshot::channel();
        let command = Command::Snapshot { answer };
        self.inner.parts.inputs.send(command.into()).map_err(|_| Error::Closed)?;
        let mut snapshots = snapshots.await.map_err(|_| Error::Closed)?;
        snapshots.sort_unstable_by(|(one, _), (two, _)| one.cmp(two));
        Ok(snapshots)
    }

    /// Every lane that has messages or is paused.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn lanes(&self) -> Result<Vec<LaneStatus>, Error> {
        let parts = &self.inner.parts;
        Ok(self.store()?.lanes(parts.clock.now()).await?)
    }

    /// The totals since the store was created.
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
        &self.inner.options.levels
    }
}

impl EngineHandles {
    /// The lanes of these messages, for the events of their end: read before it, as nothing may be known of them afterwards. None
    /// without a subscriber. Best effort: the calls of the store themselves say whether it can be reached.
    async fn lanes_for_events(&self, ids: &[MessageId]) -> Vec<Option<Lane>> {
        if !self.events.has_subscribers() {
            return Vec::new();
        }
        let records = self.store.get_without_bodies(ids).await.unwrap_or_default();
        records.into_iter().map(|record| record.map(|record| record.message.lane())).collect()
    }

    /// Publishes the events of messages that were cancelled or purged. One whose lane is not known has none.
    fn publish_ends(
        &self,
        ids: &[MessageId],
        changes: &[Changed],
        lanes: Vec<Option<Lane>>,
        event: impl Fn(MessageId, Lane) -> Event,
    ) {
        for ((id, change), lane) in ids.iter().zip(changes).zip(lanes) {
            if let (Changed::Done { .. }, Some(lane)) = (change, lane) {
                self.events.publish(event(id.clone(), lane));
            }
        }
    }

    /// Publishes events of changed messages, and hints to their lanes. Best effort: the change is done, and the sweep
    /// finds it as well.
    async fn publish_changes(
        &self,
        ids: impl Iterator<Item = &MessageId>,
        changes: &[Changed],
        event: impl Fn(MessageId, Lane, Timestamp) -> Event,
    ) {
        let ids: Vec<_> = changed_ids(ids, changes).cloned().collect();
        if ids.is_empty() {
            return;
        }
        for record in self.store.get_without_bodies(&ids).await.into_iter().flatten().flatten() {
            let lane = record.message.lane();
            if self.events.has_subscribers() {
                self.events.publish(event(record.message.id, lane.clone(), record.message.due));
            }
            self.hints.push(lane, record.ready);
        }
    }
}

/// The ids that were changed.
fn changed_ids<'a>(
    ids: impl Iterator<Item = &'a MessageId>,
    changes: &[Changed],
) -> impl Iterator<Item = &'a MessageId> {
    ids.zip(changes).filter(|(_, change)| matches!(change, Changed::Done { .. })).map(|(id, _)| id)
}

/// Stores keep the bodies of messages that may still be delivered.
fn mark_body_left_out(record: &mut Record) {
    record.body_left_out = matches!(record.state, State::Pending | State::InFlight | State::Dead);
}

fn single(mut changes: Vec<Changed>) -> Result<Changed, Error> {
    Ok(changes.pop().unwrap_or(Changed::Unknown))
}
