//! Random work on a store, with a ledger kept beside it.

use std::{
    collections::{BTreeMap, HashSet},
    sync::{
        Arc, Mutex, MutexGuard,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use duly_core::{
    Attempt, Body, DeadReason, Lane, MessageId, Monotonic, Now, Outcome, SinkName, State, Store,
    StoredMessage, Timestamp, Topic,
    schedule::Random,
    store::{
        Changed, Claim, Holder, Insert, Inserted, LeasedMessage, Query, Settle, Settled, Settlement,
        StoreError, StoreErrorKind,
    },
};

use super::{ExpectedState, Ledger};

/// When every run begins.
const START_MS: u64 = 1_800_000_000_000;
/// Workers of one run, each with a lane and messages of its own.
const WORKERS: u64 = 3;
/// How often a list is asked for until it is complete.
const LISTS_MAX: usize = 500;
/// How long a store may take to notice that its disk has room again, on a machine that is busy with much else.
const NOTICE_MAX: Duration = Duration::from_secs(120);
/// The longest lease of a run.
const LEASE_MS_MAX: u64 = 60_000;

/// Random work, the ledger of it, and its time. Clones share all of it.
#[derive(Clone, Default)]
pub struct Traffic {
    ledger: Arc<Mutex<Ledger>>,
    clock_ms: Arc<AtomicU64>,
    made: Arc<AtomicU64>,
}

/// One of those who work at the same time.
struct Worker {
    traffic: Traffic,
    store: Arc<dyn Store>,
    random: Random,
    lane: Lane,
    topic: Topic,
    prefix: String,
    ids: Vec<MessageId>,
}

fn lane(worker: u64) -> (Lane, Topic) {
    let topic = Topic::parse(&format!("lane{worker}")).unwrap();
    (Lane::Queue(topic.clone()), topic)
}

/// Gives some messages so many properties that stores do not hold them in memory while they are claimed. The same id has the same.
fn set_properties(message: &mut StoredMessage) {
    if message.id.hash64().is_multiple_of(3) {
        let value = message.id.as_str().repeat(20);
        (0..10).for_each(|at| message.properties.set(&format!("property{at}"), &value).unwrap());
    }
}

/// No room for new messages is an answer like any other: nothing happened.
fn unless_full<T>(answer: Result<T, StoreError>) -> Result<Option<T>, StoreError> {
    match answer {
        Ok(answer) => Ok(Some(answer)),
        Err(error) if error.kind == StoreErrorKind::Full => Ok(None),
        Err(error) => Err(error),
    }
}

/// Asks again for as long as the store says that the disk is full. It has room again, which the store's background thread notices
/// some time later.
///
/// # Panics
/// If the store never notices, or says something else.
pub async fn once_there_is_room<T>(mut ask: impl AsyncFnMut() -> Result<T, StoreError>) -> T {
    let asking = async {
        loop {
            if let Some(answer) = unless_full(ask().await).unwrap() {
                return answer;
            }
            tokio::task::yield_now().await;
        }
    };
    let answered = tokio::time::timeout(NOTICE_MAX, asking).await;
    answered.unwrap_or_else(|_| panic!("there is room, and nobody has noticed"))
}

fn delivered(claimed: &[LeasedMessage]) -> Vec<Settle> {
    let delivered = |leased: &LeasedMessage| Settle {
        receipt: leased.receipt.clone(),
        settlement: Settlement::Delivered { receipt: Some("proof".into()) },
    };
    claimed.iter().map(delivered).collect()
}

impl Traffic {
    /// The time of the run.
    pub fn now(&self) -> Now {
        let passed = self.clock_ms.load(Ordering::SeqCst);
        Now::new((START_MS + passed) * 1000, Monotonic::from_micros(1_000_000 + passed * 1000))
    }

    /// Lets time pass.
    pub fn pass(&self, ms: u64) {
        self.clock_ms.fetch_add(ms, Ordering::SeqCst);
    }

    /// The ledger as it is.
    pub fn ledger(&self) -> MutexGuard<'_, Ledger> {
        self.ledger.lock().unwrap()
    }

    /// Works on the store with all hands, `steps` steps each, or until it fails.
    pub async fn run(&self, store: &Arc<dyn Store>, seed: u64, steps: usize) -> Result<(), StoreError> {
        let mut hands = tokio::task::JoinSet::new();
        for worker in 0..WORKERS {
            let (lane, topic) = lane(worker);
            let prefix = format!("w{worker}-");
            let ids = self.ledger().ids().into_iter().filter(|id| id.as_str().starts_with(&prefix)).collect();
            let random = Random::new(seed ^ worker.wrapping_mul(0xA24B_AED4_963E_E407));
            let (traffic, store) = (self.clone(), store.clone());
            let mut worker = Worker { traffic, store, random, lane, topic, prefix, ids };
            hands.spawn(async move {
                for _ in 0..steps {
                    worker.step().await?;
                }
                Ok(())
            });
        }
        let mut answer = Ok(());
        while let Some(done) = hands.join_next().await {
            answer = answer.and(done.unwrap());
        }
        answer
    }

    /// Checks a store that was stopped at some moment between the ledgers `before` and now, and takes it from there.
    ///
    /// # Panics
    /// If something answered is missing, something is there that nobody sent, or the books do not balance.
    pub async fn judge(&self, store: &Arc<dyn Store>, before: &Ledger) {
        let mut seen = BTreeMap::new();
        let mut judged = before.clone();
        let after = self.ledger().clone();
        let mut totals = [0u64; 2];
        for id in after.ids() {
            let record = store.get(std::slice::from_ref(&id)).await.unwrap().remove(0);
            if let Some(record) = &record {
                seen.insert(id.clone(), record.state);
                match record.state {
                    State::Pending | State::InFlight => totals[0] += 1,
                    State::Dead => totals[1] += 1,
                    _ => {}
                }
                if !matches!(record.state, State::Delivered | State::Cancelled) {
                    assert_eq!(record.message.body, Body::text(after.body(&id)), "the body of {id}");
                }
            }
            judged.judge(&after, &id, record.map(|record| (record.state, record.message.due)));
        }
        *self.ledger() = judged;
        let stored = store.totals().await.unwrap();
        assert!(stored.balance(), "the books do not balance: {stored:?}");
        assert_eq!(
            [stored.pending + stored.in_flight, stored.dead],
            totals,
            "nothing is there twice: {stored:?}"
        );
        let lanes = store.lanes(self.now()).await.unwrap();
        let counted: u64 = lanes.iter().map(|lane| lane.pending + lane.in_flight).sum();
        assert_eq!([counted, lanes.iter().map(|lane| lane.dead).sum::<u64>()], totals, "the lanes count all");
        for state in [State::Pending, State::InFlight, State::Dead, State::Delivered, State::Cancelled] {
            let expected: Vec<_> = seen.iter().filter(|(_, is)| **is == state).map(|(id, _)| id).collect();
            let mut listed = Vec::new();
            // What is on its way from one file to another while a list is made may be left out of it.
            for _ in 0..LISTS_MAX {
                let page = store.list(&Query { limit: 100_000, ..Query::all(state) }).await.unwrap();
                listed = page.records.into_iter().map(|record| record.message.id).collect();
                listed.sort();
                if listed.iter().eq(expected.iter().copied()) {
                    break;
                }
                tokio::task::yield_now().await;
            }
            assert_eq!(listed.iter().collect::<Vec<_>>(), expected, "the list of what is {}", state.as_str());
        }
    }

    /// Delivers everything that waits. Each must come, and only once. The disk may have got room for it a moment ago.
    pub async fn drain(&self, store: &Arc<dyn Store>) {
        self.pass(LEASE_MS_MAX + 1);
        let lanes: Vec<Lane> = (0..WORKERS).map(|worker| lane(worker).0).collect();
        let mut came = HashSet::new();
        for round in 0.. {
            assert!(round < 20_000, "a store without end: {:?}", store.totals().await);
            let sweep = store.sweep(self.now(), &lanes).await.unwrap();
            let mut some = 0;
            for lane in &lanes {
                let claim = Claim {
                    lane: lane.clone(),
                    limit: 50,
                    lease: Duration::from_secs(60),
                    holder: Holder::Process,
                };
                let claimed = once_there_is_room(async || store.claim(self.now(), claim.clone()).await).await;
                let claimed = claimed.messages;
                some += claimed.len();
                for leased in &claimed {
                    assert!(came.insert(leased.message.id.clone()), "{} came twice", leased.message.id);
                    self.check_claimed(leased);
                }
                let ids: Vec<_> = claimed.iter().map(|leased| &leased.message.id).collect();
                ids.iter().for_each(|id| self.ledger().ask(id, ExpectedState::Delivered));
                let settle = async || store.settle(self.now(), delivered(&claimed)).await;
                let settled = once_there_is_room(settle).await;
                self.note(&ids, settled.iter().map(|settled| *settled == Settled::Done));
            }
            if some == 0 {
                let next = sweep.next.iter().map(|(_, next)| *next).min();
                let Some(next) = next else { break };
                self.pass(next.since(self.now().wall()).as_millis() as u64 + 1);
            }
        }
        let waiting =
            |id: &MessageId| matches!(self.ledger().expected_state(id), ExpectedState::Waiting { .. });
        let left: Vec<_> = self.ledger.lock().unwrap().ids();
        let left: Vec<_> = left.into_iter().filter(waiting).collect();
        assert!(left.is_empty(), "never came: {left:?}");
        assert_eq!(store.totals().await.unwrap().pending, 0);
    }

    fn check_claimed(&self, leased: &LeasedMessage) {
        let id = &leased.message.id;
        let ledger = self.ledger();
        let expected_state = ledger.expected_state(id);
        // An insert that is not answered yet may be claimed already.
        let ended = matches!(expected_state, ExpectedState::Delivered | ExpectedState::Dead);
        assert!(!ended, "{id} came although it is {expected_state:?}");
        assert!(leased.message.due <= self.now().wall(), "{id} came early");
        assert_eq!(leased.message.body, Body::text(ledger.body(id)), "the body of {id}");
    }

    async fn deliver(&self, store: &Arc<dyn Store>, claimed: &[LeasedMessage]) -> Result<(), StoreError> {
        let ids: Vec<_> = claimed.iter().map(|leased| &leased.message.id).collect();
        ids.iter().for_each(|id| self.ledger().ask(id, ExpectedState::Delivered));
        let settled = unless_full(store.settle(self.now(), delivered(claimed)).await)?;
        let settled = settled.unwrap_or_else(|| vec![Settled::Lost; ids.len()]);
        self.note(&ids, settled.iter().map(|settled| *settled == Settled::Done));
        Ok(())
    }

    fn note(&self, ids: &[&MessageId], done: impl Iterator<Item = bool>) {
        let mut ledger = self.ledger();
        for (id, done) in ids.iter().zip(done) {
            if done { ledger.done(id) } else { ledger.refused(id) }
        }
    }
}

impl Worker {
    fn below(&mut self, end: u64) -> u64 {
        self.random.draw() % end
    }

    fn some_id(&mut self) -> Option<MessageId> {
        if self.ids.is_empty() {
            return None;
        }
        let at = self.below(self.ids.len() as u64) as usize;
        Some(self.ids[at].clone())
    }

    async fn step(&mut self) -> Result<(), StoreError> {
        match self.below(20) {
            0..=6 => self.insert().await,
            7..=11 => self.claim().await,
            12..=13 => self.cancel().await,
            14..=15 => self.reschedule().await,
            16 => self.revive().await,
            _ => {
                let ms = [5, 300, 3_000, 40_000][self.below(4) as usize];
                self.traffic.pass(ms);
                let lanes = [self.lane.clone()];
                unless_full(self.store.sweep(self.traffic.now(), &lanes).await).map(|_| ())
            }
        }
    }

    fn due(&mut self) -> Timestamp {
        let ahead = [0, 1_000, 10_000, 100_000, 10_000_000, 1_000_000_000][self.below(6) as usize];
        let ahead = self.below(ahead + 1);
        self.traffic.now().wall().saturating_add(Duration::from_millis(ahead))
    }

    async fn insert(&mut self) -> Result<(), StoreError> {
        let mut batch: Vec<Insert> = Vec::new();
        for _ in 0..=self.below(6) {
            let again = self.below(8) == 0;
            let id = match self.some_id().filter(|_| again) {
                Some(id) => id,
                None => {
                    let number = self.traffic.made.fetch_add(1, Ordering::SeqCst);
                    let id = MessageId::parse(&format!("{}{number}", self.prefix)).unwrap();
                    self.ids.push(id.clone());
                    id
                }
            };
            if batch.iter().any(|insert| insert.message.id == id) {
                continue;
            }
            let due = self.due();
            let mut message =
                StoredMessage::new(id, SinkName::parse("queue").unwrap(), self.topic.clone(), due);
            // The same id has the same body.
            let size = message.id.hash64() % 2_000;
            let body = message.id.as_str().repeat(size as usize / message.id.as_str().len());
            message.body = Body::text(body.clone());
            set_properties(&mut message);
            self.traffic.ledger().offer(&message.id, due, &body);
            batch.push(Insert::new(message));
        }
        let ids: Vec<_> = batch.iter().map(|insert| insert.message.id.clone()).collect();
        let ids: Vec<_> = ids.iter().collect();
        let answer = unless_full(self.store.insert(self.traffic.now(), batch).await)?;
        let answer = answer.unwrap_or_else(|| vec![Inserted::Conflict; ids.len()]);
        self.traffic.note(&ids, answer.iter().map(|inserted| *inserted == Inserted::Accepted));
        for (id, inserted) in ids.iter().zip(&answer) {
            let expected_state = self.traffic.ledger().expected_state(id);
            let was_removed = matches!(expected_state, ExpectedState::Unknown | ExpectedState::Cancelled);
            let twice = matches!(inserted, Inserted::Duplicate { .. });
            assert!(!(was_removed && twice), "{id} is {expected_state:?}, and yet {inserted:?}");
        }
        Ok(())
    }

    async fn claim(&mut self) -> Result<(), StoreError> {
        let holder = if self.below(2) == 0 { Holder::Process } else { Holder::Client };
        let lease = Duration::from_millis(1 + self.below(LEASE_MS_MAX));
        let claim = Claim { lane: self.lane.clone(), limit: 1 + self.below(9) as usize, lease, holder };
        let Some(claimed) = unless_full(self.store.claim(self.traffic.now(), claim).await)? else {
            return Ok(());
        };
        claimed.messages.iter().for_each(|leased| self.traffic.check_claimed(leased));
        match self.below(8) {
            0..=3 => self.traffic.deliver(&self.store, &claimed.messages).await,
            // Left to its lease.
            4 => Ok(()),
            kind => self.end(kind, &claimed.messages).await,
        }
    }

    async fn end(&mut self, kind: u64, claimed: &[LeasedMessage]) -> Result<(), StoreError> {
        let now = self.traffic.now();
        let attempt = Attempt::new(now.wall(), Outcome::Failed, "words");
        let settlement = match kind {
            5 => Settlement::Retry { at: self.due(), attempt },
            6 => Settlement::Dead { reason: DeadReason::Refused, attempt: Some(attempt) },
            _ => Settlement::Release,
        };
        let ids: Vec<_> = claimed.iter().map(|leased| &leased.message.id).collect();
        let dead = kind == 6;
        if dead {
            ids.iter().for_each(|id| self.traffic.ledger().ask(id, ExpectedState::Dead));
        }
        let batch = claimed
            .iter()
            .map(|leased| Settle { receipt: leased.receipt.clone(), settlement: settlement.clone() });
        let settled = unless_full(self.store.settle(now, batch.collect()).await)?;
        let settled = settled.unwrap_or_else(|| vec![Settled::Lost; ids.len()]);
        if dead {
            self.traffic.note(&ids, settled.iter().map(|settled| *settled == Settled::Done));
        }
        Ok(())
    }

    async fn cancel(&mut self) -> Result<(), StoreError> {
        let Some(id) = self.some_id() else { return Ok(()) };
        self.traffic.ledger().ask(&id, ExpectedState::Cancelled);
        let answer = self.store.cancel(self.traffic.now(), std::slice::from_ref(&id)).await;
        self.changed(&id, answer)
    }

    async fn reschedule(&mut self) -> Result<(), StoreError> {
        let Some(id) = self.some_id() else { return Ok(()) };
        let due = self.due();
        self.traffic.ledger().ask(&id, ExpectedState::Waiting { due });
        let answer = self.store.reschedule(self.traffic.now(), &[(id.clone(), due)]).await;
        self.changed(&id, answer)
    }

    /// Replays or purges a dead letter.
    async fn revive(&mut self) -> Result<(), StoreError> {
        let dead: Vec<_> = {
            let ledger = self.traffic.ledger();
            self.ids.iter().filter(|id| ledger.expected_state(id) == ExpectedState::Dead).cloned().collect()
        };
        let Some(id) = dead.first() else { return Ok(()) };
        let now = self.traffic.now();
        let ids = std::slice::from_ref(id);
        if self.below(2) == 0 {
            self.traffic.ledger().ask(id, ExpectedState::Waiting { due: now.wall() });
            let answer = self.store.replay(now, ids).await;
            self.changed(id, answer)
        } else {
            self.traffic.ledger().ask(id, ExpectedState::Unknown);
            let answer = self.store.purge(now, ids).await;
            self.changed(id, answer)
        }
    }

    fn changed(&self, id: &MessageId, answer: Result<Vec<Changed>, StoreError>) -> Result<(), StoreError> {
        let answer = unless_full(answer)?;
        let done = answer.is_some_and(|changed| matches!(changed[0], Changed::Done { .. }));
        self.traffic.note(&[id], std::iter::once(done));
        Ok(())
    }
}
