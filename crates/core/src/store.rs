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
/// The contract, each line proved by the case of that name in `duly_conformance::store`:
///
/// **Accepting**
/// - `insert_twice_keeps_the_first`: a known id with the same content changes nothing and is a duplicate.
/// - `insert_with_other_content_conflicts`: a known id with other content changes nothing.
/// - `a_cancelled_id_is_accepted_afresh`, and so is one purged or past retention.
/// - `delivered_and_dead_ids_are_duplicates`.
/// - `equal_payloads_stay_two_messages`.
/// - `insert_into_the_past_is_due_at_once`.
/// - `an_insert_may_carry_its_past`: with a [`Past`], the record begins with the history from another store, and a dead
///   letter stays one.
///
/// **Claiming** — the one point of decision between delivery and cancel
/// - `claim_is_ordered_and_never_early`: results ascend by `(ready, priority descending, id)`, all `ready <= now`.
/// - `claim_takes_one_lane_only`, and `a_full_lane_does_not_hide_another`.
/// - `claim_hides_until_the_lease_ends`: no other claim sees the message before that.
/// - `a_lost_lease_counts_an_attempt`, and its history says so. The next claim gets the time of the loss; the ready
///   time does not change.
/// - `a_client_that_was_given_one_loses_it_alone`: see [`Holder::holds_alone`].
/// - `tokens_grow`: a later claim has the larger fencing token.
/// - `what_was_lost_is_claimed_alone`: a claim gives either messages never lost, or exactly one that was.
/// - `claim_says_when_to_look_again`: nothing of the lane is due before [`Claimed::next`].
/// - `an_earlier_insert_after_a_look_is_found`, also after wall time stepped back.
/// - `a_paused_lane_gives_nothing`.
/// - `a_claim_stops_at_its_byte_budget`: at [`Claim::BYTES_MAX`], but with at least one message; the rest is left for
///   the next claim.
///
/// **Settling**
/// - `settle_with_a_lost_lease_changes_nothing`: the caller is told [`Settled::Lost`].
/// - `settle_twice_is_lost_the_second_time`.
/// - `a_retry_waits_and_counts`, `an_outage_counts_nothing`, `a_release_counts_nothing_and_is_ready_at_once`.
/// - `a_deferral_waits_and_changes_nothing_else`: a suspect stays one.
/// - `a_retry_keeps_the_due_time`.
/// - `a_deferral_replaces_the_one_before_once_the_history_is_full`: attempts stay in the history, see
///   [`Attempt::remember`].
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
/// - `list_pages_are_bounded_in_bytes`: a page ends at [`Page::BYTES_MAX`], and says where it goes on.
/// - `totals_balance`: accepted = pending + in flight + delivered + cancelled + dead + purged, after every step.
/// - `lanes_are_counted`, `forecast_counts_what_comes_due`, `forecast_misses_nothing_in_a_narrow_range`.
/// - `pause_is_durable`.
/// - `a_lane_without_messages_is_forgotten`: after a while, unless it is paused. Used again, it is a new lane.
///
/// A store never reads a clock: every time it needs is an argument. Batches are answered in order.
#[async_trait]
pub trait Store: Send + Sync + 'static {
    /// What an accepted message survives; shown by `/readyz` and `doctor`.
    fn durability(&self) -> Durability;

    /// Accepts messages. Once this returns `Ok`, every message answered `Accepted` is durable.
    async fn insert(&self, now: Now, batch: Vec<Insert>) -> Result<Vec<Inserted>, StoreError>;

    /// Claims due messages of one lane under a lease. The claim is recorded before this returns, so that a message that
    /// kills the process is counted.
    async fn claim(&self, now: Now, claim: Claim) -> Result<Claimed, StoreError>;

    /// Settles claims. Durable once this returns.
    async fn settle(&self, now: Now, batch: Vec<Settle>) -> Result<Vec<Settled>, StoreError>;

    /// Renews leases: they end `lease` after `now`.
    async fn extend(
        &self,
        now: Now,
        receipts: &[Receipt],
        lease: Duration,
    ) -> Result<Vec<Settled>, StoreError>;

    /// Cancels pending messages.
    async fn cancel(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError>;

    /// Changes the due times of pending messages; attempts and `maybe_delivered` stay.
    async fn reschedule(
        &self,
        now: Now,
        batch: &[(MessageId, Timestamp)],
    ) -> Result<Vec<Changed>, StoreError>;

    /// Makes dead letters of pending messages that still have the due time beside their id, with the reason
    /// [`Expired`](DeadReason::Expired).
    async fn expire(&self, now: Now, batch: &[(MessageId, Timestamp)]) -> Result<Vec<Changed>, StoreError>;

    /// Makes dead letters pending again: due now, no attempts, same id.
    async fn replay(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError>;

    /// Deletes dead letters.
    async fn purge(&self, now: Now, ids: &[MessageId]) -> Result<Vec<Changed>, StoreError>;

    /// The record of each id.
    async fn get(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError>;

    /// The records without bodies, because many bodies may not fit into memory.
    async fn get_without_bodies(&self, ids: &[MessageId]) -> Result<Vec<Option<Record>>, StoreError> {
        let mut records = Vec::with_capacity(ids.len());
        for part in ids.chunks(BODIES_AT_ONCE) {
            records.extend(self.get(part).await?.into_iter().map(|record| record.map(Record::without_body)));
        }
        Ok(records)
    }

    /// A page of matching records, by `(due, id)` within a state. Bodies are left out.
    async fn list(&self, query: &Query) -> Result<Page, StoreError>;

    /// Pauses or resumes a lane, durably and for every node.
    async fn set_paused(&self, lane: &Lane, paused: bool) -> Result<(), StoreError>;

    /// Every lane that has messages or is paused.
    async fn lanes(&self, now: Now) -> Result<Vec<LaneStatus>, StoreError>;

    /// The totals.
    async fn totals(&self) -> Result<Totals, StoreError>;

    /// How many pending messages come due in each of `buckets` equal parts of `from..to`. Read from counters, not by a
    /// scan, so that it is exact to the width of the store's own buckets: one that overlaps the range counts once, in the first part that
    /// it overlaps. So the answer is never 0 for a range in which messages are due.
    async fn forecast(&self, from: Timestamp, to: Timestamp, buckets: usize) -> Result<Vec<u64>, StoreError>;

    /// Backs up wake-ups: ends leases that have run out, and returns when each of `lanes` is next due. Bounded work.
    async fn sweep(&self, now: Now, lanes: &[Lane]) -> Result<Sweep, StoreError>;

    /// Waits for a wake-up from outside this process, such as a message that another node accepted. Only a hint: it may
    /// be lost.
    async fn hint(&self) -> Hint {
        std::future::pending().await
    }

    /// The nodes that share the store, including this one, by name. Empty if only this process uses it.
    async fn nodes(&self) -> Result<Vec<NodeStatus>, StoreError> {
        Ok(Vec::new())
    }

    /// The shards of the store, by number, with their owners and their oldest ready messages. Empty if only this
    /// process uses the store. Bounded work.
    async fn shards(&self, now: Now) -> Result<Vec<ShardStatus>, StoreError> {
        let _ = now;
        Ok(Vec::new())
    }

    /// Whether it can accept and claim messages now. Cheap: from what it knows, or by one small request to its server.
    /// By default it is healthy if [`totals`](Self::totals) succeeds.
    async fn health(&self) -> Health {
        self.totals().await.map_or_else(Health::failing, |_| Health::healthy())
    }

    /// Its own metrics, if it has some.
    fn metrics(&self) -> StoreMetrics {
        StoreMetrics::default()
    }

    /// Finishes background work and closes what is open. Nothing is lost without it.
    async fn close(&self) -> Result<(), StoreError>;
}

/// Bodies in memory at the same time when records are read without them.
const BODIES_AT_ONCE: usize = 16;

/// A request to claim due messages.
#[derive(Debug, Clone)]
pub struct Claim {
    /// The lane.
    pub lane: Lane,
    /// At most this many.
    pub limit: usize,
    /// The lease.
    pub lease: Duration,
    /// Who holds the claims.
    pub holder: Holder,
}

/// The holder of a lease, which decides what a restart of the process means for it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Holder {
    /// This process: a sink's batch or a handler. If the process ends, the claim is lost with it.
    Process,
    /// A client with a receipt: the claim outlives the process, until its lease ends.
    Client,
    /// A client that claims from several lanes for one answer: the same, and what it holds is never lost alone.
    ClientOfMany,
}

impl Holder {
    /// Whether the claim outlives the process.
    pub fn is_client(self) -> bool {
        self != Self::Process
    }

    /// Whether a claim that gave `count` messages was of one alone: who holds nothing else can have lost it by nothing else. A process
    /// has other lanes, so what it holds is alone only if it is a suspect.
    pub fn holds_alone(self, count: usize) -> bool {
        self == Self::Client && count == 1
    }
}

/// The result of a claim.
#[derive(Debug, Clone, Default)]
pub struct Claimed {
    /// The leased messages, in order.
    pub messages: Vec<LeasedMessage>,
    /// Lower bound of the lane's next due time; `None`: nothing more is known.
    pub next: Option<Timestamp>,
}

/// A claimed message.
#[derive(Debug, Clone)]
pub struct LeasedMessage {
    /// The message.
    pub message: StoredMessage,
    /// The receipt of the claim.
    pub receipt: Receipt,
    /// When it became ready: its due time, or the end of its last wait.
    pub ready: Timestamp,
    /// The number of this attempt, from 1: attempts that counted before, plus one.
    pub attempt: u32,
    /// Whether its last lease was lost.
    pub lost: LeaseLoss,
    /// When its last lease was lost, if nothing was tried since: [`Attempt::lost_at`] of its history.
    pub lost_at: Option<Timestamp>,
    /// The fencing token of the shard, where several nodes share the store.
    pub fence: Option<Fence>,
}

/// The settlement of one claim.
#[derive(Debug, Clone)]
pub struct Settle {
    /// The receipt of the claim.
    pub receipt: Receipt,
    /// How it is settled.
    pub settlement: Settlement,
}

/// How a claim is settled.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Settlement {
    /// It was delivered.
    Delivered {
        /// The acknowledgement of the target.
        receipt: Option<String>,
    },
    /// Retry at `at`. The outcome says whether the attempt counts.
    Retry {
        /// The earliest time of the next attempt.
        at: Timestamp,
        /// The failed attempt.
        attempt: Attempt,
    },
    /// Give it up: it is a dead letter.
    Dead {
        /// The reason.
        reason: DeadReason,
        /// The last attempt, if there was one.
        attempt: Option<Attempt>,
    },
    /// No attempt was made: it is as before the claim.
    Release,
    /// No attempt was made, and it is not claimed before `at`; otherwise it is as before the claim, also as a suspect.
    Defer {
        /// The earliest time of the next attempt.
        at: Timestamp,
    },
}

