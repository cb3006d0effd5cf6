//! The health of the store, and guards that close it if one of its threads panics.

use std::sync::atomic::Ordering;

use duly_core::store::{Health, StoreError, StoreErrorKind};

use super::{EmbeddedStore, Shared, engine::Engine, locked};

/// Held by a thread of the store while it runs.
pub(super) struct ThreadGuard<'a> {
    shared: &'a Shared,
    thread: &'static str,
}

impl<'a> ThreadGuard<'a> {
    pub(super) fn new(shared: &'a Shared, thread: &'static str) -> Self {
        Self { shared, thread }
    }
}

/// A thread that ends while the store is open has panicked. Without it messages would wait for ever. So the store closes: every
/// call fails with the reason, and a restart recovers.
impl Drop for ThreadGuard<'_> {
    fn drop(&mut self) {
        if self.shared.engine().lifecycle.is_stopped() {
            return;
        }
        let thread = self.thread;
        tracing::error!(thread, "background thread panicked; the store stops");
        self.shared.close_because(format!("the thread {thread} of the store panicked; restart to recover"));
        self.shared.engine().journal.fail();
    }
}

impl Shared {
    /// Background work changed something: the next round may find more to do.
    pub(super) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }
}

impl EmbeddedStore {
    /// Whether a message could be accepted and delivered now. It could not if the store is closed, has stopped after a failed sync or a
    /// panic of one of its threads, or if its disk is full. A table that the disk cannot read degrades the store. Does no I/O.
    pub(super) fn state_of_health(&self) -> Health {
        let mut health = self.shared.engine().health();
        // A store that closed itself has ended its threads; its own reason goes first.
        if health.background.is_ok()
            && let Some(thread) = self.dead_thread()
        {
            let what = format!("the thread {thread} of the store ended; restart to recover");
            health.background = Err(StoreError::new(StoreErrorKind::Closed, what));
        }
        health
    }

    fn dead_thread(&self) -> Option<String> {
        let threads = locked(&self.threads);
        let dead = threads.iter().find(|thread| thread.is_finished())?;
        Some(dead.thread().name().unwrap_or("unnamed").to_owned())
    }
}

impl Engine {
    pub(super) fn health(&mut self) -> Health {
        if let Err(closed) = self.check_open() {
            return Health::failing(closed);
        }
        let mut health = Health::healthy();
        if self.lifecycle.is_full() {
            let what = "the disk is full: new messages are refused until there is room";
            health.accepting = Err(StoreError::new(StoreErrorKind::Full, what));
        }
        if !self.may_claim() {
            let what = "the disk is full and so is its reserve: delivery waits until there is room";
            health.claiming = Err(StoreError::new(StoreErrorKind::Full, what));
        }
        if let Some(unread) = self.tables.blocked().unread() {
            let what = format!("{unread}; its messages wait, all others go on; look at the disk");
            health.degraded = Some(StoreError::new(StoreErrorKind::Unavailable, what));
        }
        health
    }

    /// Whether there is room to record the delivery of what is claimed now: an eighth of a segment besides the room of the claim.
    pub(super) fn may_claim(&mut self) -> bool {
        !self.lifecycle.is_full() || self.journal.room() >= self.options.segment_bytes / 8 * 3
    }
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        path::Path,
        sync::{
            Arc,
            atomic::{AtomicBool, Ordering},
        },
    };

    use duly_core::{
        Store,
        store::{Insert, StoreErrorKind},
    };

    use super::super::{
        EmbeddedStore, Options,
        disk::RealDisk,
        hooked::{HookedDisk, Hooks},
        test_bed::{message, now, tiny},
    };

    /// A thread panics once a test sets this.
    #[derive(Default)]
    struct Panics {
        at_tables: AtomicBool,
        at_syncs: AtomicBool,
    }

    impl Hooks for Panics {
        fn open(&self, name: &str) -> io::Result<()> {
            assert!(!name.starts_with("table-") || !self.at_tables.load(Ordering::SeqCst), "planted");
            Ok(())
        }

        fn sync(&self, _: &str) -> io::Result<()> {
            assert!(!self.at_syncs.load(Ordering::SeqCst), "planted");
            Ok(())
        }
    }

    async fn open(dir: &Path, disk: &Arc<Panics>) -> EmbeddedStore {
        let options = Options { disk: HookedDisk::on(RealDisk, disk.clone()), ..tiny() };
        let store = EmbeddedStore::open(dir, options, now(0)).await.unwrap();
        assert_eq!(store.state_of_health().whole(), Ok(()));
        store
    }

    async fn assert_stopped(store: &EmbeddedStore, thread: &str) {
        let insert = Insert::new(message("work", 1_000, 0, 10));
        let error = store.insert(now(0), vec![insert]).await.unwrap_err();
        assert_eq!(error.kind, StoreErrorKind::Closed);
        assert!(error.what.contains(thread), "{error}");
        let health = store.state_of_health().whole().unwrap_err();
        // The error of a waiting caller also says that the call may have taken effect.
        assert!(error.what.starts_with(&health.what), "{error}");
        assert_eq!(store.totals().await, Err(health));
    }

    #[test]
    fn a_panic_in_the_background_stops_the_store_and_says_so() {
        testkit::block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let disk = Arc::new(Panics::default());
            let store = open(dir.path(), &disk).await;
            disk.at_tables.store(true, Ordering::SeqCst);
            // More than the buffers hold: they are written to a table.
            let batch = (0..50).map(|number| message("work", number, 3_600_000, 300));
            let batch = batch.map(Insert::new).collect();
            store.insert(now(0), batch).await.unwrap();
            loop {
                let moved = store.shared.moved.notified();
                tokio::pin!(moved);
                moved.as_mut().enable();
                if store.state_of_health().whole().is_err() {
                    break;
                }
                moved.await;
            }
            assert_stopped(&store, "duly-background").await;
            store.abandon();
            drop(store);
            let store = open(dir.path(), &Arc::default()).await;
            assert_eq!(store.totals().await.unwrap().pending, 50, "a restart has them all");
        });
    }

    #[test]
    fn a_panic_while_the_journal_is_written_answers_who_waits_for_it() {
        testkit::block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let disk = Arc::new(Panics::default());
            let store = open(dir.path(), &disk).await;
            disk.at_syncs.store(true, Ordering::SeqCst);
            assert_stopped(&store, "duly-journal").await;
        });
    }
}
