//! Partitions as destinations.
//!
//! One partition may have no leader while the others of its topic are well. A record without a key goes to one that has a
//! leader, by the library's choice; a record with a key can only go to its own. So a topic in trouble is taken apart: its
//! messages with a key have their partition as destination, those without have the topic. A topic that is well stays one
//! destination: there is nothing to tell apart, and fewer are remembered.

use std::{
    borrow::Cow,
    collections::HashMap,
    sync::{PoisonError, RwLock},
};

use duly_core::StoredMessage;

/// Topics that are taken apart, at most. Those in trouble after that stay whole.
const TOPICS_MAX: usize = 1_000;

/// How many partitions the topics have that were in trouble.
#[derive(Default)]
pub(super) struct Partitions(RwLock<HashMap<String, u32>>);

impl Partitions {
    /// A topic in trouble has so many.
    pub(super) fn learn(&self, topic: &str, count: usize) {
        let Ok(count) = u32::try_from(count) else { return };
        let mut topics = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if count > 1 && (topics.len() < TOPICS_MAX || topics.contains_key(topic)) {
            topics.insert(topic.to_owned(), count);
        }
    }

    /// What the message fails together with. A number of partitions that is out of date only draws the line elsewhere.
    pub(super) fn destination<'a>(&self, message: &'a StoredMessage) -> Cow<'a, str> {
        let topic = message.topic.as_str();
        let topics = self.0.read().unwrap_or_else(PoisonError::into_inner);
        match (&message.key, topics.get(topic)) {
            (Some(key), Some(count)) => {
                Cow::Owned(format!("{topic}[{}]", partition(key.as_str().as_bytes(), *count)))
            }
            _ => Cow::Borrowed(topic),
        }
    }
}

/// The partition that Kafka's own clients, and the library as it is set here, choose for a key.
fn partition(key: &[u8], count: u32) -> u32 {
    (murmur2(key) & 0x7fff_ffff) % count
}

fn murmur2(data: &[u8]) -> u32 {
    const M: u32 = 0x5bd1_e995;
    let mut hash = 0x9747_b28c ^ u32::try_from(data.len()).unwrap_or(u32::MAX);
    let mut words = data.chunks_exact(4);
    for word in &mut words {
        let mut k = word.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte)).wrapping_mul(M);
        k = (k ^ (k >> 24)).wrapping_mul(M);
        hash = hash.wrapping_mul(M) ^ k;
    }
    let rest = words.remainder();
    if !rest.is_empty() {
        hash ^= rest.iter().rev().fold(0, |all, byte| all << 8 | u32::from(*byte));
        hash = hash.wrapping_mul(M);
    }
    hash = (hash ^ (hash >> 13)).wrapping_mul(M);
    hash ^ (hash >> 15)
}

#[cfg(test)]
mod tests {
    use duly_core::Timestamp;

    use super::*;

    fn message(key: Option<&str>) -> StoredMessage {
        let (id, sink, topic) = ("a".parse(), "events".parse(), "orders".parse());
        let message =
            StoredMessage::new(id.unwrap(), sink.unwrap(), topic.unwrap(), Timestamp::from_millis(1));
        StoredMessage { key: key.map(|key| key.parse().unwrap()), ..message }
    }

    #[test]
    fn a_topic_is_one_destination_until_it_is_in_trouble() {
        let partitions = Partitions::default();
        assert_eq!(partitions.destination(&message(Some("customer-7"))), "orders");
        partitions.learn("orders", 1);
        assert_eq!(partitions.destination(&message(Some("customer-7"))), "orders");
        partitions.learn("orders", 8);
        assert_eq!(partitions.destination(&message(None)), "orders");
        let number = partition(b"customer-7", 8);
        assert_eq!(partitions.destination(&message(Some("customer-7"))), format!("orders[{number}]"));
    }

    #[test]
    fn the_hash_is_kafkas() {
        // From the tests of Kafka's own clients.
        for (text, hash) in
            [("21", -973_932_308), ("foobar", -790_332_482), ("a-little-bit-long-string", -985_981_536)]
        {
            assert_eq!(murmur2(text.as_bytes()) as i32, hash, "{text}");
        }
    }
}
