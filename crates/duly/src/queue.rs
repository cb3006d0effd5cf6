//! The built-in queue: receive, ack, release, extend.

use std::{future::Future, pin::Pin, sync::Arc, task::Poll, time::Duration};

use duly_core::{
    Lane, MessageId, Monotonic, Now, Receipt, Topic,
    schedule::{DeliveryTerms, LaneSettings, Triage, triage, wait_after_loss},
    store::{Claim, ClaimBudget, Holder, LeasedMessage, Settle, Settled, Settlement},
};

use tokio::{
    runtime::Handle,
    sync::{Notify, futures::Notified, oneshot},
    task::JoinHandle,
};

use crate::{
    Duly, Error,
    counters::add,
    events::Event,
    queue_arguments::{parse, topics},
    receipt_cache::CachedDelivery,
    seconds,
    store_monitor::{CallKind, StoreCall},
    trace::Spans,
};

/// How often a waiting receiver claims at least: hints may be lost.
const POLL_INTERVAL: Duration = seconds(2);
/// Messages of one receive at most. Large ones are bounded by the bytes of a claim as well.
const RECEIVE_MAX: usize = 1_000;

/// Options of a receive.
#[derive(Debug, Clone)]
pub struct Receive {
    /// Messages at most.
    pub max: usize,
    /// How long to wait for the first message.
    pub wait: Duration,
    /// The lease of the messages.
    pub lease: Duration,
}

impl Receive {
    /// Queues in one receive at most: each is a call of the store.
    pub const QUEUES_MAX: usize = 32;
}

impl Default for Receive {
    fn default() -> Self {
        Self { max: 10, wait: Duration::ZERO, lease: seconds(30) }
    }
}

/// A message that a receiver holds under a lease.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Received {
    /// The message.
    pub message: duly_core::StoredMessage,
    /// The receipt for [`Duly::ack`], [`Duly::nack`] and [`Duly::extend`]. Valid in every process on the same store.
    pub receipt: String,
    /// The number of this attempt, from 1.
    pub attempt: u32,
    /// How late it was claimed, in microseconds.
    late_us: u64,
}

impl Received {
    /// Its id within the queue: what [`Duly::add_task`] was given.
    pub fn task_id(&self) -> &str {
        crate::tasks::bare_id(&self.message.topic, &self.message.id)
    }
}

impl Duly {
    /// Receives due messages of a queue, waiting up to [`Receive::wait`] for the first.
    ///
    /// Cancel safety: dropped midway, nothing is lost and no attempt counts: claimed messages are released in the
    /// background.
    pub async fn receive(&self, queue: &str, want: Receive) -> Result<Vec<Received>, Error> {
        self.receive_any(&[queue], want).await
    }

    /// Receives due messages of up to 32 queues, waiting up to [`Receive::wait`] for the first of any. Each queue gets
    /// an equal share of [`Receive::max`] while it has that many, and each is equally often the first, so that none
    /// starves. All together give at most [`Claim::BYTES_MAX`] bytes, or one message.
    ///
    /// Cancel safety: dropped midway, nothing is lost and no attempt counts: claimed messages are released in the
    /// background.
    pub async fn receive_any<Q: AsRef<str>>(
        &self,
        queues: &[Q],
        want: Receive,
    ) -> Result<Vec<Received>, Error> {
        self.receive_fitting(queues, want, |_| true).await
    }

