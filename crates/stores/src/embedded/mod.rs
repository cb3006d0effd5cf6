#![doc = include_str!("docs.md")]

mod background;
mod backup;
mod buckets;
mod buffer;
mod change;
mod checkpoint;
mod claim;
mod claim_log;
mod compaction;
mod config;
mod damage;
#[cfg(test)]
mod damage_tests;
pub mod disk;
mod ended;
mod engine;
mod entry;
mod find;
#[cfg(test)]
mod forget_tests;
mod health;
mod horizon;
mod in_flight;
mod index;
mod insert;
mod inspect;
mod journal;
mod lanes;
mod lifecycle;
mod list;
mod manifest;
mod metrics;
mod number_hasher;
mod options;
mod page;
mod query;
mod read_only;
mod recover;
mod refill;
mod segment;
mod sequences;
mod settle;
mod stall;
mod survey;
mod sweep;
mod table;
mod tables;
// The test kit's own is made for the library as others see it, and not for its unit tests.
#[cfg(test)]
#[path = "../../../testkit/src/disk/hooked.rs"]
#[expect(unreachable_pub, reason = "the test kit shows it to others")]
mod hooked;
#[cfg(test)]
mod test_bed;
mod unread;
#[cfg(test)]
mod unread_tests;
mod verify;
mod wheel;
mod writer;

use std::{
    collections::HashMap,
    path::{Path, PathBuf},
    sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, RwLock, atomic::AtomicU64},
    thread::JoinHandle,
    time::Duration,
};

use async_trait::async_trait;
use duly_core::{
    Lane, MessageId, Now, Receipt, Record, Store, Timestamp,
    store::{
        Changed, Claim, Claimed, Durability, Health, Insert, Inserted, LaneStatus, Page, Query, Settle,
        Settled, StoreError, StoreErrorKind, StoreMetrics, Sweep, Totals,
    },
};
use tokio::sync::Notify;

#[cfg(test)]
use self::disk::DiskFile;
use self::{
    claim_log::ClaimLog,
    disk::Disk,
    engine::{Admission, Class, Engine},
    index::Position,
    journal::{Commit, RecordKind},
    metrics::Timing,
    stall::BackgroundSteps,
};
pub use backup::{BackupReport, backup, backup_telling, mark_sound, mark_unsound};
pub use config::EmbeddedConfig;
pub use inspect::{FolderContents, inspect};
pub use options::{FILE_BYTES_MAX, Options};
pub use verify::{Verified, verify};

/// About what the journal needs for a new lane and its pause.
const LANE_GUESS: usize = 512;

/// A store in files of its own: messages synced to disk before they are accepted.
pub struct EmbeddedStore {
    shared: Arc<SharedEngine>,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// Held for as long as the store is open: nobody else may open the folder.
    lock: Mutex<Option<Box<dyn Send + Sync>>>,
}

/// State shared by callers, the writer and the background thread.
struct SharedEngine {
    engine: Mutex<Engine>,
    /// Wakes the journal's writer.
    committer: Condvar,
    /// Wakes the background thread.
    background: Condvar,
    /// Wakes callers that wait for room.
    room: Notify,
    /// Wakes claims that wait for messages that the background thread loads.
    moved: Notify,
    /// Held while background work goes on: closing waits for it.
    round: Mutex<()>,
    /// Held while messages move from one position to another. In between they are found at neither, so lists wait for it.
    moves: Mutex<()>,
    /// Held while a claim passes over what cannot be read in a backlog.
    surveying: tokio::sync::Mutex<()>,
    claims: ClaimLog,
    timing: Timing,
    /// Counts the changes of background work: a round without any is not repeated at once.
    progress: AtomicU64,
    /// The steps of background work: health sees by them whether it goes on.
    steps: Arc<BackgroundSteps>,
    /// The numbers of lanes, to be read without the engine's lock. A number here may have been forgotten by the engine.
    lanes: RwLock<HashMap<Lane, u32>>,
    disk: Arc<dyn Disk>,
    dir: PathBuf,
}

/// Held by whoever moves messages, and by a list that must see each message exactly once.
struct MoveGuard<'a> {
    _held: MutexGuard<'a, ()>,
}

/// Locks, also after a panic of another holder: that does no more harm to the data than a crash.
fn locked<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

