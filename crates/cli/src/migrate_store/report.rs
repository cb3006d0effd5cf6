//! The report of a move: what it did, and what is left.

use std::collections::BTreeSet;

use duly::{MessageId, Totals};
use serde::Serialize;

use crate::{Failure, Output, clock};

/// Messages listed by id; further ones are only counted.
const NAMED: usize = 1_000;
/// Messages that are printed when they are found.
const TOLD: usize = 20;

/// The results of a migration. One flat object in JSON.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    from: String,
    to: String,
    #[serde(flatten)]
    pub(super) counts: Counts,
    /// Passes over the whole source.
    pub(super) passes: u64,
    /// Whether the source was seen without anything that waits or is under way, but for conflicts.
    pub(super) complete: bool,
    #[serde(flatten)]
    pub(super) kept: Kept,
    pub(super) left: Remaining,
    #[serde(flatten)]
    ids: KeptIds,
}

/// Messages by what was done with them, over all passes.
#[derive(Debug, Default, Serialize)]
pub(super) struct Counts {
    /// Live at the target and removed from the source.
    pub(super) moved: u64,
    /// Of these, the ones parked by an earlier run that did not finish.
    pub(super) finished: u64,
    /// Known at the target already, so only cancelled at the source.
    pub(super) known: u64,
    /// Of the moved ones: attempted at the source before.
    pub(super) tried: u64,
    /// Of these, the ones that such an attempt may have delivered.
    pub(super) maybe_delivered: u64,
    /// Copies withdrawn because the source was quicker.
    pub(super) withdrawn: u64,
    /// Cancelled by somebody else, at either store, on the way.
    pub(super) cancelled: u64,
    /// Dead letters at the target and removed from the source.
    pub(super) dead: u64,
    /// Dead letters made pending again at the target.
    pub(super) replayed: u64,
    /// Lanes paused at the target as they are at the source.
    pub(super) lanes_paused: u64,
}

/// Messages of the last pass that were not moved.
#[derive(Debug, Default, Serialize)]
pub(super) struct Kept {
    /// Known at the target with other content, so left at the source.
    pub(super) conflicts: u64,
    /// Ids that belong to the migration itself, so left at the source.
    pub(super) reserved: u64,
    /// Dead letters that stay at the source, because they are no messages, cannot be read, or conflict.
    pub(super) dead_kept: u64,
    /// Of these, the ones that the target has with other content.
    pub(super) dead_conflicts: u64,
    /// Of these, the ones with ids reserved for the migration.
    pub(super) dead_reserved: u64,
    /// Parked at the target and unknown at the source.
    pub(super) forgotten: u64,
}

/// The first of those messages, by their ids.
#[derive(Debug, Default, Serialize)]
struct KeptIds {
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    conflicting: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    unknown: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    own_ids: BTreeSet<String>,
}

/// The messages still at the source.
#[derive(Debug, Default, Serialize)]
pub(super) struct Remaining {
    pub(super) pending: u64,
    pub(super) in_flight: u64,
    pub(super) dead: u64,
}

impl Remaining {
    pub(super) fn of(totals: &Totals) -> Self {
        Self { pending: totals.pending, in_flight: totals.in_flight, dead: totals.dead }
    }
}

impl Report {
    pub(super) fn new(from: &str, to: &str) -> Self {
        Self { from: from.to_owned(), to: to.to_owned(), ..Self::default() }
    }

    /// A message whose id means something else at the target.
    pub(super) fn conflict(&mut self, id: &MessageId, print: impl FnOnce(&str)) {
        self.kept.conflicts += 1;
        self.name_conflict(id, print);
    }

    /// A message whose id belongs to the move.
    pub(super) fn name_reserved(&mut self, id: &MessageId, print: impl FnOnce(&str)) {
        let why = "ids that begin with duly.migrate-store. belong to the move; it stays at the source";
        name(&mut self.ids.own_ids, id, why, print);
    }