    /// Receives as [`receive_any`](Self::receive_any), but only messages that `fits` takes; it is asked for each once. The others are
    /// released without an attempt: in the background, or, if none fits, before this returns.
    ///
    /// Cancel safety: dropped midway, nothing is lost and no attempt counts: claimed messages are released in the
    /// background.
    #[doc(hidden)]
    pub async fn receive_fitting<Q: AsRef<str>>(
        &self,
        queues: &[Q],
        want: Receive,
        mut fits: impl FnMut(&Received) -> bool,
    ) -> Result<Vec<Received>, Error> {
        let topics = topics(queues)?;
        let parts = &self.inner.parts;
        let begin = parts.clock.now().mono();
        let end = begin.saturating_add(want.wait);
        let waiters: Vec<_> =
            topics.iter().map(|topic| WakeNextOnDrop(parts.hints.subscribe(topic))).collect();
        loop {
            self.check_open()?;
            // Subscribed before the claim, so that no hint falls between the two.
            let mut notified: Vec<_> = waiters.iter().map(|waiter| Box::pin(waiter.0.notified())).collect();
            notified.iter_mut().for_each(|notified| _ = notified.as_mut().enable());
            let next_claim = match self.claim_or_release(&topics, &want).await? {
                ClaimOutcome::Received(mut pending) => {
                    let received = pending.take_fitting(&mut fits);
                    if received.is_empty()
                        && let Some(released) = pending.release()
                    {
                        // It goes on if this is dropped.
                        let _ = released.await;
                    }
                    return Ok(received);
                }
                // There may be more undeliverable ones than a receiver should wait for.
                ClaimOutcome::NoneDeliverable
                    if parts.clock.now().mono() < end.max(begin.saturating_add(POLL_INTERVAL)) =>
                {
                    continue;
                }
                ClaimOutcome::NoneDeliverable => return Ok(Vec::new()),
                ClaimOutcome::Nothing(next_claim) => next_claim,
            };
            let now = parts.clock.now().mono();
            if now >= end {
                return Ok(Vec::new());
            }
            let until = next_claim.min(now.saturating_add(POLL_INTERVAL)).min(end);
            tokio::select! {
                () = any_notified(&mut notified) => {}
                () = parts.clock.sleep_until(until) => {}
            }
        }
    }

    /// Claims in a task of its own, which releases the messages if the caller is gone: dropping
    /// [`receive`](Self::receive) at any point loses nothing.
    async fn claim_or_release(&self, topics: &[Topic], want: &Receive) -> Result<ClaimOutcome, Error> {
        let (answer, asked) = oneshot::channel();
        let (duly, topics, want) = (self.clone(), topics.to_vec(), want.clone());
        tokio::spawn(async move {
            // If the caller is gone, the messages are dropped and released by that.
            let _ = answer.send(duly.claim_any(topics, &want).await);
        });
        asked.await.unwrap_or(Err(Error::Closed))
    }

    /// Claims an equal share of each queue, beginning with a random one, then fills up.
    async fn claim_any(&self, mut topics: Vec<Topic>, want: &Receive) -> Result<ClaimOutcome, Error> {
        let max = want.max.clamp(1, RECEIVE_MAX);
        if let [topic] = &*topics {
            return self.take(topic, max, want.lease, Holder::Client).await;
        }
        // Several messages may come from several queues; then the receiver holds none of them alone.
        let holder = if max == 1 { Holder::Client } else { Holder::ClientOfMany };
        let first = self.random_u64() % topics.len() as u64;
        topics.rotate_left(first as usize);
        let share = max.div_ceil(topics.len());
        let mut pending =
            ReleaseOnDrop { duly: self.clone(), runtime: Handle::current(), received: Vec::new() };
        let clock = &self.inner.parts.clock;
        let half = clock.now().mono().saturating_add(want.lease / 2);
        let (mut next_claim, mut is_more, mut failed) = (Monotonic::from_micros(u64::MAX), false, None);
        let mut budget = ClaimBudget::default();
        for shares in [share, max] {
            let mut more = Vec::new();
            for topic in topics {
                let limit = shares.min(max - pending.received.len()).min(pending.room());
                // The first leases run while further queues are claimed.
                let is_late = !pending.received.is_empty() && clock.now().mono() >= half;
                if limit == 0 || is_late {
                    break;
                }
                match self.take(&topic, limit, want.lease, holder).await {
                    Ok(ClaimOutcome::Received(taken)) => {
                        if taken.received.len() == limit {
                            more.push(topic);
                        }
                        if !pending.append(taken, &mut budget) {
                            return Ok(ClaimOutcome::Received(pending));
                        }
                    }
                    Ok(ClaimOutcome::NoneDeliverable) => is_more = true,
                    Ok(ClaimOutcome::Nothing(next)) => next_claim = next_claim.min(next),
                    // Other queues may have messages all the same.
                    Err(error) => failed = Some(error),
                }
            }
            topics = more;
        }
        match failed {
            _ if !pending.received.is_empty() => Ok(ClaimOutcome::Received(pending)),
            Some(error) => Err(error),
            None if is_more => Ok(ClaimOutcome::NoneDeliverable),
            None => Ok(ClaimOutcome::Nothing(next_claim)),
        }
    }

