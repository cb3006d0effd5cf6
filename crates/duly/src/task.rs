//! A task in a handler's hands.

use std::{
    fmt::Display,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
};

use duly_core::{
    Body, Invalid, MessageId, Outcome, Properties, Timestamp, Topic, schedule::End, store::Leased,
};
use tokio::sync::Notify;

/// What a handler has done with its task.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Handled {
    /// All of it.
    Done,
    /// Not now: again after a while.
    Again,
}

/// What a handler may answer: [`Handled`], nothing (which means done), or a `Result` of either. An error's words
/// are kept with the attempt.
pub trait Answer {
    /// The answer, or the words of the failure.
    fn handled(self) -> Result<Handled, String>;
}

impl Answer for Handled {
    fn handled(self) -> Result<Handled, String> {
        Ok(self)
    }
}

impl Answer for () {
    fn handled(self) -> Result<Handled, String> {
        Ok(Handled::Done)
    }
}

impl<A: Answer, E: Display> Answer for Result<A, E> {
    fn handled(self) -> Result<Handled, String> {
        self.map_err(|error| error.to_string())?.handled()
    }
}

pub(crate) fn end_of(answer: impl Answer) -> End {
    match answer.handled() {
        Ok(Handled::Done) => End::Done { receipt: None },
        Ok(Handled::Again) => End::not(Outcome::Again, "the handler said: again"),
        Err(words) => End::not(Outcome::Failed, words),
    }
}

/// One message in a handler's hands, leased to it while it runs.
#[derive(Debug)]
pub struct Task {
    message: duly_core::Message,
    attempt: u32,
    hold: Arc<Hold>,
}

impl Task {
    pub(crate) fn new(leased: &Leased, hold: Arc<Hold>) -> Self {
        Self { message: leased.message.clone(), attempt: leased.attempt, hold }
    }

    /// Its id within the queue: what [`add_task`](crate::Duly::add_task) was given.
    pub fn id(&self) -> &str {
        bare_id(&self.message.topic, &self.message.id)
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

    /// What it carries, read as JSON.
    pub fn json<T: serde::de::DeserializeOwned>(&self) -> Result<T, Invalid> {
        serde_json::from_slice(self.message.body.as_bytes())
            .map_err(|e| Invalid::new("bad_json", "body", format!("the body is not the JSON expected: {e}")))
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
    pub fn message(&self) -> &duly_core::Message {
        &self.message
    }

    /// Whether the lease is lost: somebody else may work on the task now, and this handler's answer is ignored.
    pub fn is_lease_lost(&self) -> bool {
        self.hold.lost.load(Ordering::Acquire)
    }

    /// Waits until the lease is lost. For work that should stop when its result no longer counts.
    pub async fn lease_lost(&self) {
        let told = self.hold.told.notified();
        tokio::pin!(told);
        // Listening begins before the look, so that nothing falls between the two.
        told.as_mut().enable();
        if !self.is_lease_lost() {
            told.await;
        }
    }
}

/// The id that a task has within its queue.
pub(crate) fn bare_id<'a>(queue: &Topic, id: &'a MessageId) -> &'a str {
    let id = id.as_str();
    id.strip_prefix(queue.as_str()).and_then(|rest| rest.strip_prefix(':')).unwrap_or(id)
}

/// A handler's hold on its task.
#[derive(Debug, Default)]
pub(crate) struct Hold {
    lost: AtomicBool,
    told: Notify,
}

impl Hold {
    pub(crate) fn lose(&self) {
        self.lost.store(true, Ordering::Release);
        self.told.notify_waiters();
    }
}
