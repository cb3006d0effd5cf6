//! A source with messages, a target, clients and nodes of both, and a ledger that says what must hold.

use std::{
    collections::BTreeMap,
    sync::{
        Arc, Mutex,
        atomic::{AtomicUsize, Ordering},
    },
    time::Duration,
};

use duly::{
    Attempt, Body, Changed, Clock, DeadReason, Lane, ManualClock, MessageId, Outcome, Priority, Query,
    SinkName, State, Store, Timestamp, Topic, hours, seconds,
};
use duly_core::{
    StoredMessage,
    store::{Claim, Holder, Insert, Inserted, LeasedMessage, Settle, Settlement},
};
use duly_stores::{MemoryStore, memory};
use futures_util::FutureExt;

use super::{
    super::{
        end::End,
        migration::{Migration, Options},
        parked,
        report::Report,
    },
    connections::{ConnectedStore, Connections, Meddler},
};
use crate::{Failure, Output, progress::Progress};

pub(super) const LANE: &str = "work";
/// So many messages are at the source, the first two of them overdue.
pub(super) const COUNT: usize = 7;

/// Both stores and what clients were told.
#[derive(Clone)]
pub(super) struct Bed {
    pub(super) clock: ManualClock,
    pub(super) source: MemoryStore,
    pub(super) target: MemoryStore,
    /// When the source accepted everything.
    pub(super) began: Timestamp,
    ledger: Arc<Mutex<BTreeMap<MessageId, Entry>>>,
}

/// One message, and what became of it.
#[derive(Debug, Clone)]
struct Entry {
    message: StoredMessage,
    is_cancelled: bool,
    arrivals: usize,
}

/// No two runs have the same name.
fn own_name() -> String {
    static RUNS: AtomicUsize = AtomicUsize::new(0);
    format!("migrate-store-{}-", RUNS.fetch_add(1, Ordering::Relaxed))
}

/// Everything answers at once.
pub(super) fn now<T>(answer: impl Future<Output = T>) -> T {
    answer.now_or_never().unwrap()
}

pub(super) fn id(number: usize) -> MessageId {
    MessageId::parse(&format!("m{number}")).unwrap()
}

impl Bed {
    pub(super) fn new() -> Self {
        Self::with(memory::Options::default())
    }

    pub(super) fn with(options: memory::Options) -> Self {
        let clock = ManualClock::new();
        let bed = Self {
            began: clock.now().wall(),
            clock,
            source: MemoryStore::with(options),
            target: MemoryStore::new(),
            ledger: Arc::default(),
        };
        let begin = bed.clock.now().wall();
        for number in 0..COUNT {
            let due = if number < 2 {
                begin.saturating_sub(seconds(60))
            } else {
                begin.saturating_add(hours(number as u64))
            };
            let mut message =
                StoredMessage::new(id(number), SinkName::queue(), Topic::parse(LANE).unwrap(), due);
            message.body = Body::text(format!("body of {number}"));
            message.priority = Priority::new(number as u8).unwrap();
            message.max_lateness = Some(hours(1000));
            message.properties.set("tenant", "a").unwrap();
            assert_eq!(bed.accept(&bed.source, &message), Inserted::Accepted);
            let entry = Entry { message: message.clone(), is_cancelled: false, arrivals: 0 };
            bed.ledger.lock().unwrap().insert(message.id, entry);
        }
        bed
    }

    /// The same stores the other way round.
    pub(super) fn back(&self) -> Self {
        Self { source: self.target.clone(), target: self.source.clone(), ..self.clone() }
    }

    pub(super) fn accept(&self, store: &MemoryStore, message: &StoredMessage) -> Inserted {
        let insert = Insert::new(message.clone());
        now(store.insert(self.clock.now(), vec![insert])).unwrap().remove(0)
    }

    pub(super) fn message(&self, number: usize) -> StoredMessage {
        self.ledger.lock().unwrap()[&id(number)].message.clone()
    }

