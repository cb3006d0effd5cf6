//! The move as a whole: round after round, until nothing waits and nothing is under way at the source.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use duly::{MessageId, Timestamp};

use super::{
    dead::Unfinished,
    end::{End, Halt},
    finish::ParkedCheck,
    instants::Instants,
    parked::Marker,
    presence::Presence,
    report::{Remaining, Report},
};
use crate::{Failure, Output, clock, progress::Progress};

/// Bodies read by the first call, while their size is unknown.
const BODIES_FIRST: usize = 16;
/// The shortest and the longest wait between two passes that found nothing to move.
pub(super) const WAIT: Duration = Duration::from_millis(100);
pub(super) const WAIT_MAX: Duration = Duration::from_secs(2);

/// Sweeps of the source before a pass, at most; each imports some hundred rows.
const SWEEPS_MAX: usize = 1_000;

/// Options of a migration.
#[derive(Debug, Clone)]
pub(super) struct Options {
    pub(super) once: bool,
    pub(super) tidy: bool,
    pub(super) replay_dead: bool,
    pub(super) deliver_forgotten: bool,
    pub(super) batch: usize,
    pub(super) patience: Duration,
    /// How late an unanswered call can still take effect.
    pub(super) late: Duration,
    /// Whether a single pass waits for that first, if a run before was cut short: else it could never go on with what that left.
    pub(super) awaits_late_calls: bool,
    /// How often parked copies are looked at during a pass.
    pub(super) look_every: Duration,
}

/// A migration under way.
pub(super) struct Migration<'a> {
    pub(super) source: Arc<End>,
    pub(super) target: Arc<End>,
    pub(super) presence: Presence,
    pub(super) out: &'a Output,
    pub(super) progress: &'a Progress,
    pub(super) report: Report,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) options: Options,
    pub(super) marker: Marker,
    pub(super) in_doubt: InDoubt,
    /// When the parked copies were last looked at.
    pub(super) looked: Instant,
    /// How many bodies are read at once.
    pub(super) bodies: usize,
    is_prepared: bool,
    is_wait_reported: bool,
}

/// Calls of this run and of earlier ones whose outcome is not known, and the markers that record them.
pub(super) struct InDoubt {
    /// When the source was asked to cancel what is in doubt.
    pub(super) instants: Instants,
    /// Markers of batches of which nothing is in doubt, to be removed.
    pub(super) retired: Vec<MessageId>,
    /// Until then a call without an answer may still take effect.
    pub(super) late_until: Timestamp,
    /// Dead letters that may be at both the source and the target.
    pub(super) unfinished: Unfinished,
}

/// The result of a round.
enum Round {
    Last,
    More,
}

impl<'a> Migration<'a> {
    /// `own` is what the names of this move's nodes begin with.
    pub(super) fn new(
        (source, target, own): (Arc<End>, Arc<End>, String),
        options: Options,
        (out, progress): (&'a Output, &'a Progress),
    ) -> Result<Self, Failure> {
        let marker = Marker::new(&own)?;
        let presence = Presence::start([&source, &target], own);
        let report = Report::new(&source.shown, &target.shown);
        Ok(Self {
            source,
            target,
            presence,
            out,
            progress,
            report,
            stop: Arc::default(),
            options,
            marker,
            is_prepared: false,
            in_doubt: InDoubt {
                instants: Instants::unknown(),
                retired: Vec::new(),
                late_until: Timestamp::default(),
                unfinished: Unfinished::default(),
            },
            looked: clock::instant(),
            bodies: BODIES_FIRST,
            is_wait_reported: false,
        })
    }

    /// Moves everything. What could not be reached is tried again, for as long as the patience lasts.
    pub(super) async fn run(&mut self) -> Result<(), Failure> {
        let (mut wait, mut failing) = (WAIT, None);
        loop {
            let before = self.report.done();
            let round = self.round().await;
            if self.report.done() > before {
                (wait, failing) = (WAIT, None);
            }
            match round {
                Ok(Round::Last) => return Ok(()),
                Ok(Round::More) => failing = None,
                Err(Halt::Failed(failure)) => return Err(failure),
                Err(Halt::Stopped) => return Err(Failure::failed("stopped before everything was moved")),
                Err(Halt::Again(words)) => {
                    self.expect_late_calls();
                    let since = *failing.get_or_insert_with(clock::instant);
                    if since.elapsed() >= self.options.patience {
                        return Err(Failure::unreachable(words));
                    }
                    self.progress.note(self.out, &format!("{words}; trying again"));
                }
            }
            clock::sleep(wait).await;
            wait = (wait * 2).min(WAIT_MAX);
        }
    }

    /// Finishes what is half done, then goes over the source once.
    async fn round(&mut self) -> Result<Round, Halt> {
        if self.stop.load(Ordering::Relaxed) {
            return Err(Halt::Stopped);
        }
        self.presence.alone().await?;
        if !self.is_prepared {
            self.prepare().await?;
            self.is_prepared = true;
        }
        // Rows that others put into the tables of the source are counted once they are taken in.
        for _ in 0..SWEEPS_MAX {
            if !self.source.sweep().await? {
                break;
            }
        }
        let mut held = self.finish_dead().await?;
        let mut in_doubt = self.finish_parked(ParkedCheck::Between).await?;
        if self.options.once && self.options.awaits_late_calls && in_doubt + held > 0 && self.may_come_late()
        {
            self.await_late_calls().await?;
            held = self.finish_dead().await?;
            in_doubt = self.finish_parked(ParkedCheck::Between).await?;
        }
        if !self.options.tidy {
            if in_doubt == 0 {
                self.mark_begin().await?;
            }
            self.pass().await?;
            self.pass_dead().await?;
            self.remove_retired().await?;
        } else if in_doubt + held > 0 {
            self.await_late_calls().await?;
        }
        let held = self.finish_dead().await?;
        let has_more = self.source.sweep().await?;
        let totals = self.source.totals().await?;
        self.report.left = Remaining::of(&totals);
        self.progress.of(self.report.done() + totals.pending + totals.in_flight + totals.dead);
        let kept = self.report.kept.conflicts + self.report.kept.reserved;
        let is_empty = totals.pending == kept && totals.dead == self.report.kept.dead_kept;
        let is_over = is_empty && totals.in_flight == 0 && held == 0 && !has_more;
        if !is_over && !self.options.once && !self.options.tidy {
            self.report_wait(totals.pending.saturating_sub(kept), totals.in_flight);
            return Ok(Round::More);
        }
        let stay = self.finish_parked(ParkedCheck::Last).await?;
        if stay > 0 && is_over && !self.options.once && !self.options.tidy {
            return Ok(Round::More);
        }
        self.report.complete = is_over && stay == 0;
        self.end(stay + self.report.kept.forgotten + held).await?;
        Ok(Round::Last)
    }

    /// Records that an unanswered call may take effect for a while from now on.
    pub(super) fn expect_late_calls(&mut self) {
        self.in_doubt.late_until = self.source.now().wall().saturating_add(self.options.late);
    }

    pub(super) fn may_come_late(&self) -> bool {
        self.source.now().wall() < self.in_doubt.late_until
    }

    fn report_wait(&mut self, pending: u64, in_flight: u64) {
        if pending == 0 && in_flight > 0 && !std::mem::replace(&mut self.is_wait_reported, true) {
            let words = format!(
                "{in_flight} are under way at the source: waiting until they are delivered or their leases end"
            );
            self.progress.note(self.out, &words);
        }
    }
}
