//! Wake-ups from other nodes, through Redis. They may be lost: the sweep finds what they would have told.

use duly_core::store::Hint;
use futures_util::StreamExt;
use redis::aio::PubSubStream;
use tokio::sync::{Mutex, Notify};

use super::TieredStore;

/// The ear of this process.
#[derive(Default)]
pub(super) struct Ear {
    listening: Mutex<Option<PubSubStream>>,
    swept: Notify,
}

impl Ear {
    /// If there is no connection that listens, this is a good time for one.
    pub(super) fn swept(&self) {
        self.swept.notify_waiters();
    }
}

impl TieredStore {
    /// The next hint of another process.
    pub(super) async fn hear(&self) -> Hint {
        loop {
            let mut listening = self.ear.listening.lock().await;
            if listening.is_none() {
                *listening = self.listen().await;
            }
            while let Some(stream) = listening.as_mut() {
                match stream.next().await {
                    Some(message) => {
                        let told = std::str::from_utf8(message.get_payload_bytes());
                        if let Some(hint) = told.ok().and_then(|told| self.sql.heard(told)) {
                            return hint;
                        }
                    }
                    None => *listening = None,
                }
            }
            drop(listening);
            self.ear.swept.notified().await;
        }
    }

    async fn listen(&self) -> Option<PubSubStream> {
        let mut pubsub = self.index.link().await.ok()?.listener().await.ok()?;
        pubsub.subscribe(&self.index.channel).await.ok()?;
        Some(pubsub.into_on_message())
    }
}
