//! Comparing the two halves, all the time and in small steps.

use std::sync::{Mutex, PoisonError};

use duly_core::{Lane, Now, store::StoreError};

use super::{TieredStore, entry};
use crate::server::turn::Turn;

/// How many entries and how many rows a step compares.
const STEP: usize = 200;
/// How many queues a step goes through, most of which may be empty.
const QUEUES_MAX: usize = 64;

/// How far it has come.
#[derive(Debug, Default)]
pub(super) struct Reconciler(Mutex<Place>);

#[derive(Debug, Default, Clone)]
struct Place {
    /// The shard of the index, and the last member that was looked at.
    shard: u16,
    member: Vec<u8>,
    /// The number of the queue among all, and the last row that was looked at.
    queue: usize,
    turn: Option<Turn>,
}

impl TieredStore {
    /// Whatever is overdue in MySQL is in the index, too, or comes there now.
    pub(super) async fn find_forgotten(&self, now: Now, lanes: &[Lane]) -> Result<(), StoreError> {
        if !self.health.relied_on(now) {
            return Ok(());
        }
        let overdue = self.sql.next_of(lanes).await?.into_iter().filter(|(_, first)| *first < now.wall());
        let overdue: Vec<_> = overdue.map(|(lane, _)| lane).collect();
        for (_, queue) in self.sql.queues_of(&overdue) {
            let forgotten = self.sql.waiting_in(queue, None, now.wall(), STEP).await?;
            match self.index.add(&forgotten).await {
                Ok(added) => self.health.restored(added),
                Err(away) => {
                    self.health.away(&away);
                    return Ok(());
                }
            }
        }
        Ok(())
    }

    /// One step through the entries and one through the rows.
    pub(super) async fn reconcile(&self, now: Now) -> Result<(), StoreError> {
        if !self.health.relied_on(now) {
            return Ok(());
        }
        let mut place = self.reconciler.0.lock().unwrap_or_else(PoisonError::into_inner).clone();
        self.compare_entries(&mut place).await?;
        // One node is enough for the rows: what it adds is there for all.
        if self.sql.is_first_node() {
            self.compare_rows(&mut place).await?;
        }
        *self.reconciler.0.lock().unwrap_or_else(PoisonError::into_inner) = place;
        Ok(())
    }

    /// An entry without a row goes.
    async fn compare_entries(&self, place: &mut Place) -> Result<(), StoreError> {
        let entries = match self.index.scan(place.shard, &place.member, STEP).await {
            Ok(entries) => entries,
            Err(away) => {
                self.health.away(&away);
                return Ok(());
            }
        };
        match entries.last().filter(|_| entries.len() == STEP) {
            Some(last) => place.member = entry::write(last),
            None => {
                place.shard = (place.shard + 1) % self.options.sql.shards;
                place.member.clear();
            }
        }
        let waiting = self.sql.still_waiting(&entries).await?;
        let stale: Vec<_> =
            entries.into_iter().zip(waiting).filter(|(_, waits)| !waits).map(|(entry, _)| entry).collect();
        match self.index.remove(&stale).await {
            Ok(removed) => self.health.dropped(removed),
            Err(away) => self.health.away(&away),
        }
        Ok(())
    }

    /// A row without an entry comes back.
    async fn compare_rows(&self, place: &mut Place) -> Result<(), StoreError> {
        let queues = self.sql.every_queue().await?;
        let until = self.health.lock().whole;
        for _ in 0..QUEUES_MAX.min(queues.len()) {
            let Some(queue) = queues.get(place.queue) else {
                (place.queue, place.turn) = (0, None);
                continue;
            };
            let rows = self.sql.waiting_in(*queue, place.turn.as_ref(), until, STEP).await?;
            match self.index.add(&rows).await {
                Ok(added) => self.health.restored(added),
                Err(away) => {
                    self.health.away(&away);
                    return Ok(());
                }
            }
            match rows.last().filter(|_| rows.len() == STEP) {
                Some(last) => {
                    place.turn = Some(last.turn.clone());
                    return Ok(());
                }
                None => (place.queue, place.turn) = (place.queue + 1, None),
            }
        }
        Ok(())
    }
}
