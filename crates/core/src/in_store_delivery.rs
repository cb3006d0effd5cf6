//! What a store can do besides, where the target is at hand: deliver by itself.

use async_trait::async_trait;

use crate::{MessageId, Now, Timestamp, Topic, store::StoreError};

/// Takes what is due in one lane to its target within the store itself: taken from what waits, at the target, and recorded as
/// delivered in one step, of which either all happens or nothing.
///
/// A capability that a store may have for some target, not a part of [`Store`](crate::Store). Whatever a mover does not take is
/// claimed, handed to the sink and settled, as if there were no mover.
///
/// - Never early: only what is ready at `now`, as [`Store::claim`](crate::Store::claim).
/// - Nothing from a paused lane, and never more than `limit`.
/// - What is moved looks as if it had been claimed, delivered at its first try and settled.
/// - An error says nothing of whether something was moved; asking again does no harm.
#[async_trait]
pub trait InStoreDelivery: Send + Sync + 'static {
    /// Moves what is due, up to `limit`.
    async fn move_due(&self, now: Now, limit: usize) -> Result<InStoreDelivered, StoreError>;
}

/// What was moved.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct InStoreDelivered {
    /// Those that are at the target now.
    pub messages: Vec<InStoreMessage>,
    /// Nothing else of the lane is due before then; `None`: nothing is known to come.
    pub next: Option<Timestamp>,
    /// What is left.
    pub left: Remaining,
}

/// A message that was moved: as much of it as is told and measured.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InStoreMessage {
    /// Which.
    pub id: MessageId,
    /// To which topic.
    pub topic: Topic,
    /// When it was ready.
    pub ready: Timestamp,
}

/// What a mover left of what is due.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub enum Remaining {
    /// Nothing, or only what was too many for one call.
    #[default]
    Movable,
    /// Something that must be claimed: it was tried before, or the target is not as it should be.
    ToClaim,
}
