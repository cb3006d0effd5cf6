//! One call of the handler: what it is given, how long it may take, and what becomes of the entries.

use std::{
    any::Any,
    panic::{AssertUnwindSafe, catch_unwind},
    sync::{
        Arc, PoisonError, RwLock,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::FutureExt;
use redis::RedisError;
use redis_link::Link;
use tokio::sync::{Notify, OwnedSemaphorePermit, Semaphore, mpsc, watch};

use super::{
    Filter,
    hand::Hand,
    handler::{Called, Ended, Handler},
    notice::{Lost, Notices, Undecodable, tell},
};
use crate::{
    EntryId, Settings, StartFrom, clock,
    entry::{DULY_GROUP, Raw},
    group::{Failed, Fate, Lane, Taken},
    handler_scope,
    meter::Meter,
};

/// Waits between tries to write down what became of an entry.
pub(super) const WAITS: [Duration; 3] =
    [Duration::from_millis(100), Duration::from_secs(1), Duration::from_secs(5)];

/// Entries that are done; nothing: there will be no more.
pub(super) type Acks = Option<(Arc<Lane>, Vec<String>)>;

/// What all tasks of a listener share.
pub(super) struct Work {
    pub(super) settings: Settings,
    /// Whose handler it is.
    pub(super) mq: u64,
    pub(super) handler: Handler,
    pub(super) filter: Option<Filter>,
    pub(super) notices: Notices,
    pub(super) meter: Meter,
    /// Never waits inside of Redis.
    pub(super) link: Link,
    /// The streams that are read, the most urgent first. More may come.
    pub(super) lanes: RwLock<Vec<Arc<Lane>>>,
    /// Room for as many calls as may run at once.
    pub(super) room: Arc<Semaphore>,
    pub(super) hand: Hand,
    pub(super) acks: mpsc::UnboundedSender<Acks>,
    /// Something is to be tried again, perhaps sooner than what was known of.
    pub(super) again: Notify,
    /// An entry was let go that is not settled: where order is kept, it comes before what is read from then on.
    pub(super) unsettled: AtomicBool,
    /// Names of attempts begin with what was drawn at the start, and count up.
    pub(super) drawn: u64,
    pub(super) attempts: AtomicU64,
    pub(super) stop: watch::Receiver<bool>,
}

/// What became of an entry that is not done.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Left {
    /// Nothing of it is left to do here.
    Over,
    /// Redis could not be told: it is pending as before, and nobody has it in hand.
    Unsettled,
    /// It is to be tried again after so long.
    Again(Duration),
}

/// How an entry is handled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Manner {
    /// With others at the same time.
    Among,
    /// As a suspect, and nothing else with it.
    Alone,
}

/// One attempt to handle entries.
#[derive(Debug)]
pub(super) struct Attempt {
    pub(super) manner: Manner,
    /// No other has it, whichever process it is of: so Redis can be told of it twice.
    pub(super) name: String,
}

impl Work {
    pub(super) fn attempt(&self, manner: Manner) -> Attempt {
        let serial = self.attempts.fetch_add(1, Ordering::Relaxed);
        Attempt { manner, name: format!("{:016x}-{serial}", self.drawn) }
    }

    pub(super) fn lanes(&self) -> Vec<Arc<Lane>> {
        self.lanes.read().unwrap_or_else(PoisonError::into_inner).clone()
    }

    /// How many calls may run at once.
    pub(super) fn all_room(&self) -> u32 {
        u32::try_from(self.settings.concurrency).unwrap_or(u32::MAX)
    }

    /// Room for one call; none if it is time to stop.
    pub(super) async fn room_for_one(
        &self,
        stop: &mut watch::Receiver<bool>,
    ) -> Option<OwnedSemaphorePermit> {
        tokio::select! {
            biased;
            _ = stop.wait_for(|stop| *stop) => None,
            room = self.room.clone().acquire_owned() => room.ok(),
        }
    }

