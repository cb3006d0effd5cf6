//! Messages that cannot be read from Redis: something else wrote to their values. Each becomes a dead letter and delays no other.
//!
//! Scripts see most of them, and set them aside where they meet them: at a claim, when a lease ends, when an outcome is recorded. What
//! only Rust cannot read (a topic that is none, text that is no UTF-8) is set aside just after its claim.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use duly_core::{MessageId, Now};

use super::{RedisStore, call::ITEMS_MAX, scripts};

/// How many messages this process set aside.
#[derive(Debug, Default)]
pub(super) struct DamagedMessages(AtomicU64);

impl DamagedMessages {
    pub(super) fn total(&self) -> u64 {
        self.0.load(Relaxed)
    }

    /// A script made a dead letter of this one.
    pub(super) fn record(&self, shard: u16, id: &[u8]) {
        self.0.fetch_add(1, Relaxed);
        tracing::error!(id = %String::from_utf8_lossy(id), shard, "stored message unreadable; made a dead letter");
    }
}

impl RedisStore {
    /// Makes dead letters of messages that are claimed by these tokens. Those for which it fails are claimed again when their leases
    /// have ended.
    pub(super) async fn set_aside(&self, now: Now, shard: u16, claimed: &[(MessageId, u64)]) {
        for part in claimed.chunks(ITEMS_MAX) {
            let mut cmd = self.call(&scripts::SET_ASIDE, shard, now);
            part.iter().for_each(|(id, token)| {
                cmd.arg(id.as_str()).arg(*token);
            });
            match self.run(&scripts::SET_ASIDE, &cmd).await {
                Ok(replies) => {
                    let done = part.iter().zip(replies).filter(|(_, reply)| reply == b"d");
                    done.for_each(|((id, _), _)| self.faults.damaged.record(shard, id.as_str().as_bytes()));
                }
                Err(error) => {
                    tracing::warn!(shard, %error, "unreadable messages not made dead letters; tried again");
                }
            }
        }
    }
}
