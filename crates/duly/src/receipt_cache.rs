//! Deliveries to receivers of this process, by receipt.

use std::{
    collections::{HashMap, VecDeque},
    hash::{BuildHasher, RandomState},
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use duly_core::{Receipt, Topic};

use crate::counters::LaneCounters;

/// Cached deliveries at most. The rest is read from the store when it is acknowledged.
const REMEMBERED_MAX: usize = 65_536;

/// A message that a receiver of this process has in flight.
#[derive(Debug, Clone)]
pub(crate) struct CachedDelivery {
    pub(crate) topic: Topic,
    pub(crate) counters: Arc<LaneCounters>,
    pub(crate) attempt: u32,
    pub(crate) lateness: Duration,
}

/// Caches deliveries by receipt, so that an ack needs no read of the store.
#[derive(Debug, Default)]
pub(crate) struct ReceiptCache {
    hasher: RandomState,
    known: Mutex<CachedReceipts>,
}

#[derive(Debug, Default)]
struct CachedReceipts {
    by_receipt: HashMap<u64, CachedDelivery>,
    /// Oldest first. Acknowledged ones stay until the next cleanup.
    order: VecDeque<u64>,
}

impl ReceiptCache {
    pub(crate) fn remember(&self, batch: impl IntoIterator<Item = (Receipt, CachedDelivery)>) {
        let mut known = self.lock();
        for (receipt, delivery) in batch {
            let key = self.hasher.hash_one(&receipt);
            if known.by_receipt.insert(key, delivery).is_none() {
                known.order.push_back(key);
            }
        }
        known.tidy();
    }

    /// Removes and returns the cached deliveries.
    pub(crate) fn take(&self, receipts: &[Receipt]) -> Vec<Option<CachedDelivery>> {
        let mut known = self.lock();
        receipts.iter().map(|receipt| known.by_receipt.remove(&self.hasher.hash_one(receipt))).collect()
    }

    /// The queues of cached deliveries, which stay cached.
    pub(crate) fn topics(&self, receipts: &[Receipt]) -> Vec<Option<Topic>> {
        let known = self.lock();
        let topic =
            |receipt: &Receipt| Some(known.by_receipt.get(&self.hasher.hash_one(receipt))?.topic.clone());
        receipts.iter().map(topic).collect()
    }

    fn lock(&self) -> MutexGuard<'_, CachedReceipts> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl CachedReceipts {
    fn tidy(&mut self) {
        while self.by_receipt.len() > REMEMBERED_MAX
            && let Some(oldest) = self.order.pop_front()
        {
            self.by_receipt.remove(&oldest);
        }
        if self.order.len() > 2 * self.by_receipt.len() + 1_024 {
            self.order.retain(|key| self.by_receipt.contains_key(key));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use duly_core::MessageId;

    fn receipt(token: u64) -> Receipt {
        Receipt { shard: 0, token, id: MessageId::parse("a").unwrap() }
    }

    fn delivery() -> CachedDelivery {
        CachedDelivery {
            topic: Topic::parse("order").unwrap(),
            counters: Arc::default(),
            attempt: 1,
            lateness: Duration::ZERO,
        }
    }

    #[test]
    fn what_is_not_given_back_is_forgotten_in_the_end() {
        let receipt_cache = ReceiptCache::default();
        for token in 0..2 * REMEMBERED_MAX as u64 {
            receipt_cache.remember([(receipt(token), delivery())]);
        }
        let known = receipt_cache.take(&[receipt(0), receipt(2 * REMEMBERED_MAX as u64 - 1)]);
        assert!(known[0].is_none() && known[1].is_some());
        assert_eq!(receipt_cache.lock().by_receipt.len(), REMEMBERED_MAX - 1);
    }

    #[test]
    fn what_is_given_back_leaves_nothing_behind() {
        let receipt_cache = ReceiptCache::default();
        for token in 0..100_000 {
            receipt_cache.remember([(receipt(token), delivery())]);
            assert!(receipt_cache.take(&[receipt(token)])[0].is_some());
        }
        assert!(receipt_cache.lock().order.len() <= 1_025);
    }
}
