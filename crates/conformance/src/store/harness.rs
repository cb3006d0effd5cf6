//! The harness of a case: a store, time in the test's hand, and the ledger checked after every step.

use std::{
    sync::{Arc, OnceLock},
    time::Duration,
};

use duly::{Clock, SystemClock};
use duly_core::{
    Attempt, Body, DeadReason, Lane, MessageId, Monotonic, Now, Outcome, Receipt, Record, SinkName, State,
    Store, StoredMessage, Timestamp, Topic,
    store::{
        Changed, Claim, Claimed, Holder, Insert, Inserted, LeasedMessage, Page, Query, Settle, Settled,
        Settlement, StoreError, Sweep,
    },
};

use super::lab::{StoreFixture, Wrap};

/// When the time of every harness begins: the millisecond that the cases call 0.
pub const START: Timestamp = Timestamp::from_millis(1_800_000_000_000);

/// Both clocks at that millisecond.
pub(super) const BEGIN: Now = Now::new(START.as_millis() * 1000, Monotonic::from_micros(1_000_000));

/// How long claims of the harness last.
pub const LEASE: Duration = Duration::from_secs(30);

/// How often a claim that gives nothing but says "look again now" is asked again, a millisecond apart: a store may
/// have to read from its disk first.
const LOOKS_MAX: usize = 3000;

/// What a store keeps, and how much of it.
#[derive(Debug, Clone)]
pub struct Keep {
    /// How long a delivered or cancelled message can still be asked for.
    pub retention: Duration,
    /// How many of them at most.
    pub retention_max: usize,
    /// How many messages may wait at the same time.
    pub pending_max: u64,
}

impl Default for Keep {
    fn default() -> Self {
        Self { retention: Duration::from_secs(24 * 3600), retention_max: 1_000_000, pending_max: 1_000_000 }
    }
}

/// A store, its fixture and its time.
pub struct StoreHarness {
    fixture: Box<dyn StoreFixture>,
    wrap: Wrap,
    store: Arc<dyn Store>,
    now: Now,
}

/// `ms` milliseconds after the start of the harness.
pub fn ms(ms: u64) -> Timestamp {
    START.saturating_add(Duration::from_millis(ms))
}

/// The id `text`.
pub fn id(text: &str) -> MessageId {
    MessageId::parse(text).unwrap()
}

/// A message for the lane `queue/work`, due `due` milliseconds after the start.
pub fn message(text: &str, due: u64) -> StoredMessage {
    message_for("queue", "work", text, due)
}

/// A message for any lane.
pub fn message_for(sink: &str, topic: &str, text: &str, due: u64) -> StoredMessage {
    let mut message =
        StoredMessage::new(id(text), SinkName::parse(sink).unwrap(), Topic::parse(topic).unwrap(), ms(due));
    message.body = Body::text(format!("body of {text}"));
    message
}

/// The lane of `topic` in the built-in queue.
pub fn lane(topic: &str) -> Lane {
    Lane::Queue(Topic::parse(topic).unwrap())
}

/// The ids of what was claimed, in its order.
pub fn ids(leased: &[LeasedMessage]) -> Vec<&str> {
    leased.iter().map(|leased| leased.message.id.as_str()).collect()
}

/// What this machine's clock says. The time of the harness stands still; a database records its own.
pub(super) fn real_time() -> Timestamp {
    clock().now().wall()
}

fn clock() -> &'static SystemClock {
    static CLOCK: OnceLock<SystemClock> = OnceLock::new();
    CLOCK.get_or_init(|| SystemClock::new().unwrap())
}

/// A millisecond of real time, for what goes on behind a store's back.
async fn a_moment() {
    let clock = clock();
    clock.sleep_until(clock.now().mono().saturating_add(Duration::from_millis(1))).await;
}

impl StoreHarness {
    pub(super) fn new(fixture: Box<dyn StoreFixture>, wrap: Wrap) -> Self {
        let store = wrap(fixture.store());
        Self { fixture, wrap, store, now: BEGIN }
    }

    /// The store itself.
    pub fn store(&self) -> Arc<dyn Store> {
        self.store.clone()
    }

    /// The time of the harness.
    pub fn now(&self) -> Now {
        self.now
    }

    /// Lets `ms` milliseconds pass on both clocks.
    pub fn pass(&mut self, ms: u64) {
        let span = Duration::from_millis(ms);
        self.now = Now::new(self.now.wall_micros() + ms * 1000, self.now.mono().saturating_add(span));
    }

