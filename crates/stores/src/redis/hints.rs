//! Wake-ups from other processes, by publish and subscribe. They may be lost: the sweep finds what they would have told.

use duly_core::{Lane, Timestamp, store::Hint};
use futures_util::StreamExt;
use redis::{Msg, aio::PubSubStream};
use tokio::sync::{Mutex, Notify};

use super::{RedisStore, keys::time};
use crate::shared::lane::lane_of;

/// The subscription of this process to hints of others.
#[derive(Default)]
pub(super) struct Hints {
    listening: Mutex<Option<PubSubStream>>,
    swept: Notify,
}

impl Hints {
    /// Redis answered a sweep: if there is no connection that listens, this is a good time for one.
    pub(super) fn swept(&self) {
        self.swept.notify_waiters();
    }
}

impl RedisStore {
    /// The next hint of another process.
    pub(super) async fn next_hint(&self) -> Hint {
        loop {
            let mut listening = self.hints.listening.lock().await;
            if listening.is_none() {
                *listening = self.listen().await;
            }
            while let Some(stream) = listening.as_mut() {
                match stream.next().await {
                    Some(message) => {
                        if let Some(hint) = self.parse_hint(&message) {
                            return hint;
                        }
                    }
                    None => *listening = None,
                }
            }
            drop(listening);
            self.hints.swept.notified().await;
        }
    }

    async fn listen(&self) -> Option<PubSubStream> {
        let mut pubsub = self.link.listener().await.ok()?;
        pubsub.subscribe(&self.keys.hints).await.ok()?;
        Some(pubsub.into_on_message())
    }

    /// As `prelude.lua` tells it: who sends it and from which shard, when, and the lane. What this process sent it knows, and what
    /// another node delivers is of no use here.
    fn parse_hint(&self, message: &Msg) -> Option<Hint> {
        let payload = message.get_payload_bytes();
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