/// Whether a claim was still valid when it was settled or extended.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Settled {
    /// It was valid, and the call is done.
    Done,
    /// The lease had ended, or the claim was settled before: nothing changed.
    Lost,
    /// The part of the store that holds it is unreachable while others answer. The lease lasts as it was last extended.
    /// A settle may be recorded once that part is back; an extend may be repeated.
    Unknown,
}

/// The result of a cancel, reschedule, replay or purge.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Changed {
    /// Done.
    Done {
        /// An earlier attempt has no known outcome: it may have arrived.
        maybe_delivered: bool,
    },
    /// Its state does not allow it.
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
    /// After this message: the last `(due, id)` of the page before.
    pub after: Option<(Timestamp, MessageId)>,
    /// At most this many; fewer if they have more than [`Page::BYTES_MAX`] bytes.
    pub limit: usize,
}

impl Query {
    /// All messages in `state`, the first hundred.
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

/// The findings of a sweep.
#[derive(Debug, Clone, Default)]
pub struct Sweep {
    /// Per swept lane: no message is due before this time. Lanes without pending messages are left out.
    pub next: Vec<(Lane, Timestamp)>,
    /// The number of leases that had ended.
    pub leases_ended: usize,
    /// When the next lease ends.
    pub next_lease_end: Option<Monotonic>,
    /// The store wants to be swept again within this span, e.g. to read ahead in time.
    pub again_within: Option<Duration>,
    /// The paused lanes among those swept; `None` if no other node can pause or resume them.
    pub paused: Option<Vec<Lane>>,
}

/// Something of `lane` is due at `due`. The sweep finds it too if this is lost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Hint {
    /// The lane.
    pub lane: Lane,
    /// When.
    pub due: Timestamp,
}
