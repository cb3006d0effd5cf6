//! The built-in queue: take with a lease, give back with a receipt.

use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use duly_core::{
    ErrorCode, Invalid, Lane, MessageId, Monotonic, Now, Receipt, Topic,
    schedule::{DeliveryTerms, LaneSettings, Triage, triage, wait_after_loss},
    store::{Claim, Holder, LeasedMessage, Settle, Settled, Settlement},
};

use tokio::{
    runtime::Handle,
    sync::{Notify, futures::Notified, oneshot},
};

use crate::{Duly, Error, events::Event, observed::Call, receipt_cache::CachedDelivery, seconds, tally::add};

/// A waiting receiver looks at least this often: wake-ups are hints, and may be lost.
const LOOK: Duration = seconds(2);
/// One receive gives at most so many, and of large ones fewer: no more bytes than one claim gives.
const RECEIVE_MAX: usize = 1_000;

/// What a receiver wants.
#[derive(Debug, Clone)]
pub struct Receive {
    /// At most so many messages.
    pub max: usize,
    /// How long to wait for the first.
    pub wait: Duration,
    /// How long the receiver has before they are given to somebody else.
    pub lease: Duration,
}

impl Receive {
    /// One receive takes from so many queues at most: each is a call of the store.
    pub const QUEUES_MAX: usize = 32;
}

impl Default for Receive {
    fn default() -> Self {
        Self { max: 10, wait: Duration::ZERO, lease: seconds(30) }
    }
}

/// A message in a receiver's hands.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Received {
    /// The message.
    pub message: duly_core::StoredMessage,
    /// The proof, for [`Duly::ack`], [`Duly::nack`] and [`Duly::extend`]. Good in any process on the same store.
    pub receipt: String,
    /// The number of this try, from 1.
    pub attempt: u32,
}

impl Received {
    /// Its id within the queue: what [`Duly::add_task`] was given.
    pub fn task_id(&self) -> &str {
        crate::tasks::bare_id(&self.message.topic, &self.message.id)
    }
}

impl Duly {
    /// Takes due messages of a queue, waiting up to [`Receive::wait`] for the first.
    ///
    /// Cancel safety: dropped midway, nothing is lost and no try is counted: what was taken is released in the background.
    pub async fn receive(&self, queue: &str, want: Receive) -> Result<Vec<Received>, Error> {
        self.receive_any(&[queue], want).await
    }

    /// Takes due messages of several queues, at most 32, waiting up to [`Receive::wait`] for the first of any. Each has an equal share of
    /// [`Receive::max`] as long as it has so many, and each is as often the first to be looked at: none starves another.
    ///
    /// Cancel safety: dropped midway, nothing is lost and no try is counted: what was taken is released in the background.
    pub async fn receive_any<Q: AsRef<str>>(
        &self,
        queues: &[Q],
        want: Receive,
    ) -> Result<Vec<Received>, Error> {
        let topics = topics(queues)?;
        let parts = &self.inner.parts;
        let begin = parts.clock.now().mono();
        let end = begin.saturating_add(want.wait);
        let turns: Vec<_> = topics.iter().map(|topic| Turn(parts.hints.listen(topic))).collect();
        loop {
            self.check_open()?;
            // Listening begins before the look, so that nothing falls between the two.
            let mut told: Vec<_> = turns.iter().map(|turn| Box::pin(turn.0.notified())).collect();
            told.iter_mut().for_each(|told| _ = told.as_mut().enable());
            let look_again = match self.take_surely(&topics, &want).await? {
                Taken::Some(mut transit) => return Ok(std::mem::take(&mut transit.received)),
                // There may be more of them than a receiver has time for.
                Taken::NotOne if parts.clock.now().mono() < end.max(begin.saturating_add(LOOK)) => continue,
                Taken::NotOne => return Ok(Vec::new()),
                Taken::None(look_again) => look_again,
            };
            let now = parts.clock.now().mono();
            if now >= end {
                return Ok(Vec::new());
            }
            let until = look_again.min(now.saturating_add(LOOK)).min(end);
            tokio::select! {
                () = any(&mut told) => {}
                () = parts.clock.sleep_until(until) => {}
            }
        }
    }

