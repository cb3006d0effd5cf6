//! The background thread: it opens buckets ahead of their time, writes buffers, keeps memory within its budget, makes checkpoints
//! and rewrites tables that are mostly waste. It holds the engine's lock only for short steps, so that no commit waits long for it.

use std::{io, sync::PoisonError, time::Duration};

use duly_core::Monotonic;

use super::{
    SharedEngine,
    engine::Engine,
    health::ThreadGuard,
    journal::SPARES_KEPT,
    options::{ENDED_BYTES_MAX, RUNS_MAX},
    segment::lay_down,
    table::{Table, TableKind},
};

/// How long the background thread waits when nobody calls it.
const ROUND: Duration = Duration::from_secs(1);
/// Time between two checkpoints of a store that changes slowly.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(30);
/// Time between two searches for waste.
const TIDY_AFTER: Duration = Duration::from_secs(5);
/// Segments kept ready.
pub(super) const SPARES: usize = 3 + SPARES_KEPT;

/// When the background thread last did what it does not do in every round.
#[derive(Default)]
pub(super) struct Rounds {
    checkpoint: Monotonic,
    tidy: Monotonic,
    /// The first bucket of level 0 that was not opened yet.
    opened: u64,
}

/// Runs until the store stops.
pub(super) fn run(shared: &SharedEngine) {
    let _watch = ThreadGuard::new(shared, "duly-background");
    let mut rounds = {
        let engine = shared.engine();
        let now = engine.now.mono();
        Rounds { checkpoint: now, tidy: now, opened: engine.buckets.opened().0[0] }
    };
    loop {
        let asked = {
            let engine = shared.engine();
            if engine.lifecycle.is_stopped() {
                return;
            }
            engine.wants_round()
        };
        let before = shared.progress();
        let kept = {
            let _round = super::locked(&shared.round);
            let _steps = shared.steps.begin_round();
            run_round(shared, &mut rounds)
        };
        shared.room.notify_waiters();
        shared.moved.notify_waiters();
        match kept {
            Ok(()) => {
                shared.engine().lifecycle.set_full(false);
            }
            Err(error) if is_full(&error) => {
                let was_full = shared.engine().lifecycle.set_full(true);
                if !was_full {
                    tracing::error!(%error, "disk full; new messages are refused");
                }
                shared.room.notify_waiters();
            }
            Err(error) => {
                tracing::error!(%error, "background maintenance failed; the store stops");
                shared.close_because(format!(
                    "the data folder failed: {error}; look at the disk, then restart"
                ));
                return;
            }
        }
        let engine = shared.engine();
        let wanted = engine.wants_round();
        // A round that was asked for and changed nothing would change nothing if it were repeated at once: something else must
        // change first. A round that was asked for only during this one begins at once.
        let is_stuck = asked && shared.progress() == before;
        if !engine.lifecycle.is_stopped() && (!wanted || is_stuck || engine.lifecycle.is_full()) {
            // A claim may be waiting for what could not be loaded: try again soon.
            let wait = if engine.is_behind() || (is_stuck && wanted) { ROUND / 20 } else { ROUND };
            // A spurious wake-up does no harm: the next round checks everything again.
            drop(shared.background.wait_timeout(engine, wait).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Engine {
    /// The tables that are to be rewritten: half of them is waste, or a sixth of one that does not change any more.
    fn wasteful_tables(&mut self) -> Vec<u32> {
        let waste_min = self.options.chunk_bytes / 64;
        let (tables, blocked) = self.tables.parts_mut();
        let can_move = |table: &&mut Table| {
            let is_free = !table.is_busy() && !table.has_damage() && !blocked.has(table.number());
            table.live() > 0 && is_free && table.split_to() < table.data_len()
        };
        let mut found = Vec::new();
        for table in tables.filter(can_move) {
            let (waste, len, is_quiet) = (table.waste(), table.data_len(), table.is_quiet());
            let is_mostly_waste = waste * 2 > len || (is_quiet && waste * 6 > len);
            if table.kind() != TableKind::Run && waste > waste_min && is_mostly_waste {
                found.push(table.number());
            }
        }
        found
    }

    /// Whether there is work that should not wait for the background thread's next round.
    fn wants_round(&self) -> bool {
        self.wants_background() || self.is_behind()
    }

    /// Whether a bucket should be open and is not. A wake-up for it may have come while the background thread did not wait.
    fn is_behind(&self) -> bool {
        let wanted = self.buckets.wanted(self.now.wall());
        self.buckets.are_behind(&wanted) || self.tables.blocked().is_behind(&wanted)
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// One round. On a full disk every step is tried nevertheless: due messages must be loaded, and a checkpoint may free room.
pub(super) fn run_round(shared: &SharedEngine, rounds: &mut Rounds) -> io::Result<()> {
    let mut full = None;
    let mut unless_full = |done: io::Result<()>| match done {
        Err(error) if is_full(&error) => {
            full = Some(error);
            Ok(())
        }
        done => done,
    };
    unless_full(shared.lay_down_spares())?;
    unless_full(shared.open_buckets())?;
    let opened = shared.engine().buckets.opened().0[0];
    if opened < rounds.opened {
        // The clock was ahead and is right again. If there is no room for the retreat now, the next round tries again.
        unless_full(shared.retreat().map(|()| rounds.opened = opened))?;
    } else {
        rounds.opened = opened;
    }
    let (flush, spill, journal, changed, now) = {
        let engine = shared.engine();
        let added = engine.journal.uncheckpointed();
        let journal = added > engine.options.checkpoint_bytes || (engine.lifecycle.is_full() && added > 0);
        (engine.wants_flush(), engine.is_window_full(), journal, added > 0, engine.now.mono())
    };
    if shared.engine().ended.waiting() > ENDED_BYTES_MAX {
        shared.write_slices()?;
    }
    if flush {
        unless_full(shared.flush(false))?;
    }
    if spill {
        unless_full(shared.spill())?;
    }
    let mut tidied = false;
    if now.since(rounds.tidy) >= TIDY_AFTER {
        rounds.tidy = now;
        unless_full(shared.tidy().map(|moved| tidied = moved))?;
    }
    let aged = now.since(rounds.checkpoint) >= CHECKPOINT_AFTER;
    if journal || tidied || (aged && changed) {
        unless_full(shared.checkpoint())?;
        rounds.checkpoint = now;
    }
    full.map_or(Ok(()), Err)
}

impl SharedEngine {
    /// Lays down segments, and the file of the next slice, before they are needed.
    fn lay_down_spares(&self) -> io::Result<()> {
        loop {
            let (number, bytes) = {
                let mut engine = self.engine();
                if engine.ended.wants_file() {
                    let number = engine.sequences.file_number();
                    drop(engine);
                    let file = self.disk.open(&self.dir.join(format!("ended-{number}")))?;
                    self.engine().ended.add_file(number, file);
                    self.note_progress();
                    continue;
                }
                if engine.journal.spare_count() >= SPARES {
                    return Ok(());
                }
                (engine.sequences.file_number(), engine.options.segment_bytes)
            };
            let segment = lay_down(&*self.disk, &self.dir, number, bytes)?;
            self.engine().journal.add_spare(segment);
            self.note_progress();
            self.room.notify_waiters();
        }
    }

    /// Merges small runs, expires what is past retention, and rewrites tables that are mostly waste. Returns whether a checkpoint
    /// would free room.
    pub(super) fn tidy(&self) -> io::Result<bool> {
        self.merge_runs(RUNS_MAX)?;
        let wasteful: Vec<u32> = {
            let mut engine = self.engine();
            let now = engine.now.wall();
            engine.ended.expire(now);
            let wasteful = engine.wasteful_tables();
            for number in &wasteful {
                let slot = engine.tables.get_mut(*number).and_then(|table| {
                    table.seal();
                    table.kind().slot()
                });
                if let Some(slot) = slot {
                    engine.buckets.remove_table(slot, *number);
                }
            }
            wasteful
        };
        let moved = !wasteful.is_empty() || self.engine().tables.has_obsolete();
        self.split_all(wasteful)?.map_or(Ok(moved), Err)
    }
}
