//! The thread that writes the journal: one write and one sync for all who came together.

use std::{
    sync::{Arc, PoisonError},
    time::Duration,
};

use super::{Shared, health::Watch, journal::Frame};

/// From so many callers in one frame on, the next frame waits a little for as many more.
const CROWD: usize = 4;
/// How long it waits: less than a crowd waits for its turn anyway, and each sync then serves several times as many.
const GATHER: Duration = Duration::from_micros(500);

/// Runs until the store stops and everything added is written.
pub(super) fn run(shared: &Shared) {
    let _watch = Watch::new(shared, "duly-journal");
    let mut callers = 0;
    while let Some(mut frame) = next_frame(shared, callers) {
        // Everybody who waits for the frame holds its commit, and so does the frame itself.
        callers = Arc::strong_count(&frame.commit) - 1;
        let written = shared.timing.write(&mut frame);
        let commit = frame.commit.clone();
        if let Err(error) = written {
            // After a failed sync nobody knows what is on disk: only a restart finds out.
            tracing::error!(%error, "journal sync failed; the store stops");
            shared.close_because(format!("the journal could not be synced ({error}); restart to recover"));
            commit.finish(false);
            shared.engine().journal.fail();
            return;
        }
        let waits = {
            let mut engine = shared.engine();
            engine.journal.wrote(frame);
            std::mem::take(&mut engine.background_waits)
        };
        commit.finish(true);
        shared.room.notify_waiters();
        if waits {
            shared.background.notify_all();
        }
    }
    shared.engine().journal.fail();
}

fn next_frame(shared: &Shared, callers: usize) -> Option<Frame> {
    let mut engine = shared.engine();
    if callers >= CROWD && !engine.stop {
        // On a fast disk a crowd would otherwise be served a few at a time, and the syncs would take the processor
        // that the callers need. Nobody wakes the writer meanwhile, but for the end.
        let gathered = shared.committer.wait_timeout_while(engine, GATHER, |engine| !engine.stop);
        engine = gathered.unwrap_or_else(PoisonError::into_inner).0;
    }
    loop {
        if let Some(frame) = engine.journal.take() {
            return Some(frame);
        }
        if engine.stop {
            return None;
        }
        engine.writer_waits = true;
        engine = shared.committer.wait(engine).unwrap_or_else(PoisonError::into_inner);
    }
}