    async fn take(
        &self,
        topic: &Topic,
        limit: usize,
        lease: Duration,
        holder: Holder,
    ) -> Result<ClaimOutcome, Error> {
        let parts = &self.inner.parts;
        let claim = Claim { lane: Lane::Queue(topic.clone()), limit, lease, holder };
        let now = parts.clock.now();
        let lane = claim.lane.clone();
        let store = self.store()?;
        let call = parts.events.monitor.begin(CallKind::Claim, now.mono());
        let claimed = parts.spans.run_claim(store, now, claim).await;
        drop(call);
        let claimed = parts.events.observe(StoreCall::claim(&lane, &claimed), now, claimed)?;
        if claimed.messages.is_empty() {
            // A lower bound in the past must not cause a busy loop.
            let soon = now.mono().saturating_add(Duration::from_millis(1));
            let next = claimed.next.map(|next| now.mono_at(next).max(soon));
            return Ok(ClaimOutcome::Nothing(next.unwrap_or(Monotonic::from_micros(u64::MAX))));
        }
        let handed_out = parts.clock.now().mono();
        if handed_out >= now.mono().saturating_add(lease) {
            // The process was paused during the claim: another consumer may hold the messages now.
            tracing::warn!(count = claimed.messages.len(), "lease lost before receive");
            return Ok(ClaimOutcome::Nothing(handed_out.saturating_add(Duration::from_millis(1))));
        }
        self.deliver_claimed(now, claimed.messages).await
    }

    /// Triages claimed messages, and returns those to deliver.
    async fn deliver_claimed(&self, now: Now, messages: Vec<LeasedMessage>) -> Result<ClaimOutcome, Error> {
        let parts = &self.inner.parts;
        let settings = self.queue_settings();
        let Some(first) = messages.first() else { return Ok(ClaimOutcome::NoneDeliverable) };
        let counters = parts.events.counters.lane(&first.message.lane());
        let (mut received, mut receipt_cache, mut settles, mut over) = (vec![], vec![], vec![], vec![]);
        for leased in messages {
            let terms = DeliveryTerms::of(&leased);
            let wait_end = wait_after_loss(now.wall(), &terms, &settings, || self.random_u64());
            let settlement = match (triage(now.wall(), &terms, &settings.retry), wait_end) {
                (Triage::Deliver, Some(at)) => Settlement::Defer { at },
                (Triage::Deliver, None) => {
                    let late = now.wall_micros().saturating_sub(leased.ready.as_millis() * 1000);
                    let topic = leased.message.topic.clone();
                    let (lateness, attempt) = (Duration::from_micros(late), leased.attempt);
                    let delivery = CachedDelivery { topic, counters: counters.clone(), attempt, lateness };
                    receipt_cache.push((leased.receipt.clone(), delivery));
                    received.push(received_from(leased, late));
                    continue;
                }
                (Triage::Dead(reason), _) => Settlement::Dead { reason, attempt: None },
                (Triage::Early, _) => Settlement::Release,
            };
            settles.push(Settle { receipt: leased.receipt.clone(), settlement: settlement.clone() });
            over.push((leased, settlement));
        }
        if !settles.is_empty() {
            let call = parts.events.monitor.begin(CallKind::Settle, now.mono());
            let span = parts.spans.settle(over.len(), over.iter().map(|(leased, _)| &leased.message));
            let settled = Spans::run_settle(span, parts.store.settle(now, settles)).await;
            drop(call);
            let settled = match parts.events.observe(StoreCall::Settle, now, settled) {
                Ok(settled) => settled,
                // The others are claimed. Messages that could not be settled come back when their leases end.
                Err(error) if !received.is_empty() => {
                    tracing::warn!(%error, count = over.len(), "settle failed");
                    Vec::new()
                }
                Err(error) => return Err(error.into()),
            };
            let done = over.iter().zip(settled).filter(|(_, settled)| *settled == Settled::Done);
            for ((leased, settlement), _) in done {
                if let Settlement::Defer { at } = settlement {
                    parts.hints.push(leased.message.lane(), *at);
                }
                parts.events.settled(&counters, &leased.message, leased.attempt, Duration::ZERO, settlement);
            }
        }
        self.inner.receipt_cache.remember(receipt_cache);
        if received.is_empty() {
            return Ok(ClaimOutcome::NoneDeliverable);
        }
        Ok(ClaimOutcome::Received(ReleaseOnDrop { duly: self.clone(), runtime: Handle::current(), received }))
    }

