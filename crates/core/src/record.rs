//! Records: state and history of messages.

use crate::{Body, StoredMessage, Timestamp};

/// The state of a message.
///
/// These numbers are on disk and in Redis: never change or reuse one. A new state has the next number, is added to [`ALL`](Self::ALL), and every
/// store says what it means there.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum State {
    /// Waiting for its due time or its next attempt.
    Pending = 0,
    /// Claimed and not settled.
    InFlight = 1,
    /// Delivered.
    Delivered = 2,
    /// Given up, kept with its body until replayed or purged.
    Dead = 3,
    /// Cancelled before it was claimed.
    Cancelled = 4,
}

impl State {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Pending, Self::InFlight, Self::Delivered, Self::Dead, Self::Cancelled];

    /// The variant of this number, as stores write it.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|state| *state as u8 == number)
    }

    /// The word in HTTP, logs and configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::InFlight => "in_flight",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
            Self::Cancelled => "cancelled",
        }
    }
}

/// The outcome of one attempt.
///
/// Stores write the number: never change or reuse one, and add a new outcome to [`ALL`](Self::ALL).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum Outcome {
    /// The target acknowledged it.
    Delivered = 0,
    /// Nothing reached the target.
    Unreachable = 1,
    /// The target is overloaded.
    Throttled = 2,
    /// No answer: it may have arrived.
    Unknown = 3,
    /// The target refused this message.
    Refused = 4,
    /// The target refuses every message.
    Misconfigured = 5,
    /// The handler or receiver asked for a retry.
    Again = 6,
    /// The handler failed or panicked.
    Failed = 7,
    /// The lease ended, or the process died with the message in flight.
    Lost = 8,
    /// The destination accepts nothing: no permission, or nothing behind it.
    Denied = 9,
}

impl Outcome {
    /// All of them.
    pub const ALL: [Self; 10] = [
        Self::Delivered,
        Self::Unreachable,
        Self::Throttled,
        Self::Unknown,
        Self::Refused,
        Self::Misconfigured,
        Self::Again,
        Self::Failed,
        Self::Lost,
        Self::Denied,
    ];

    /// The variant of this number, as stores write it.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|outcome| *outcome as u8 == number)
    }

    /// The word in HTTP, logs and configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Delivered => "delivered",
            Self::Unreachable => "unreachable",
            Self::Throttled => "throttled",
            Self::Unknown => "unknown",
            Self::Refused => "refused",
            Self::Misconfigured => "misconfigured",
            Self::Again => "again",
            Self::Failed => "failed",
            Self::Lost => "lost",
            Self::Denied => "denied",
        }
    }

    /// Whether the target may have the message.
    pub fn maybe_delivered(self) -> bool {
        matches!(self, Self::Unknown | Self::Lost)
    }

    /// Whether it counts as an attempt: an outage does not.
    pub fn counts(self) -> bool {
        !matches!(self, Self::Unreachable | Self::Throttled | Self::Misconfigured)
    }
}

/// One attempt in the history.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Attempt {
    /// When its outcome was known.
    pub at: Timestamp,
    /// How it ended.
    pub outcome: Outcome,
    /// The error text, at most [`DETAIL_MAX`](Self::DETAIL_MAX) bytes.
    pub detail: String,
}

impl Attempt {
    /// Bytes of a detail.
    pub const DETAIL_MAX: usize = 512;
    /// Attempts that a record keeps, the latest ones.
    pub const KEPT_MAX: usize = 16;

    /// Prefix of the detail of a deferral, by which [`is_deferral`](Self::is_deferral) and stores recognise it: every writer of such a detail
    /// begins it with this constant.
    pub const DEFERRED_DETAIL_PREFIX: &str = "not sent, ";

    /// Whether it is a deferral: nothing was sent, because the destination was unavailable.
    pub fn is_deferral(&self) -> bool {
        !self.outcome.counts() && self.detail.starts_with(Self::DEFERRED_DETAIL_PREFIX)
    }

