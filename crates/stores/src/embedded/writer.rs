//! The thread that writes the journal: one write and one sync for all records of a frame.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::{SharedEngine, engine::Engine, health::ThreadGuard, journal::Frame};

/// If a frame had at least so many callers, the next frame waits a little for more of them.
const CROWD: usize = 4;
/// How long it waits. Callers in a crowd wait longer than that for their turn anyway, and each sync then serves more of them.
const GATHER: Duration = Duration::from_micros(500);

/// Runs until the store stops and everything added is written.
pub(super) fn run(shared: &SharedEngine) {
    let _watch = ThreadGuard::new(shared, "duly-journal");
    let mut callers = 0;
    while let Some(mut frame) = next_frame(shared, callers) {
        // Each caller that waits for the frame has a reference to its commit, and so has the frame itself.
        callers = Arc::strong_count(&frame.commit) - 1;
        let written = shared.timing.write(&mut frame);
        let commit = frame.commit.clone();
        if let Err(error) = written {
            // After a failed sync nobody knows what is on disk: only a restart finds out.
            tracing::error!(%error, "journal sync failed; the store stops");
            let hint = super::recover::hint(&error);
            shared.close_because(format!(
                "the journal could not be synced ({error}){hint}; restart to recover"
            ));
            commit.finish(false);
            shared.engine().journal.fail();
            return;
        }
        let is_awaited = shared.engine().journal.wrote(frame);
        commit.finish(true);
        shared.room.notify_waiters();
        if is_awaited {
            shared.background.notify_all();
        }
    }
    shared.engine().journal.fail();
}

fn next_frame(shared: &SharedEngine, callers: usize) -> Option<Frame> {
    let mut engine = shared.engine();
    if callers >= CROWD && !engine.lifecycle.is_stopped() {
        // On a fast disk each frame would otherwise have few callers, and the syncs would take the processor time that the
        // callers need. The writer is not idle meanwhile: only the stop of the store wakes it.
        let is_open = |engine: &mut Engine| !engine.lifecycle.is_stopped();
        let gathered = shared.committer.wait_timeout_while(engine, GATHER, is_open);
        engine = gathered.unwrap_or_else(PoisonError::into_inner).0;
    }
    loop {
        if let Some(frame) = engine.journal.take() {
            return Some(frame);
        }
        if engine.lifecycle.is_stopped() {
            return None;
        }
        engine.journal.idle_writer();
        engine = shared.committer.wait(engine).unwrap_or_else(PoisonError::into_inner);
    }
}