    /// Hands entries to the handler on a task of its own; `room` is given back when it is over.
    pub(super) fn begin(self: &Arc<Self>, lane: &Arc<Lane>, entries: Vec<Taken>, room: OwnedSemaphorePermit) {
        let (this, lane) = (self.clone(), lane.clone());
        tokio::spawn(async move {
            let ids: Vec<EntryId> = entries.iter().map(|taken| taken.raw.id.clone()).collect();
            let attempt = this.attempt(Manner::Among);
            let run = AssertUnwindSafe(this.run(&lane, entries, &attempt)).catch_unwind();
            if let Err(panic) = run.await {
                // Not the handler's. Kept in hand, they would be nobody's for ever.
                tracing::error!(topic = lane.topic, panic = words(&*panic), "settle task panicked");
                this.let_go(&lane, ids.iter().map(EntryId::as_str));
            }
            drop(room);
        });
    }

    /// One call of the handler, and what follows from it. What is left is told of the last entry.
    pub(super) async fn run(&self, lane: &Arc<Lane>, entries: Vec<Taken>, attempt: &Attempt) -> Left {
        let (mut wanted, mut done, mut left) = (Vec::with_capacity(entries.len()), Vec::new(), Left::Over);
        for taken in entries {
            match catch_unwind(AssertUnwindSafe(|| self.wants(&taken.raw))) {
                Ok(true) => wanted.push(taken),
                Ok(false) => done.push(taken.raw.id.as_str().to_owned()),
                Err(panic) => {
                    let end = Ended::failed(format!("the filter panicked: {}", words(&*panic)));
                    left = self.not_done(lane, &taken.raw.id, taken.failures, end, attempt).await;
                }
            }
        }
        let others = done.len();
        if !wanted.is_empty() {
            let known: Vec<_> = wanted.iter().map(|taken| (taken.raw.id.clone(), taken.failures)).collect();
            let began = clock::instant();
            match self.call(wanted).await {
                Called::Each(ends) => {
                    for ((id, failures), end) in known.into_iter().zip(ends) {
                        match end {
                            Ended::Done => done.push(id.as_str().to_owned()),
                            end => left = self.not_done(lane, &id, failures, end, attempt).await,
                        }
                    }
                }
                Called::Failed(why) => left = self.failed_as_a_whole(lane, known, why, attempt).await,
            }
            self.meter.handled(done.len() - others, clock::instant() - began);
        }
        if done.is_empty() {
            return left;
        }
        match attempt.manner {
            // Nobody to tell: the listener is gone, and the entries come again.
            Manner::Among => drop(self.acks.send(Some((lane.clone(), done)))),
            // At once: if the process died before, the entry would be blamed for it.
            Manner::Alone => self.acknowledge(lane, &done).await,
        }
        left
    }

    /// What a replay is for another group, and what the filter does not want, is done for this one.
    fn wants(&self, raw: &Raw) -> bool {
        let for_us = raw.field(DULY_GROUP).is_none_or(|group| group == self.settings.group.as_bytes());
        for_us && self.filter.as_ref().is_none_or(|filter| filter(raw))
    }

    async fn call(&self, entries: Vec<Taken>) -> Called {
        let raws = entries.into_iter().map(|taken| taken.raw).collect();
        let call = self.handler.call.clone();
        let work =
            AssertUnwindSafe(handler_scope::enter(self.mq, async move { call(raws).await })).catch_unwind();
        let limit = self.settings.processing_timeout;
        match tokio::time::timeout(limit, work).await {
            Ok(Ok(called)) => called,
            Ok(Err(panic)) => Called::Failed(format!("the handler panicked: {}", words(&*panic))),
            Err(_) => Called::Failed(format!("the handler took longer than {limit:?} and was ended")),
        }
    }

