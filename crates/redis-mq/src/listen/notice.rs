//! What listeners tell besides the log.

use std::sync::Arc;

use crate::{Entry, EntryId};

/// An entry that holds no value of the type that is listened for.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Undecodable {
    /// The event.
    pub event: String,
    /// Where it stands in the stream; it stays there.
    pub id: EntryId,
    /// Why it cannot be read.
    pub why: String,
    /// Its fields, as they stand there.
    pub entry: Entry<()>,
}

/// Entries that were trimmed away before they were handled.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Lost {
    /// The event.
    pub event: String,
    /// The group that did not get to handle them.
    pub group: String,
    /// Where they stood.
    pub ids: Vec<EntryId>,
}

/// A group that falls behind.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct Stalled {
    /// The event.
    pub event: String,
    /// The group.
    pub group: String,
    /// How many entries stand before it, or are kept past the limit of the stream for its sake.
    pub entries: u64,
    /// Whether its entries keep the stream from being trimmed.
    pub holds_up_trimming: bool,
}

type Tell<N> = Option<Arc<dyn Fn(&N) + Send + Sync>>;

/// Who is told of what.
#[derive(Clone, Default)]
pub(super) struct Notices {
    pub(super) undecodable: Tell<Undecodable>,
    pub(super) lost: Tell<Lost>,
    pub(super) stalled: Tell<Stalled>,
}

/// Tells; a panic of whoever is told ends nothing, and is answered with false.
pub(super) fn tell<N>(tell: &Tell<N>, notice: &N) -> bool {
    let Some(tell) = tell else { return true };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| tell(notice))).is_ok()
}
