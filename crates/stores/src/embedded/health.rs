//! The health of the store, and guards that close it if one of its threads panics.

use std::{sync::atomic::Ordering, time::Duration};

use duly_core::store::{Health, StoreError, StoreErrorKind};

use super::{
    EmbeddedStore, SharedEngine,
    engine::Engine,
    locked,
    stall::{BACKGROUND_STALLED_AFTER, JOURNAL_STALLED_AFTER},
};

/// Held by a thread of the store while it runs.
pub(super) struct ThreadGuard<'a> {
    shared: &'a SharedEngine,
    thread: &'static str,
}

impl<'a> ThreadGuard<'a> {
    pub(super) fn new(shared: &'a SharedEngine, thread: &'static str) -> Self {
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

impl SharedEngine {
    /// Background work changed something: the next round may find more to do.
    pub(super) fn note_progress(&self) {
        self.progress.fetch_add(1, Ordering::Relaxed);
        self.steps.finish_step();
    }

    pub(super) fn progress(&self) -> u64 {
        self.progress.load(Ordering::Relaxed)
    }
}

impl EmbeddedStore {
    /// Whether a message could be accepted and delivered now. It could not if the store is closed, has stopped after a failed sync or a
    /// panic of one of its threads, or if its disk is full or hangs. A table, or a part of a backlog, that the disk cannot read degrades the store. Does no I/O.
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
        if self.stalls.is_journal_stalled(self.journal.writing_at(), self.now.mono()) {
            let error = stalled("a write to the journal", JOURNAL_STALLED_AFTER);
            health.accepting = Err(error.clone());
            health.claiming = Err(error);
        }
        if self.stalls.is_background_stalled(self.now.mono()) {
            health.background = Err(stalled("a step of background work", BACKGROUND_STALLED_AFTER));
        }
        let blocked = self.tables.blocked().unread();
        let blocked =
            blocked.map(|unread| format!("{unread}; its messages wait, all others go on; look at the disk"));
        let unread = blocked.or_else(|| self.unread_words());
        health.degraded = unread.map(|what| StoreError::new(StoreErrorKind::Unavailable, what));
        health
    }

    /// Whether there is room to record the delivery of what is claimed now: an eighth of a segment besides the room of the claim.
    pub(super) fn may_claim(&mut self) -> bool {
        !self.lifecycle.is_full() || self.journal.room() >= self.options.segment_bytes / 8 * 3
    }
}

fn stalled(what: &str, limit: Duration) -> StoreError {
    let what = format!("{what} has not returned for more than {limit:?}; look at the disk");
    StoreError::new(StoreErrorKind::Unavailable, what)
}

#[cfg(test)]
mod tests {
    use std::{
        io,
        path::Path,
        sync::{
            Arc, Condvar, Mutex,
            atomic::{AtomicBool, AtomicUsize, Ordering},
        },
    };

    use duly_core::{
        Store,
        store::{Insert, Inserted, StoreErrorKind},
    };

    use super::super::{
        EmbeddedStore, Options,
        background::SPARES,
        disk::RealDisk,
        hooked::{HookedDisk, Hooks},
        locked,
        segment::UNNAMED,
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

    /// Writes and syncs of files whose names begin so hang while a test sets that.
    #[derive(Default)]
    struct Hangs {
        prefix: Mutex<Option<&'static str>>,
        changed: Condvar,
        calls: AtomicUsize,
    }

    impl Hangs {
        fn set(&self, prefix: Option<&'static str>) {
            *locked(&self.prefix) = prefix;
            self.changed.notify_all();
        }

        fn hang(&self, name: &str) -> io::Result<()> {
            let hangs = |prefix: &mut Option<&str>| prefix.is_some_and(|prefix| name.starts_with(prefix));
            let mut prefix = locked(&self.prefix);
            if hangs(&mut prefix) {
                self.calls.fetch_add(1, Ordering::SeqCst);
                self.changed.notify_all();
            }
            drop(self.changed.wait_while(prefix, |prefix| hangs(prefix)).unwrap());
            Ok(())
        }

        /// Waits until a call hangs.
        fn wait_for_call(&self) {
            let none = |_: &mut Option<&str>| self.calls.load(Ordering::SeqCst) == 0;
            drop(self.changed.wait_while(locked(&self.prefix), none).unwrap());
        }
    }

    /// Ends the hang before the store is dropped, also after a failed assertion: its threads would not end.
    struct Release<'a>(&'a Hangs);

