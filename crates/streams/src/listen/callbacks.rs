//! Callbacks of a listener: what it reports besides the log.

use std::sync::Arc;

use crate::{Entry, EntryId};

/// An entry that does not decode to the handler's type.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct UndecodableEntry {
    /// The event.
    pub event: String,
    /// The id in the stream. The entry stays there.
    pub id: EntryId,
    /// Why it does not decode.
    pub why: String,
    /// The entry with its raw fields.
    pub entry: Entry<()>,
}

/// Entries that were trimmed before the group handled them.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct EntriesLost {
    /// The event.
    pub event: String,
    /// The group that did not handle them.
    pub group: String,
    /// The ids that they had.
    pub ids: Vec<EntryId>,
}

/// A group that falls behind.
#[derive(Debug, Clone)]
#[non_exhaustive]
pub struct GroupStalled {
    /// The event.
    pub event: String,
    /// The group.
    pub group: String,
    /// The backlog of the group, or the entries past the stream's limit that are kept because of it.
    pub entries: u64,
    /// Whether its unacknowledged entries prevent trimming.
    pub blocks_trimming: bool,
}

type Callback<T> = Option<Arc<dyn Fn(&T) + Send + Sync>>;

/// The callbacks that a user has set.
#[derive(Clone, Default)]
pub(super) struct Callbacks {
    pub(super) undecodable: Callback<UndecodableEntry>,
    pub(super) lost: Callback<EntriesLost>,
    pub(super) stalled: Callback<GroupStalled>,
}

/// Calls the callback, if it is set. Returns false if it panicked: a panic ends nothing else.
pub(super) fn notify<T>(callback: &Callback<T>, notice: &T) -> bool {
    let Some(callback) = callback else { return true };
    std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| callback(notice))).is_ok()
}
