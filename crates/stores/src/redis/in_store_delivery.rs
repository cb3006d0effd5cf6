//! Messages into streams of the same Redis, without leaving it: one script takes what is due from what waits, appends it and
//! records that.

use std::{
    collections::VecDeque,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{
    InStoreDelivered, InStoreDelivery, InStoreMessage, Lane, Now, Remaining, SinkName, Timestamp, Topic,
    TopicPatterns, store::StoreError,
};
use futures_util::future::join_all;
use redis_link::reserved_for;

use super::{
    RedisStore,
    call::time_in,
    connection::Link,
    fault::garbled,
    keys::{read_claim_order, six, stream_members, tag},
    scripts,
};
use crate::shared::lane::lane_text;

/// How many messages a script moves at once, and how many bytes of them: it must not hold Redis up. Each is appended by a command
/// of its own, so they are fewer than elsewhere.
const MOVE_MAX: usize = 100;
const BYTES_MAX: usize = 256 * 1024;
/// With a limit of fewer than so many for each shard, the first messages over all shards are selected first.
const SHARE_MIN: usize = 16;
/// So many streams are remembered, so that a script is given them before it asks.
const KNOWN_MAX: usize = 40;

/// A shard, and the fencing token of this node's lease on it.
type Owned = (u16, u64);

/// Allowed streams, and limits of their length.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StreamLimits {
    /// The most entries of a stream, about. No limit if not set.
    pub max_len: Option<u64>,
    /// How old the oldest entry of a stream may be, about. No limit if not set.
    pub max_age: Option<Duration>,
    /// The topics whose messages are moved. What is to go elsewhere is left for the sink, which refuses it.
    pub topics: TopicPatterns,
}

/// Delivers due messages of one sink into streams.
struct StreamDelivery {
    store: Arc<RedisStore>,
    lane_text: String,
    tag: Vec<u8>,
    limits: StreamLimits,
    /// Streams that messages went to lately, the newest first.
    known: Mutex<VecDeque<Topic>>,
}

/// The result of one shard.
#[derive(Default)]
struct InShard {
    messages: Vec<InStoreMessage>,
    next: Option<Timestamp>,
    left: Remaining,
}

/// The result of one call.
struct MoveReply {
    in_shard: InShard,
    missing: Vec<Topic>,
}

impl RedisStore {
    /// What takes messages of `sink` into the streams that their topics name, in this store's Redis and database. `None` if
    /// this is a Cluster: there a script has one slot.
    pub fn in_store_delivery(
        self: &Arc<Self>,
        sink: SinkName,
        limits: StreamLimits,
    ) -> Option<Arc<dyn InStoreDelivery>> {
        if matches!(self.link, Link::Cluster(..)) {
            return None;
        }
        let lane_text = lane_text(&Lane::Sink(sink));
        let (store, tag) = (self.clone(), tag(&lane_text));
        Some(Arc::new(StreamDelivery { store, lane_text, tag, limits, known: Mutex::default() }))
    }
}

#[async_trait]
impl InStoreDelivery for StreamDelivery {
    async fn deliver_due(&self, now: Now, limit: usize) -> Result<InStoreDelivered, StoreError> {
        self.store.serve(now, &self.lane_text).await?;
        let owned = self.store.nodes.leases(&self.lane_text);
        let owned = self.store.faults.reachable(owned, |(shard, _)| *shard);
        let share = limit.checked_div(owned.len()).unwrap_or_default();
        let shares: Vec<(Owned, usize)> = if share >= SHARE_MIN {
            owned.into_iter().map(|owned| (owned, share)).collect()
        } else {
            self.candidates(now, limit, &owned).await?
        };
        let of_shard = |(owned, share): (Owned, usize)| async move {
            let moved = self.move_in(now, owned, share).await;
            // A shard that fails alone is left out from the next time on, until a sweep has reached it.
            moved.inspect_err(|error| _ = self.store.faults.record(owned.0, error.clone()))
        };
        let mut moved = InStoreDelivered::default();
        let mut failed: Option<StoreError> = None;
        for done in join_all(shares.into_iter().map(of_shard)).await {
            match done {
                Ok(InShard { messages, next, left }) => {
                    moved.messages.extend(messages);
                    moved.next = moved.next.into_iter().chain(next).min();
                    moved.remaining = if left == Remaining::ToClaim { left } else { moved.remaining };
                }
                Err(error) => failed = Some(error),
            }
        }
        match failed {
            // What is in the streams is returned; the shard that failed is called again at once, which reports the fault.
            Some(error) if moved.messages.is_empty() => Err(error),
            Some(_) => Ok(InStoreDelivered { next: Some(now.wall()), ..moved }),
            None => Ok(moved),
        }
    }
}

