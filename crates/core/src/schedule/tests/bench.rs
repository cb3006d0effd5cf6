//! A scheduler with hand-made answers.

use std::time::Duration;

use crate::{
    LeaseLoss, Monotonic, Now, Outcome, RetryPolicy, Timestamp,
    schedule::{
        Action, AttemptResult, ClaimedJob, DeliveryKey, DeliveryTerms, Event, Job, LaneKey, LaneSettings,
        LaneWorker, Report, Scheduler, Settings,
    },
    store::Settlement,
};

pub(super) const A: LaneKey = LaneKey(1);
pub(super) const B: LaneKey = LaneKey(2);
/// The wall time at which every test starts.
pub(super) const START_MS: u64 = 1_000_000_000;

pub(super) fn ms(millis: u64) -> Duration {
    Duration::from_millis(millis)
}

/// Wall time, so many milliseconds after the start.
pub(super) fn at(millis: u64) -> Timestamp {
    Timestamp::from_millis(START_MS + millis)
}

pub(super) fn sink() -> LaneSettings {
    LaneSettings {
        in_flight: 100,
        buffered: LaneSettings::BUFFERED_MAX,
        concurrency: 2,
        batch: 10,
        timeout: Duration::from_secs(5),
        lease: Duration::from_secs(12),
        retry: RetryPolicy { attempts: 3, ..RetryPolicy::default() },
        rate: None,
        in_store_max: 0,
        worker: LaneWorker::Sink,
    }
}

pub(super) fn handler() -> LaneSettings {
    let worker = LaneWorker::Handler { again: Duration::from_secs(1), failed: Duration::from_secs(5) };
    LaneSettings { batch: 1, worker, timeout: Duration::from_secs(60), ..sink() }
}

pub(super) fn done() -> AttemptResult {
    AttemptResult::Delivered { receipt: None }
}

pub(super) fn unreachable() -> AttemptResult {
    AttemptResult::failed(Outcome::Unreachable, "refused connection")
}

/// A scheduler, its time, and what it wanted done since last asked.
pub(super) struct Bench {
    pub(super) scheduler: Scheduler,
    pub(super) mono_us: u64,
    pub(super) wall_us: u64,
    pub(super) actions: Vec<Action>,
    serial: u64,
}

impl Bench {
    /// Without lanes.
    pub(super) fn empty() -> Self {
        Self {
            scheduler: Scheduler::new(Settings { seed: 7, ..Settings::default() }),
            mono_us: 5_000_000,
            wall_us: START_MS * 1000,
            actions: Vec::new(),
            serial: 0,
        }
    }

    /// With lane A, which has asked for what is there already.
    pub(super) fn with(settings: LaneSettings) -> Self {
        let mut bench = Self::empty();
        bench.add(A, settings);
        bench
    }

    /// Adds a lane; its first claim found nothing.
    pub(super) fn add(&mut self, lane: LaneKey, settings: LaneSettings) {
        self.apply(Event::LaneAdded { lane, settings, paused: false });
        assert!(self.claim_of(lane).is_some(), "a new lane looks once");
        self.nothing(lane, None);
        self.sweeps();
    }

    pub(super) fn now(&self) -> Now {
        Now::new(self.wall_us, Monotonic::from_micros(self.mono_us))
    }

    pub(super) fn apply(&mut self, event: Event) {
        self.scheduler.step(self.now(), event, &mut self.actions);
    }

    /// Lets time pass, waking the scheduler whenever it wants; sweeps find nothing.
    pub(super) fn pass(&mut self, span: Duration) {
        let end = self.mono_us + span.as_micros() as u64;
        while let Some(wake) = self.scheduler.next_wake().map(Monotonic::as_micros).filter(|w| *w <= end) {
            let by = wake.saturating_sub(self.mono_us);
            self.mono_us += by;
            self.wall_us += by;
            self.apply(Event::Tick);
            self.sweeps();
        }
        self.wall_us += end - self.mono_us;
        self.mono_us = end;
        self.apply(Event::Tick);
        self.sweeps();
    }

    /// Answers sweeps with nothing.
    pub(super) fn sweeps(&mut self) {
        let before = self.actions.len();
        self.actions.retain(|action| !matches!(action, Action::Sweep { .. }));
        if self.actions.len() < before {
            self.swept(Vec::new());
        }
    }

