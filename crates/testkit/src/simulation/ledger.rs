//! The ledger outside Duly: what was asked, what was answered, what arrived. It alone judges.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    time::Duration,
};

use duly_core::{MessageId, Now, State, Timestamp, store::Changed};

/// One message alone may be denied for what it is: so many show that their topic denies.
const DENIED_MIN: usize = 3;

/// A broken promise.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Broken {
    /// I1: an accepted message is neither delivered nor dead nor cancelled nor pending.
    Lost(String),
    /// I2: a delivery before the due time.
    Early(String),
    /// I3: more copies than the faults explain.
    Duplicates(String),
    /// I4: a delivery after a cancel that answered "done" without doubt.
    DeliveredAfterCancel(String),
    /// I5: faults stopped, and yet something stays overdue.
    Stuck(String),
    /// A try after the message's own limit of lateness.
    Late(String),
    /// Given up without cause.
    DeadWithoutCause(String),
    /// The books do not balance, or say otherwise than the ledger.
    Totals(String),
    /// An answer that no store may give.
    Answer(String),
}

impl fmt::Display for Broken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Lost(what) => write!(f, "I1, lost: {what}"),
            Self::Early(what) => write!(f, "I2, early: {what}"),
            Self::Duplicates(what) => write!(f, "I3, duplicates: {what}"),
            Self::DeliveredAfterCancel(what) => write!(f, "I4, delivered after cancel: {what}"),
            Self::Stuck(what) => write!(f, "I5, stuck: {what}"),
            Self::Late(what) => write!(f, "late: {what}"),
            Self::DeadWithoutCause(what) => write!(f, "dead without cause: {what}"),
            Self::Totals(what) => write!(f, "books: {what}"),
            Self::Answer(what) => write!(f, "answer: {what}"),
        }
    }
}

/// All that is known from outside of one message.
#[derive(Debug, Default)]
pub(super) struct Entry {
    /// Its due time, as last answered.
    due: Timestamp,
    /// Another due time that was asked for, without an answer so far.
    asked_due: Option<Timestamp>,
    /// An earlier due time that a lost try may still go by: the answer to the move said "maybe delivered".
    earlier_due: Option<Timestamp>,
    /// Accepted for sure; otherwise nobody knows.
    pub(super) accepted: bool,
    /// Somebody waits for an answer about it: nobody else asks meanwhile, so that answers have one meaning.
    pub(super) busy: bool,
    cancel: Cancel,
    /// Copies that reached the target.
    pub(super) copies: u32,
    /// Tries that began and could count.
    tries: u32,
    refused: bool,
    /// Where it goes.
    pub(super) target: String,
    pub(super) limit: u32,
    pub(super) max_lateness: Option<Duration>,
    pub(super) first_arrival: Option<Now>,
}

impl Entry {
    /// The earliest time at which a claim is not early.
    fn due_min(&self) -> Timestamp {
        self.asked_due.map_or(self.due, |asked| asked.min(self.due))
    }
}

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
enum Cancel {
    #[default]
    Never,
    /// Asked for, without an answer.
    Requested,
    /// Done; an earlier try may have arrived.
    Maybe,
    /// Done, and nothing ever arrived.
    Sure,
}

/// The ledger of one run.
#[derive(Debug, Default)]
pub(super) struct Ledger {
    pub(super) entries: BTreeMap<MessageId, Entry>,
    pub(super) broken: Option<Broken>,
    /// Losses of everything in hand: each explains as many copies and lost claims as can be in flight.
    pub(super) losses: u32,
    /// Copies that arrived although the target's answer said "unknown" or never came.
    pub(super) unacknowledged: u32,
    /// Messages that were denied, by topic. After several, what goes there may be given up without a try of its own.
    denied: BTreeMap<String, BTreeSet<MessageId>>,
    /// The first sink was paused, for sure.
    pub(super) paused: bool,
    /// The latest time that anything was told to wait for. A retry's time is kept as wall time, so after a step
    /// back it is as far away as the step.
    pub(super) latest: Timestamp,
}

