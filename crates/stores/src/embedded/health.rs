//! Whether the store could take a message and give out what is due: from what it knows, without a look at the disk.

use duly_core::store::{Health, StoreError, StoreErrorKind};

use super::{EmbeddedStore, engine::Engine, locked};

impl EmbeddedStore {
    pub(super) fn state_of_health(&self) -> Health {
        let mut health = self.shared.engine().health();
        // A store that closed itself has ended its threads, and says why it did.
        if health.background.is_ok()
            && let Some(name) = self.dead_thread()
        {
            let what = format!("the thread {name} has ended; restart to recover, nothing accepted is lost");
            health.background = Err(StoreError::new(StoreErrorKind::Closed, what));
        }
        health
    }

    fn dead_thread(&self) -> Option<String> {
        let threads = locked(&self.threads);
        let dead = threads.iter().find(|thread| thread.is_finished())?;
        Some(dead.thread().name().unwrap_or_default().to_owned())
    }
}

impl Engine {
    fn health(&mut self) -> Health {
        if let Err(closed) = self.check_open() {
            return Health::failing(closed);
        }
        let mut health = Health::good();
        if self.full {
            let what = "the disk is full: new messages are refused until there is room";
            health.accepting = Err(StoreError::new(StoreErrorKind::Full, what));
        }
        if !self.may_claim() {
            let what = "the disk is full and so is its reserve: delivery waits until there is room";
            health.claiming = Err(StoreError::new(StoreErrorKind::Full, what));
        }
        health
    }

    /// Whether what is given out now could be recorded as delivered: that needs an eighth of a segment beside its own room.
    pub(super) fn may_claim(&mut self) -> bool {
        !self.full || self.journal.room() >= self.options.segment_bytes / 8 * 3
    }
}