    /// Acknowledges messages. One result per receipt.
    ///
    /// Cancel safety: dropped midway, any of them may be done; call it again: what was done already answers [`Settled::Lost`].
    pub async fn ack<R: AsRef<str>>(&self, receipts: &[R]) -> Result<Vec<Settled>, Error> {
        let done = Settlement::Delivered { receipt: None };
        let receipts = parse(receipts)?;
        let results = self.settle_all(&receipts, &done).await?;
        let events = &self.inner.parts.events;
        for (id, delivery) in self.settled_deliveries(&receipts, &results).await {
            events.counters.settled(&delivery.counters, &delivery.topic, &done);
            if events.has_subscribers() {
                let CachedDelivery { topic, attempt, lateness, .. } = delivery;
                events.publish(Event::Delivered { id, lane: Lane::Queue(topic), attempt, lateness });
            }
        }
        Ok(results)
    }

    /// Releases messages without an attempt, such as when the receiver stops before it begins: they are ready at once.
    /// One result per receipt.
    ///
    /// Cancel safety: dropped midway, any of them may be released; call it again: what was released already answers [`Settled::Lost`].
    pub async fn release<R: AsRef<str>>(&self, receipts: &[R]) -> Result<Vec<Settled>, Error> {
        let receipts = parse(receipts)?;
        let results = self.settle_all(&receipts, &Settlement::Release).await?;
        let now = self.now();
        for (_, delivery) in self.settled_deliveries(&receipts, &results).await {
            self.inner.parts.hints.push(Lane::Queue(delivery.topic), now);
        }
        Ok(results)
    }

    async fn settle_all(&self, receipts: &[Receipt], settlement: &Settlement) -> Result<Vec<Settled>, Error> {
        let parts = &self.inner.parts;
        let settle = |receipt: &Receipt| Settle { receipt: receipt.clone(), settlement: settlement.clone() };
        let settles = receipts.iter().map(settle).collect();
        let now = parts.clock.now();
        let store = self.store()?;
        let call = parts.events.monitor.begin(CallKind::Settle, now.mono());
        let span = parts.spans.settle(receipts.len(), []);
        let settled = Spans::run_settle(span, store.settle(now, settles)).await;
        drop(call);
        Ok(parts.events.observe(StoreCall::Settle, now, settled)?)
    }

    /// The deliveries of settled receipts: from the cache, or else from the store, where the lateness is an upper
    /// bound.
    async fn settled_deliveries(
        &self,
        receipts: &[Receipt],
        results: &[Settled],
    ) -> Vec<(MessageId, CachedDelivery)> {
        let parts = &self.inner.parts;
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        let cached = self.inner.receipt_cache.take(receipts).into_iter();
        for ((receipt, delivery), settled) in receipts.iter().zip(cached).zip(results) {
            match delivery {
                _ if *settled != Settled::Done => {}
                Some(delivery) => known.push((receipt.id.clone(), delivery)),
                None => unknown.push(receipt.id.clone()),
            }
        }
        if unknown.is_empty() {
            return known;
        }
        // It is settled: that it cannot be notified of is no error of it.
        for record in parts.store.get_without_bodies(&unknown).await.into_iter().flatten().flatten() {
            let delivery = CachedDelivery {
                counters: parts.events.counters.lane(&record.message.lane()),
                attempt: record.attempts.max(1),
                lateness: record.ended.unwrap_or_default().since(record.ready),
                topic: record.message.topic,
            };
            known.push((record.message.id, delivery));
        }
        known
    }

