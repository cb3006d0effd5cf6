//! Timers that were given up.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::de::DeserializeOwned;

use super::ExpiryTimers;
use crate::{
    EntryId, Error,
    entry::{BODY, DULY_DUE, Raw},
};

/// A timer that was given up after the last of its [tries](super::TimerListener::attempts).
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeadTimer {
    /// Where it stands among the dead ones.
    pub id: EntryId,
    /// The whole name of the key.
    pub key: String,
    /// What it was set to: JSON.
    pub value: Vec<u8>,
    /// When it was due: milliseconds since 1970, by the clock of Redis.
    pub due_ms: u64,
    /// How often it was tried.
    pub tries: u32,
    /// Why the last try failed.
    pub reason: String,
    /// When it was given up, by the clock of Redis.
    pub at: SystemTime,
}

impl DeadTimer {
    fn of(raw: &Raw) -> Option<Self> {
        let text = |name| raw.text(name).map(str::to_owned);
        Some(Self {
            id: raw.id.clone(),
            key: text("key")?,
            value: raw.field(BODY)?.to_vec(),
            due_ms: raw.text(DULY_DUE)?.parse().ok()?,
            tries: raw.text("duly-dead-attempts")?.parse().ok()?,
            reason: text("duly-dead-reason")?,
            at: UNIX_EPOCH + Duration::from_millis(raw.text("duly-dead-at")?.parse().ok()?),
        })
    }

    /// What it was set to; or why it is no such value.
    pub fn json<V: DeserializeOwned>(&self) -> Result<V, String> {
        serde_json::from_slice(&self.value).map_err(|why| why.to_string())
    }
}

/// What became of a dead timer that was to be tried again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[non_exhaustive]
pub enum TimerReplayed {
    /// It is due now, with all its tries.
    Done,
    /// A timer of its key was set since, and is not done: it stays among the dead ones.
    SetAnew,
    /// There is no such dead timer.
    Unknown,
}

impl ExpiryTimers {
    /// Timers of this prefix that were given up, the oldest first: those after the dead timer `after`, at most so many.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn dead(&self, after: Option<&EntryId>, count: usize) -> Result<Vec<DeadTimer>, Error> {
        self.mq.check_open()?;
        let from = after.map_or_else(|| "-".into(), |after| format!("({after}"));
        let told = self.shadow.dead(&from, count).await?;
        Ok(told.into_iter().filter_map(|(id, fields)| DeadTimer::of(&Raw::new(id, fields))).collect())
    }

    /// How many were given up.
    ///
    /// Cancel safety: dropped midway, nothing has changed.
    pub async fn dead_count(&self) -> Result<u64, Error> {
        self.mq.check_open()?;
        self.shadow.dead_count().await
    }

    /// Puts one back: it is due now, its tries begin anew, and it is taken out of the dead ones in the same moment.
    ///
    /// Cancel safety: dropped midway, it may be due or not; call it again: [`TimerReplayed::Unknown`] if it was.
    pub async fn replay(&self, id: impl AsRef<str>) -> Result<TimerReplayed, Error> {
        self.mq.check_open()?;
        let done = self.shadow.replay(id.as_ref()).await?;
        self.hint.notify_one();
        Ok(match done {
            1 => TimerReplayed::Done,
            -1 => TimerReplayed::SetAnew,
            _ => TimerReplayed::Unknown,
        })
    }

    /// Removes one that was given up, for good.
    ///
    /// Cancel safety: dropped midway, it may be removed or not; call it again: `false` if it was.
    pub async fn remove_dead(&self, id: impl AsRef<str>) -> Result<bool, Error> {
        self.mq.check_open()?;
        self.shadow.remove_dead(id.as_ref()).await
    }
}