    /// Nobody knows which of several was to blame: each is tried alone before that counts for any.
    async fn failed_as_a_whole(
        &self,
        lane: &Arc<Lane>,
        known: Vec<(EntryId, u32)>,
        why: String,
        attempt: &Attempt,
    ) -> Left {
        if let [(id, failures)] = known.as_slice() {
            return self.not_done(lane, id, *failures, Ended::failed(why), attempt).await;
        }
        tracing::warn!(
            topic = lane.topic,
            group = lane.group,
            entries = known.len(),
            why,
            "batch failed, its entries are retried one by one"
        );
        let ids: Vec<_> = known.into_iter().map(|(id, _)| id.as_str().to_owned()).collect();
        self.hand_back(lane, &ids).await;
        Left::Over
    }

    /// Anybody may have these at once.
    pub(super) async fn hand_back(&self, lane: &Lane, ids: &[String]) {
        const TOGETHER: usize = 500;
        for some in ids.chunks(TOGETHER) {
            let back = lane.again(&mut self.link.clone(), &lane.consumer, Duration::ZERO, some).await;
            if let Err(error) = back {
                // They are taken over once they are idle for long enough.
                tracing::warn!(
                    topic = lane.topic,
                    entries = some.len(),
                    %error,
                    "release failed"
                );
            }
        }
        self.let_go(lane, ids.iter().map(String::as_str));
        self.again.notify_one();
    }

