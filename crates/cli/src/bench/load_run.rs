//! State shared by the connections of one run.

use std::{
    collections::BTreeMap,
    sync::{
        Mutex, PoisonError,
        atomic::{
            AtomicBool, AtomicU64,
            Ordering::{Relaxed, SeqCst},
        },
    },
    time::{Duration, Instant},
};

use super::{deliveries::Deliveries, ledger::Ledger, plan::Plan};
use crate::{Failure, clock};
use duly_client::{Client, Direct};

/// A server that takes longer than this for an answer counts as gone.
pub(super) const ANSWER_WITHIN: Duration = Duration::from_secs(30);
/// Waits between two attempts to connect.
const BACKOFF: [u64; 6] = [10, 20, 50, 100, 200, 500];

#[derive(Default)]
pub(super) struct Counts {
    pub(super) sent: AtomicU64,
    pub(super) accepted: AtomicU64,
    pub(super) early: AtomicU64,
    pub(super) reconnects: AtomicU64,
    /// When the first and the latest came, in µs since the start.
    first_us: AtomicU64,
    last_us: AtomicU64,
}

pub(super) struct LoadRun {
    pub(super) client: Client,
    pub(super) plan: Plan,
    pub(super) ledger: Option<Ledger>,
    pub(super) counts: Counts,
    pub(super) deliveries: Deliveries,
    pub(super) began: Instant,
    pub(super) duration: Duration,
    /// Messages per second over all connections; 0: as fast as it goes.
    pub(super) rate: u64,
    pub(super) keep_going: bool,
    /// How long what was received and not acknowledged stays hidden.
    pub(super) lease: Duration,
    pub(super) refusals: Mutex<BTreeMap<String, u64>>,
    pub(super) stop: AtomicBool,
    /// Set when nothing more will be accepted.
    pub(super) sent_all: AtomicBool,
    pub(super) gave_up: AtomicBool,
    pub(super) ticket: AtomicU64,
}

impl LoadRun {
    /// Whether sending is over.
    pub(super) fn over(&self) -> bool {
        self.stop.load(Relaxed) || self.began.elapsed() >= self.duration
    }

    /// Whether receiving is.
    pub(super) fn drained(&self) -> bool {
        self.gave_up.load(SeqCst) || (self.sent_all.load(SeqCst) && self.deliveries.missing() == 0)
    }

    /// Waits for the turn of the next request, if there is a rate; gives when that was.
    pub(super) async fn turn(&self) -> Option<Instant> {
        if self.rate == 0 {
            return None;
        }
        let place = self.ticket.fetch_add(self.plan.batch as u64, Relaxed);
        let at = self.began + Duration::from_secs_f64(place as f64 / self.rate as f64);
        let end = self.began + self.duration;
        let wait = at.min(end).saturating_duration_since(clock::instant());
        if !wait.is_zero() {
            clock::sleep(wait).await;
        }
        Some(at)
    }

    /// Opens a connection; with `keep_going` for as long as it takes, `None` once the run is over.
    pub(super) async fn reconnect(&self) -> Result<Option<Direct>, Failure> {
        for round in 0.. {
            match self.client.connect().await {
                Ok(direct) => return Ok(Some(direct)),
                Err(error) if !self.keep_going => return Err(error.into()),
                Err(_) if self.gave_up.load(SeqCst) || (self.over() && !self.sent_all.load(SeqCst)) => break,
                Err(_) => clock::sleep(Duration::from_millis(BACKOFF[round.min(BACKOFF.len() - 1)])).await,
            }
        }
        Ok(None)
    }

    /// A connection broke: the end of the run, or one of its ups and downs.
    pub(super) fn broke(&self, failure: Failure) -> Result<(), Failure> {
        self.counts.reconnects.fetch_add(1, Relaxed);
        if self.keep_going || failure.code() != 5 { Ok(()) } else { Err(failure) }
    }

    /// A receiver failed: the end of the run, unless it is to go on and a later call may be answered.
    pub(super) fn stopped_receiving(&self, failure: Failure) -> Result<(), Failure> {
        self.counts.reconnects.fetch_add(1, Relaxed);
        if self.keep_going && failure.passes() { Ok(()) } else { Err(failure) }
    }

    pub(super) fn accepted<'a>(&self, ids: impl Iterator<Item = &'a str> + Clone) -> Result<(), Failure> {
        let mut count = 0;
        for (connection, number) in ids.clone().filter_map(|id| self.plan.place(id)) {
            self.deliveries.accepted(connection, number);
            count += 1;
        }
        self.counts.accepted.fetch_add(count, SeqCst);
        self.ledger.as_ref().map_or(Ok(()), |ledger| ledger.ids("accepted", ids))
    }

    pub(super) fn refused(&self, code: &str, count: u64) {
        let mut refusals = self.refusals.lock().unwrap_or_else(PoisonError::into_inner);
        *refusals.entry(code.to_owned()).or_default() += count;
    }

    pub(super) fn delivered_now(&self) {
        let now = u64::try_from(self.began.elapsed().as_micros()).unwrap_or(u64::MAX);
        let _ = self.counts.first_us.compare_exchange(0, now, SeqCst, Relaxed);
        self.counts.last_us.fetch_max(now, SeqCst);
    }

    /// From the first delivery to the last.
    pub(super) fn delivering(&self) -> Duration {
        let (first, last) = (self.counts.first_us.load(SeqCst), self.counts.last_us.load(SeqCst));
        Duration::from_micros(last.saturating_sub(first))
    }
}
