//! What a move did, and what it left.

use std::collections::BTreeSet;

use duly::{MessageId, Totals};
use serde::Serialize;

use crate::cli::{Failure, Output, clock};

/// So many messages are named one by one; the others are counted.
const NAMED: usize = 1_000;
/// So many of them are told as they are found.
const TOLD: usize = 20;

/// What a move did.
#[derive(Debug, Default, Serialize)]
pub(super) struct Report {
    from: String,
    to: String,
    /// Live at the target and gone from the source.
    pub(super) moved: u64,
    /// Of those: parked by an earlier run that was cut short.
    pub(super) finished: u64,
    /// Known at the target already, so only cancelled at the source.
    pub(super) known: u64,
    /// Of the moved ones: tried at the source before.
    pub(super) tried: u64,
    /// Of those: may have arrived by such a try.
    pub(super) maybe_delivered: u64,
    /// Copies withdrawn because the source was quicker.
    pub(super) withdrawn: u64,
    /// Cancelled by somebody else, here or there, on the way.
    pub(super) cancelled: u64,
    /// Dead letters at the target and gone from the source.
    pub(super) dead: u64,
    /// Dead letters made pending again at the target.
    pub(super) replayed: u64,
    /// Lanes paused at the target as they are at the source.
    pub(super) lanes_paused: u64,
    /// Looks over the whole source.
    pub(super) passes: u64,
    /// Whether the source was seen without anything that waits or is under way, but for conflicts.
    pub(super) complete: bool,
    /// Of the last look: known at the target with other content, so left at the source.
    pub(super) conflicts: u64,
    /// Of the last look: dead letters that stay at the source, because they are no messages, cannot be read, or conflict.
    pub(super) dead_kept: u64,
    /// Of those: known at the target with other content.
    pub(super) dead_conflicts: u64,
    /// Parked at the target and unknown at the source.
    pub(super) forgotten: u64,
    pub(super) left: Left,
    /// The conflicts, by their ids.
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    conflicting: BTreeSet<String>,
    #[serde(skip_serializing_if = "BTreeSet::is_empty")]
    unknown: BTreeSet<String>,
}

/// What is still at the source.
#[derive(Debug, Default, Serialize)]
pub(super) struct Left {
    pub(super) pending: u64,
    pub(super) in_flight: u64,
    pub(super) dead: u64,
}

impl Left {
    pub(super) fn of(books: &Totals) -> Self {
        Self { pending: books.pending, in_flight: books.in_flight, dead: books.dead }
    }
}

impl Report {
    pub(super) fn new(from: &str, to: &str) -> Self {
        Self { from: from.to_owned(), to: to.to_owned(), ..Self::default() }
    }

    /// A message whose id means something else at the target.
    pub(super) fn conflict(&mut self, id: &MessageId, say: impl FnOnce(&str)) {
        self.conflicts += 1;
        self.name_conflict(id, say);
    }

    /// Names such a message.
    pub(super) fn name_conflict(&mut self, id: &MessageId, say: impl FnOnce(&str)) {
        let why = "the target knows this id with other content; it stays at the source";
        name(&mut self.conflicting, id, why, say);
    }

    /// A copy whose message the source does not know.
    pub(super) fn forget(&mut self, id: &MessageId, say: impl FnOnce(&str)) {
        self.forgotten += 1;
        name(&mut self.unknown, id, "its copy is parked at the target, and the source does not know it", say);
    }

    /// How much was done so far: it grows as long as the move gets anywhere.
    pub(super) fn done(&self) -> u64 {
        self.moved + self.dead + self.known + self.withdrawn + self.cancelled
    }

    /// Words for a move that could not go on.
    pub(super) fn stopped(&self, out: &Output) {
        out.say(&format!(
            "stopped: {} moved, and what was moved stands. Run it again to go on: a few messages may be parked between the two \
             stores, and nobody delivers them until then",
            clock::grouped(self.moved)
        ));
    }

    pub(super) fn tell(&self, out: &Output) -> Result<(), Failure> {
        out.answer(self, Self::text)?;
        self.settlement()
    }

    /// What somebody has to decide is a failure.
    pub(super) fn settlement(&self) -> Result<(), Failure> {
        let conflicts = self.conflicts + self.dead_conflicts;
        if conflicts + self.forgotten == 0 {
            return Ok(());
        }
        let mut words = Vec::new();
        if conflicts > 0 {
            words.push(format!(
                "{conflicts} stay at the source, because the target knows their ids with other content: cancel or purge one of the two"
            ));
        }
        if self.forgotten > 0 {
            words.push(format!(
                "{} are parked at the target, and the source does not know them: either they came from another source, then \
                 finish that move first; or this one has forgotten what became of them. --deliver-forgotten delivers them, \
                 some perhaps for the second time; `duly cancel` at the target drops them",
                self.forgotten
            ));
        }
        Err(Failure::too_late(words.join("\n")))
    }

    fn text(&self) -> String {
        let grouped = clock::grouped;
        let mut lines = vec![format!("{} moved from {} to {}", grouped(self.moved), self.from, self.to)];
        let mut line = |count: u64, words: &str| {
            if count > 0 {
                lines.push(format!("{} {words}", grouped(count)));
            }
        };
        line(self.finished, "of them finished that an earlier run had begun");
        line(self.tried, "of them were tried before: attempts and history came along");
        line(self.maybe_delivered, "of them may have arrived by an earlier try");
        line(self.dead, "dead letters moved");
        line(self.replayed, "dead letters made pending again at the target");
        line(self.known, "were known at the target already");
        line(self.withdrawn, "copies withdrawn: the source delivers them itself");
        line(self.cancelled, "cancelled by somebody else on the way");
        line(self.lanes_paused, "lanes are paused at the target, as they are at the source");
        line(self.left.pending, "still wait at the source");
        line(self.left.in_flight, "are still under way at the source: run it again when they have ended");
        line(self.left.dead, "dead letters are still at the source");
        lines.join("\n")
    }
}

/// Names a message, and says why if it is one of the first.
fn name(names: &mut BTreeSet<String>, id: &MessageId, why: &str, say: impl FnOnce(&str)) {
    let known = names.len();
    if known >= NAMED || !names.insert(id.to_string()) {
        return;
    }
    match known {
        0..TOLD => say(&format!("{id}: {why}")),
        TOLD => say("there are more: -o json names them"),
        _ => {}
    }
}
