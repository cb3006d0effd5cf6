//! Settles received messages: ack, release, extend.

use std::time::Duration;

use duly_core::{
    Lane, MessageId, Receipt,
    store::{Settle, Settled, Settlement},
};

use crate::{
    Duly, Error,
    engine::EngineHandles,
    events::Event,
    queue_arguments::parse,
    receipt_cache::{CachedDelivery, ReceiptCache},
    store_monitor::{CallKind, StoreCall},
};

impl Duly {
    /// Acknowledges messages. One result per receipt.
    ///
    /// Cancel safety: dropped midway, any of them may be done; call it again: what was done already answers [`Settled::Lost`].
    pub async fn ack<R: AsRef<str>>(&self, receipts: &[R]) -> Result<Vec<Settled>, Error> {
        let (receipts, cache) = (parse(receipts)?, self.inner.receipt_cache.clone());
        let done = Settlement::Delivered { receipt: None };
        self.finish_of(receipts.len(), |parts| async move {
            let results = parts.settle_all(&receipts, &done).await?;
            let events = &parts.events;
            for (id, delivery) in parts.settled_deliveries(&cache, &receipts, &results).await {
                events.counters.settled(&delivery.counters, &delivery.topic, &done);
                if events.has_subscribers() {
                    let CachedDelivery { topic, attempt, lateness, .. } = delivery;
                    events.publish(Event::Delivered { id, lane: Lane::Queue(topic), attempt, lateness });
                }
            }
            Ok(results)
        })
        .await
    }

    /// Releases messages without an attempt, such as when the receiver stops before it begins: they are ready at once.
    /// One result per receipt.
    ///
    /// Cancel safety: dropped midway, any of them may be released; call it again: what was released already answers [`Settled::Lost`].
    pub async fn release<R: AsRef<str>>(&self, receipts: &[R]) -> Result<Vec<Settled>, Error> {
        let (receipts, cache) = (parse(receipts)?, self.inner.receipt_cache.clone());
        self.finish_of(receipts.len(), |parts| async move {
            let results = parts.settle_all(&receipts, &Settlement::Release).await?;
            let now = parts.clock.now().wall();
            for (_, delivery) in parts.settled_deliveries(&cache, &receipts, &results).await {
                parts.hints.push(Lane::Queue(delivery.topic), now);
            }
            Ok(results)
        })
        .await
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
}

impl EngineHandles {
    async fn settle_all(&self, receipts: &[Receipt], settlement: &Settlement) -> Result<Vec<Settled>, Error> {
        let settle = |receipt: &Receipt| Settle { receipt: receipt.clone(), settlement: settlement.clone() };
        let settles = receipts.iter().map(settle).collect();
        let now = self.clock.now();
        let call = self.events.monitor.begin(CallKind::Settle, now.mono());
        let settled = self.store.settle(now, settles).await;
        drop(call);
        Ok(self.events.observe(StoreCall::Settle, now, settled)?)
    }

    /// The deliveries of settled receipts: from the cache, or else from the store, where the lateness is an upper
    /// bound.
    async fn settled_deliveries(
        &self,
        cache: &ReceiptCache,
        receipts: &[Receipt],
        results: &[Settled],
    ) -> Vec<(MessageId, CachedDelivery)> {
        let (mut known, mut unknown) = (Vec::new(), Vec::new());
        let cached = cache.take(receipts).into_iter();
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
        for record in self.store.get_without_bodies(&unknown).await.into_iter().flatten().flatten() {
            let delivery = CachedDelivery {
                counters: self.events.counters.lane(&record.message.lane()),
                attempt: record.attempts.max(1),
                lateness: record.ended.unwrap_or_default().since(record.ready),
                topic: record.message.topic,
            };
            known.push((record.message.id, delivery));
        }
        known
    }
}