    pub(super) fn swept(&mut self, next: Vec<(LaneKey, Timestamp)>) {
        let none =
            Event::Swept { next, leases_ended: 0, next_lease_end: None, again_within: None, paused: None };
        self.apply(none);
    }

    /// Another node paused these lanes, and resumed all others.
    pub(super) fn swept_with(&mut self, paused: Vec<LaneKey>) {
        self.apply(Event::Swept {
            next: Vec::new(),
            leases_ended: 0,
            next_lease_end: None,
            again_within: None,
            paused: Some(paused),
        });
    }

    pub(super) fn hint(&mut self, lane: LaneKey, due: Timestamp) {
        self.apply(Event::Hint { lane, due });
    }

    /// The limit of the claim that the lane asked for, if it did.
    pub(super) fn claim_of(&mut self, key: LaneKey) -> Option<usize> {
        let mut found = None;
        self.actions.retain(|action| match action {
            Action::Claim { lane, limit, .. } if *lane == key => {
                assert!(found.replace(*limit).is_none(), "one claim at a time");
                false
            }
            _ => true,
        });
        found
    }

    pub(super) fn nothing(&mut self, lane: LaneKey, next: Option<Timestamp>) {
        self.give(lane, Vec::new(), next);
    }

    pub(super) fn give(
        &mut self,
        lane: LaneKey,
        terms: Vec<DeliveryTerms>,
        next: Option<Timestamp>,
    ) -> Vec<Job> {
        let mut jobs = Vec::new();
        let mut taken = Vec::new();
        for terms in terms {
            self.serial += 1;
            let job = Job { lane, serial: self.serial };
            jobs.push(job);
            taken.push(ClaimedJob { job, terms });
        }
        let requested_at = Monotonic::from_micros(self.mono_us);
        self.apply(Event::Claimed { lane, taken, delivered_in_store: 0, next, requested_at });
        jobs
    }

    /// Terms of a message that is due now.
    pub(super) fn due(&self) -> DeliveryTerms {
        DeliveryTerms {
            due: self.now().wall(),
            attempt: 1,
            lost: LeaseLoss::None,
            lost_at: None,
            max_lateness: None,
            retry: None,
            bytes: 0,
            message: 0,
            destination: 0,
        }
    }

    /// Wakes the lane and gives it `count` due messages.
    pub(super) fn feed(&mut self, lane: LaneKey, count: usize) -> Vec<Job> {
        self.hint(lane, self.now().wall());
        assert!(self.claim_of(lane).is_some_and(|limit| limit >= count), "the lane asks for {count}");
        let terms = vec![self.due(); count];
        self.give(lane, terms, None)
    }

    /// The deliveries begun since last asked.
    pub(super) fn deliveries(&mut self) -> Vec<(DeliveryKey, Vec<Job>)> {
        let mut found = Vec::new();
        self.actions.retain(|action| match action {
            Action::Deliver { delivery, jobs } => {
                found.push((*delivery, jobs.clone()));
                false
            }
            _ => true,
        });
        found
    }

    pub(super) fn delivered(&mut self, delivery: DeliveryKey, results: Vec<AttemptResult>) {
        self.apply(Event::CallResults {
            delivery,
            results: results.into_iter().enumerate().collect(),
            is_over: true,
        });
    }

    /// The settles asked for since last asked, each answered as done.
    pub(super) fn settles(&mut self) -> Vec<(Job, Settlement)> {
        let mut settled = Vec::new();
        loop {
            let batches = self.settle_batches();
            if batches.is_empty() {
                return settled;
            }
            for (settle, batch) in batches {
                self.apply(Event::Settled { settle, lost: Vec::new() });
                settled.extend(batch);
            }
        }
    }

    /// The settles asked for since last asked, unanswered.
    pub(super) fn settle_batches(&mut self) -> Vec<(u64, Vec<(Job, Settlement)>)> {
        let mut found = Vec::new();
        self.actions.retain(|action| match action {
            Action::Settle { settle, batch } => {
                found.push((*settle, batch.to_vec()));
                false
            }
            _ => true,
        });
        found
    }

    pub(super) fn reports(&self) -> Vec<Report> {
        let report = |action: &Action| match action {
            Action::Report(report) => Some(report.clone()),
            _ => None,
        };
        self.actions.iter().filter_map(report).collect()
    }
}
