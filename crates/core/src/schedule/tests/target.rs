//! A target whose destinations answer after a time of their own, and a lane with a backlog for it.

use std::collections::{BTreeMap, VecDeque};

use super::bench::*;
use crate::{
    schedule::{DeliveryTerms, Event, LaneSettings, destinations::Destinations},
    store::Settlement,
};

/// A target whose destinations answer after a time of their own, or never.
pub(super) struct Target {
    bench: Bench,
    /// By destination, in ms.
    pub(super) answer_ms: BTreeMap<u64, Option<u64>>,
    /// That of all others.
    pub(super) others_ms: Option<u64>,
    /// Destinations, and since when their messages are due, in ms.
    backlog: VecDeque<(u64, u64)>,
    /// Results by the time at which they are due, in ms.
    results: BTreeMap<u64, Vec<Event>>,
    by_serial: BTreeMap<u64, (u64, u64)>,
    delivered: BTreeMap<u64, usize>,
    deferred: BTreeMap<u64, usize>,
    /// When deferred messages come back, in ms.
    deferred_to: Vec<u64>,
    /// Deferred messages that come back, by the time in ms; none if they are forgotten.
    returns: Option<BTreeMap<u64, Vec<(u64, u64)>>>,
    /// The longest time from the backlog to the delivery of a destination, in ms.
    waited_ms: BTreeMap<u64, u64>,
    tick: u64,
}

impl Target {
    pub(super) fn new(settings: LaneSettings, answer_ms: &[(u64, Option<u64>)]) -> Self {
        Self {
            bench: Bench::with(settings),
            answer_ms: answer_ms.iter().copied().collect(),
            others_ms: Some(0),
            backlog: VecDeque::new(),
            results: BTreeMap::new(),
            by_serial: BTreeMap::new(),
            delivered: BTreeMap::new(),
            deferred: BTreeMap::new(),
            deferred_to: Vec::new(),
            returns: None,
            waited_ms: BTreeMap::new(),
            tick: 0,
        }
    }

    /// The same, to which deferred messages come back.
    pub(super) fn with_returns(settings: LaneSettings, answer_ms: &[(u64, Option<u64>)]) -> Self {
        Self { returns: Some(BTreeMap::new()), ..Self::new(settings, answer_ms) }
    }

    /// Gives the lane as much of the backlog as it asks for.
    fn claim(&mut self) {
        let wall = self.bench.now().wall().as_millis();
        while let Some(first) = self.returns.as_mut().and_then(BTreeMap::first_entry)
            && *first.key() <= wall
        {
            self.backlog.extend(first.remove());
        }
        if self.backlog.is_empty() {
            return;
        }
        self.bench.hint(A, self.bench.now().wall());
        let Some(limit) = self.bench.claim_of(A) else { return };
        let taken: Vec<_> = self.backlog.drain(..limit.min(self.backlog.len())).collect();
        let (due, first) = (self.bench.due(), self.bench.mono_us * 1_000);
        let terms = taken.iter().zip(first..);
        let terms =
            terms.map(|(&(destination, _), message)| DeliveryTerms { destination, message, ..due.clone() });
        let jobs = self.bench.give(A, terms.collect(), None);
        self.by_serial.extend(jobs.iter().map(|job| job.serial).zip(taken));
    }

    /// Lets a millisecond pass.
    fn pass_ms(&mut self) {
        self.claim();
        for (delivery, jobs) in self.bench.deliveries() {
            for (index, job) in jobs.into_iter().enumerate() {
                let answer = self.answer_ms.get(&self.by_serial[&job.serial].0).copied();
                let Some(after) = answer.unwrap_or(self.others_ms) else { continue };
                let event = Event::CallResults { delivery, results: vec![(index, done())], is_over: false };
                self.results.entry(self.tick + after).or_default().push(event);
            }
        }
        for event in self.results.remove(&self.tick).unwrap_or_default() {
            self.bench.apply(event);
        }
        for (job, settlement) in self.bench.settles() {
            let (destination, since) = self.by_serial[&job.serial];
            if let Settlement::Delivered { .. } = settlement {
                *self.delivered.entry(destination).or_default() += 1;
                let waited = self.waited_ms.entry(destination).or_default();
                *waited = (*waited).max(self.tick - since);
            } else if let Settlement::Retry { at, attempt } = settlement
                && attempt.is_deferral()
            {
                *self.deferred.entry(destination).or_default() += 1;
                self.deferred_to.push(at.as_millis());
                if let Some(returns) = &mut self.returns {
                    returns.entry(at.as_millis()).or_default().push((destination, since));
                }
            }
        }
        self.bench.pass(ms(1));
        self.tick += 1;
    }

    pub(super) fn pass(&mut self, millis: u64) {
        (0..millis).for_each(|_| self.pass_ms());
    }

    /// Messages to these are due.
    pub(super) fn send(&mut self, destinations: impl IntoIterator<Item = u64>) {
        self.backlog.extend(destinations.into_iter().map(|destination| (destination, self.tick)));
    }

    pub(super) fn destinations(&self) -> &Destinations {
        &self.bench.scheduler.lanes[&A].destinations
    }

    pub(super) fn waited_ms(&self, destination: u64) -> u64 {
        self.waited_ms.get(&destination).copied().unwrap_or_default()
    }

    /// When deferred messages come back, in order.
    pub(super) fn deferred_to(&self) -> Vec<u64> {
        let mut times = self.deferred_to.clone();
        times.sort_unstable();
        times
    }

    /// Messages under way to any destination.
    pub(super) fn under_way(&self) -> usize {
        self.bench.scheduler.lanes[&A].calls.messages()
    }

    /// Messages that were deferred, of all destinations.
    pub(super) fn deferred_of_all(&self) -> usize {
        self.deferred.values().sum()
    }

    pub(super) fn delivered_of_all(&self) -> usize {
        self.delivered.values().sum()
    }

    pub(super) fn delivered(&self, destination: u64) -> usize {
        self.delivered.get(&destination).copied().unwrap_or_default()
    }

    pub(super) fn deferred(&self, destination: u64) -> usize {
        self.deferred.get(&destination).copied().unwrap_or_default()
    }
}
