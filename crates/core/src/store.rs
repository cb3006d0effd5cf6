//! The port behind which messages wait until they are due.

use std::time::Duration;

use async_trait::async_trait;

use crate::{
    Attempt, DeadReason, Fence, Lane, LeaseLoss, MessageId, Monotonic, NodeStatus, Now, Receipt, Record,
    ShardStatus, SinkName, State, StoredMessage, Timestamp, Topic,
};

pub use crate::budget::ClaimBudget;
pub use crate::{
    durability::Durability,
    health::{Health, IndexMetrics, StoreMetrics},
    insert::{Insert, Inserted, Past},
    status::{LaneStatus, Page, Totals},
    store_error::{StoreError, StoreErrorKind},
};

/// Where messages wait until they are due.
///
/// The contract, each line proved by the case of that name in `testkit::store`:
///
/// **Accepting**
/// - `insert_twice_keeps_the_first`: a known id with the same content changes nothing and is a duplicate.
/// - `insert_with_other_content_conflicts`: a known id with other content changes nothing.
/// - `a_cancelled_id_is_accepted_afresh`, and so is one purged or past retention.
/// - `delivered_and_dead_ids_are_duplicates`.
/// - `equal_payloads_stay_two_messages`.
/// - `insert_into_the_past_is_due_at_once`.
/// - `an_insert_may_carry_its_past`: with a [`Past`], the record begins with what happened to the message elsewhere, and a dead letter is one.
///
/// **Claiming** — the one point of decision between delivery and cancel
/// - `claim_is_ordered_and_never_early`: results ascend by `(ready, priority descending, id)`, all `ready <= now`.
/// - `claim_takes_one_lane_only`, and `a_full_lane_does_not_hide_another`.
/// - `claim_hides_until_the_lease_ends`: no other claim sees the message before that.
/// - `a_lost_lease_counts_an_attempt`, and its history says so. The time of the loss is told to who claims it next; when it is ready does not change.
/// - `tokens_grow`: a later claim has the larger fencing token.
/// - `what_was_lost_is_claimed_alone`: a claim gives either messages never lost, or exactly one that was.
/// - `claim_says_when_to_look_again`: nothing of the lane is due before [`Claimed::next`].
/// - `an_earlier_insert_after_a_look_is_found`, also after wall time stepped back.
/// - `a_paused_lane_gives_nothing`.
/// - `a_claim_stops_at_its_byte_budget`: at [`Claim::BYTES_MAX`], but with at least one message; the rest is there for the next.
///
/// **Settling**
/// - `settle_with_a_lost_lease_changes_nothing`: the caller is told [`Settled::Lost`].
/// - `settle_twice_is_lost_the_second_time`.
/// - `a_retry_waits_and_counts`, `an_outage_counts_nothing`, `a_hand_back_counts_nothing_and_is_ready_at_once`.
/// - `a_deferral_waits_and_changes_nothing_else`: a suspect stays one.
/// - `a_retry_keeps_the_due_time`.
/// - `a_deferral_replaces_the_one_before_once_the_history_is_full`: it does not push out what was tried, see [`Attempt::remember`].
/// - `dead_letters_keep_their_bodies`, `delivered_ones_lose_them`.
/// - `extend_keeps_the_lease`, and with a lost lease says so.
///
/// **Changing one's mind**
/// - `cancel_before_the_claim_is_done`, `cancel_after_the_claim_is_too_late`, `cancel_of_a_stranger_is_unknown`.
/// - `cancel_after_an_unknown_outcome_says_maybe`.
/// - `reschedule_moves_both_ways`, `reschedule_in_flight_is_too_late`.
/// - `expire_gives_up_what_waits`: dead letters without a claim, unless claimed or moved meanwhile.
/// - `replay_starts_afresh`, `purge_forgets`.
///
/// **Looking**
/// - `get_tells_the_whole_life`, `when_it_was_accepted_stays_known`, `list_pages_are_stable`, `list_filters`.
/// - `books_balance`: accepted = pending + in flight + delivered + cancelled + dead + purged, after every step.
/// - `lanes_are_counted`, `forecast_counts_what_comes_due`.
/// - `pause_is_durable`.
/// - `a_lane_without_messages_is_forgotten`: in a while, unless it is paused. If it is used again, it is as one that is new.
///
/// A store never reads a clock: every instant it needs is an argument. Batches are answered in their order.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What it survives, for `/readyz` and `doctor`.
    fn durability(&self) -> Durability;

    /// Takes messages. Once this returns `Ok`, every message answered `Accepted` is durable.
    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError>;

    /// Leases what is due in one lane. Recorded before this returns, so that what kills the process is counted.
    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError>;

    /// Ends claims. Durable once this returns.
    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError>;

    /// Starts the leases afresh: they end `lease` after `now`.
    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError>;

    /// Cancels what is pending.
    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError>;

    /// Gives what is pending another due time; tries so far and `maybe_delivered` stay.
    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError>;

    /// Gives up what is pending and still due at the time beside its id: dead with the reason [`Expired`](DeadReason::Expired).
    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError>;

    /// Makes dead letters pending again: due now, attempts afresh, same id.
    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError>;

    /// Forgets dead letters for good.
    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError>;

    /// What is known of each id.
    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError>;

    /// The same without the bodies, for whoever decides by the rest: many bodies may be more than fits into memory.
    async fn get_without_bodies(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        let mut records = Vec::with_capacity(ids.len());
        for part in ids.chunks(BODIES_AT_ONCE) {
            records.extend(self.get(part).await?.into_iter().map(|record| record.map(Record::without_body)));
        }
        Ok(records)
    }

    /// A page of what matches, by `(due, id)` within a state. Bodies are left out.
    async fn list(&self, query: &Query) -> Result<Page, StoreError>;

    /// Stops or restarts claims of a lane, durably and for every node.
    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError>;

    /// Every lane that holds something or is paused.
    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError>;

    /// The totals.
    async fn totals(&self) -> Result<Totals, StoreError>;

    /// How many pending messages come due in each of `buckets` equal parts of `from..to`. From counters, never a scan:
    /// exact to the width of the store's own buckets.
    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError>;

    /// The bounded look that backs up wake-ups: ends leases that ran out, and says when each of `lanes` is next due.
    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError>;

    /// The next wake-up from outside this process, e.g. another node accepted something. Only a hint: it may be lost.
    async fn hint(&self) -> Hint {
        std::future::pending().await
    }

    /// The nodes that share the store, this one too, by name; none if it is this process's alone.
    async fn nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        Ok(Vec::new())
    }

    /// The shards of the store, by number: who delivers what of each, and since when something waits there; none if the store is
    /// this process's alone. A bounded look, however much waits.
    async fn shards(&self, now: Now) -> Result<Vec<ShardStatus>, StoreError> {
        let _ = now;
        Ok(Vec::new())
    }

    /// Whether it could take a message and give out what is due, now. Cheap: from what it knows, or by one small question to the
    /// server behind it. Unless a store knows better, it is as well as [`totals`](Self::totals) answers.
    async fn health(&self) -> Health {
        self.totals().await.map_or_else(Health::failing, |_| Health::good())
    }

    /// What it measures of itself; a store that measures nothing says so.
    fn metrics(&self) -> StoreMetrics {
        StoreMetrics::default()
    }

    /// Finishes background work and lets go of what is open. Nothing is lost without it.
    async fn close(&self) -> Result<(), StoreError>;
}

