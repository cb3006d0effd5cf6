//! When the move itself cancelled something at the source. Pure: `crates/migration-model` checks it together with `decide`.

use std::collections::BTreeMap;

use duly_core::Timestamp;

/// The instants at which the move cancelled something at the source, or may still do so.
#[derive(Debug, Clone, Default)]
pub(super) struct Instants {
    /// Batches per instant: two batches of one millisecond share it.
    known: BTreeMap<Timestamp, usize>,
    /// The marker that says when is new although copies are parked: somebody removed the one before.
    are_unknown: bool,
}

impl Instants {
    /// Of a move whose markers are lost, or that has just begun.
    pub(super) fn unknown() -> Self {
        Self { known: BTreeMap::new(), are_unknown: true }
    }

    /// From now on every instant is known.
    pub(super) fn all_known(&mut self) {
        self.are_unknown = false;
    }

    pub(super) fn are_unknown(&self) -> bool {
        self.are_unknown
    }

    pub(super) fn add(&mut self, at: Timestamp) {
        *self.known.entry(at).or_default() += 1;
    }

    /// Removes the instant of a batch of which nothing is in doubt.
    pub(super) fn remove(&mut self, at: Timestamp) {
        if let Some(batches) = self.known.get_mut(&at) {
            *batches -= 1;
            if *batches == 0 {
                self.known.remove(&at);
            }
        }
    }

    /// Forgets all instants: no call is in doubt any more.
    pub(super) fn forget(&mut self) {
        self.known.clear();
    }

    /// Whether a cancel at this instant may be one of the move. Without known instants the answer is yes: a duplicate is better than a
    /// loss.
    pub(super) fn may_be(&self, ended: Option<Timestamp>) -> bool {
        self.are_unknown || ended.is_some_and(|ended| self.known.contains_key(&ended))
    }

    /// The latest of them.
    pub(super) fn latest(&self) -> Option<Timestamp> {
        self.known.last_key_value().map(|(at, _)| *at)
    }
}