    /// Names such a message.
    pub(super) fn name_conflict(&mut self, id: &MessageId, print: impl FnOnce(&str)) {
        let why = "the target knows this id with other content; it stays at the source";
        name(&mut self.ids.conflicting, id, why, print);
    }

    /// A copy whose message the source does not know.
    pub(super) fn forget(&mut self, id: &MessageId, print: impl FnOnce(&str)) {
        self.kept.forgotten += 1;
        name(
            &mut self.ids.unknown,
            id,
            "its copy is parked at the target, and the source does not know it",
            print,
        );
    }

    /// How much was done so far: it grows as long as the move gets anywhere.
    pub(super) fn done(&self) -> u64 {
        self.counts.moved
            + self.counts.dead
            + self.counts.known
            + self.counts.withdrawn
            + self.counts.cancelled
    }

    /// Words for a move that could not go on.
    pub(super) fn stopped(&self, out: &Output) {
        out.note(&format!(
            "stopped: {} moved, and what was moved stands. Run it again to go on: a few messages may be parked between the two \
             stores, and nobody delivers them until then",
            clock::grouped(self.counts.moved)
        ));
    }

    pub(super) fn print(&self, out: &Output) -> Result<(), Failure> {
        out.answer(self, Self::text)?;
        self.settlement()
    }

    /// Messages about which a person must decide make the move fail.
    pub(super) fn settlement(&self) -> Result<(), Failure> {
        let conflicts = self.kept.conflicts + self.kept.dead_conflicts;
        let reserved = self.kept.reserved + self.kept.dead_reserved;
        if conflicts + self.kept.forgotten + reserved == 0 {
            return Ok(());
        }
        let mut words = Vec::new();
        if reserved > 0 {
            words.push(format!(
                "{reserved} stay at the source, because their ids belong to the move: let the source deliver them, or send them to the target \
                 with other ids and cancel or purge them at the source"
            ));
        }
        if conflicts > 0 {
            words.push(format!(
                "{conflicts} stay at the source, because the target knows their ids with other content: cancel or purge one of the two"
            ));
        }
        if self.kept.forgotten > 0 {
            words.push(format!(
                "{} are parked at the target, and the source does not know them: either they came from another source, then \
                 finish that move first; or this one has forgotten what became of them. --deliver-forgotten delivers them, \
                 some perhaps for the second time; `duly cancel` at the target drops them",
                self.kept.forgotten
            ));
        }
        Err(Failure::too_late(words.join("\n")))
    }

    fn text(&self) -> String {
        let grouped = clock::grouped;
        let mut lines =
            vec![format!("{} moved from {} to {}", grouped(self.counts.moved), self.from, self.to)];
        let mut line = |count: u64, words: &str| {
            if count > 0 {
                lines.push(format!("{} {words}", grouped(count)));
            }
        };
        line(self.counts.finished, "of them finished that an earlier run had begun");
        line(self.counts.tried, "of them were tried before: attempts and history came along");
        line(self.counts.maybe_delivered, "of them may have arrived by an earlier try");
        line(self.counts.dead, "dead letters moved");
        line(self.counts.replayed, "dead letters made pending again at the target");
        line(self.counts.known, "were known at the target already");
        line(self.counts.withdrawn, "copies withdrawn: the source delivers them itself");
        line(self.counts.cancelled, "cancelled by somebody else on the way");
        line(self.counts.lanes_paused, "lanes are paused at the target, as they are at the source");
        line(self.left.pending, "still wait at the source");
        line(self.left.in_flight, "are still under way at the source: run it again when they have ended");
        line(self.left.dead, "dead letters are still at the source");
        lines.join("\n")
    }
}

/// Names a message, and says why if it is one of the first.
fn name(names: &mut BTreeSet<String>, id: &MessageId, why: &str, print: impl FnOnce(&str)) {
    let known = names.len();
    if known >= NAMED || !names.insert(id.to_string()) {
        return;
    }
    match known {
        0..TOLD => print(&format!("{id}: {why}")),
        TOLD => print("there are more: -o json names them"),
        _ => {}
    }
}