    impl Drop for Release<'_> {
        fn drop(&mut self) {
            self.0.set(None);
        }
    }

    /// Waits for it, round after round of background work.
    async fn until(store: &EmbeddedStore, is_so: impl Fn(&EmbeddedStore) -> bool) {
        loop {
            let moved = store.shared.moved.notified();
            tokio::pin!(moved);
            moved.as_mut().enable();
            if is_so(store) {
                return;
            }
            moved.await;
        }
    }

    impl Hooks for Hangs {
        fn write(&self, name: &str) -> io::Result<()> {
            self.hang(name)
        }

        fn sync(&self, name: &str) -> io::Result<()> {
            self.hang(name)
        }
    }

    async fn open<H: Hooks>(dir: &Path, disk: &Arc<H>) -> EmbeddedStore {
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
            until(&store, |store| store.state_of_health().whole().is_err()).await;
            assert_stopped(&store, "duly-background").await;
            store.abandon();
            drop(store);
            let store = open(dir.path(), &Arc::<Panics>::default()).await;
            assert_eq!(store.totals().await.unwrap().pending, 50, "a restart has them all");
        });
    }

    #[test]
    fn a_sync_that_hangs_makes_the_store_not_ready_until_it_returns() {
        testkit::block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let disk = Arc::new(Hangs::default());
            let store = open(dir.path(), &disk).await;
            // The background thread lays down segments first.
            until(&store, |store| store.shared.engine().journal.spare_count() >= SPARES).await;
            let _release = Release(&disk);
            disk.set(Some(UNNAMED));
            let insert = store.insert(now(0), vec![Insert::new(message("work", 1, 0, 10))]);
            let watch = async {
                disk.wait_for_call();
                store.sweep(now(1_000), &[]).await.unwrap();
                store.sweep(now(10_000), &[]).await.unwrap();
                assert_eq!(store.health().await.whole(), Ok(()), "a slow sync");
                store.sweep(now(11_001), &[]).await.unwrap();
                let health = store.health().await;
                let error = health.accepting.unwrap_err();
                assert!(error.what.starts_with("a write to the journal has not returned"), "{error}");
                assert_eq!(health.claiming, Err(error));
                disk.set(None);
            };
            let (inserted, ()) = futures_util::future::join(insert, watch).await;
            assert_eq!(inserted.unwrap(), [Inserted::Accepted]);
            assert_eq!(store.health().await.whole(), Ok(()));
        });
    }

    #[test]
    fn background_work_that_hangs_makes_the_store_not_ready_until_it_goes_on() {
        testkit::block_on(async {
            let dir = tempfile::tempdir().unwrap();
            let disk = Arc::new(Hangs::default());
            let store = open(dir.path(), &disk).await;
            let _release = Release(&disk);
            disk.set(Some("table-"));
            // More than the buffers hold: they are written to a table.
            let batch = (0..50).map(|number| Insert::new(message("work", number, 3_600_000, 300)));
            store.insert(now(0), batch.collect()).await.unwrap();
            disk.wait_for_call();
            store.sweep(now(1_000), &[]).await.unwrap();
            store.sweep(now(30_000), &[]).await.unwrap();
            assert_eq!(store.health().await.whole(), Ok(()), "a long step");
            store.sweep(now(31_001), &[]).await.unwrap();
            let health = store.health().await;
            let error = health.background.unwrap_err();
            assert!(error.what.starts_with("a step of background work has not returned"), "{error}");
            assert_eq!((health.accepting, health.claiming), (Ok(()), Ok(())));
            disk.set(None);
            until(&store, |store| store.state_of_health().whole().is_ok()).await;
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