    /// Sets wall time to `at` milliseconds after the start; monotonic time stays.
    pub fn step_wall(&mut self, at: u64) {
        self.now = Now::new(ms(at).as_millis() * 1000, self.now.mono());
    }

    /// Starts monotonic time again, as another process's clock does.
    pub fn new_monotonic(&mut self) {
        self.now = Now::new(self.now.wall_micros(), Monotonic::from_micros(1));
    }

    /// Closes the store cleanly and opens it again.
    pub async fn reopen(&mut self) {
        self.fixture.reopen(self.now).await;
        self.store = (self.wrap)(self.fixture.store());
        self.check_books().await;
    }

    /// Kills the process that has the store open, and opens it in another.
    pub async fn crash(&mut self) {
        self.fixture.crash(self.now).await;
        self.store = (self.wrap)(self.fixture.store());
        self.check_books().await;
    }

    /// The books must balance after every step, so every step ends here.
    pub async fn check_books(&self) {
        let totals = self.store.totals().await.unwrap();
        assert!(totals.balance(), "the books do not balance: {totals:?}");
    }

    /// Inserts, whatever comes of it.
    pub async fn try_insert(&self, messages: Vec<StoredMessage>) -> Result<Vec<Inserted>, StoreError> {
        self.try_insert_all(messages.into_iter().map(Insert::new).collect()).await
    }