    /// Takes, and gives back what was taken if nobody waits for it any more: dropping [`receive`](Self::receive) at any
    /// point loses nothing and counts no try.
    async fn take_surely(&self, topics: &[Topic], want: &Receive) -> Result<Taken, Error> {
        let (answer, asked) = oneshot::channel();
        let (duly, topics, want) = (self.clone(), topics.to_vec(), want.clone());
        tokio::spawn(async move {
            // What nobody takes out is dropped, and goes back by that.
            let _ = answer.send(duly.take_any(topics, &want).await);
        });
        asked.await.unwrap_or(Err(Error::Closed))
    }

    /// An equal share of each first, beginning with any of them, then what is left of the room.
    async fn take_any(&self, mut topics: Vec<Topic>, want: &Receive) -> Result<Taken, Error> {
        let max = want.max.clamp(1, RECEIVE_MAX);
        if let [topic] = &*topics {
            return self.take(topic, max, want.lease).await;
        }
        let first = self.draw() % topics.len() as u64;
        topics.rotate_left(first as usize);
        let share = max.div_ceil(topics.len());
        let mut transit = Transit { duly: self.clone(), runtime: Handle::current(), received: Vec::new() };
        let clock = &self.inner.parts.clock;
        let half = clock.now().mono().saturating_add(want.lease / 2);
        let (mut look_again, mut is_more, mut failed) = (Monotonic::from_micros(u64::MAX), false, None);
        for shares in [share, max] {
            let mut more = Vec::new();
            for topic in topics {
                let limit = shares.min(max - transit.received.len());
                // The leases of the first run while the others are claimed.
                let is_late = !transit.received.is_empty() && clock.now().mono() >= half;
                if limit == 0 || is_late || transit.bytes() >= Claim::BYTES_MAX {
                    break;
                }
                match self.take(&topic, limit, want.lease).await {
                    Ok(Taken::Some(mut taken)) => {
                        if taken.received.len() == limit {
                            more.push(topic);
                        }
                        transit.received.append(&mut taken.received);
                    }
                    Ok(Taken::NotOne) => is_more = true,
                    Ok(Taken::None(next)) => look_again = look_again.min(next),
                    // The others may have something all the same.
                    Err(error) => failed = Some(error),
                }
            }
            topics = more;
        }
        match failed {
            _ if !transit.received.is_empty() => Ok(Taken::Some(transit)),
            Some(error) => Err(error),
            None if is_more => Ok(Taken::NotOne),
            None => Ok(Taken::None(look_again)),
        }
    }

    async fn take(&self, topic: &Topic, limit: usize, lease: Duration) -> Result<Taken, Error> {
        let parts = &self.inner.parts;
        let claim = Claim { lane: Lane::Queue(topic.clone()), limit, lease, holder: Holder::Client };
        let now = parts.clock.now();
        let lane = claim.lane.clone();
        let claimed = self.store()?.claim(now, claim).await;
        let claimed = parts.events.observe(Call::Claim(&lane), now, claimed)?;
        if claimed.messages.is_empty() {
            // A lower bound that has passed already must not make this a busy loop.
            let soon = now.mono().saturating_add(Duration::from_millis(1));
            let next = claimed.next.map(|next| now.mono_at(next).max(soon));
            return Ok(Taken::None(next.unwrap_or(Monotonic::from_micros(u64::MAX))));
        }
        let handed_out = parts.clock.now().mono();
        if handed_out >= now.mono().saturating_add(lease) {
            // The process stood still during the claim: somebody else may hold them by now.
            tracing::warn!(count = claimed.messages.len(), "lease lost before receive");
            return Ok(Taken::None(handed_out.saturating_add(Duration::from_millis(1))));
        }
        self.hand_out(now, claimed.messages).await
    }