impl Ledger {
    pub(super) fn break_promise(&mut self, broken: Broken) {
        self.broken.get_or_insert(broken);
    }

    pub(super) fn entry(&mut self, id: &MessageId) -> &mut Entry {
        self.entries.entry(id.clone()).or_default()
    }

    pub(super) fn asked_to_send(
        &mut self,
        id: &MessageId,
        due: Timestamp,
        limit: u32,
        max_lateness: Option<Duration>,
    ) {
        self.latest = self.latest.max(due);
        *self.entry(id) = Entry { due, limit, max_lateness, busy: true, ..Entry::default() };
    }

    pub(super) fn asked_to_cancel(&mut self, id: &MessageId) {
        let entry = self.entry(id);
        entry.busy = true;
        entry.cancel = Cancel::Requested;
    }

    pub(super) fn answered_cancel(&mut self, id: &MessageId, answer: Changed) {
        let entry = self.entry(id);
        entry.busy = false;
        entry.cancel = match answer {
            Changed::Done { maybe_delivered: true } => Cancel::Maybe,
            Changed::Done { maybe_delivered: false } => Cancel::Sure,
            _ => Cancel::Never,
        };
        let impossible = entry.accepted && answer == Changed::Unknown;
        let doubtless = entry.cancel == Cancel::Sure && entry.copies > 0;
        if impossible {
            self.break_promise(Broken::Lost(format!("{id} was accepted, and a cancel does not know it")));
        } else if doubtless {
            let what = format!("{id} had arrived when a cancel said: done, and never delivered");
            self.break_promise(Broken::DeliveredAfterCancel(what));
        }
    }

    pub(super) fn asked_to_move(&mut self, id: &MessageId, due: Timestamp) {
        self.latest = self.latest.max(due);
        let entry = self.entry(id);
        entry.busy = true;
        entry.asked_due = Some(due);
    }

    pub(super) fn answered_move(&mut self, id: &MessageId, answer: Changed) {
        let entry = self.entry(id);
        entry.busy = false;
        let asked = entry.asked_due.take();
        if let (Changed::Done { maybe_delivered }, Some(due)) = (answer, asked) {
            let earlier = entry.earlier_due.map_or(entry.due, |earlier| earlier.min(entry.due));
            entry.earlier_due = maybe_delivered.then_some(earlier);
            entry.due = due;
        }
        if entry.accepted && answer == Changed::Unknown {
            self.break_promise(Broken::Lost(format!("{id} was accepted, and a move does not know it")));
        }
    }

    /// A claim at `at` took the message: the moment at which it must be due.
    pub(super) fn claimed(&mut self, id: &MessageId, at: Timestamp) {
        let due = self.entry(id).due_min();
        if at < due {
            self.break_promise(Broken::Early(format!("{id} is due at {due} and was claimed at {at}")));
        }
    }

    /// A try begins. `steady`: wall time never steps in this run, so that a try can be judged by it too.
    pub(super) fn begins(&mut self, id: &MessageId, now: Now, steady: bool) {
        let entry = self.entry(id);
        entry.tries += 1;
        let due = entry.earlier_due.map_or(entry.due_min(), |earlier| earlier.min(entry.due_min()));
        let cancelled = entry.cancel == Cancel::Sure;
        if steady && now.wall() < due {
            let what = format!("{id} is due at {due} and a try began at {}", now.wall());
            self.break_promise(Broken::Early(what));
        }
        if cancelled {
            let what = format!("{id} was cancelled without doubt, and a try began at {}", now.wall());
            self.break_promise(Broken::DeliveredAfterCancel(what));
        }
    }

    /// A try begins, judged at the same moment by whoever began it: it must not be past the message's own limit.
    pub(super) fn begins_in_time(&mut self, id: &MessageId, now: Now) {
        let entry = self.entry(id);
        // While it is not known which due time holds, nobody can tell.
        let moved = entry.asked_due.is_some() || entry.earlier_due.is_some();
        let Some(end) = entry.max_lateness.map(|span| entry.due.saturating_add(span)) else { return };
        if !moved && now.wall() > end {
            let what = format!("{id} expired at {end}, and a try began at {}", now.wall());
            self.break_promise(Broken::Late(what));
        }
    }

