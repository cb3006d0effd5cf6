//! Messages that cannot be read from Redis: something else wrote to their values. Each becomes a dead letter and delays no other.
//!
//! Scripts see most of them, and set them aside where they meet them: at a claim, when a lease ends, when an outcome is recorded. What
//! only Rust cannot read (a topic that is none, text that is no UTF-8) is set aside just after its claim.
//!
//! A member of `wait` that names no message is removed: it holds up no message behind it.

use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

use duly_core::{MessageId, Now, store::StoreError};

use super::{
    RedisStore,
    call::ITEMS_MAX,
    keys::{read_claim_order, tag},
    scripts,
};
use crate::shared::claim_order::ClaimOrder;

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

    fn record_member(&self, shard: u16, lane: &str, member: &[u8]) {
        self.0.fetch_add(1, Relaxed);
        let member = String::from_utf8_lossy(member);
        tracing::error!(%member, lane, shard, "waiting entry unreadable; removed");
    }
}

/// How often a claim reads again after it has removed what it could not read.
const REREADS_MAX: usize = 16;

impl RedisStore {
    /// The first members of `wait` of a lane in this shard between these two, and whether there may be more. Those that cannot be read are
    /// removed.
    pub(super) async fn first_waiting(
        &self,
        shard: u16,
        lane: &str,
        (from, to): (&[u8], &[u8]),
        count: usize,
    ) -> Result<(Vec<(ClaimOrder, Vec<u8>)>, bool), StoreError> {
        let tag_len = tag(lane).len();
        for reread in 0.. {
            let mut cmd = redis::cmd("ZRANGEBYLEX");
            cmd.arg(self.keys.one(shard, "wait")).arg(from).arg(to).arg("LIMIT").arg(0).arg(count);
            let members: Vec<Vec<u8>> = self.ask(&cmd).await?;
            let is_cut = members.len() == count;
            let (mut candidates, mut unreadable) = (Vec::with_capacity(members.len()), Vec::new());
            for member in members {
                match read_claim_order(&member, tag_len) {
                    Some(candidate) => candidates.push((candidate, member)),
                    None => unreadable.push(member),
                }
            }
            let is_removed = !unreadable.is_empty() && self.remove_unreadable(shard, lane, &unreadable).await;
            if !is_removed || reread == REREADS_MAX {
                return Ok((candidates, is_cut));
            }
        }
        Ok((Vec::new(), true))
    }

    /// Removes members of `wait` that name no message. Returns whether that worked; otherwise the next claim tries again.
    async fn remove_unreadable(&self, shard: u16, lane: &str, members: &[Vec<u8>]) -> bool {
        let now = Now::new(0, duly_core::Monotonic::default());
        for part in members.chunks(ITEMS_MAX) {
            let mut cmd = self.call(&scripts::REMOVE_UNREADABLE, shard, now);
            cmd.arg(lane).arg(part);
            match self.run(&scripts::REMOVE_UNREADABLE, &cmd).await {
                Ok(replies) => {
                    let done = part.iter().zip(replies).filter(|(_, reply)| reply == b"d");
                    done.for_each(|(member, _)| self.faults.damaged.record_member(shard, lane, member));
                }
                Err(error) => {
                    tracing::warn!(lane, shard, %error, "unreadable waiting entries not removed; tried again");
                    return false;
                }
            }
        }
        true
    }

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
