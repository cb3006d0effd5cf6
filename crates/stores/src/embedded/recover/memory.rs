//! Keeps memory within its budgets while the journal is replayed, and shortens a journal that has grown too long.

use std::{io, sync::PoisonError};

use duly_core::store::StoreError;

use super::{
    super::{SharedEngine, background::is_full, options::ENDED_BYTES_MAX},
    Opening, io_error, shared,
};

/// With more segments or claims logs than this, an opened store makes a checkpoint before it takes calls. A process that
/// always dies before its first checkpoint would otherwise have more to replay each time.
const BEHIND_MAX: usize = 8;

/// Writes one part of what replay has gathered to files.
type Step = fn(&SharedEngine) -> io::Result<()>;

impl Opening<'_> {
    /// Writes what replay has gathered in memory to files, if that exceeds the budgets of an open store. The files do not
    /// count before the next manifest names them.
    pub(super) fn free_memory(self) -> Result<Self, StoreError> {
        let engine = &self.engine;
        let flush = engine.wants_flush();
        let dead = engine.dead_buffer.len() > engine.options.buffer_bytes;
        let ended = engine.ended.waiting() > ENDED_BYTES_MAX;
        let spill = engine.is_window_full();
        if !(flush || dead || ended || spill) {
            return Ok(self);
        }
        let Self { dir, disk, names, manifest, engine, claims, staged, damaged } = self;
        let shared = shared(dir, disk.clone(), engine, claims);
        let steps: [(bool, Step); 4] = [
            (flush, |shared| shared.flush(true)),
            (dead, SharedEngine::flush_dead),
            (ended, SharedEngine::write_slices),
            (spill, SharedEngine::spill),
        ];
        for (_, step) in steps.into_iter().filter(|(wanted, _)| *wanted) {
            unless_full(step(&shared)).map_err(|error| io_error("writing what the journal holds", error))?;
        }
        let SharedEngine { engine, claims, .. } = shared;
        let engine = engine.into_inner().unwrap_or_else(PoisonError::into_inner);
        Ok(Self { dir, disk, names, manifest, engine, claims, staged, damaged })
    }
}

/// The store must open on a full disk, too.
fn unless_full(done: io::Result<()>) -> io::Result<()> {
    match done {
        Err(error) if is_full(&error) => Ok(()),
        done => done,
    }
}

impl SharedEngine {
    /// Makes a checkpoint at once if the last one is far behind.
    pub(in crate::embedded) fn catch_up(&self) -> io::Result<()> {
        let behind = {
            let engine = self.engine();
            engine.journal.segment_count().max(engine.in_flight.logs().len()) > BEHIND_MAX
        };
        if !behind {
            return Ok(());
        }
        let _round = super::super::locked(&self.round);
        unless_full(self.checkpoint())
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use duly_core::{
        Body, MessageId, Monotonic, Now, SinkName, Store, StoredMessage, Topic,
        store::{Insert, Inserted},
    };

    use crate::{EmbeddedStore, embedded::Options};

    const BUFFER_BYTES: usize = 16 << 10;
    const SEGMENT_BYTES: u64 = 64 << 10;

    fn now() -> Now {
        Now::new(1_800_000_000_000_000, Monotonic::from_micros(1_000_000))
    }

    /// Half of them due at once, half of them in an hour.
    fn message(number: u32) -> Insert {
        let id = MessageId::parse(&format!("m{number}")).unwrap();
        let due = now().wall().saturating_add(Duration::from_secs(u64::from(number % 2) * 3600));
        let topic = Topic::parse("work").unwrap();
        let mut message = StoredMessage::new(id, SinkName::parse("queue").unwrap(), topic, due);
        message.body = Body::text("x".repeat(300));
        Insert::new(message)
    }

    #[test]
    fn replaying_a_long_journal_stays_within_the_budgets_of_memory() {
        let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(1).build().unwrap();
        let folder = tempfile::tempdir().unwrap();
        // A store that writes nothing but its journal.
        let lazy = Options {
            segment_bytes: SEGMENT_BYTES,
            checkpoint_bytes: u64::MAX,
            buffer_bytes: 1 << 30,
            window_bytes: 1 << 30,
            ..Options::default()
        };
        let busy = Options { buffer_bytes: BUFFER_BYTES, window_bytes: BUFFER_BYTES, ..lazy.clone() };
        runtime.block_on(async {
            let store = EmbeddedStore::open(folder.path(), lazy, now()).await.unwrap();
            for batch in 0..20 {
                let batch = (0..100).map(|number| message(batch * 100 + number)).collect();
                let answers = store.insert(now(), batch).await.unwrap();
                assert!(answers.iter().all(|answer| *answer == Inserted::Accepted));
            }
            store.abandon();
        });
        let (shared, _lock) = super::super::open(folder.path(), busy, now()).unwrap();
        let engine = shared.engine();
        assert_eq!(engine.totals().pending, 2_000);
        // A segment is replayed at a time.
        let most = BUFFER_BYTES + 2 * SEGMENT_BYTES as usize;
        let (buffered, hot) = (engine.buckets.buffered(), engine.lanes.hot_bytes());
        assert!(buffered <= most, "{buffered} bytes on their way to buckets");
        assert!(hot <= most, "{hot} bytes in the hot window");
    }
}