    pub(super) fn message_of(&self, id: &MessageId) -> StoredMessage {
        self.ledger.lock().unwrap()[id].message.clone()
    }

    /// A client cancels, a while later.
    pub(super) fn cancel(&self, store: &MemoryStore, number: usize) {
        self.clock.advance(seconds(1));
        self.cancel_now(store, number);
    }

    /// A client cancels in this very millisecond.
    pub(super) fn cancel_now(&self, store: &MemoryStore, number: usize) {
        let answer = now(store.cancel(self.clock.now(), &[id(number)])).unwrap()[0];
        if matches!(answer, Changed::Done { .. }) {
            self.ledger.lock().unwrap().get_mut(&id(number)).unwrap().is_cancelled = true;
        }
    }

    /// A client asks for another time.
    pub(super) fn reschedule(&self, store: &MemoryStore, number: usize, due: Timestamp) {
        self.clock.advance(seconds(1));
        let answer = now(store.reschedule(self.clock.now(), &[(id(number), due)])).unwrap()[0];
        if matches!(answer, Changed::Done { .. }) {
            self.ledger.lock().unwrap().get_mut(&id(number)).unwrap().message.due = due;
        }
    }

    /// The nodes of a store deliver what is due; what they deliver must be as it was sent, and due when it was to be.
    pub(super) fn deliver(&self, store: &MemoryStore) {
        self.clock.advance(seconds(1));
        loop {
            let claimed = self.claim(store);
            if claimed.is_empty() {
                return;
            }
            self.settle(store, claimed);
        }
    }

    /// The nodes of a store take what is due.
    pub(super) fn claim(&self, store: &MemoryStore) -> Vec<LeasedMessage> {
        let lane = Lane::Queue(Topic::parse(LANE).unwrap());
        let claim = Claim { lane, limit: 10, lease: Duration::from_secs(60), holder: Holder::Client };
        now(store.claim(self.clock.now(), claim)).unwrap().messages
    }

    /// They deliver what they took.
    pub(super) fn settle(&self, store: &MemoryStore, claimed: Vec<LeasedMessage>) {
        let mut ledger = self.ledger.lock().unwrap();
        for leased in claimed {
            let entry = ledger.get_mut(&leased.message.id).unwrap();
            assert_eq!(leased.message, entry.message);
            entry.arrivals += 1;
            let settle =
                Settle { receipt: leased.receipt, settlement: Settlement::Delivered { receipt: None } };
            now(store.settle(self.clock.now(), vec![settle])).unwrap();
        }
    }

    /// The nodes of the source give up what is due, after a try of which nobody knows whether it arrived.
    pub(super) fn bury(&self) -> Vec<MessageId> {
        let claimed = self.claim(&self.source);
        let ids: Vec<_> = claimed.iter().map(|leased| leased.message.id.clone()).collect();
        for leased in claimed {
            let attempt = Some(Attempt::new(self.clock.now().wall(), Outcome::Unknown, "no answer"));
            let settlement = Settlement::Dead { reason: DeadReason::Exhausted, attempt };
            let settle = Settle { receipt: leased.receipt, settlement };
            now(self.source.settle(self.clock.now(), vec![settle])).unwrap();
            self.ledger.lock().unwrap().get_mut(&leased.message.id).unwrap().is_cancelled = true;
        }
        ids
    }

    /// Somebody replays dead letters; what is replayed is to arrive. Says which were.
    pub(super) fn replay(&self, store: &MemoryStore, ids: &[MessageId]) -> Vec<MessageId> {
        let now_is = self.clock.now();
        let answers = now(store.replay(now_is, ids)).unwrap();
        let is_done = |answer: &Changed| matches!(answer, Changed::Done { .. });
        let done = ids.iter().zip(answers).filter(|(_, answer)| is_done(answer)).map(|(id, _)| id.clone());
        done.inspect(|id| self.is_to_arrive(id, now_is.wall())).collect()
    }