    /// Adds an attempt to a history, which keeps the latest [`KEPT_MAX`](Self::KEPT_MAX). A message may be deferred
    /// every few seconds for days: in a full history a deferral replaces the last deferral, so that real attempts stay.
    pub fn remember(history: &mut Vec<Self>, attempt: Self) {
        if history.len() >= Self::KEPT_MAX {
            let before = history.iter().rposition(Self::is_deferral).filter(|_| attempt.is_deferral());
            match before {
                Some(place) => _ = history.remove(place),
                None => _ = history.drain(..=history.len() - Self::KEPT_MAX),
            }
        }
        history.push(attempt);
    }

    /// When the last lease of a message with this history was lost, if nothing was tried since.
    pub fn lost_at(history: &[Self]) -> Option<Timestamp> {
        history.last().filter(|last| last.outcome == Outcome::Lost).map(|last| last.at)
    }

    /// An attempt; a longer detail is cut at a character.
    pub fn new(at: Timestamp, outcome: Outcome, detail: impl Into<String>) -> Self {
        let mut detail = detail.into();
        if detail.len() > Self::DETAIL_MAX {
            let end = (0..=Self::DETAIL_MAX).rev().find(|&i| detail.is_char_boundary(i)).unwrap_or(0);
            detail.truncate(end);
        }
        Self { at, outcome, detail }
    }
}

/// Why a message is dead.
///
/// These numbers are on disk and in Redis: never change or reuse one, and add a new reason to [`ALL`](Self::ALL).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[non_exhaustive]
#[repr(u8)]
pub enum DeadReason {
    /// All its attempts are used up.
    Exhausted = 0,
    /// The target will never take it.
    Refused = 1,
    /// Not delivered within its `max_lateness`.
    Expired = 2,
    /// The stored row is not a message.
    Invalid = 3,
    /// The stored message is unreadable: its bytes on disk have changed.
    Damaged = 4,
}

impl DeadReason {
    /// All of them.
    pub const ALL: [Self; 5] = [Self::Exhausted, Self::Refused, Self::Expired, Self::Invalid, Self::Damaged];

    /// The variant of this number, as stores write it.
    pub fn from_u8(number: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|reason| *reason as u8 == number)
    }

    /// The word in HTTP, logs and configuration.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Exhausted => "exhausted",
            Self::Refused => "refused",
            Self::Expired => "expired",
            Self::Invalid => "invalid",
            Self::Damaged => "damaged",
        }
    }
}

/// How the last lease of a message was lost, if it was.
///
/// A message that kills its process takes everything claimed beside it along. So that only the culprit is blamed,
/// messages with a lost lease are claimed alone.
///
/// These numbers are on disk, in databases and in Redis, in two bits: never change or reuse one.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum LeaseLoss {
    /// It was settled, or there was none.
    #[default]
    None = 0,
    /// Lost together with others: any of them may be the cause.
    InBatch = 1,
    /// Lost while it was claimed alone, by a client or as a suspect: it is the cause.
    Alone = 2,
}

/// The record of one message. A store creates it by [`accepted`](Self::accepted) and sets what has happened since.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub struct Record {
    /// The message. Delivered and cancelled ones have no body.
    pub message: StoredMessage,
    /// Whether the body is stored but left out here, as in lists.
    pub body_left_out: bool,
    /// Its state.
    pub state: State,
    /// When it was accepted; unknown for messages of old versions.
    pub accepted: Option<Timestamp>,
    /// When it may be claimed: its due time, or later after a failed attempt.
    pub ready: Timestamp,
    /// Tries that count.
    pub attempts: u32,
    /// The latest attempts, oldest first.
    pub history: Vec<Attempt>,
    /// An earlier try may have arrived.
    pub maybe_delivered: bool,
    /// When it was delivered, given up or cancelled.
    pub ended: Option<Timestamp>,
    /// The acknowledgement of the target.
    pub receipt: Option<String>,
    /// Why it is dead.
    pub reason: Option<DeadReason>,
}

impl Record {
    /// Removes the body.
    #[must_use]
    pub fn without_body(mut self) -> Self {
        self.message.body = Body::default();
        self
    }

