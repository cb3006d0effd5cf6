//! Hints of other processes, by publish and subscribe.

use duly_core::{Lane, Timestamp, store::Hint};
use futures_util::StreamExt;

use super::{RedisStore, keys::time};
use crate::shared::{hints::Payloads, lane::lane_of};

impl RedisStore {
    /// The next hint of another process.
    pub(super) async fn next_hint(&self) -> Hint {
        self.hints.next(|| self.listen(), |payload| self.parse_hint(payload)).await
    }

    async fn listen(&self) -> Option<Payloads> {
        let mut pubsub = self.link.listener().await.ok()?;
        pubsub.subscribe(&self.keys.hints).await.ok()?;
        Some(pubsub.into_on_message().map(|message| message.get_payload_bytes().to_vec()).boxed())
    }

    /// As `prelude.lua` publishes it: the sender and its shard, when, and the lane. What this process sent it knows, and what
    /// another node delivers is of no use here.
    fn parse_hint(&self, payload: &[u8]) -> Option<Hint> {
        let (sender, rest) = payload.split_at_checked(8)?;
        let (shard, rest) = rest.split_at_checked(2)?;
        let due: Timestamp = time(rest)?;
        let name = rest.get(6..)?;
        let lane = lane_of(name)?;
        if sender == self.options.instance.to_be_bytes() {
            return None;
        }
        if matches!(lane, Lane::Sink(_)) {
            let shard = u16::from_be_bytes(shard.try_into().ok()?);
            return self
                .nodes
                .may_claim(std::str::from_utf8(name).ok()?, shard)
                .then_some(Hint { lane, due });
        }
        Some(Hint { lane, due })
    }
}