/// So many bodies are in memory at once when records are read for the sake of everything else.
const BODIES_AT_ONCE: usize = 16;

/// A wish to lease what is due.
#[derive(Debug, Clone)]
pub struct Claim {
    /// From where.
    pub lane: Lane,
    /// At most so many.
    pub limit: usize,
    /// For how long.
    pub lease: Duration,
    /// Who asks.
    pub holder: Holder,
}

/// Who holds a lease, and so what a restart means for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    /// This process: a sink's batch or a handler. If the process ends, the claim is lost with it.
    Process,
    /// A client with a receipt: the claim outlives the process, until its lease ends.
    Client,
}

/// What a claim gave.
#[derive(Debug, Clone, Default)]
pub struct Claimed {
    /// The leased messages, in order.
    pub messages: Vec<LeasedMessage>,
    /// Nothing else of this lane is due before then; `None`: nothing is known to come.
    pub next: Option<Timestamp>,
}

/// A message in hand.
#[derive(Debug, Clone)]
pub struct LeasedMessage {
    /// The message.
    pub message: StoredMessage,
    /// The proof of the claim.
    pub receipt: Receipt,
    /// When it became claimable: its due time or the end of its last wait.
    pub ready: Timestamp,
    /// The number of this try, from 1: tries that counted before, plus one.
    pub attempt: u32,
    /// Whether its last claim was lost.
    pub lost: LeaseLoss,
    /// When its last claim was lost, if nothing was tried since: [`Attempt::lost_at`] of its history.
    pub lost_at: Option<Timestamp>,
    /// The right by which this node claimed it, where several nodes share the store.
    pub fence: Option<Fence>,
}