    /// The record of a message that was accepted at `accepted`, if that is known, and not changed since.
    pub fn accepted(message: StoredMessage, accepted: Option<Timestamp>) -> Self {
        Self {
            ready: message.due,
            message,
            body_left_out: false,
            state: State::Pending,
            accepted,
            attempts: 0,
            history: Vec::new(),
            maybe_delivered: false,
            ended: None,
            receipt: None,
            reason: None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Backoff, ContentKind};

    fn attempt(at: u64, deferral: bool) -> Attempt {
        let at = Timestamp::from_millis(at);
        if deferral {
            Attempt::new(
                at,
                Outcome::Unreachable,
                format!("{}its destination is away", Attempt::DEFERRED_DETAIL_PREFIX),
            )
        } else {
            Attempt::new(at, Outcome::Failed, "no")
        }
    }

    fn times(history: &[Attempt]) -> Vec<u64> {
        history.iter().map(|attempt| attempt.at.as_millis()).collect()
    }

    #[test]
    fn a_deferral_pushes_out_nothing_but_the_one_before_it() {
        let mut history = Vec::new();
        let last = Attempt::KEPT_MAX as u64 - 1;
        (0..last).for_each(|at| Attempt::remember(&mut history, attempt(at, false)));
        (100..200).for_each(|at| Attempt::remember(&mut history, attempt(at, true)));
        assert_eq!(times(&history), (0..last).chain([199]).collect::<Vec<_>>());
        // An attempt drops the oldest; the next deferral still replaces the deferral before it.
        Attempt::remember(&mut history, attempt(200, false));
        Attempt::remember(&mut history, attempt(201, true));
        assert_eq!(times(&history), (1..last).chain([200, 201]).collect::<Vec<_>>());
    }

    #[test]
    fn the_first_deferral_of_a_full_history_pushes_out_the_oldest() {
        let mut history = Vec::new();
        let full = Attempt::KEPT_MAX as u64;
        (0..full).for_each(|at| Attempt::remember(&mut history, attempt(at, false)));
        Attempt::remember(&mut history, attempt(100, true));
        assert_eq!(times(&history), (1..full).chain([100]).collect::<Vec<_>>());
    }

    #[test]
    fn the_numbers_that_stores_write_never_change() {
        assert_eq!(
            State::ALL.map(|state| (state as u8, state.as_str())),
            [(0, "pending"), (1, "in_flight"), (2, "delivered"), (3, "dead"), (4, "cancelled")]
        );
        let outcomes = Outcome::ALL.map(|outcome| (outcome as u8, outcome.as_str()));
        let words = "delivered unreachable throttled unknown refused misconfigured again failed lost denied";
        assert_eq!(outcomes.to_vec(), (0..).zip(words.split(' ')).collect::<Vec<_>>());
        let reasons = DeadReason::ALL.map(|reason| (reason as u8, reason.as_str()));
        let words = "exhausted refused expired invalid damaged";
        assert_eq!(reasons.to_vec(), (0..).zip(words.split(' ')).collect::<Vec<_>>());
        assert_eq!([LeaseLoss::None, LeaseLoss::InBatch, LeaseLoss::Alone].map(|lost| lost as u8), [0, 1, 2]);
        let kinds = ContentKind::ALL.map(|kind| (kind as u8, kind.as_str()));
        assert_eq!(kinds, [(0, "text"), (1, "json"), (2, "bytes")]);
        let waits = Backoff::ALL.map(|backoff| (backoff as u8, backoff.as_str()));
        assert_eq!(waits, [(1, "fixed"), (2, "linear"), (3, "exponential")]);
    }

    #[test]
    fn numbers_are_read_back_and_strangers_are_not() {
        assert!(State::ALL.into_iter().all(|state| State::from_u8(state as u8) == Some(state)));
        assert!(Outcome::ALL.into_iter().all(|outcome| Outcome::from_u8(outcome as u8) == Some(outcome)));
        assert!(DeadReason::ALL.into_iter().all(|reason| DeadReason::from_u8(reason as u8) == Some(reason)));
        assert!(ContentKind::ALL.into_iter().all(|kind| ContentKind::from_u8(kind as u8) == Some(kind)));
        assert!(Backoff::ALL.into_iter().all(|backoff| Backoff::from_u8(backoff as u8) == Some(backoff)));
        assert_eq!((State::from_u8(5), Outcome::from_u8(10), DeadReason::from_u8(255)), (None, None, None));
        assert_eq!((ContentKind::from_u8(3), Backoff::from_u8(0)), (None, None));
    }
}
