//! A destination that is slow to answer keeps its rate; one that has stopped leaves the lane to others.

use std::{
    collections::{BTreeMap, VecDeque},
    time::Duration,
};

use super::{bench::*, destination::*};
use crate::schedule::{DeliveryTerms, Event, LaneSettings};

/// A target whose destinations answer after a time of their own, or never.
struct Target {
    bench: Bench,
    /// By destination, in ms. The others answer at once.
    answer_ms: BTreeMap<u64, Option<u64>>,
    backlog: VecDeque<u64>,
    /// Results by the time at which they are due, in ms.
    results: BTreeMap<u64, Vec<Event>>,
    by_serial: BTreeMap<u64, u64>,
    delivered: BTreeMap<u64, usize>,
    deferred: BTreeMap<u64, usize>,
    tick: u64,
}

impl Target {
    fn new(settings: LaneSettings, answer_ms: &[(u64, Option<u64>)]) -> Self {
        Self {
            bench: Bench::with(settings),
            answer_ms: answer_ms.iter().copied().collect(),
            backlog: VecDeque::new(),
            results: BTreeMap::new(),
            by_serial: BTreeMap::new(),
            delivered: BTreeMap::new(),
            deferred: BTreeMap::new(),
            tick: 0,
        }
    }

    /// Gives the lane as much of the backlog as it asks for.
    fn claim(&mut self) {
        if self.backlog.is_empty() {
            return;
        }
        self.bench.hint(A, self.bench.now().wall());
        let Some(limit) = self.bench.claim_of(A) else { return };
        let taken: Vec<_> = self.backlog.drain(..limit.min(self.backlog.len())).collect();
        let (due, first) = (self.bench.due(), self.bench.mono_us * 1_000);
        let terms = taken.iter().zip(first..);
        let terms =
            terms.map(|(&destination, message)| DeliveryTerms { destination, message, ..due.clone() });
        let jobs = self.bench.give(A, terms.collect(), None);
        self.by_serial.extend(jobs.iter().map(|job| job.serial).zip(taken));
    }

    /// Lets a millisecond pass.
    fn pass_ms(&mut self) {
        self.claim();
        for (delivery, jobs) in self.bench.deliveries() {
            for (index, job) in jobs.into_iter().enumerate() {
                let answer = self.answer_ms.get(&self.by_serial[&job.serial]).copied();
                let Some(after) = answer.unwrap_or(Some(0)) else { continue };
                let event = Event::CallResults { delivery, results: vec![(index, done())], is_over: false };
                self.results.entry(self.tick + after).or_default().push(event);
            }
        }
        for event in self.results.remove(&self.tick).unwrap_or_default() {
            self.bench.apply(event);
        }
        for (job, settlement) in self.bench.settles() {
            let destination = self.by_serial[&job.serial];
            let counted = if deferred(&[(job, settlement)]) > 0 {
                // It comes back later.
                &mut self.deferred
            } else {
                &mut self.delivered
            };
            *counted.entry(destination).or_default() += 1;
        }
        self.bench.pass(ms(1));
        self.tick += 1;
    }

    fn pass(&mut self, millis: u64) {
        (0..millis).for_each(|_| self.pass_ms());
    }

    fn delivered(&self, destination: u64) -> usize {
        self.delivered.get(&destination).copied().unwrap_or_default()
    }

    fn deferred(&self, destination: u64) -> usize {
        self.deferred.get(&destination).copied().unwrap_or_default()
    }
}

/// 128 slots, as those of a webhook.
fn lane_of_128() -> LaneSettings {
    LaneSettings { in_flight: 128, batch: 32, timeout: Duration::from_secs(8), ..lane() }
}

#[test]
fn a_burst_to_a_destination_that_answers_after_400_ms_keeps_its_rate() {
    let mut target = Target::new(lane_of_128(), &[(BAD, Some(400))]);
    target.backlog.extend([GOOD, BAD]);
    target.pass(1_000);
    target.backlog.extend([BAD; 200]);
    // 64 at a time: four rounds.
    target.pass(1_700);
    assert_eq!((target.delivered(BAD), target.deferred(BAD)), (201, 0));
}

#[test]
fn a_first_answer_shows_that_its_destination_has_not_stalled() {
    let mut target = Target::new(lane_of_128(), &[(BAD, Some(400))]);
    target.backlog.push_back(GOOD);
    target.backlog.extend([BAD; 60]);
    target.pass(100);
    target.backlog.extend([BAD; 60]);
    target.pass(310);
    assert_eq!((target.delivered(BAD), target.deferred(BAD)), (60, 56), "nothing was known of it");
    // Four are under way.
    target.backlog.extend([BAD; 124]);
    target.pass(900);
    assert_eq!((target.delivered(BAD), target.deferred(BAD)), (188, 56), "now it is");
}

#[test]
fn a_destination_that_stops_to_answer_stalls_after_twice_the_time_of_its_answers() {
    for (before, stalled_ms) in [(5, 250), (200, 400), (400, 800), (700, 1_000)] {
        let mut target = Target::new(lane_of_128(), &[(BAD, Some(before))]);
        target.backlog.extend([GOOD, BAD]);
        target.pass(1_000);
        target.answer_ms.insert(BAD, None);
        target.backlog.extend([BAD; 100]);
        target.pass(stalled_ms - 5);
        assert_eq!(target.deferred(BAD), 0, "answers took {before} ms");
        target.pass(10);
        assert_eq!(target.deferred(BAD), 36, "answers took {before} ms");
        target.backlog.extend([GOOD; 10]);
        target.pass(5);
        assert_eq!(target.delivered(GOOD), 11);
    }
}

#[test]
fn what_is_remembered_of_answers_is_bounded() {
    let mut target = Target::new(LaneSettings { in_flight: 1_024, batch: 256, ..lane() }, &[]);
    for round in 0..10 {
        target.backlog.extend(round * 1_000..(round + 1) * 1_000);
        target.pass(3);
    }
    let (len, max) = target.bench.scheduler.lanes[&A].destinations.answers().len_and_max();
    assert!((1_000..=max).contains(&len), "{len} are remembered");
}