/// The end of one claim.
#[derive(Debug, Clone)]
pub struct Settle {
    /// The proof of the claim.
    pub receipt: Receipt,
    /// How it ended.
    pub settlement: Settlement,
}

/// How a claim ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// The target took it.
    Delivered {
        /// What the target gave as proof.
        receipt: Option<String>,
    },
    /// Try again at `at`. Whether this try counts says its outcome.
    Retry {
        /// Not before then.
        at: Timestamp,
        /// How the try ended.
        attempt: Attempt,
    },
    /// Give up.
    Dead {
        /// Why.
        reason: DeadReason,
        /// How the last try ended, if there was one.
        attempt: Option<Attempt>,
    },
    /// Never begun: as it was before the claim.
    Release,
    /// Never begun, and not to be claimed before `at`; else as it was before the claim, with all that it is suspected of.
    Defer {
        /// Not before then.
        at: Timestamp,
    },
}

/// Whether a claim was still the caller's to settle or extend.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settled {
    /// It was.
    Done,
    /// The lease had ended, or the claim was settled before: nothing changed.
    Lost,
    /// The part of the store that knows cannot be asked now, and others can. The lease lasts for as long as it was last said to. A settle
    /// may still be recorded once that part is back; a lease that was to be extended may be asked about again.
    Unknown,
}

/// What became of a cancel, reschedule, replay or purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Changed {
    /// Done.
    Done {
        /// An earlier try has no known outcome: it may have arrived.
        maybe_delivered: bool,
    },
    /// It is not in a state that allows it.
    TooLate(State),
    /// No such message.
    Unknown,
}

/// Which messages to list.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Query {
    /// In this state.
    pub state: State,
    /// Only this sink.
    pub sink: Option<SinkName>,
    /// Only this topic.
    pub topic: Option<Topic>,
    /// Due at or after.
    pub due_from: Option<Timestamp>,
    /// Due before.
    pub due_to: Option<Timestamp>,
    /// After this one: the last `(due, id)` of the page before.
    pub after: Option<(Timestamp, MessageId)>,
    /// At most so many.
    pub limit: usize,
}

impl Query {
    /// Everything in `state`, the first hundred.
    pub fn all(state: State) -> Self {
        Self { state, sink: None, topic: None, due_from: None, due_to: None, after: None, limit: 100 }
    }

    /// Whether `message` is one of those asked for, the state and the page aside.
    pub fn matches(&self, message: &StoredMessage) -> bool {
        self.sink.as_ref().is_none_or(|sink| *sink == message.sink)
            && self.topic.as_ref().is_none_or(|topic| *topic == message.topic)
            && self.due_from.is_none_or(|from| message.due >= from)
            && self.due_to.is_none_or(|to| message.due < to)
            && self.after.as_ref().is_none_or(|(due, id)| (message.due, &message.id) > (*due, id))
    }
}

/// What a sweep saw.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// Per lane asked for: nothing of it is due before then. Lanes with nothing to come are left out.
    pub next: Vec<(Lane, Timestamp)>,
    /// How many leases had run out.
    pub leases_ended: usize,
    /// When the next lease runs out.
    pub next_lease_end: Option<Monotonic>,
    /// The store wants to be swept again within this span, e.g. to read ahead in time.
    pub again_within: Option<Duration>,
    /// Those of the lanes asked for that are paused, if another node may have paused or resumed them.
    pub paused: Option<Vec<Lane>>,
}

/// Something of `lane` is due at `due`. The sweep finds it too if this is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// Where.
    pub lane: Lane,
    /// When.
    pub due: Timestamp,
}