    /// Gives the receiver those that are still worth a try.
    async fn hand_out(&self, now: Now, messages: Vec<LeasedMessage>) -> Result<Taken, Error> {
        let parts = &self.inner.parts;
        let settings = self.queue_settings();
        let Some(first) = messages.first() else { return Ok(Taken::NotOne) };
        let tally = parts.events.tally.lane(&first.message.lane());
        let (mut received, mut receipt_cache, mut settles, mut over) = (vec![], vec![], vec![], vec![]);
        for leased in messages {
            let terms = DeliveryTerms::of(&leased);
            let wait_end = wait_after_loss(now.wall(), &terms, &settings, || self.draw());
            let settlement = match (triage(now.wall(), &terms, &settings.retry), wait_end) {
                (Triage::Deliver, Some(at)) => Settlement::Defer { at },
                (Triage::Deliver, None) => {
                    let late = now.wall_micros().saturating_sub(leased.ready.as_millis() * 1000);
                    let topic = leased.message.topic.clone();
                    parts.events.tally.began(&tally, &topic, late);
                    let (lateness, attempt) = (Duration::from_micros(late), leased.attempt);
                    let delivery = CachedDelivery { topic, tally: tally.clone(), attempt, lateness };
                    receipt_cache.push((leased.receipt.clone(), delivery));
                    received.push(in_hand(leased));
                    continue;
                }
                (Triage::Dead(reason), _) => Settlement::Dead { reason, attempt: None },
                (Triage::Early, _) => Settlement::Release,
            };
            settles.push(Settle { receipt: leased.receipt.clone(), settlement: settlement.clone() });
            over.push((leased, settlement));
        }
        if !settles.is_empty() {
            let settled = parts.store.settle(now, settles).await;
            let settled = match parts.events.observe(Call::Settle, now, settled) {
                Ok(settled) => settled,
                // The others are claimed for this receiver. What could not be settled comes again when its lease ends.
                Err(error) if !received.is_empty() => {
                    tracing::warn!(%error, count = over.len(), "settle failed");
                    Vec::new()
                }
                Err(error) => return Err(error.into()),
            };
            let done = over.iter().zip(settled).filter(|(_, settled)| *settled == Settled::Done);
            for ((leased, settlement), _) in done {
                if let Settlement::Defer { at } = settlement {
                    parts.hints.tell(leased.message.lane(), *at);
                }
                parts.events.settled(&tally, &leased.message, leased.attempt, Duration::ZERO, settlement);
            }
        }
        add(&parts.events.tally.handed_out, received.len());
        self.inner.receipt_cache.remember(receipt_cache);
        if received.is_empty() {
            return Ok(Taken::NotOne);
        }
        Ok(Taken::Some(Transit { duly: self.clone(), runtime: Handle::current(), received }))
    }

    /// The messages were worked on: they are done. One answer per receipt.
    ///
    /// Cancel safety: dropped midway, any of them may be done; call it again: what was done already answers [`Settled::Lost`].
    pub async fn ack<R: AsRef<str>>(&self, receipts: &[R]) -> Result<Vec<Settled>, Error> {
        let done = Settlement::Delivered { receipt: None };
        let receipts = parse(receipts)?;
        let results = self.settle_all(&receipts, &done).await?;
        let events = &self.inner.parts.events;
        for (id, delivery) in self.known(&receipts, &results).await {
            events.tally.settled(&delivery.tally, &delivery.topic, &done);
            if events.has_subscribers() {
                let CachedDelivery { topic, attempt, lateness, .. } = delivery;
                events.publish(Event::Delivered { id, lane: Lane::Queue(topic), attempt, lateness });
            }
        }
        Ok(results)
    }

    /// The messages were never begun, e.g. because the receiver went away before they reached it: they are ready at once,
    /// and no try is counted. One answer per receipt.
    ///
    /// Cancel safety: dropped midway, any of them may be released; call it again: what was released already answers [`Settled::Lost`].
    pub async fn release<R: AsRef<str>>(&self, receipts: &[R]) -> Result<Vec<Settled>, Error> {
        let receipts = parse(receipts)?;
        let results = self.settle_all(&receipts, &Settlement::Release).await?;
        let now = self.now();
        for (_, delivery) in self.known(&receipts, &results).await {
            self.inner.parts.hints.tell(Lane::Queue(delivery.topic), now);
        }
        Ok(results)
    }

    async fn settle_all(&self, receipts: &[Receipt], settlement: &Settlement) -> Result<Vec<Settled>, Error> {
        let parts = &self.inner.parts;
        let settle = |receipt: &Receipt| Settle { receipt: receipt.clone(), settlement: settlement.clone() };
        let settles = receipts.iter().map(settle).collect();
        let now = parts.clock.now();
        let settled = self.store()?.settle(now, settles).await;
        Ok(parts.events.observe(Call::Settle, now, settled)?)
    }

