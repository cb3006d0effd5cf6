//! Hints of other nodes, through Redis.

use duly_core::store::Hint;
use futures_util::StreamExt;

use super::RedisAndMysqlStore;
use crate::shared::hints::Payloads;

impl RedisAndMysqlStore {
    /// The next hint of another process.
    pub(super) async fn next_hint(&self) -> Hint {
        let parse = |payload: &[u8]| self.sql.parse_hint(std::str::from_utf8(payload).ok()?);
        self.hint_listener.next(|| self.listen(), parse).await
    }

    async fn listen(&self) -> Option<Payloads> {
        let mut pubsub = self.index.link().await.ok()?.listener().await.ok()?;
        pubsub.subscribe(&self.index.channel).await.ok()?;
        Some(pubsub.into_on_message().map(|message| message.get_payload_bytes().to_vec()).boxed())
    }
}