    /// A dead letter was replayed at that time.
    pub(super) fn is_to_arrive(&self, id: &MessageId, due: Timestamp) {
        let mut ledger = self.ledger.lock().unwrap();
        let entry = ledger.get_mut(id).unwrap();
        (entry.is_cancelled, entry.message.due) = (false, due);
    }

    /// The time of a dead letter does not matter.
    pub(super) fn is_known_as_due(&self, id: &MessageId, due: Timestamp) {
        self.ledger.lock().unwrap().get_mut(id).unwrap().message.due = due;
    }

    /// A client cancels at the source, and sends something else with the same id if that was done.
    pub(super) fn replace(&self, number: usize) {
        self.cancel(&self.source, number);
        let mut ledger = self.ledger.lock().unwrap();
        let entry = ledger.get_mut(&id(number)).unwrap();
        if entry.is_cancelled {
            entry.message.body = Body::text("something else");
            assert_eq!(self.accept(&self.source, &entry.message), Inserted::Accepted);
            entry.is_cancelled = false;
        }
    }

    /// One run of the move, over these connections.
    pub(super) async fn run(&self, connections: Connections, change: impl FnOnce(&mut Options)) -> Run {
        self.run_over(Arc::new(connections), change).await
    }

    async fn run_over(&self, connections: Arc<Connections>, change: impl FnOnce(&mut Options)) -> Run {
        let end = |store: &MemoryStore, shown: &str| {
            let store = Arc::new(ConnectedStore { inner: store.clone(), connections: connections.clone() });
            Arc::new(End { store, clock: Arc::new(self.clock.clone()), shown: shown.into() })
        };
        let ends = (end(&self.source, "source"), end(&self.target, "target"), own_name());
        let mut options = Options {
            once: true,
            tidy: false,
            replay_dead: false,
            deliver_forgotten: false,
            batch: 3,
            patience: Duration::ZERO,
            late: Duration::ZERO,
            awaits_late_calls: false,
            look_every: Duration::MAX,
        };
        change(&mut options);
        let out = Output { quiet: true, ..Output::default() };
        let progress = Progress::of_messages(&out, 0);
        let mut migration = Migration::new(ends, options, (&out, &progress)).unwrap();
        let done = migration.run().await;
        Run { done, report: migration.report, calls: connections.calls() }
    }

    /// The same, and gives the call that the store has still to do.
    pub(super) async fn run_and_keep(&self, connections: Connections) -> (Run, Option<Meddler>) {
        let connections = Arc::new(connections);
        let run = self.run_over(connections.clone(), |_| ()).await;
        (run, connections.late())
    }

    /// The nodes of both deliver everything, and each message came once, unless a cancel of it was done: then not at all.
    pub(super) fn check(&self, context: &str) {
        let parked = Query { due_from: Some(parked::FIRST), ..Query::all(State::Pending) };
        let parked = now(self.target.list(&parked)).unwrap().records;
        assert!(parked.is_empty(), "{context}: parked at the target: {parked:?}");
        assert_eq!(now(self.source.totals()).unwrap().pending, 0, "{context}: left at the source");
        self.clock.advance(hours(100));
        self.deliver(&self.source);
        self.deliver(&self.target);
        for (id, entry) in &*self.ledger.lock().unwrap() {
            let expected = usize::from(!entry.is_cancelled);
            assert_eq!(entry.arrivals, expected, "{context}: {id}: {entry:?}");
        }
        for totals in [&self.source, &self.target].map(|store| now(store.totals()).unwrap()) {
            assert!(totals.balance(), "{context}: {totals:?}");
        }
    }

    /// How often each message arrived.
    pub(super) fn arrivals(&self) -> Vec<usize> {
        self.ledger.lock().unwrap().values().map(|entry| entry.arrivals).collect()
    }
}

/// What a run came to.
pub(super) struct Run {
    pub(super) done: Result<(), Failure>,
    pub(super) report: Report,
    pub(super) calls: usize,
}