    /// The try met nobody: it must not count.
    pub(super) fn was_outage(&mut self, id: &MessageId) {
        let entry = self.entry(id);
        entry.tries = entry.tries.saturating_sub(1);
    }

    /// A topic denied a message. While it is not asked again, its other messages count as denied, too.
    pub(super) fn deny(&mut self, lane: &str, topic: &str, id: &MessageId) {
        self.denied.entry(format!("{lane}/{topic}")).or_default().insert(id.clone());
    }

    pub(super) fn was_refused(&mut self, id: &MessageId) {
        self.entry(id).refused = true;
    }

    /// A copy reached the target.
    pub(super) fn arrived(&mut self, id: &MessageId, now: Now) {
        let entry = self.entry(id);
        entry.copies += 1;
        entry.first_arrival.get_or_insert(now);
    }

    /// The time that has passed between the first try and the due time, for the report.
    pub(super) fn lateness_ms_max(&self) -> u64 {
        let late =
            |entry: &Entry| entry.first_arrival.map(|at| at.wall().since(entry.due).as_millis() as u64);
        self.entries.values().filter_map(late).max().unwrap_or(0)
    }

    /// What the store says at the end, against what happened.
    pub(super) fn judge(&mut self, id: &MessageId, state: Option<State>, in_flight_max: u32) {
        let losses = self.losses;
        let Some(entry) = self.entries.get(id) else { return };
        let traced = |what: &str| format!("{id} {what}: {entry:?}");
        let broken = match state {
            None if entry.accepted => Some(Broken::Lost(traced("was accepted and is unknown"))),
            None => None,
            Some(State::Delivered) if entry.copies == 0 => {
                Some(Broken::Lost(traced("is called delivered and never arrived")))
            }
            Some(State::Cancelled) if entry.cancel == Cancel::Never => {
                Some(Broken::Lost(traced("is called cancelled and nobody did so")))
            }
            Some(State::Dead) if entry.max_lateness.is_some() => None,
            // A claim lost with the process counts as a try, though none may have begun.
            Some(State::Dead)
                if !entry.refused
                    && self.denied.get(&entry.target).is_none_or(|denied| denied.len() < DENIED_MIN)
                    && entry.tries + losses * in_flight_max.min(1) < entry.limit =>
            {
                Some(Broken::DeadWithoutCause(traced("was given up")))
            }
            Some(State::Pending | State::InFlight) => Some(Broken::Stuck(traced("has not ended"))),
            Some(_) => None,
        };
        broken.into_iter().for_each(|broken| self.break_promise(broken));
    }

    /// More copies than lost acknowledgements and losses explain?
    pub(super) fn judge_copies(&mut self, in_flight_max: u32) -> u32 {
        let extra: u32 = self.entries.values().map(|entry| entry.copies.saturating_sub(1)).sum();
        let bound = self.unacknowledged + self.losses * in_flight_max;
        if extra > bound {
            let what = format!("{extra} copies too many where {bound} are explained");
            self.break_promise(Broken::Duplicates(what));
        }
        extra
    }

    /// A number that two runs share only if they went the same way.
    pub(super) fn digest(&self) -> u64 {
        let text = format!("{:?}", self.entries);
        text.bytes().fold(0xCBF2_9CE4_8422_2325, |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0000_0100_0000_01B3)
        })
    }

    /// An id that nobody asks about just now and that was accepted: the `n`th of them, counted round.
    pub(super) fn idle(&self, n: u64) -> Option<MessageId> {
        let idle = || self.entries.iter().filter(|(_, e)| e.accepted && !e.busy && e.cancel == Cancel::Never);
        let count = idle().count() as u64;
        (count > 0).then(|| idle().nth((n % count) as usize).map(|(id, _)| id.clone())).flatten()
    }
}
