//! The scheduler: passes events to lanes and timers to their owners.

use std::{collections::BTreeMap, time::Duration};

use super::{
    Action, Event, LaneKey, LaneSnapshot, Random, Report, Settings,
    lane::{CrossLaneState, Lane, Step, Timer},
    settle_queue::{SettleQueue, store_wait},
    suspect::Suspect,
    sweep::{SweepFindings, Sweeper},
    wheel::Wheel,
};
use crate::{Monotonic, Now, Timestamp};

/// Wall time that moves more than this against monotonic time between two steps has jumped.
const JUMP_MIN_US: u64 = 250_000;
/// A smaller move is slewing: wake-ups are adjusted without a report.
const SLEW_MIN_US: u64 = 500;

/// Decides when to claim, deliver, retry or give up.
#[derive(Debug)]
pub struct Scheduler {
    pub(super) lanes: BTreeMap<LaneKey, Lane>,
    shared: Option<Box<CrossLaneState>>,
    sweeper: Sweeper,
    /// Lanes that changed in this step.
    touched: Vec<LaneKey>,
    fired: Vec<Timer>,
    /// Wall minus monotonic time at the last step, and when wake-ups were last adjusted to it.
    offset: Option<i64>,
    offset_followed: i64,
}

impl Scheduler {
    /// A scheduler with no lanes.
    pub fn new(settings: Settings) -> Self {
        let shared = CrossLaneState {
            wheel: Wheel::new(),
            random: Random::new(settings.seed),
            settle_queue: SettleQueue::default(),
            suspect: Suspect::default(),
            serial: 0,
            unblocked: Vec::new(),
        };
        Self {
            lanes: BTreeMap::new(),
            shared: Some(Box::new(shared)),
            sweeper: Sweeper::new(settings.sweep),
            touched: Vec::new(),
            fired: Vec::new(),
            offset: None,
            offset_followed: 0,
        }
    }

    /// When the scheduler wants the next [`Event::Tick`], if nothing else happens before.
    pub fn next_wake(&self) -> Option<Monotonic> {
        let timer = self.shared.as_ref().and_then(|shared| shared.wheel.next());
        [timer, self.sweeper.next()].into_iter().flatten().min()
    }

    /// Whether a lane is being served, or still stopping.
    pub fn has_lane(&self, lane: LaneKey) -> bool {
        self.lanes.contains_key(&lane)
    }

    /// The state of a lane.
    pub fn snapshot(&self, lane: LaneKey) -> Option<LaneSnapshot> {
        Some(self.lanes.get(&lane)?.snapshot())
    }

    /// Applies `event` like [`step`](Self::step), but leaves timers and settles to the next step, so that the settles
    /// of many events form one batch.
    pub fn apply(&mut self, now: Now, event: Event, actions: &mut Vec<Action>) {
        let Some(mut shared) = self.shared.take() else { return };
        let mut step = Step { now, shared: &mut shared, actions };
        self.watch_clock(&mut step);
        self.handle_event(event, &mut step);
        self.advance_touched(&mut step);
        self.shared = Some(shared);
    }

    /// Applies `event` at `now` and pushes the resulting actions.
    pub fn step(&mut self, now: Now, event: Event, actions: &mut Vec<Action>) {
        // Moved out, so that lanes and shared state can be borrowed at the same time.
        let Some(mut shared) = self.shared.take() else { return };
        let mut step = Step { now, shared: &mut shared, actions };
        self.watch_clock(&mut step);
        self.handle_event(event, &mut step);
        self.fire(&mut step);
        self.advance_touched(&mut step);
        if self.sweeper.begin(now.mono()) {
            let lanes = self.lanes.iter().filter(|(_, lane)| !lane.gate.is_stopping()).map(|(key, _)| *key);
            step.actions.push(Action::Sweep { lanes: lanes.collect() });
        }
        self.flush(&mut step);
        self.shared = Some(shared);
    }

    pub(super) fn touch(&mut self, lane: LaneKey) {
        if self.touched.last() != Some(&lane) {
            self.touched.push(lane);
        }
    }

    /// Follows wall time in both directions: wake-ups are set anew, and a jump is reported.
    fn watch_clock(&mut self, step: &mut Step<'_>) {
        let offset = step.now.wall_micros().wrapping_sub(step.mono().as_micros()) as i64;
        let by_us = offset.wrapping_sub(*self.offset.get_or_insert(offset));
        self.offset = Some(offset);
        if by_us.unsigned_abs() > JUMP_MIN_US {
            step.actions.push(Action::Report(Report::ClockJumped { by_us }));
            self.sweeper.sweep_now(step.mono());
        }
        if offset.wrapping_sub(self.offset_followed).unsigned_abs() > SLEW_MIN_US {
            self.offset_followed = offset;
            self.touched.extend(self.lanes.keys());
        }
    }

