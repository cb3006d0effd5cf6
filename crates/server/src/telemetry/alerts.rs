//! Alerts: measurements compared with the rules. No clock inside: the caller passes the time.

mod measurement;

use std::{
    collections::{BTreeMap, BTreeSet},
    time::Duration,
};

use duly::{Lane, Monotonic, Now, SinkName, Totals};

use self::measurement::Wrong;
use super::rates::AttemptCounts;
use crate::{
    config::{AlertRules, Thresholds},
    wire::{Alert, AlertState},
};

/// An alert is cleared after its condition was false for this long, so that a flapping condition is one alert.
pub const CALM: Duration = Duration::from_secs(30);
/// Checks in a row that must find the server not ready before the alert is raised. A single failed call raises none.
const UNREADY_CHECKS: u32 = 2;
/// Attempts needed before a failure rate is computed.
const ATTEMPTS_MIN: u64 = 20;

/// The name of an alert.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum AlertName {
    Overdue,
    QueueLength,
    LatenessP99,
    FailureRate,
    DeadLetters,
    Orphan,
    Ledger,
    NotReady,
    Degraded,
}

impl AlertName {
    pub(super) const ALL: [Self; 9] = [
        Self::Overdue,
        Self::QueueLength,
        Self::LatenessP99,
        Self::FailureRate,
        Self::DeadLetters,
        Self::Orphan,
        Self::Ledger,
        Self::NotReady,
        Self::Degraded,
    ];
    /// Alerts that can be configured per topic.
    pub(super) const OF_TOPICS: [Self; 5] =
        [Self::Overdue, Self::QueueLength, Self::LatenessP99, Self::FailureRate, Self::DeadLetters];

    pub(super) fn as_str(self) -> &'static str {
        match self {
            Self::Overdue => "overdue",
            Self::QueueLength => "queue_length",
            Self::LatenessP99 => "lateness_p99",
            Self::FailureRate => "failure_rate",
            Self::DeadLetters => "dead_letters",
            Self::Orphan => "orphan",
            Self::Ledger => "ledger",
            Self::NotReady => "not_ready",
            Self::Degraded => "degraded",
        }
    }

    /// Whether it is an error, not only a threshold that was exceeded.
    pub(super) fn is_grave(self) -> bool {
        matches!(self, Self::Ledger | Self::NotReady)
    }
}

/// The measurements of one check.
#[derive(Debug, Clone, Default)]
pub(super) struct Measurements {
    /// `None`: the store did not answer. Alerts about lanes stay as they were.
    pub(super) lanes: Option<Vec<LaneMeasurements>>,
    /// Attempts of the last minute.
    pub(super) attempts: AttemptCounts,
    /// The same, per topic that has rules of its own.
    pub(super) topics: BTreeMap<String, AttemptCounts>,
    /// `None`: the store did not answer.
    pub(super) totals: Option<Totals>,
    /// Why no message could be accepted or delivered now, by part.
    pub(super) failing: Vec<(&'static str, String)>,
    /// Which messages wait, and why, while all others go on.
    pub(super) degraded: Option<String>,
}

impl Measurements {
    /// Whether this check measured what such alerts need.
    fn answers(&self, name: AlertName) -> bool {
        match name {
            AlertName::Overdue | AlertName::QueueLength | AlertName::DeadLetters | AlertName::Orphan => {
                self.lanes.is_some()
            }
            AlertName::Ledger => self.totals.is_some(),
            AlertName::LatenessP99 | AlertName::FailureRate | AlertName::NotReady | AlertName::Degraded => {
                true
            }
        }
    }
}

/// A lane at one check.
#[derive(Debug, Clone)]
pub(super) struct LaneMeasurements {
    pub(super) lane: Lane,
    pub(super) paused: bool,
    pub(super) pending: u64,
    pub(super) dead: u64,
    /// How long its oldest due message has waited.
    pub(super) overdue: Duration,
}

impl LaneMeasurements {
    fn topic(&self) -> Option<&str> {
        self.lane.queue().map(duly::Topic::as_str)
    }
}

/// An alert and its scope.
type Key = (AlertName, Option<String>);

/// Compares measurements with the rules and remembers which alerts are on.
#[derive(Debug)]
pub(super) struct Watch {
    rules: AlertRules,
    sinks: BTreeSet<SinkName>,
    on: BTreeMap<Key, ActiveAlert>,
    /// Checks in a row that found the server not ready.
    unready: u32,
    /// Checks in a row that found the server degraded.
    degraded: u32,
}

#[derive(Debug)]
struct ActiveAlert {
    alert: Alert,
    /// Since when the condition is false.
    calm: Option<Monotonic>,
    /// The count when it was last reported, or a lower one measured since.
    reported: u64,
}

impl ActiveAlert {
    /// The condition holds still. Returns whether to report the alert again.
    fn stands(&mut self, wrong: &Wrong) -> bool {
        self.alert.detail.clone_from(&wrong.detail);
        self.alert.values.clone_from(&wrong.values);
        self.calm = None;
        let Some(count) = wrong.count else { return false };
        let is_reported_again = count >= self.reported.saturating_mul(2);
        self.reported = if is_reported_again { count } else { self.reported.min(count) };
        is_reported_again
    }
}

impl Watch {
    /// `sinks` are those configured: what waits for another is an orphan.
    pub(super) fn new(rules: AlertRules, sinks: impl IntoIterator<Item = SinkName>) -> Self {
        Self { rules, sinks: sinks.into_iter().collect(), on: BTreeMap::new(), unready: 0, degraded: 0 }
    }

