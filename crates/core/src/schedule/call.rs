//! Running calls of a sink or handler.

use std::{
    collections::{HashMap, VecDeque},
    time::Duration,
};

use super::{AttemptResult, Job};
use crate::{Monotonic, Outcome};

/// How long a call without any result counts against the concurrency. After that, or after its first result, only its
/// messages count, so that a slow message does not hold up new calls.
///
/// A longer time lets calls of slow messages take all of the concurrency; a shorter one makes calls to a distant target
/// smaller.
const FRESH_TIME: Duration = Duration::from_millis(25);
/// Equal refusals may be those of the whole call: they wait this long for the other results.
const REFUSED_TIME: Duration = Duration::from_millis(500);

/// A message in a running call.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct SentMessage {
    pub(super) job: Job,
    /// Message and destination, as in [`DeliveryTerms`](super::DeliveryTerms): they are needed also after the lease is
    /// lost.
    pub(super) message: u64,
    pub(super) destination: u64,
    /// Whether it is the trial of its destination.
    pub(super) is_trial: bool,
    /// Whether its destination was a newcomer.
    pub(super) is_newcomer: bool,
    pub(super) sent_at: Monotonic,
}

#[derive(Debug)]
struct SinkCall {
    /// By index; `None` once its result is known.
    sent: Vec<Option<SentMessage>>,
    left: usize,
    /// Failures that may be those of the whole call.
    failed: Vec<(SentMessage, AttemptResult)>,
    /// Whether results differ, so that no failure is that of the whole call.
    is_mixed: bool,
}

/// Results of a call.
#[derive(Debug)]
pub(super) enum CallResults {
    /// Each concerns its own message.
    PerMessage(Vec<(SentMessage, AttemptResult)>),
    /// All messages failed with the same text, and not by the connection: one message may be the cause.
    Whole(Vec<(SentMessage, AttemptResult)>),
}

impl CallResults {
    pub(super) fn into_results(self) -> Vec<(SentMessage, AttemptResult)> {
        match self {
            Self::PerMessage(results) | Self::Whole(results) => results,
        }
    }

    pub(super) fn into_jobs(self) -> impl Iterator<Item = Job> {
        self.into_results().into_iter().map(|(sent, _)| sent.job)
    }
}

#[derive(Debug, Default)]
pub(super) struct Calls {
    running: HashMap<u64, SinkCall>,
    messages: usize,
    /// Calls without a result, oldest first. Ended ones are dropped when they are met.
    fresh: VecDeque<(Monotonic, u64)>,
    /// Calls with refusals only, by the time of the first one. Ended ones are dropped when they are met.
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

    /// Messages without a result.
    pub(super) fn messages(&self) -> usize {
        self.messages
    }

    pub(super) fn begin(&mut self, serial: u64, sent: Vec<SentMessage>, now: Monotonic) {
        let left = sent.len();
        let call = SinkCall {
            sent: sent.into_iter().map(Some).collect(),
            left,
            failed: Vec::new(),
            is_mixed: false,
        };
        self.messages += left;
        self.running.insert(serial, call);
        self.fresh.push_back((now, serial));
    }

    /// Calls that count against the concurrency.
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

    /// Records results of a call. A call that was cancelled before is ignored.
    pub(super) fn record(
        &mut self,
        serial: u64,
        results: Vec<(usize, AttemptResult)>,
        is_over: bool,
        now: Monotonic,
    ) -> CallResults {
        let Some(call) = self.running.get_mut(&serial) else { return CallResults::PerMessage(Vec::new()) };
        let mut known: Vec<(SentMessage, AttemptResult)> = results
            .into_iter()
            .filter_map(|(index, result)| Some((call.sent.get_mut(index)?.take()?, result)))
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
        let is_same = |(_, result): &(SentMessage, AttemptResult)| {
            may_be_batch_failure(result) && result.is_same_failure(&known[0].1)
        };
        let may_be_whole = !call.is_mixed && call.sent.len() > 1 && known.iter().all(is_same);
        if !may_be_whole {
            call.is_mixed = true;
        } else if call.left > 0 {
            if is_first && known.first().is_some_and(|(_, result)| is_refused(result)) {
                self.refused.push_back((now, serial));
            }
            call.failed = known;
            return CallResults::PerMessage(Vec::new());
        }
        if call.left == 0 {
            self.running.remove(&serial);
        }
        if may_be_whole && !known.is_empty() {
            CallResults::Whole(known)
        } else {
            CallResults::PerMessage(known)
        }
    }

    /// Refusals that have waited long enough for the rest of their calls: each concerns its own message.
    pub(super) fn overdue_refusals(&mut self, now: Monotonic) -> Vec<(SentMessage, AttemptResult)> {
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

    /// Ends a call early: `result` is that of every message without one.
    pub(super) fn give_up(&mut self, serial: u64, result: &AttemptResult, now: Monotonic) -> CallResults {
        let count = self.running.get(&serial).map_or(0, |call| call.sent.len());
        self.record(serial, (0..count).map(|index| (index, result.clone())).collect(), true, now)
    }

    /// The calls with a message that matches, in order.
    pub(super) fn with(&self, holds: impl Fn(&Job) -> bool) -> Vec<u64> {
        let calls =
            self.running.iter().filter(|(_, call)| call.sent.iter().flatten().any(|sent| holds(&sent.job)));
        // Sorted, because a simulation must be repeatable.
        let mut serials: Vec<_> = calls.map(|(serial, _)| *serial).collect();
        serials.sort_unstable();
        serials
    }
}

/// Whether it may be the failure of a whole call.
fn may_be_batch_failure(result: &AttemptResult) -> bool {
    matches!(result, AttemptResult::Failed { outcome: Outcome::Unknown | Outcome::Refused, .. })
}

fn is_refused(result: &AttemptResult) -> bool {
    matches!(result, AttemptResult::Failed { outcome: Outcome::Refused, .. })
}