    /// Extends leases: they end `lease` from now. One result per receipt.
    ///
    /// Cancel safety: dropped midway, any of the leases may be extended; call it again.
    pub async fn extend<R: AsRef<str>>(
        &self,
        receipts: &[R],
        lease: Duration,
    ) -> Result<Vec<Settled>, Error> {
        let (receipts, parts) = (parse(receipts)?, &self.inner.parts);
        let now = parts.clock.now();
        let store = self.store()?;
        let call = parts.events.monitor.begin(CallKind::Extend, now.mono());
        let extended = store.extend(now, &receipts, lease).await;
        drop(call);
        Ok(parts.events.observe(StoreCall::Extend, now, extended)?)
    }

    pub(crate) fn queue_settings(&self) -> LaneSettings {
        self.inner.options.handlers.lane(self.inner.options.lease)
    }
}

/// Wakes the next waiting receiver when dropped: it may have to claim instead of this one.
struct WakeNextOnDrop(Arc<Notify>);

impl Drop for WakeNextOnDrop {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

/// Messages on their way to a receiver. Dropped before it has them, they are released.
struct ReleaseOnDrop {
    duly: Duly,
    /// It may be dropped outside of a runtime.
    runtime: Handle,
    received: Vec<Received>,
}

impl ReleaseOnDrop {
    /// About how many more messages one receive may take, by the bytes of those that it has.
    fn room(&self) -> usize {
        let bytes: usize = self.received.iter().map(|received| received.message.bytes()).sum();
        let average = bytes / self.received.len().max(1);
        Claim::BYTES_MAX.saturating_sub(bytes) / average.max(1)
    }

    /// Takes over messages that fit into `budget`, and releases the others. Returns whether all fit.
    fn append(&mut self, mut more: Self, budget: &mut ClaimBudget) -> bool {
        let fits = |received: &&Received| budget.takes(received.message.bytes());
        let count = more.received.iter().take_while(fits).count();
        self.received.extend(more.received.drain(..count));
        more.received.is_empty()
    }

    /// The messages that fit, which now count as handed out. The others stay.
    fn take_fitting(&mut self, fits: impl FnMut(&Received) -> bool) -> Vec<Received> {
        let (received, others) = std::mem::take(&mut self.received).into_iter().partition(fits);
        self.received = others;
        let counters = &self.duly.inner.parts.events.counters;
        for Received { message, late_us, .. } in &received {
            counters.began(&counters.lane(&message.lane()), &message.topic, *late_us);
        }
        add(&counters.messages.handed_out, received.len());
        received
    }

    /// Releases the messages in a task of its own, if there are any.
    fn release(&mut self) -> Option<JoinHandle<()>> {
        if self.received.is_empty() {
            return None;
        }
        let receipts: Vec<_> = self.received.drain(..).map(|received| received.receipt).collect();
        let duly = self.duly.clone();
        Some(self.runtime.spawn(async move {
            if let Err(error) = duly.release(&receipts).await {
                tracing::warn!(%error, count = receipts.len(), "release failed");
            }
        }))
    }
}

impl Drop for ReleaseOnDrop {
    fn drop(&mut self) {
        // Messages that are not released come back when their leases end.
        drop(self.release());
    }
}

enum ClaimOutcome {
    Received(ReleaseOnDrop),
    /// The claimed messages were dead or deferred; there may be others.
    NoneDeliverable,
    /// Nothing is due before this time.
    Nothing(Monotonic),
}

fn received_from(leased: LeasedMessage, late_us: u64) -> Received {
    let (receipt, attempt) = (leased.receipt.to_string(), leased.attempt);
    Received { receipt, attempt, late_us, message: leased.message }
}

/// Waits until any of them is notified.
async fn any_notified(notified: &mut [Pin<Box<Notified<'_>>>]) {
    std::future::poll_fn(|context| {
        let is_notified = notified.iter_mut().any(|notified| notified.as_mut().poll(context).is_ready());
        if is_notified { Poll::Ready(()) } else { Poll::Pending }
    })
    .await;
}
