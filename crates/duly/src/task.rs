//! Tasks: messages as handlers see them.

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

/// What a handler may return: a [`Verdict`], `()` (done), or a `Result` of either. An error is a failure, and its text
/// is kept with the attempt.
pub trait HandlerResult {
    /// The verdict, or the error text.
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
        // The alternate form prints the whole chain of an error.
        self.map(Into::into).map_err(|error| format!("{error:#}"))
    }
}

/// The result of an attempt by what its handler returned.
pub(crate) fn attempt_result_of(result: impl HandlerResult, lease_lost: &LeaseLostSignal) -> AttemptResult {
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
        // A retry would decode the same bytes.
        Err(text) if lease_lost.is_unreadable(&text) => AttemptResult::failed(Outcome::Refused, text),
        Err(text) => AttemptResult::failed(Outcome::Failed, text),
        // A verdict of a later version: retry it.
        Ok(other) => AttemptResult::failed(Outcome::Failed, format!("the handler said {other:?}")),
    }
}

/// One message, leased to the handler while it runs.
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

    /// Its id within the queue, as passed to [`add_task`](crate::Duly::add_task).
    pub fn id(&self) -> &str {
        crate::tasks::bare_id(&self.message.topic, &self.message.id)
    }

    pub(crate) fn lease_lost_signal(&self) -> Arc<LeaseLostSignal> {
        self.lease_lost.clone()
    }

    /// The id of the message.
    pub fn message_id(&self) -> &MessageId {
        &self.message.id
    }

    /// The queue it came from.
    pub fn queue(&self) -> &Topic {
        &self.message.topic
    }

    /// Its body.
    pub fn body(&self) -> &Body {
        &self.message.body
    }

    /// Decodes its body as JSON. A handler that returns this error makes the task a dead letter at once, because a
    /// retry would decode the same bytes.
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

    /// The number of this attempt, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The whole message.
    pub fn message(&self) -> &duly_core::StoredMessage {
        &self.message
    }

    /// Whether the lease is lost: another consumer may process the task now, and the result of this call is ignored.
    pub fn is_lease_lost(&self) -> bool {
        self.lease_lost.lost.load(Ordering::Acquire)
    }

    /// Waits until the lease is lost, to stop work whose result no longer counts.
    ///
    /// Cancel safety: it may be dropped and called again at any time, as in `tokio::select!`.
    pub async fn lease_lost(&self) {
        let lost = self.lease_lost.notify.notified();
        tokio::pin!(lost);
        // Subscribed before the check, so that no signal falls between the two.
        lost.as_mut().enable();
        if !self.is_lease_lost() {
            lost.await;
        }
    }
}

/// Tells a handler that the lease of its task is lost.
#[derive(Debug, Default)]
pub(crate) struct LeaseLostSignal {
    lost: AtomicBool,
    notify: Notify,
    /// Why the body did not decode, at the last attempt.
    unreadable: Mutex<Option<String>>,
}

impl LeaseLostSignal {
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.notify.notify_waiters();
    }

    fn unreadable(&self, why: String) {
        *self.unreadable.lock().unwrap_or_else(PoisonError::into_inner) = Some(why);
    }

    /// Whether the error of a handler is that of a body which did not decode.
    fn is_unreadable(&self, text: &str) -> bool {
        let why = self.unreadable.lock().unwrap_or_else(PoisonError::into_inner);
        why.as_ref().is_some_and(|why| text.contains(why.as_str()))
    }
}