    /// These are no longer in hand, and are not settled.
    pub(super) fn let_go<'a>(&self, lane: &Lane, ids: impl Iterator<Item = &'a str>) {
        self.hand.release(lane.priority, ids);
        self.unsettled.store(true, Ordering::Release);
    }

    async fn not_done(
        &self,
        lane: &Lane,
        id: &EntryId,
        failures: u32,
        end: Ended,
        attempt: &Attempt,
    ) -> Left {
        self.meter.failed();
        let (topic, group) = (&lane.topic, &lane.group);
        // What was begun alone is counted already.
        let more = u32::from(attempt.manner == Manner::Among);
        let (mut why, mut wait, mut is_dead) = (String::new(), self.settings.retry.wait(failures + 1), false);
        match end {
            Ended::Done => return Left::Over,
            Ended::Failed { after, why: reason } => (why, wait) = (reason, after.unwrap_or(wait)),
            Ended::Dead(reason) => (why, is_dead) = (reason, true),
            Ended::Undecodable(raw, reason) => {
                tracing::error!(topic, group, %id, reason, "entry not decodable");
                let notice = Undecodable { event: topic.clone(), id: id.clone(), why: reason, entry: *raw };
                // If whoever is told panics, it is told again later.
                is_dead = tell(&self.notices.undecodable, &notice);
                why.push_str(&format!("it cannot be decoded: {}", notice.why));
            }
        }
        let mut fate = None;
        for pause in WAITS {
            let mut link = self.link.clone();
            let written = if is_dead {
                lane.bury(&mut link, &lane.consumer, (id.as_str(), &why, more), &self.settings.dead_letters)
                    .await
            } else {
                let alone = attempt.manner == Manner::Alone;
                let failed = Failed { id: id.as_str(), why: &why, wait, alone, attempt: &attempt.name };
                lane.fail(&mut link, failed, (&self.settings.retry, &self.settings.dead_letters)).await
            };
            match written {
                Ok(known) => {
                    fate = Some(known);
                    break;
                }
                Err(error) => {
                    tracing::warn!(topic, group, %id, %error, "failure not recorded yet");
                    clock::sleep(pause).await;
                }
            }
        }
        self.tell_fate(lane, id, fate, &why);
        let Some((fate, _)) = fate else {
            self.let_go(lane, std::iter::once(id.as_str()));
            return Left::Unsettled;
        };
        self.hand.release(lane.priority, std::iter::once(id.as_str()));
        if fate == Fate::Again {
            self.again.notify_one();
            return Left::Again(wait);
        }
        Left::Over
    }

    fn tell_fate(&self, lane: &Lane, id: &EntryId, fate: Option<(Fate, u32)>, why: &str) {
        let (topic, group) = (&lane.topic, &lane.group);
        match fate {
            Some((Fate::Again, attempts)) => {
                tracing::warn!(topic, group, %id, attempts, why, "handler failed, retry scheduled");
            }
            Some((Fate::Dead, attempts)) => {
                self.meter.buried();
                tracing::error!(topic, group, %id, attempts, why, "entry moved to dead letters");
            }
            Some((Fate::Lost | Fate::Gone, _)) => {
                tracing::warn!(topic, group, %id, why, "handler failed, entry claimed by another consumer");
            }
            Some((Fate::Trimmed, _)) => self.lost(lane, &[id.as_str().to_owned()]),
            None => {
                tracing::error!(topic, group, %id, why, "failure not recorded, entry is retried")
            }
        }
    }

    /// What was taken over and has come to its end already.
    pub(super) async fn bury(&self, lane: &Lane, id: &EntryId, why: &str) -> Left {
        let mut link = self.link.clone();
        let about = (id.as_str(), why, 0);
        match lane.bury(&mut link, &lane.consumer, about, &self.settings.dead_letters).await {
            Ok(fate) => {
                self.tell_fate(lane, id, Some(fate), why);
                self.hand.release(lane.priority, std::iter::once(id.as_str()));
                Left::Over
            }
            Err(error) => {
                tracing::warn!(topic = lane.topic, %id, %error, "move to dead letters failed");
                self.let_go(lane, std::iter::once(id.as_str()));
                Left::Unsettled
            }
        }
    }

    /// Tells Redis until it has heard: what is done stays in hand, or it would be handled again.
    pub(super) async fn acknowledge(&self, lane: &Lane, ids: &[String]) {
        let mut waits = WAITS.iter();
        while let Err(error) = lane.ack(&mut self.link.clone(), ids).await {
            let count = ids.len();
            tracing::warn!(topic = lane.topic, count, %error, "ack failed");
            let pause = match (waits.next(), WAITS.last()) {
                (Some(pause), _) => *pause,
                (None, Some(longest)) if !*self.stop.borrow() => *longest,
                // What could not be told comes again: at least once.
                _ => return self.let_go(lane, ids.iter().map(String::as_str)),
            };
            clock::sleep(pause).await;
        }
        self.hand.release(lane.priority, ids.iter().map(String::as_str));
    }

    /// Entries were trimmed away before anybody could handle them. They are out of the group already.
    pub(super) fn lost(&self, lane: &Lane, ids: &[String]) {
        if ids.is_empty() {
            return;
        }
        let (event, group) = (lane.topic.clone(), lane.group.clone());
        tracing::error!(event, group, ?ids, "entries trimmed before they were handled");
        self.meter.lost(ids.len());
        let ids = ids.iter().cloned().map(EntryId::new).collect();
        tell(&self.notices.lost, &Lost { event, group, ids });
    }

    /// After a failure to read.
    pub(super) async fn mend(&self, lane: &Lane, error: &RedisError) {
        let (topic, group) = (&lane.topic, &lane.group);
        // Somebody deleted the stream, or all of Redis: what is sent from here on is heard again.
        if error.code() == Some("NOGROUP") {
            tracing::error!(topic, group, %error, "consumer group missing, creating it");
            // Whatever stands there by now was sent since.
            if let Err(error) = lane.create(&mut self.link.clone(), StartFrom::Oldest).await {
                tracing::warn!(topic, group, %error, "consumer group creation failed");
            }
            return;
        }
        tracing::warn!(topic, group, %error, "read failed");
    }
}

pub(super) fn words(panic: &(dyn Any + Send)) -> &str {
    panic
        .downcast_ref::<&str>()
        .copied()
        .or_else(|| panic.downcast_ref::<String>().map(String::as_str))
        .unwrap_or("it did not say why")
}
