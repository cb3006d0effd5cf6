//! The calls of a sink or handler under way.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::{AttemptResult, Job};
use crate::{Monotonic, Outcome};

/// A call without any outcome counts against the lane's concurrency for so long. After that, or after its first outcome, only
/// its messages count, so that a straggler does not hold up new calls.
///
/// Longer, and calls that hold nothing but slow messages take all of the concurrency; shorter, and calls to a target that is far away
/// carry fewer messages each.
const FRESH_TIME: Duration = Duration::from_millis(25);
/// Refusals in the same words may be that of the whole call: they wait so long for its other messages.
const REFUSED_TIME: Duration = Duration::from_millis(500);

/// A message that was handed over.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Sent {
    pub(super) job: Job,
    /// The message and its destination, by [`DeliveryTerms`](super::DeliveryTerms): they are needed also when its lease is lost.
    pub(super) message: u64,
    pub(super) destination: u64,
    /// Its destination is being tried with it.
    pub(super) is_trial: bool,
}

#[derive(Debug)]
struct Call {
    /// By index; `None` once its end is known.
    sent: Vec<Option<Sent>>,
    left: usize,
    /// Failures that may turn out to be those of the whole call.
    failed: Vec<(Sent, AttemptResult)>,
    /// Whether a message of it ended otherwise than the whole call might.
    is_mixed: bool,
}

/// What the ends of a call's messages mean.
#[derive(Debug)]
pub(super) enum Ended {
    /// Each for itself.
    Each(Vec<(Sent, AttemptResult)>),
    /// The whole call failed in the same words, for no reason of connection: one message may have failed all.
    Whole(Vec<(Sent, AttemptResult)>),
}

impl Ended {
    pub(super) fn into_ends(self) -> Vec<(Sent, AttemptResult)> {
        match self {
            Self::Each(ends) | Self::Whole(ends) => ends,
        }
    }

    pub(super) fn into_jobs(self) -> impl Iterator<Item = Job> {
        self.into_ends().into_iter().map(|(sent, _)| sent.job)
    }
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    running: HashMap<u64, Call>,
    messages: usize,
    /// Calls without an outcome yet, oldest first. Those that ended are left until they are seen.
    fresh: VecDeque<(Monotonic, u64)>,
    /// Calls of which nothing but refusals is known, by the time of the first. Those that ended are left until they are seen.
    refused: VecDeque<(Monotonic, u64)>,
}

impl Calls {
    pub(super) fn len(&self) -> usize {
        self.running.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.running.is_empty()
    }

    pub(super) fn contains(&self, serial: u64) -> bool {
        self.running.contains_key(&serial)
    }

    /// Messages without an outcome.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    pub(super) fn begin(&mut self, serial: u64, sent: Vec<Sent>, now: Monotonic) {
        let left = sent.len();
        let call =
            Call { sent: sent.into_iter().map(Some).collect(), left, failed: Vec::new(), is_mixed: false };
        self.messages += left;
        self.running.insert(serial, call);
        self.fresh.push_back((now, serial));
    }

    /// How many calls count against the concurrency.
    pub(super) fn fresh(&mut self, now: Monotonic) -> usize {
        let running = &self.running;
        let is_fresh = |(began, serial): &(Monotonic, u64)| {
            began.saturating_add(FRESH_TIME) > now
                && running.get(serial).is_some_and(|call| call.left == call.sent.len())
        };
        self.fresh.retain(is_fresh);
        self.fresh.len()
    }

    /// When the oldest call stops counting against the concurrency.
    pub(super) fn fresh_until(&self) -> Option<Monotonic> {
        self.fresh.front().map(|(began, _)| began.saturating_add(FRESH_TIME))
    }

    /// Messages of a call ended. One that was given up before is ignored.
    pub(super) fn ended(
        &mut self,
        serial: u64,
        ends: Vec<(usize, AttemptResult)>,
        is_over: bool,
        now: Monotonic,
    ) -> Ended {
        let Some(call) = self.running.get_mut(&serial) else { return Ended::Each(Vec::new()) };
        let mut known: Vec<(Sent, AttemptResult)> = ends
            .into_iter()
            .filter_map(|(index, end)| Some((call.sent.get_mut(index)?.take()?, end)))
            .collect();
        self.messages -= known.len();
        call.left -= known.len();
        if is_over {
            let missing =
                || AttemptResult::failed(Outcome::Unknown, "the sink gave no outcome for this message");
            self.messages -= call.left;
            known.extend(call.sent.iter_mut().filter_map(Option::take).map(|sent| (sent, missing())));
            call.left = 0;
        }
        let is_first = call.failed.is_empty();
        known.splice(0..0, call.failed.drain(..));
        let is_alike = |(_, end): &(Sent, AttemptResult)| is_common(end) && end.says_the_same(&known[0].1);
        let may_be_whole = !call.is_mixed && call.sent.len() > 1 && known.iter().all(is_alike);
        if !may_be_whole {
            call.is_mixed = true;
        } else if call.left > 0 {
            if is_first && known.first().is_some_and(|(_, end)| is_refused(end)) {
                self.refused.push_back((now, serial));
            }
            call.failed = known;
            return Ended::Each(Vec::new());
        }
        if call.left == 0 {
            self.running.remove(&serial);
        }
        if may_be_whole && !known.is_empty() { Ended::Whole(known) } else { Ended::Each(known) }
    }

    /// Refusals that have waited long enough for the rest of their calls: each is about its own message.
    pub(super) fn overdue_refusals(&mut self, now: Monotonic) -> Vec<(Sent, AttemptResult)> {
        let mut overdue = Vec::new();
        while let Some((_, serial)) =
            self.refused.pop_front_if(|(since, _)| since.saturating_add(REFUSED_TIME) <= now)
        {
            if let Some(call) = self.running.get_mut(&serial) {
                overdue.append(&mut call.failed);
                call.is_mixed = true;
            }
        }
        overdue
    }

    /// When the next refusals have waited long enough.
    pub(super) fn refusals_until(&mut self) -> Option<Monotonic> {
        let running = &self.running;
        self.refused.retain(|(_, serial)| running.get(serial).is_some_and(|call| !call.is_mixed));
        self.refused.front().map(|(since, _)| since.saturating_add(REFUSED_TIME))
    }

    /// Ends a call before its time: `end` for every message without one.
    pub(super) fn give_up(&mut self, serial: u64, end: &AttemptResult, now: Monotonic) -> Ended {
        let count = self.running.get(&serial).map_or(0, |call| call.sent.len());
        self.ended(serial, (0..count).map(|index| (index, end.clone())).collect(), true, now)
    }

    /// The calls that have a message of which this holds, in order.
    pub(super) fn with(&self, holds: impl Fn(&Job) -> bool) -> Vec<u64> {
        let calls =
            self.running.iter().filter(|(_, call)| call.sent.iter().flatten().any(|sent| holds(&sent.job)));
        // The order of a map differs from run to run; a simulation must not.
        let mut serials: Vec<_> = calls.map(|(serial, _)| *serial).collect();
        serials.sort_unstable();
        serials
    }
}

/// Whether it may be the failure of a whole call.
fn is_common(end: &AttemptResult) -> bool {
    matches!(end, AttemptResult::Failed { outcome: Outcome::Unknown | Outcome::Refused, .. })
}

fn is_refused(end: &AttemptResult) -> bool {
    matches!(end, AttemptResult::Failed { outcome: Outcome::Refused, .. })
}