    /// The alerts that are on.
    pub(super) fn on(&self) -> Vec<Alert> {
        self.on.values().map(|active| active.alert.clone()).collect()
    }

    pub(super) fn is_on(&self, name: AlertName, scope: Option<&str>) -> bool {
        self.on.keys().any(|(own, about)| *own == name && about.as_deref() == scope)
    }

    /// Whether any alert of this name is on, whatever its scope.
    pub(super) fn any_on(&self, name: AlertName) -> bool {
        self.on.keys().any(|(own, _)| *own == name)
    }

    /// The topics that have rules of their own.
    pub(super) fn topics(&self) -> impl Iterator<Item = &str> {
        self.rules.topics.keys().map(String::as_str)
    }

    /// Evaluates the rules. Returns alerts that were raised or cleared, or are to be reported again.
    pub(super) fn evaluate(&mut self, now: Now, seen: &Measurements) -> Vec<Alert> {
        self.unready = if seen.failing.is_empty() { 0 } else { self.unready.saturating_add(1) };
        self.degraded = if seen.degraded.is_none() { 0 } else { self.degraded.saturating_add(1) };
        let wrong = self.wrong(seen);
        let mut changes = Vec::new();
        for (key, wrong) in &wrong {
            if let Some(on) = self.on.get_mut(key) {
                if on.stands(wrong) {
                    changes.push(on.alert.clone());
                }
                continue;
            }
            let alert = Alert {
                name: key.0.as_str().to_owned(),
                scope: key.1.clone(),
                state: AlertState::Raised,
                detail: wrong.detail.clone(),
                values: wrong.values.clone(),
                since: now.wall().to_string(),
            };
            changes.push(alert.clone());
            self.on.insert(
                key.clone(),
                ActiveAlert { alert, calm: None, reported: wrong.count.unwrap_or_default() },
            );
        }
        self.on.retain(|key, active| {
            if !seen.answers(key.0) {
                return true;
            }
            if wrong.contains_key(key) || now.mono().since(*active.calm.get_or_insert(now.mono())) < CALM {
                return true;
            }
            changes.push(Alert {
                state: AlertState::Cleared,
                since: now.wall().to_string(),
                ..active.alert.clone()
            });
            false
        });
        changes
    }

