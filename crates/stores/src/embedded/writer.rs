//! The thread that writes the journal: one write and one sync for all who came together.

use super::{Shared, journal::Frame};

/// Runs until the store stops and everything added is written.
pub(super) fn run(shared: &Shared) {
    while let Some(mut frame) = next_frame(shared) {
        let written = shared.timing.write(&mut frame);
        let commit = frame.commit.clone();
        if let Err(error) = written {
            // After a failed sync nobody knows what is on disk: only a restart finds out.
            tracing::error!(%error, "the journal could not be synced; the store stops");
            shared.close_because(format!("the journal could not be synced ({error}); restart to recover"));
            commit.finish(false);
            shared.engine().journal.fail();
            return;
        }
        let waits = {
            let mut engine = shared.engine();
            engine.journal.wrote(frame);
            std::mem::take(&mut engine.keeper_waits)
        };
        commit.finish(true);
        shared.room.notify_waiters();
        if waits {
            shared.keeper.notify_all();
        }
    }
    shared.engine().journal.fail();
}

fn next_frame(shared: &Shared) -> Option<Frame> {
    let mut engine = shared.engine();
    loop {
        if let Some(frame) = engine.journal.take() {
            return Some(frame);
        }
        if engine.stop {
            return None;
        }
        engine.writer_waits = true;
        engine = shared.committer.wait(engine).unwrap_or_else(std::sync::PoisonError::into_inner);
    }
}
