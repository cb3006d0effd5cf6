//! Connections to two stores: every call is counted, and at one of them something happens.

use std::{
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use async_trait::async_trait;
use duly::{
    Changed, Durability, Lane, LaneStatus, MessageId, Now, Page, Query, Record, Settled, Store, StoreError,
    StoreErrorKind, Timestamp, Totals,
};
use duly_core::{
    Receipt,
    store::{Claim, Claimed, Insert, Inserted, Settle, Sweep},
};
use duly_stores::MemoryStore;
use futures_util::FutureExt;

/// What is left of the call at which the process dies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Cut {
    /// It never came to the store.
    Before,
    /// The store did it for the first half of its items.
    Half,
    /// Only the answer got lost.
    After,
    /// It is on its way still: the store does it later, long after the process is gone.
    Late,
}

/// What happens during a run: at which call, counted over both stores.
#[derive(Default)]
pub(super) struct Connections {
    calls: AtomicUsize,
    is_dead: AtomicBool,
    cut: Option<(usize, Cut)>,
    /// The call that is done later.
    late: Mutex<Option<Meddler>>,
    /// Others do something just before these calls.
    meddling: Mutex<Vec<(usize, Meddler)>>,
}

pub(super) type Meddler = Box<dyn FnOnce() + Send>;

impl Connections {
    /// The process dies at this call.
    pub(super) fn cut(at: usize, cut: Cut) -> Self {
        Self { cut: Some((at, cut)), ..Self::default() }
    }

    pub(super) fn calls(&self) -> usize {
        self.calls.load(Ordering::Relaxed)
    }

    pub(super) fn meddle(&self, at: usize, meddler: Meddler) {
        self.meddling.lock().unwrap().push((at, meddler));
    }

    /// The call that the store has still to do, if there is one.
    pub(super) fn late(&self) -> Option<Meddler> {
        self.late.lock().unwrap().take()
    }

    fn dead() -> StoreError {
        StoreError::new(StoreErrorKind::Unavailable, "the process is dead")
    }

    /// Whether the process dies with this call, and how much of it is done.
    fn call(&self) -> Result<Option<Cut>, StoreError> {
        if self.is_dead.load(Ordering::Relaxed) {
            return Err(Self::dead());
        }
        let number = self.calls.fetch_add(1, Ordering::Relaxed);
        let due: Vec<_> = self.meddling.lock().unwrap().extract_if(.., |(at, _)| *at == number).collect();
        due.into_iter().for_each(|(_, meddler)| meddler());
        let cut = self.cut.filter(|(at, _)| *at == number).map(|(_, cut)| cut);
        self.is_dead.store(cut.is_some(), Ordering::Relaxed);
        if cut == Some(Cut::Before) { Err(Self::dead()) } else { Ok(cut) }
    }
}

/// A store behind a connection.
pub(super) struct ConnectedStore {
    pub(super) inner: MemoryStore,
    pub(super) connections: Arc<Connections>,
}

impl ConnectedStore {
    /// Does a call for these items, or for as many as the connection lets through. A store in memory answers at once.
    fn items<I: Clone + Send + 'static, A>(
        &self,
        items: Vec<I>,
        ask: impl FnOnce(MemoryStore, Vec<I>) -> Result<A, StoreError> + Send + 'static,
    ) -> Result<A, StoreError> {
        match self.connections.call()? {
            None => ask(self.inner.clone(), items),
            Some(Cut::Late) => {
                let inner = self.inner.clone();
                let deed = move || {
                    let _ = ask(inner, items);
                };
                *self.connections.late.lock().unwrap() = Some(Box::new(deed));
                Err(Connections::dead())
            }
            Some(cut) => {
                let reached = if cut == Cut::Half { items.len() / 2 } else { items.len() };
                ask(self.inner.clone(), items[..reached].to_vec())?;
                Err(Connections::dead())
            }
        }
    }

    async fn read<A>(&self, ask: impl Future<Output = Result<A, StoreError>>) -> Result<A, StoreError> {
        match self.connections.call()? {
            None => ask.await,
            Some(_) => Err(Connections::dead()),
        }
    }
}

fn at_once<A>(answer: impl Future<Output = A>) -> A {
    answer.now_or_never().unwrap()
}

#[async_trait]
impl Store for ConnectedStore {
    fn durability(&self) -> Durability {
        self.inner.durability()
    }

    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        self.items(batch, move |inner, batch| at_once(inner.insert(now, batch)))
    }

    async fn claim(&self, _: Now, _: Claim) -> Result<Claimed, StoreError> {
        panic!("a move claims nothing")
    }

    async fn settle(&self, _: Now, _: Vec<Settle>) -> Result<Vec<Settled>, StoreError> {
        panic!("a move settles nothing")
    }

    async fn extend(&self, _: Now, _: &[Receipt], _: Duration) -> Result<Vec<Settled>, StoreError> {
        panic!("a move extends nothing")
    }

    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.items(ids.to_vec(), move |inner, ids| at_once(inner.cancel(now, &ids)))
    }

    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError> {
        self.items(batch.to_vec(), move |inner, batch| at_once(inner.reschedule(now, &batch)))
    }

    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError> {
        self.items(batch.to_vec(), move |inner, batch| at_once(inner.expire(now, &batch)))
    }

    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.items(ids.to_vec(), move |inner, ids| at_once(inner.replay(now, &ids)))
    }

    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError> {
        self.items(ids.to_vec(), move |inner, ids| at_once(inner.purge(now, &ids)))
    }

    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        self.read(self.inner.get(ids)).await
    }

    async fn list(&self, query: &Query) -> Result<Page, StoreError> {
        self.read(self.inner.list(query)).await
    }

    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError> {
        self.read(self.inner.set_paused(lane, paused)).await
    }

    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError> {
        self.read(self.inner.lanes(now)).await
    }

    async fn totals(&self) -> Result<Totals, StoreError> {
        self.read(self.inner.totals()).await
    }

    async fn forecast(&self, _: Timestamp, _: Timestamp, _: usize) -> Result<Vec<u64>, StoreError> {
        panic!("a move does not look ahead")
    }

    /// Not counted: it comes by the clock.
    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError> {
        self.inner.sweep(now, lanes).await
    }

    async fn close(&self) -> Result<(), StoreError> {
        Ok(())
    }
}