    /// The conditions that hold, with their measurements.
    fn wrong(&self, seen: &Measurements) -> BTreeMap<Key, Wrong> {
        let mut wrong = BTreeMap::new();
        let own_rules =
            |lane: &LaneMeasurements| lane.topic().is_some_and(|t| self.rules.topics.contains_key(t));
        let lanes = seen.lanes.iter().flatten();
        let (own, rest): (Vec<_>, Vec<_>) = lanes.partition(|lane| own_rules(lane));
        let orphan =
            |lane: &&LaneMeasurements| matches!(&lane.lane, Lane::Sink(sink) if !self.sinks.contains(sink));
        let (orphans, rest): (Vec<_>, Vec<_>) = rest.into_iter().partition(orphan);
        let mut attempts = seen.attempts.clone();
        for topic in seen.topics.values() {
            attempts = attempts.without(topic);
        }
        judge(&self.rules.all, &rest, &attempts, None, &mut wrong);
        // Dead letters count for every lane, also of sinks that left the configuration.
        judge_dead(&self.rules.all, rest.iter().chain(&orphans), None, &mut wrong);
        let nothing = AttemptCounts::default();
        for (topic, rules) in &self.rules.topics {
            let lanes: Vec<_> = own.iter().copied().filter(|lane| lane.topic() == Some(topic)).collect();
            judge(rules, &lanes, seen.topics.get(topic).unwrap_or(&nothing), Some(topic), &mut wrong);
            judge_dead(rules, lanes.iter(), Some(topic), &mut wrong);
        }
        for lane in orphans.iter().filter(|lane| lane.pending > 0) {
            let sink = lane.lane.to_string();
            wrong.insert((AlertName::Orphan, Some(sink.clone())), Wrong::orphan(lane.pending, sink));
        }
        if let Some(totals) = seen.totals.filter(|totals| !totals.balance()) {
            wrong.insert((AlertName::Ledger, None), Wrong::ledger(&totals));
        }
        if self.unready >= UNREADY_CHECKS || self.unready > 0 && self.any_on(AlertName::NotReady) {
            wrong.insert((AlertName::NotReady, None), Wrong::not_ready(&seen.failing));
        }
        if let Some(why) = &seen.degraded
            && (self.degraded >= UNREADY_CHECKS || self.any_on(AlertName::Degraded))
        {
            wrong.insert((AlertName::Degraded, None), Wrong::degraded(why));
        }
        wrong
    }
}

/// Compares some lanes and their attempts with thresholds.
fn judge(
    rules: &Thresholds,
    lanes: &[&LaneMeasurements],
    attempts: &AttemptCounts,
    scope: Option<&str>,
    wrong: &mut BTreeMap<Key, Wrong>,
) {
    let mut add = |name, found| wrong.insert((name, scope.map(str::to_owned)), found);
    // A paused lane is not overdue: an operator paused it.
    let oldest = lanes.iter().filter(|lane| !lane.paused).max_by_key(|lane| lane.overdue);
    if let (Some(limit), Some(oldest)) = (rules.overdue, oldest)
        && oldest.overdue > limit
    {
        add(AlertName::Overdue, Wrong::overdue(&oldest.lane, oldest.overdue, limit));
    }
    let pending: u64 = lanes.iter().map(|lane| lane.pending).sum();
    if let Some(limit) = rules.queue_length.filter(|limit| pending > *limit) {
        add(AlertName::QueueLength, Wrong::queue_length(pending, limit));
    }
    let p99 = attempts.lateness.quantile(0.99);
    if let Some(limit) = rules.lateness_p99.filter(|limit| p99 > *limit) {
        add(AlertName::LatenessP99, Wrong::lateness(p99, limit, attempts.lateness.count()));
    }
    let share = attempts.failed as f64 / attempts.count.max(1) as f64;
    if let Some(limit) = rules.failure_rate.filter(|limit| attempts.count >= ATTEMPTS_MIN && share > *limit) {
        add(AlertName::FailureRate, Wrong::failures(attempts.failed, attempts.count, limit));
    }
}

/// Compares the dead letters of some lanes with a threshold.
fn judge_dead<'a>(
    rules: &Thresholds,
    lanes: impl Iterator<Item = &'a &'a LaneMeasurements>,
    scope: Option<&str>,
    wrong: &mut BTreeMap<Key, Wrong>,
) {
    let dead: u64 = lanes.map(|lane| lane.dead).sum();
    if let Some(limit) = rules.dead_letters.filter(|limit| dead > *limit) {
        wrong.insert((AlertName::DeadLetters, scope.map(str::to_owned)), Wrong::dead_letters(dead, limit));
    }
}

#[cfg(test)]
mod tests;