    /// Inserts what may have a past, whatever comes of it.
    pub async fn try_insert_all(&self, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError> {
        let answer = self.store.insert(self.now, batch).await;
        self.check_books().await;
        answer
    }

    /// Inserts one.
    pub async fn insert(&self, message: StoredMessage) -> Inserted {
        self.try_insert(vec![message]).await.unwrap().remove(0)
    }

    /// Inserts what must be accepted.
    pub async fn accept(&self, messages: impl IntoIterator<Item = StoredMessage>) {
        let messages: Vec<_> = messages.into_iter().collect();
        let expected = vec![Inserted::Accepted; messages.len()];
        assert_eq!(self.try_insert(messages).await.unwrap(), expected);
    }

    /// One claim as it is; the first that gives something, if the store says "look again now".
    pub async fn claimed(&self, lane: &Lane, limit: usize, holder: Holder) -> Claimed {
        for _ in 0..LOOKS_MAX {
            let claim = Claim { lane: lane.clone(), limit, lease: LEASE, holder };
            let claimed = self.store.claim(self.now, claim).await.unwrap();
            self.check_books().await;
            assert!(claimed.messages.len() <= limit, "a claim gave more than its limit");
            for leased in &claimed.messages {
                assert!(leased.ready <= self.now.wall(), "claimed early: {leased:?}");
                assert!(leased.message.due <= self.now.wall(), "claimed before its due time: {leased:?}");
                assert_eq!(leased.message.lane(), *lane, "claimed from another lane");
            }
            if !claimed.messages.is_empty() || claimed.next.is_none_or(|next| next > self.now.wall()) {
                return claimed;
            }
            a_moment().await;
        }
        panic!("{LOOKS_MAX} claims in a row gave nothing and said: look again now");
    }

    /// What one claim of the lane `queue/work` gives to this process.
    pub async fn claim(&self, limit: usize) -> Vec<LeasedMessage> {
        self.claimed(&lane("work"), limit, Holder::Process).await.messages
    }

    /// What one claim of `topic` gives to this process.
    pub async fn claim_from(&self, topic: &str, limit: usize) -> Vec<LeasedMessage> {
        self.claimed(&lane(topic), limit, Holder::Process).await.messages
    }

    /// Everything of the lane `queue/work` that is due, in claims of `limit`.
    pub async fn claim_all(&self, limit: usize) -> Vec<LeasedMessage> {
        let mut all = Vec::new();
        loop {
            let some = self.claim(limit).await;
            if some.is_empty() {
                return all;
            }
            all.extend(some);
            assert!(all.len() < 100_000, "a lane without end");
        }
    }

    /// Claims the one message that is due, and is told so if it is another.
    pub async fn claim_one(&self, text: &str) -> LeasedMessage {
        let mut leased = self.claim(1).await;
        assert_eq!(ids(&leased), [text]);
        leased.remove(0)
    }

    /// Ends a claim.
    pub async fn settle(&self, receipt: &Receipt, settlement: Settlement) -> Settled {
        let batch = vec![Settle { receipt: receipt.clone(), settlement }];
        let settled = self.store.settle(self.now, batch).await.unwrap();
        self.check_books().await;
        assert_eq!(settled.len(), 1);
        settled[0]
    }

    /// The target took it.
    pub async fn deliver(&self, leased: &LeasedMessage) {
        let settlement = Settlement::Delivered { receipt: Some("proof".into()) };
        assert_eq!(self.settle(&leased.receipt, settlement).await, Settled::Done);
    }

    /// To be tried again `wait` milliseconds from now.
    pub async fn retry(&self, leased: &LeasedMessage, wait: u64, outcome: Outcome) {
        let at = self.now.wall().saturating_add(Duration::from_millis(wait));
        let settlement = Settlement::Retry { at, attempt: Attempt::new(self.now.wall(), outcome, "words") };
        assert_eq!(self.settle(&leased.receipt, settlement).await, Settled::Done);
    }

    /// Given up.
    pub async fn bury(&self, leased: &LeasedMessage) {
        let attempt = Some(Attempt::new(self.now.wall(), Outcome::Refused, "no such order"));
        let settlement = Settlement::Dead { reason: DeadReason::Refused, attempt };
        assert_eq!(self.settle(&leased.receipt, settlement).await, Settled::Done);
    }

    /// Never begun, and not before `wait` milliseconds from now.
    pub async fn defer(&self, leased: &LeasedMessage, wait: u64) {
        let at = self.now.wall().saturating_add(Duration::from_millis(wait));
        assert_eq!(self.settle(&leased.receipt, Settlement::Defer { at }).await, Settled::Done);
    }

    /// Never begun.
    pub async fn release(&self, leased: &LeasedMessage) {
        assert_eq!(self.settle(&leased.receipt, Settlement::Release).await, Settled::Done);
    }

    /// Accepts a message due now and brings it into `state`.
    pub async fn bring(&self, message: StoredMessage, state: State) {
        let (text, lane) = (message.id.clone(), message.lane());
        self.accept([message]).await;
        if state == State::Pending {
            return;
        }
        if state == State::Cancelled {
            assert_eq!(self.cancel(text.as_str()).await, Changed::Done { maybe_delivered: false });
            return;
        }
        let leased = self.claimed(&lane, 1, Holder::Process).await.messages.remove(0);
        assert_eq!(leased.message.id, text);
        match state {
            State::Delivered => self.deliver(&leased).await,
            State::Dead => self.bury(&leased).await,
            _ => {}
        }
    }

    /// Cancels one.
    pub async fn cancel(&self, text: &str) -> Changed {
        let changed = self.store.cancel(self.now, &[id(text)]).await.unwrap();
        self.check_books().await;
        changed[0]
    }

    /// Moves one to `due` milliseconds after the start.
    pub async fn reschedule(&self, text: &str, due: u64) -> Changed {
        let changed = self.store.reschedule(self.now, &[(id(text), ms(due))]).await.unwrap();
        self.check_books().await;
        changed[0]
    }

    /// Makes a dead letter pending.
    pub async fn replay(&self, text: &str) -> Changed {
        let changed = self.store.replay(self.now, &[id(text)]).await.unwrap();
        self.check_books().await;
        changed[0]
    }

    /// Forgets a dead letter.
    pub async fn purge(&self, text: &str) -> Changed {
        let changed = self.store.purge(self.now, &[id(text)]).await.unwrap();
        self.check_books().await;
        changed[0]
    }

    /// What is known of an id.
    pub async fn get(&self, text: &str) -> Option<Record> {
        self.store.get(&[id(text)]).await.unwrap().remove(0)
    }

    /// What must be known of an id.
    pub async fn record(&self, text: &str) -> Record {
        self.get(text).await.unwrap_or_else(|| panic!("nothing is known of {text}"))
    }

    /// A page.
    pub async fn list(&self, query: &Query) -> Page {
        self.store.list(query).await.unwrap()
    }

    /// A look at the lanes of these topics.
    pub async fn sweep(&self, topics: &[&str]) -> Sweep {
        let lanes: Vec<_> = topics.iter().map(|topic| lane(topic)).collect();
        let sweep = self.store.sweep(self.now, &lanes).await.unwrap();
        self.check_books().await;
        sweep
    }
}