impl SharedEngine {
    fn engine(&self) -> MutexGuard<'_, Engine> {
        locked(&self.engine)
    }

    /// Waits until no message is being moved, and lets nobody else begin.
    fn lock_moves(&self) -> MoveGuard<'_> {
        MoveGuard { _held: locked(&self.moves) }
    }

    /// Waits until there is room for `bytes` more of journal.
    async fn admitted(&self, bytes: usize, class: Class) -> Result<(), StoreError> {
        loop {
            let room = self.room.notified();
            tokio::pin!(room);
            room.as_mut().enable();
            {
                let mut engine = self.engine();
                match engine.admit(bytes, class)? {
                    Admission::Granted => return Ok(()),
                    Admission::Wait => self.wake(&mut engine),
                }
            }
            self.background.notify_one();
            room.await;
        }
    }

    /// The engine, once there is room for `bytes` more of journal. At best this is one lock.
    async fn engine_with_room(
        &self,
        bytes: usize,
        class: Class,
    ) -> Result<MutexGuard<'_, Engine>, StoreError> {
        loop {
            {
                let mut engine = self.engine();
                if let Admission::Granted = engine.admit(bytes, class)? {
                    return Ok(engine);
                }
            }
            self.admitted(bytes, class).await?;
        }
    }

    /// Wakes the journal's writer if it waits. A writer at work takes the next frame by itself.
    fn wake(&self, engine: &mut Engine) {
        if engine.journal.wake_writer() {
            self.committer.notify_one();
        }
    }

    /// Waits until a frame with a change of the caller is durable. After an error, only a restart finds out whether the change is on disk.
    async fn committed(&self, commit: &Commit) -> Result<(), StoreError> {
        self.synced(commit).await.map_err(StoreError::when_under_way)
    }

    /// Waits until a frame is durable, for a caller that only read.
    async fn synced(&self, commit: &Commit) -> Result<(), StoreError> {
        if commit.wait().await {
            return Ok(());
        }
        self.engine().check_open()?;
        Err(StoreError::new(StoreErrorKind::Closed, "the journal could not be synced"))
    }

    /// Waits until every change so far is durable: no caller learns of a change that a power cut could undo.
    async fn sync_barrier(&self) -> Result<(), StoreError> {
        let commit = {
            let mut engine = self.engine();
            self.wake(&mut engine);
            engine.journal.commit()
        };
        self.synced(&commit).await
    }

    /// Waits until `position` can be read back.
    async fn written(&self, position: Position) -> Result<(), StoreError> {
        let commit = {
            let mut engine = self.engine();
            if engine.is_written(position) {
                return Ok(());
            }
            self.wake(&mut engine);
            engine.journal.commit()
        };
        self.synced(&commit).await
    }

    fn lane_number(&self, lane: &Lane) -> Result<u32, StoreError> {
        if let Some(number) = self.lanes.read().unwrap_or_else(PoisonError::into_inner).get(lane) {
            return Ok(*number);
        }
        let number = {
            let mut engine = self.engine();
            engine.check_open()?;
            engine.lane_number(lane)?
        };
        self.lanes.write().unwrap_or_else(PoisonError::into_inner).insert(lane.clone(), number);
        Ok(number)
    }

    /// Stops everything: nothing after this is acknowledged.
    fn close_because(&self, why: String) {
        let mut engine = self.engine();
        engine.lifecycle.stop(why);
        drop(engine);
        self.committer.notify_all();
        self.background.notify_all();
        self.room.notify_waiters();
        self.moved.notify_waiters();
    }
}

impl EmbeddedStore {
    /// Opens the store in `dir`, making it if it is missing. Only one process can have it open.
    pub async fn open(dir: impl AsRef<Path>, options: Options, now: Now) -> Result<Self, StoreError> {
        let dir = dir.as_ref().to_owned();
        let opened = tokio::task::spawn_blocking(move || recover::open(&dir, options.bounded(), now)).await;
        let (shared, lock) = opened.map_err(|error| {
            StoreError::new(StoreErrorKind::Damaged, format!("opening the data folder failed: {error}"))
                .with_source(error)
        })??;
        let shared = Arc::new(shared);
        let (writer, background) = (shared.clone(), shared.clone());
        let threads = vec![
            std::thread::Builder::new().name("duly-journal".into()).spawn(move || writer::run(&writer)),
            std::thread::Builder::new()
                .name("duly-background".into())
                .spawn(move || background::run(&background)),
        ];
        let threads = threads.into_iter().collect::<Result<Vec<_>, _>>().map_err(|error| {
            shared.close_because("its threads could not be started".into());
            StoreError::new(StoreErrorKind::Unavailable, format!("starting a thread failed: {error}"))
                .with_source(error)
        })?;
        let store =
            Self { shared: shared.clone(), threads: Mutex::new(threads), lock: Mutex::new(Some(lock)) };
        let caught_up = tokio::task::spawn_blocking(move || shared.catch_up()).await;
        let caught_up = caught_up.map_err(std::io::Error::other).flatten();
        caught_up.map_err(|error| recover::io_error("the checkpoint after opening", error))?;
        store.lose_claims(now).await?;
        Ok(store)
    }

