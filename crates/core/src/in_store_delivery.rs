//! In-store delivery: a store that delivers by itself, where its server is the target.

use async_trait::async_trait;

use crate::{MessageId, Now, Timestamp, Topic, store::StoreError};

/// Delivers due messages of one lane inside the store: removing from the waiting ones, appending to the target and
/// recording the delivery are one atomic step.
///
/// An optional capability of a store for some targets, not a part of [`Store`](crate::Store). Messages that are not
/// delivered in this way are claimed, sent by the sink and settled.
///
/// - Never early: only messages that are ready at `now`, as [`Store::claim`](crate::Store::claim).
/// - Nothing from a paused lane, and never more than `limit`.
/// - A delivered message has the same record as one that was claimed, delivered at the first attempt and settled.
/// - After an error, messages may have been delivered or not; the call may be repeated.
#[async_trait]
pub trait InStoreDelivery: Send + Sync + 'static {
    /// Delivers due messages, at most `limit`.
    async fn deliver_due(&self, now: Now, limit: usize) -> Result<InStoreDelivered, StoreError>;
}

/// The result of an in-store delivery.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InStoreDelivered {
    /// The delivered messages.
    pub messages: Vec<InStoreMessage>,
    /// Lower bound of the lane's next due time; `None`: nothing more is known.
    pub next: Option<Timestamp>,
    /// How the remaining due messages must be delivered.
    pub remaining: Remaining,
}

/// A message that was delivered in the store, as far as it is reported and measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InStoreMessage {
    /// The message.
    pub id: MessageId,
    /// The topic.
    pub topic: Topic,
    /// When it became ready.
    pub ready: Timestamp,
}

/// How the remaining due messages must be delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Remaining {
    /// In the store, if there are any.
    #[default]
    InStore,
    /// By a claim: some were tried before, or the target has a problem.
    ToClaim,
}