    /// What is known of those that were settled: remembered, or else asked of the store. Then the lateness is at most
    /// what is said.
    async fn known(&self, receipts: &[Receipt], results: &[Settled]) -> Vec<(MessageId, CachedDelivery)> {
        let parts = &self.inner.parts;
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        let hands = self.inner.receipt_cache.take(receipts).into_iter();
        for ((receipt, delivery), settled) in receipts.iter().zip(hands).zip(results) {
            match delivery {
                _ if *settled != Settled::Done => {}
                Some(delivery) => known.push((receipt.id.clone(), delivery)),
                None => unknown.push(receipt.id.clone()),
            }
        }
        if unknown.is_empty() {
            return known;
        }
        // It is settled: that it cannot be told of is no error of it.
        for record in parts.store.get_without_bodies(&unknown).await.into_iter().flatten().flatten() {
            let delivery = CachedDelivery {
                tally: parts.events.tally.lane(&record.message.lane()),
                attempt: record.attempts.max(1),
                lateness: record.ended.unwrap_or_default().since(record.ready),
                topic: record.message.topic,
            };
            known.push((record.message.id, delivery));
        }
        known
    }

    /// Gives the receiver more time: the leases end `lease` from now. One answer per receipt.
    ///
    /// Cancel safety: dropped midway, any of the leases may be extended; call it again.
    pub async fn extend<R: AsRef<str>>(
        &self,
        receipts: &[R],
        lease: Duration,
    ) -> Result<Vec<Settled>, Error> {
        let (receipts, parts) = (parse(receipts)?, &self.inner.parts);
        let now = parts.clock.now();
        let extended = self.store()?.extend(now, &receipts, lease).await;
        Ok(parts.events.observe(Call::Extend, now, extended)?)
    }

    pub(crate) fn queue_settings(&self) -> LaneSettings {
        self.inner.handlers.lane(self.inner.lease)
    }
}

/// A receiver's place among those that wait. Whoever leaves wakes the next, who may have to look in its stead.
struct Turn(Arc<Notify>);

impl Drop for Turn {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Messages on their way to a receiver. Dropped before it has them, e.g. because it went away, they are handed back.
struct Transit {
    duly: Duly,
    /// Whoever drops it may stand outside of one.
    runtime: Handle,
    received: Vec<Received>,
}

impl Transit {
    fn bytes(&self) -> usize {
        self.received.iter().map(|received| received.message.body.len()).sum()
    }
}

impl Drop for Transit {
    fn drop(&mut self) {
        if self.received.is_empty() {
            return;
        }
        let receipts: Vec<_> = self.received.drain(..).map(|received| received.receipt).collect();
        let duly = self.duly.clone();
        self.runtime.spawn(async move {
            // If even this fails, they come again when their leases end.
            let _ = duly.release(&receipts).await;
        });
    }
}

enum Taken {
    Some(Transit),
    /// Those that were due are dead, or wait: there may be others.
    NotOne,
    /// Nothing is due before then.
    None(Monotonic),
}

fn in_hand(leased: LeasedMessage) -> Received {
    Received { receipt: leased.receipt.to_string(), attempt: leased.attempt, message: leased.message }
}

/// The queues to receive from, each once.
fn topics<Q: AsRef<str>>(queues: &[Q]) -> Result<Vec<Topic>, Invalid> {
    if queues.is_empty() || queues.len() > Receive::QUEUES_MAX {
        let detail =
            format!("one call receives from 1 to {} queues, not {}", Receive::QUEUES_MAX, queues.len());
        return Err(Invalid::new(ErrorCode::TooMany, "topics", detail));
    }
    let mut topics =
        queues.iter().map(|queue| Topic::parse(queue.as_ref())).collect::<Result<Vec<_>, _>>()?;
    topics.sort_unstable();
    topics.dedup();
    Ok(topics)
}

/// Waits until any of them is told.
async fn any(told: &mut [Pin<Box<Notified<'_>>>]) {
    std::future::poll_fn(|context| {
        let is_told = told.iter_mut().any(|told| told.as_mut().poll(context).is_ready());
        if is_told { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}

pub(crate) fn parse<R: AsRef<str>>(receipts: &[R]) -> Result<Vec<Receipt>, Invalid> {
    let parse = |(index, receipt): (usize, &R)| {
        let at = |fault: Invalid| Invalid::new(fault.code, format!("receipts[{index}]"), fault.detail);
        receipt.as_ref().parse().map_err(at)
    };
    receipts.iter().enumerate().map(parse).collect()
}
