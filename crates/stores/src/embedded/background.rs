//! The background thread does what can wait. It opens buckets ahead of their time, writes buffers, keeps
//! memory within its budget, makes checkpoints and tidies up. Nothing it does holds a commit up for long.

use std::{io, sync::PoisonError, time::Duration};

use duly_core::Monotonic;

use super::{
    Shared,
    engine::Engine,
    health::Watch,
    journal::SPARES_KEPT,
    options::{ENDED_BYTES_MAX, RUNS_MAX},
    segment::lay_down,
    table::{Table, TableKind},
};

/// How long the background thread waits when nobody calls it.
const ROUND: Duration = Duration::from_secs(1);
/// Time between two checkpoints of a store that changes slowly.
const CHECKPOINT_AFTER: Duration = Duration::from_secs(30);
/// Time between two looks for waste.
const TIDY_AFTER: Duration = Duration::from_secs(5);
/// Segments kept ready.
const SPARES: usize = 3 + SPARES_KEPT;

/// When the background thread last did what it does now and then.
#[derive(Default)]
pub(super) struct Rounds {
    checkpoint: Monotonic,
    tidy: Monotonic,
    /// The first bucket of level 0 that was not opened yet.
    opened: u64,
}

/// Runs until the store stops.
pub(super) fn run(shared: &Shared) {
    let _watch = Watch::new(shared, "duly-background");
    let mut rounds = {
        let engine = shared.engine();
        let now = engine.now.mono();
        Rounds { checkpoint: now, tidy: now, opened: engine.opened.0[0] }
    };
    loop {
        let asked = {
            let engine = shared.engine();
            if engine.stop {
                return;
            }
            engine.wants_round()
        };
        let before = shared.progress();
        let kept = {
            let _keeping = super::locked(&shared.keeping);
            keep(shared, &mut rounds)
        };
        shared.room.notify_waiters();
        shared.moved.notify_waiters();
        match kept {
            Ok(()) => shared.engine().full = false,
            Err(error) if is_full(&error) => {
                let was = std::mem::replace(&mut shared.engine().full, true);
                if !was {
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
        // A round that was asked for and changed nothing would change nothing again at once: what it needs comes from
        // others. What was asked for during the round is not waited with.
        let stuck = asked && shared.progress() == before;
        if !engine.stop && (!wanted || stuck || engine.full) {
            // Somebody may be waiting for what could not be brought in.
            let wait = if engine.is_behind() || (stuck && wanted) { ROUND / 20 } else { ROUND };
            // What is found at the end of the wait is looked at anew: a spurious wake-up costs nothing.
            drop(shared.background.wait_timeout(engine, wait).unwrap_or_else(PoisonError::into_inner));
        }
    }
}

impl Engine {
    /// Whether there is work that should not wait for the background thread's next round.
    fn wants_round(&self) -> bool {
        self.wants_background() || self.is_behind()
    }

    /// Whether a bucket should be open and is not. Who noticed may have called while the background thread was not listening.
    fn is_behind(&self) -> bool {
        let wanted = self.opened.wanted(self.now.wall());
        self.buckets.keys().any(|slot| slot.number < wanted.0[usize::from(slot.level)])
            || self.blocked.is_behind(&wanted)
    }
}

pub(super) fn is_full(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded | io::ErrorKind::FileTooLarge
    )
}

/// One round. On a full disk all of it is tried nevertheless: what is due must come, and a checkpoint may free room.
pub(super) fn keep(shared: &Shared, rounds: &mut Rounds) -> io::Result<()> {
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
    let opened = shared.engine().opened.0[0];
    if opened < rounds.opened {
        // The clock was ahead. If there is no room for it now, the next round tries again.
        unless_full(shared.retreat().map(|()| rounds.opened = opened))?;
    } else {
        rounds.opened = opened;
    }
    let (flush, spill, journal, changed, now) = {
        let engine = shared.engine();
        let added = engine.journal.appended - engine.checkpointed_at;
        let crowded = engine.window > engine.options.window_bytes;
        let journal = added > engine.options.checkpoint_bytes || (engine.full && added > 0);
        (engine.wants_flush(), crowded, journal, added > 0, engine.now.mono())
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

impl Shared {
    /// Makes sure that segments are ready before the journal needs them.
    fn lay_down_spares(&self) -> io::Result<()> {
        loop {
            let (number, bytes) = {
                let mut engine = self.engine();
                if engine.slice_files.is_empty() {
                    let number = engine.file_number();
                    drop(engine);
                    let file = self.disk.open(&self.dir.join(format!("ended-{number}")))?;
                    self.engine().slice_files.push((number, file));
                    self.note_progress();
                    continue;
                }
                if engine.journal.spares.len() >= SPARES {
                    return Ok(());
                }
                (engine.file_number(), engine.options.segment_bytes)
            };
            let segment = lay_down(&*self.disk, &self.dir, number, bytes)?;
            self.engine().journal.spares.push_back(segment);
            self.note_progress();
            self.room.notify_waiters();
        }
    }

    /// Rewrites tables that are mostly waste, and merges small runs. Says whether anything was moved.
    pub(super) fn tidy(&self) -> io::Result<bool> {
        self.merge_runs(RUNS_MAX)?;
        let wasteful: Vec<u32> = {
            let mut engine = self.engine();
            let now = engine.now.wall();
            let over = engine.ended.expire(now);
            engine.ended_over.extend(over);
            let chunk = engine.options.chunk_bytes / 64;
            let mut found = Vec::new();
            let Engine { tables, blocked, .. } = &mut *engine;
            let can_move = |table: &&mut Table| {
                let is_free = !table.busy && !table.has_damage && !blocked.has(table.number);
                table.live > 0 && is_free && table.split_to < table.data_len
            };
            for table in tables.values_mut().filter(can_move) {
                let waste = table.waste();
                let quiet = table.gone_seen == table.gone_total;
                table.gone_seen = table.gone_total;
                let much = waste * 2 > table.data_len || (quiet && waste * 6 > table.data_len);
                if table.kind != TableKind::Run && waste > chunk && much {
                    found.push(table.number);
                }
            }
            for number in &found {
                let slot = engine.tables.get_mut(number).and_then(|table| {
                    table.sealed = true;
                    table.kind.slot()
                });
                if let Some(bucket) = slot.and_then(|slot| engine.buckets.get_mut(&slot)) {
                    bucket.tables.retain(|known| known != number);
                }
            }
            found
        };
        let moved = !wasteful.is_empty() || !self.engine().graveyard.is_empty();
        self.split_all(wasteful)?.map_or(Ok(moved), Err)
    }
}
