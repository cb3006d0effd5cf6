//! A task in a handler's hands.

use std::{
    fmt::Display,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use duly_core::{
    Body, ErrorCode, ErrorScope, Invalid, MessageId, Outcome, Properties, Timestamp, Topic, Verdict,
    schedule::AttemptResult, store::LeasedMessage,
};
use tokio::sync::Notify;

/// What a handler may return: a [`Verdict`], nothing (which means done), or a `Result` of either. An error counts as a
/// failure, and its words are kept with the attempt.
pub trait HandlerResult {
    /// The verdict, or the words of the failure.
    fn verdict(self) -> Result<Verdict, String>;
}

impl HandlerResult for Verdict {
    fn verdict(self) -> Result<Verdict, String> {
        Ok(self)
    }
}

impl HandlerResult for () {
    fn verdict(self) -> Result<Verdict, String> {
        Ok(Verdict::Done)
    }
}

impl<V: Into<Verdict>, E: Display> HandlerResult for Result<V, E> {
    fn verdict(self) -> Result<Verdict, String> {
        // The alternate form: errors that keep their sources print them only there.
        self.map(Into::into).map_err(|error| format!("{error:#}"))
    }
}

/// How a try ended by what its handler returned.
pub(crate) fn end_of(result: impl HandlerResult, lease_lost: &LeaseLostSignal) -> AttemptResult {
    match result.verdict() {
        Ok(Verdict::Done) => AttemptResult::Delivered { receipt: None },
        Ok(Verdict::Retry { after, reason }) => {
            let detail = reason.unwrap_or_else(|| "the handler said: again".into());
            AttemptResult::Failed {
                outcome: Outcome::Again,
                detail,
                retry_after: after,
                scope: ErrorScope::Target,
            }
        }
        Ok(Verdict::GiveUp(reason)) => AttemptResult::failed(Outcome::Refused, reason),
        // The next try would read the same bytes.
        Err(words) if lease_lost.is_unreadable(&words) => AttemptResult::failed(Outcome::Refused, words),
        Err(words) => AttemptResult::failed(Outcome::Failed, words),
        // A verdict of a later version: nothing is given up on a guess.
        Ok(other) => AttemptResult::failed(Outcome::Failed, format!("the handler said {other:?}")),
    }
}

/// One message in a handler's hands, leased to it while it runs.
#[derive(Debug)]
pub struct Task {
    message: duly_core::StoredMessage,
    attempt: u32,
    lease_lost: Arc<LeaseLostSignal>,
}

impl Task {
    pub(crate) fn new(leased: &LeasedMessage, lease_lost: Arc<LeaseLostSignal>) -> Self {
        Self { message: leased.message.clone(), attempt: leased.attempt, lease_lost }
    }

    /// Its id within the queue: what [`add_task`](crate::Duly::add_task) was given.
    pub fn id(&self) -> &str {
        crate::tasks::bare_id(&self.message.topic, &self.message.id)
    }

    pub(crate) fn lease_lost_signal(&self) -> Arc<LeaseLostSignal> {
        self.lease_lost.clone()
    }

    /// Its id within Duly.
    pub fn message_id(&self) -> &MessageId {
        &self.message.id
    }

    /// The queue it came from.
    pub fn queue(&self) -> &Topic {
        &self.message.topic
    }

    /// What it carries.
    pub fn body(&self) -> &Body {
        &self.message.body
    }

    /// What it carries, read as JSON. A handler that returns this error makes the task a dead letter at once: the next try
    /// would read the same bytes.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Invalid> {
        serde_json::from_slice(self.message.body.as_bytes()).map_err(|error| {
            let detail = format!("the body is not the JSON expected: {error}");
            self.lease_lost.unreadable(detail.clone());
            Invalid::new(ErrorCode::BadJson, "body", detail)
        })
    }

    /// Its properties.
    pub fn properties(&self) -> &Properties {
        &self.message.properties
    }

    /// When it was due.
    pub fn due(&self) -> Timestamp {
        self.message.due
    }

    /// The number of this try, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The whole message.
    pub fn message(&self) -> &duly_core::StoredMessage {
        &self.message
    }

    /// Whether the lease is lost: somebody else may work on the task now, and this handler's answer is ignored.
    pub fn is_lease_lost(&self) -> bool {
        self.lease_lost.lost.load(Ordering::Acquire)
    }

    /// Waits until the lease is lost. For work that should stop when its result no longer counts.
    ///
    /// Cancel safety: it may be dropped and called again at any time, as in `tokio::select!`.
    pub async fn lease_lost(&self) {
        let told = self.lease_lost.told.notified();
        tokio::pin!(told);
        // Listening begins before the look, so that nothing falls between the two.
        told.as_mut().enable();
        if !self.is_lease_lost() {
            told.await;
        }
    }
}

/// Tells a handler that the lease of its task is lost.
#[derive(Debug, Default)]
pub(crate) struct LeaseLostSignal {
    lost: AtomicBool,
    told: Notify,
    /// Why the body could not be read as JSON, the last time it was tried.
    unreadable: Mutex<Option<String>>,
}

impl LeaseLostSignal {
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.told.notify_waiters();
    }

    fn unreadable(&self, why: String) {
        *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Whether a handler failed in the words of a body that cannot be read.
    fn is_unreadable(&self, words: &str) -> bool {
        let why = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        why.as_ref().is_some_and(|why| words.contains(why.as_str()))
    }
}