impl StreamDelivery {
    /// How many of the first `limit` are in each shard. Every shard is among them, if only to say when its next is due.
    async fn candidates(
        &self,
        now: Now,
        limit: usize,
        owned: &[Owned],
    ) -> Result<Vec<(Owned, usize)>, StoreError> {
        let after = Timestamp::from_millis(now.wall().as_millis() + 1);
        let from = [b"[", self.tag.as_slice()].concat();
        let to = [b"(", self.tag.as_slice(), &six(after)].concat();
        let (from, to) = (from.as_slice(), to.as_slice());
        let in_shard = |shard: u16| async move {
            let (waiting, _) = self.store.first_waiting(shard, &self.lane_text, (from, to), limit).await?;
            Ok::<_, StoreError>(
                waiting.into_iter().map(|(candidate, _)| (candidate, shard)).collect::<Vec<_>>(),
            )
        };
        let first = |shard: u16| async move { (shard, in_shard(shard).await) };
        let all = join_all(owned.iter().map(|(shard, _)| first(*shard))).await;
        let all = self.store.faults.answered(all, |shard| *shard)?;
        let answered: Vec<u16> = all.iter().map(|(shard, _)| *shard).collect();
        let mut candidates: Vec<_> = all.into_iter().flat_map(|(_, candidates)| candidates).collect();
        candidates.sort();
        candidates.truncate(limit);
        let share = |shard: u16| candidates.iter().filter(|(_, of)| *of == shard).count();
        let owned = owned.iter().filter(|(shard, _)| answered.contains(shard));
        Ok(owned.map(|owned| (*owned, share(owned.0))).collect())
    }

    /// Moves up to `share` from one shard, in small scripts one after the other: the shards do not wait for each other.
    async fn move_in(&self, now: Now, owned: Owned, share: usize) -> Result<InShard, StoreError> {
        let mut all = InShard::default();
        let mut streams = self.known_streams();
        loop {
            let count = (share - all.messages.len()).min(MOVE_MAX);
            let reply = match self.ask(now, owned, count, &streams).await {
                Ok(reply) => reply,
                // What is in the streams already is returned first; the next call reports the fault.
                Err(_) if !all.messages.is_empty() => return Ok(InShard { next: Some(now.wall()), ..all }),
                Err(error) => return Err(error),
            };
            let MoveReply { mut in_shard, missing } = reply;
            let count = missing.len();
            let missing: Vec<Topic> = missing.into_iter().filter(|topic| self.takes(topic)).collect();
            if missing.len() < count {
                in_shard.left = Remaining::ToClaim;
            }
            let went_on = !in_shard.messages.is_empty() || !missing.is_empty();
            all.messages.extend(in_shard.messages);
            all.next = in_shard.next;
            all.left = if in_shard.left == Remaining::ToClaim { Remaining::ToClaim } else { all.left };
            let more = all.next.is_some_and(|next| next <= now.wall()) && all.messages.len() < share;
            self.learn(&missing);
            if !more || !went_on || all.left == Remaining::ToClaim {
                return Ok(all);
            }
            streams = if missing.is_empty() { self.known_streams() } else { missing };
        }
    }

    async fn ask(
        &self,
        now: Now,
        (shard, token): Owned,
        share: usize,
        streams: &[Topic],
    ) -> Result<MoveReply, StoreError> {
        let keys: Vec<&str> = std::iter::once(self.store.keys.paused.as_str())
            .chain(streams.iter().map(Topic::as_str))
            .collect();
        let mut cmd = self.store.call_with(&scripts::MOVE, shard, now, &keys);
        let age = self.limits.max_age.map_or(0, |age| u64::try_from(age.as_millis()).unwrap_or(u64::MAX));
        let owner = [self.store.options.instance.to_be_bytes(), token.to_be_bytes()].concat();
        cmd.arg(&self.lane_text)
            .arg(owner)
            .arg(share)
            .arg(BYTES_MAX)
            .arg(self.limits.max_len.unwrap_or(0))
            .arg(age);
        let reply = self.store.run(&scripts::MOVE, &cmd).await?;
        if reply.is_empty() {
            self.store.nodes.lose_lease(&self.lane_text, shard, token);
            return Ok(MoveReply { in_shard: InShard::default(), missing: Vec::new() });
        }
        self.read(&reply, streams).ok_or_else(|| garbled("an answer"))
    }

    fn read(&self, reply: &[Vec<u8>], streams: &[Topic]) -> Option<MoveReply> {
        let [next, left, moved, missing @ ..] = reply else { return None };
        let message = |(stream, member): (usize, &[u8])| {
            let candidate = read_claim_order(member, self.tag.len())?;
            let topic = streams.get(stream.checked_sub(1)?)?.clone();
            Some(InStoreMessage { id: candidate.id, topic, ready: candidate.ready })
        };
        let topic = |name: &Vec<u8>| Topic::parse(std::str::from_utf8(name).ok()?).ok();
        // A name that is no topic is of a message that cannot be read: a claim sets it aside.
        let topics: Vec<Topic> = missing.iter().filter_map(topic).collect();
        let all_are_topics = topics.len() == missing.len();
        let in_shard = InShard {
            messages: stream_members(moved)?.into_iter().map(message).collect::<Option<_>>()?,
            next: time_in(next).ok()?,
            left: if left.is_empty() && all_are_topics { Remaining::InStore } else { Remaining::ToClaim },
        };
        Some(MoveReply { in_shard, missing: topics })
    }

    /// Whether a stream may have this name. A key of the store would become a stream, and whoever reads it would fail.
    fn takes(&self, topic: &Topic) -> bool {
        reserved_for(topic.as_str()).is_none() && self.limits.topics.allows(topic.as_str())
    }

    fn known_streams(&self) -> Vec<Topic> {
        self.known.lock().unwrap_or_else(PoisonError::into_inner).iter().cloned().collect()
    }

    fn learn(&self, streams: &[Topic]) {
        let mut known = self.known.lock().unwrap_or_else(PoisonError::into_inner);
        for stream in streams.iter().take(KNOWN_MAX) {
            if !known.contains(stream) {
                known.push_front(stream.clone());
            }
        }
        known.truncate(KNOWN_MAX);
    }
}