    fn handle_event(&mut self, event: Event, step: &mut Step<'_>) {
        match event {
            Event::Tick => {}
            Event::LaneAdded { lane: key, settings, paused } => {
                self.lanes.insert(key, Lane::new(key, settings, paused, step.now));
                self.touch(key);
            }
            Event::LaneStopped { lane, grace_end } => self.with(lane, |lane| lane.stop(grace_end, step)),
            Event::Shutdown { grace_end } => {
                for lane in self.lanes.keys().copied().collect::<Vec<_>>() {
                    self.with(lane, |lane| lane.stop(grace_end, step));
                }
            }
            Event::Hint { lane, due } => self.with(lane, |lane| _ = lane.hint(due)),
            Event::Claimed { lane, taken, delivered_in_store, next, requested_at } => {
                self.with(lane, |lane| lane.claimed(taken, delivered_in_store, next, requested_at, step));
            }
            Event::ClaimFailed { lane } => self.with(lane, |lane| {
                let random = &mut step.shared.random;
                let times = lane.claim_failed(step.now.mono(), |times| store_wait(times, random));
                step.actions.push(Action::Report(Report::StoreFailing { times }));
            }),
            Event::CallResults { delivery, results, is_over } => {
                self.with(delivery.lane, |lane| lane.apply_results(delivery.serial, results, is_over, step));
            }
            Event::Settled { settle, lost } => self.settled(settle, &lost, step),
            Event::SettleFailed { settle } => self.settle_failed(settle, step),
            Event::Extended { jobs, lost, requested_at } => {
                if let Some(lane) = jobs.first().map(|job| job.lane) {
                    self.with(lane, |lane| lane.extended(&jobs, &lost, requested_at, step));
                }
            }
            Event::Swept { next, leases_ended, next_lease_end, again_within, paused } => {
                let has_new_work = leases_ended > 0;
                self.follow_pauses(paused, step.now.wall());
                self.swept(
                    next,
                    SweepFindings { has_new_work, has_work_soon: false, again_within, next_lease_end },
                    step,
                );
            }
            Event::SweepFailed => {
                let random = &mut step.shared.random;
                let times = self.sweeper.failed(step.now.mono(), |times| store_wait(times, random));
                step.actions.push(Action::Report(Report::StoreFailing { times }));
            }
            Event::Probed { lane, result } => self.with(lane, |lane| match result {
                Ok(()) => lane.breaker.probe_succeeded(),
                Err(error) => _ = lane.trip(error.retry_after, error.detail, step),
            }),
            Event::ProbeNow { lane } => self.with(lane, |lane| lane.probe(true, step)),
            Event::Paused { lane } => self.with(lane, |lane| lane.set_paused(true, step.now.wall())),
            Event::Resumed { lane } => self.with(lane, |lane| lane.set_paused(false, step.now.wall())),
        }
    }

    /// Changes a lane, if it exists, and advances it afterwards.
    fn with(&mut self, key: LaneKey, act: impl FnOnce(&mut Lane)) {
        if let Some(lane) = self.lanes.get_mut(&key) {
            act(lane);
            self.touch(key);
        }
    }

    /// An operator may have paused or resumed a lane at another node.
    fn follow_pauses(&mut self, paused: Option<Vec<LaneKey>>, now: Timestamp) {
        let Some(paused) = paused else { return };
        let differs =
            |(key, lane): (&LaneKey, &Lane)| (lane.gate.is_paused() != paused.contains(key)).then_some(*key);
        for key in self.lanes.iter().filter_map(differs).collect::<Vec<_>>() {
            self.with(key, |lane| lane.set_paused(!lane.gate.is_paused(), now));
        }
    }

    fn swept(&mut self, next: Vec<(LaneKey, Timestamp)>, mut found: SweepFindings, step: &mut Step<'_>) {
        let now = step.now.wall();
        for (key, due) in next {
            self.with(key, |lane| found.has_new_work |= lane.hint(due) && due <= now);
        }
        let near = now.saturating_add(self.sweeper.idle_max());
        found.has_work_soon = self.lanes.values().any(|lane| lane.is_due_by(near));
        self.sweeper.found(step.mono(), found);
    }

    fn fire(&mut self, step: &mut Step<'_>) {
        let mut fired = std::mem::take(&mut self.fired);
        step.shared.wheel.advance(step.now.mono(), &mut fired);
        for timer in fired.drain(..) {
            match timer {
                Timer::Wake(key, at) => {
                    if self.lanes.get_mut(&key).is_some_and(|lane| lane.timing.disarm(at)) {
                        self.touch(key);
                    }
                }
                Timer::Probe(key) => self.with(key, |lane| lane.probe(false, step)),
                Timer::Unanswered(key) => self.with(key, |lane| lane.unanswered(step)),
                Timer::Renew(key) => self.with(key, |lane| lane.renew(step)),
                Timer::Timeout(key) => self.with(key, |lane| lane.time_out(step)),
                Timer::Parked(key) => self.with(key, |lane| lane.defer_overdue(step)),
                Timer::Grace(key) => self.with(key, |lane| lane.abort_running(step)),
                // The flush at the end of every step handles it.
                Timer::Settle => {}
            }
        }
        self.fired = fired;
    }

    /// Advances every changed lane. Lanes have limits of their own, so that none uses up another's share.
    fn advance_touched(&mut self, step: &mut Step<'_>) {
        for key in std::mem::take(&mut step.shared.unblocked) {
            self.with(key, |lane| lane.gate.unblock());
        }
        let mut touched = std::mem::take(&mut self.touched);
        touched.sort_unstable();
        touched.dedup();
        for key in touched.drain(..) {
            let Some(lane) = self.lanes.get_mut(&key) else { continue };
            lane.advance(step);
            if lane.is_stopped() {
                self.lanes.remove(&key);
                step.actions.push(Action::LaneRemoved { lane: key });
            }
        }
        self.touched = touched;
    }

    /// The longest that an idle scheduler sleeps.
    pub fn idle_max(&self) -> Duration {
        self.sweeper.idle_max()
    }
}
