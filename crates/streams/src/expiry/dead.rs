//! Dead timers: those that were given up.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;

use super::ExpiryTimers;
use crate::{
    EntryId, Error,
    entry::{BODY, DULY_DUE, Raw},
};

/// A timer that was given up after its last [attempt](super::TimerListener::attempts).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadTimer {
    /// Its id in the stream of dead timers.
    pub id: EntryId,
    /// The key.
    pub key: String,
    /// Its value as JSON.
    pub value: Vec<u8>,
    /// When it was due: milliseconds since 1970, by the clock of Redis.
    pub due_ms: u64,
    /// Attempts.
    pub attempts: u32,
    /// Why the last attempt failed.
    pub reason: String,
    /// When it was given up, by the clock of Redis.
    pub at: SystemTime,
}

impl DeadTimer {
    fn from_raw(raw: &Raw) -> Option<Self> {
        let text = |name| raw.text(name).map(str::to_owned);
        Some(Self {
            id: raw.id.clone(),
            key: text("key")?,
            value: raw.field(BODY)?.to_vec(),
            due_ms: raw.text(DULY_DUE)?.parse().ok()?,
            attempts: raw.text("duly-dead-attempts")?.parse().ok()?,
            reason: text("duly-dead-reason")?,
            at: UNIX_EPOCH + Duration::from_millis(raw.text("duly-dead-at")?.parse().ok()?),
        })
    }

    /// Decodes its value.
    pub fn json<V: DeserializeOwned>(&self) -> Result<V, String> {
        serde_json::from_slice(&self.value).map_err(|why| why.to_string())
    }
}

/// The result of replaying a dead timer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerReplayed {
    /// It is due now, and its attempts start anew.
    Done,
    /// A timer of the same key was set since and is pending: the dead one stays.
    SetAnew,
    /// There is no such dead timer.
    Unknown,
}

impl ExpiryTimers {
    /// Lists dead timers of this prefix, oldest first, after the id `after`, at most `count`.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn dead(&self, after: Option<&EntryId>, count: usize) -> Result<Vec<DeadTimer>, Error> {
        self.streams.check_open()?;
        let from = after.map_or_else(|| "-".into(), |after| format!("({after}"));
        let reply = self.shadow.dead(&from, count).await?;
        Ok(reply.into_iter().filter_map(|(id, fields)| DeadTimer::from_raw(&Raw::new(id, fields))).collect())
    }

    /// The number of dead timers.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn dead_count(&self) -> Result<u64, Error> {
        self.streams.check_open()?;
        self.shadow.dead_count().await
    }

    /// Replays a dead timer: it is due now and its attempts start anew. It leaves the dead timers atomically.
    ///
    /// Cancel safety: dropped midway, it may be due or not; call it again: [`TimerReplayed::Unknown`] if it was.
    pub async fn replay(&self, id: impl AsRef<str>) -> Result<TimerReplayed, Error> {
        self.streams.check_open()?;
        let done = self.shadow.replay(id.as_ref()).await?;
        self.hint.notify_one();
        Ok(match done {
            1 => TimerReplayed::Done,
            -1 => TimerReplayed::SetAnew,
            _ => TimerReplayed::Unknown,
        })
    }

    /// Deletes a dead timer.
    ///
    /// Cancel safety: dropped midway, it may be removed or not; call it again: `false` if it was.
    pub async fn remove_dead(&self, id: impl AsRef<str>) -> Result<bool, Error> {
        self.streams.check_open()?;
        self.shadow.remove_dead(id.as_ref()).await
    }
}
