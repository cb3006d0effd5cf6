//! Wake-ups from other nodes, through Redis. They may be lost: the sweep finds what they would have told.

use duly_core::store::Hint;
use futures_util::StreamExt;
use redis::aio::PubSubStream;
use tokio::sync::{Mutex, Notify};

use super::RedisAndMysqlStore;

/// The subscription of this process to hints of others.
#[derive(Default)]
pub(super) struct HintListener {
    listening: Mutex<Option<PubSubStream>>,
    swept: Notify,
}

impl HintListener {
    /// If there is no connection that listens, this is a good time for one.
    pub(super) fn swept(&self) {
        self.swept.notify_waiters();
    }
}

impl RedisAndMysqlStore {
    /// The next hint of another process.
    pub(super) async fn next_hint(&self) -> Hint {
        loop {
            let mut listening = self.hint_listener.listening.lock().await;
            if listening.is_none() {
                *listening = self.listen().await;
            }
            while let Some(stream) = listening.as_mut() {
                match stream.next().await {
                    Some(message) => {
                        let payload = std::str::from_utf8(message.get_payload_bytes());
                        if let Some(hint) = payload.ok().and_then(|payload| self.sql.parse_hint(payload)) {
                            return hint;
                        }
                    }
                    None => *listening = None,
                }
            }
            drop(listening);
            self.hint_listener.swept.notified().await;
        }
    }

    async fn listen(&self) -> Option<PubSubStream> {
        let mut pubsub = self.index.link().await.ok()?.listener().await.ok()?;
        pubsub.subscribe(&self.index.channel).await.ok()?;
        Some(pubsub.into_on_message())
    }
}