    /// Loses the claims of the last process. If there is no room for that now, the next sweep does it.
    async fn lose_claims(&self, now: Now) -> Result<(), StoreError> {
        loop {
            match self.shared.end_leases(now).await {
                Ok(0) => return Ok(()),
                Ok(_) => {}
                Err(error) if error.kind == StoreErrorKind::Closed => return Err(error),
                Err(error) => {
                    tracing::warn!(%error, "claims of the last process not ended; retried at the next sweep");
                    return Ok(());
                }
            }
        }
    }

    /// Whether a store was ever made in `dir`. Changes nothing.
    pub fn is_in(dir: impl AsRef<Path>) -> bool {
        dir.as_ref().join(manifest::NAME).exists()
    }

    /// Stops at once, without the checkpoint of [`close`](Store::close): as a crash would. Nothing accepted is lost.
    pub fn abandon(&self) {
        self.shared.close_because("the store is closed".into());
        for thread in locked(&self.threads).drain(..) {
            // The panic of a thread was reported when it happened.
            let _ = thread.join();
        }
        drop(locked(&self.lock).take());
    }
}

/// Ends the threads, so that the folder can be opened again at once. What is accepted is on disk already.
impl Drop for EmbeddedStore {
    fn drop(&mut self) {
        self.abandon();
    }
}

#[async_trait]
impl Store for EmbeddedStore {
    fn durability(&self) -> Durability {
        Durability::Disk
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        self.shared.insert(now, batch).await
    }

    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError> {
        self.shared.claim(now, claim).await
    }

    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        self.shared.settle(now, batch).await
    }

    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError> {
        self.shared.extend(now, receipts, lease)
    }

    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.shared.cancel(now, ids).await
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        self.shared.reschedule(now, batch).await
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        self.shared.expire(now, batch).await
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.shared.replay(now, ids).await
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.shared.purge(now, ids).await
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.shared.get(ids).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        let (shared, query) = (self.shared.clone(), query.clone());
        let listed = tokio::task::spawn_blocking(move || shared.list(&query)).await;
        let page = listed.map_err(|error| {
            StoreError::new(StoreErrorKind::Unavailable, format!("listing failed: {error}"))
                .with_source(error)
        })??;
        self.shared.sync_barrier().await?;
        Ok(page)
    }

    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        self.shared.admitted(LANE_GUESS, Class::Change).await?;
        let commit = {
            let mut engine = self.shared.engine();
            engine.check_open()?;
            let number = engine.lane_number(lane)?;
            if let Some(mut state) = engine.lanes.get_mut(number) {
                state.set_paused(paused);
            }
            let position = engine.journal.add(RecordKind::Paused, |out| {
                out.extend_from_slice(&number.to_le_bytes());
                out.push(u8::from(paused));
            });
            engine.lanes.named_in(number, position.file);
            self.shared.wake(&mut engine);
            engine.journal.commit()
        };
        self.shared.committed(&commit).await
    }

    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        self.shared.lane_statuses(now)
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        let engine = self.shared.engine();
        engine.check_open()?;
        Ok(engine.totals())
    }

    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError> {
        self.shared.forecast(from, to, buckets)
    }

    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        self.shared.sweep(now, lanes).await
    }

    async fn health(&self) -> Health {
        self.state_of_health()
    }

    fn metrics(&self) -> StoreMetrics {
        self.shared.metrics()
    }

    async fn close(&self) -> Result<(), StoreError> {
        let shared = self.shared.clone();
        let finished = tokio::task::spawn_blocking(move || shared.finish()).await;
        self.abandon();
        finished.map_err(|error| {
            StoreError::new(StoreErrorKind::Unavailable, format!("closing failed: {error}"))
                .with_source(error)
        })?
    }
}
