//! Whether the database takes changes. One that only lets itself be read, or that has no room, answers questions as ever.

use std::sync::{Mutex, MutexGuard, PoisonError};

use duly_core::store::{Health, StoreError, StoreErrorKind};

use super::{SqlStore, connection::Statement, fault::is_read_only, unreadable_ids::UnreadableIds};

/// Heartbeats in a row without a commit that count as an outage. One that lost a deadlock or its connection is repeated.
const FAILURES_MIN: u32 = 2;
/// The database has room again once it takes a message of so many bytes.
const PROBE_BYTES: usize = 64 * 1024;

/// The results of the latest changes, and what reads found that must be changed.
#[derive(Debug, Default)]
pub(super) struct Writes {
    faults: Mutex<Faults>,
    /// Rows that a sweep takes out of their queues.
    pub(super) unreadable_ids: UnreadableIds,
}

#[derive(Debug, Default)]
struct Faults {
    /// Why the latest heartbeat was not committed. Every node writes one every few seconds.
    heartbeat: Option<StoreError>,
    /// How many in a row were not.
    failed: u32,
    /// The latest insert found no room. A heartbeat needs none.
    room: Option<StoreError>,
    /// Dead letters that were made of accepted messages because their rows could not be read.
    damaged: u64,
}

impl Faults {
    /// Why heartbeats are not committed. A server that was unreachable for a moment counts once it is unreachable again; any other cause counts at once.
    fn lasting(&self) -> Option<&StoreError> {
        let may_pass = |error: &StoreError| error.kind.is_transient() && !is_read_only(error);
        self.heartbeat.as_ref().filter(|error| self.failed >= FAILURES_MIN || !may_pass(error))
    }
}

impl Writes {
    fn lock(&self) -> MutexGuard<'_, Faults> {
        self.faults.lock().unwrap_or_else(PoisonError::into_inner)
    }

    pub(super) fn heartbeat<T>(&self, outcome: &Result<T, StoreError>) {
        let mut faults = self.lock();
        faults.failed = if outcome.is_ok() { 0 } else { faults.failed.saturating_add(1) };
        faults.heartbeat = outcome.as_ref().err().cloned();
    }

    pub(super) fn insert<T>(&self, outcome: &Result<T, StoreError>) {
        match outcome {
            Ok(_) => self.lock().room = None,
            Err(error) if error.kind == StoreErrorKind::Full => self.lock().room = Some(error.clone()),
            Err(_) => {}
        }
    }

    /// So many more messages could not be read, and that they are dead letters is committed.
    pub(super) fn count_damaged(&self, count: usize) {
        self.lock().damaged += count as u64;
    }

    pub(super) fn damaged(&self) -> u64 {
        self.lock().damaged
    }

    pub(super) fn is_full(&self) -> bool {
        let faults = self.lock();
        let is_full = |fault: &Option<StoreError>| {
            fault.as_ref().is_some_and(|error| error.kind == StoreErrorKind::Full)
        };
        is_full(&faults.room) || is_full(&faults.heartbeat)
    }
}

impl SqlStore {
    /// By what the latest changes have shown, and a question that a server answers without looking at any message.
    pub(super) async fn by_part(&self) -> Health {
        let question =
            || Statement::new(self.dialect(), "SELECT value FROM duly_store WHERE name = 'generation'");
        let answered = match self.check_open() {
            Ok(()) => self.read(|borrowed| Box::pin(borrowed.session.rows(question()))).await.map(drop),
            Err(closed) => Err(closed),
        };
        if let Err(error) = answered {
            return Health::failing(error);
        }
        let mut health = Health::healthy();
        let faults = self.writes.lock();
        if let Some(error) = faults.lasting() {
            health.claiming = Err(error.clone());
        }
        if let Some(error) = faults.lasting().or(faults.room.as_ref()) {
            health.accepting = Err(error.clone());
        }
        health
    }

    /// While an insert found no room, nobody may send another: then a sweep finds out whether there is room again.
    pub(super) async fn probe_room(&self) {
        let probed = self
            .read(|borrowed| {
                Box::pin(async {
                    let session = borrowed.session;
                    session.begin_early();
                    let inserted = session.run(self.probe()).await;
                    session.roll_back().await;
                    inserted.map(drop)
                })
            })
            .await;
        match probed {
            Ok(()) => self.writes.insert(&Ok(())),
            Err(error) => tracing::debug!(%error, "database still refuses writes"),
        }
    }

    /// A row of some size, which is not kept.
    fn probe(&self) -> Statement {
        let body = incompressible(PROBE_BYTES);
        let mut insert = Statement::new(
            self.dialect(),
            "INSERT INTO delay_message (message_id, topic, deliver_time_ms, body) VALUES (",
        );
        insert
            .bind(format!("duly-room-{:016x}", self.options.instance).as_str())
            .push(", ")
            .bind("duly-room");
        insert.push(", ").bind(0).push(", ").bind(body.as_slice()).push(")");
        insert
    }
}

/// Bytes that take as much room as there are: PostgreSQL compresses others.
fn incompressible(count: usize) -> Vec<u8> {
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    let next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        (state >> 32) as u8
    };
    std::iter::repeat_with(next).take(count).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_heartbeat_that_was_taken_back_is_no_fault_yet() {
        let writes = Writes::default();
        let lasts = || writes.lock().lasting().is_some();
        let failed = |kind, what: &str| writes.heartbeat(&Err::<(), _>(StoreError::new(kind, what)));
        for _ in 0..3 {
            failed(StoreErrorKind::Unavailable, "the database took the change back again and again");
            assert!(!lasts());
            writes.heartbeat(&Ok(()));
            assert!(!lasts());
        }
        failed(StoreErrorKind::Unavailable, "the connection to the database was lost");
        failed(StoreErrorKind::Unavailable, "the connection to the database was lost");
        assert!(lasts());
        for (kind, what) in [
            (StoreErrorKind::Unavailable, "this database only lets itself be read: said so; go elsewhere"),
            (StoreErrorKind::Full, "the database has no room"),
            (StoreErrorKind::Damaged, "a table is gone"),
        ] {
            writes.heartbeat(&Ok(()));
            failed(kind, what);
            assert!(lasts(), "{what}");
        }
    }
}
