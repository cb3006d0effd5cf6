//! The move as a whole: round after round, until nothing waits and nothing is under way at the source.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use duly::Timestamp;

use super::{
    end::{End, Halt},
    parked::Marker,
    presence::Presence,
    report::{Left, Report},
};
use crate::cli::{Failure, Output, clock, progress::Progress};

/// So many bodies are read at first, while it is not known how large they are.
const BODIES_FIRST: usize = 16;
/// The shortest and the longest wait between two looks that found nothing to move.
const WAIT: Duration = Duration::from_millis(100);
const WAIT_MAX: Duration = Duration::from_secs(2);

/// How a move is to be done.
#[derive(Debug, Clone)]
pub(super) struct Wishes {
    pub(super) once: bool,
    pub(super) tidy: bool,
    pub(super) replay_dead: bool,
    pub(super) deliver_forgotten: bool,
    pub(super) batch: usize,
    pub(super) patience: Duration,
}

/// A move under way.
pub(super) struct Move<'a> {
    pub(super) source: Arc<End>,
    pub(super) target: Arc<End>,
    pub(super) presence: Presence,
    pub(super) out: &'a Output,
    pub(super) progress: &'a Progress,
    pub(super) report: Report,
    pub(super) stop: Arc<AtomicBool>,
    pub(super) wishes: Wishes,
    pub(super) marker: Marker,
    /// When the source was last asked to cancel, by this run or the one before it.
    pub(super) asked: Option<Timestamp>,
    /// How many bodies are read at once.
    pub(super) bodies: usize,
    is_prepared: bool,
    has_said_why_it_waits: bool,
}

/// What a round came to.
enum Round {
    Last,
    More,
}

impl<'a> Move<'a> {
    /// `own` is what the names of this move's nodes begin with.
    pub(super) fn new(
        (source, target, own): (Arc<End>, Arc<End>, String),
        wishes: Wishes,
        (out, progress): (&'a Output, &'a Progress),
    ) -> Result<Self, Failure> {
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
            wishes,
            marker: Marker::new()?,
            is_prepared: false,
            asked: None,
            bodies: BODIES_FIRST,
            has_said_why_it_waits: false,
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
                    let since = *failing.get_or_insert_with(clock::instant);
                    if since.elapsed() >= self.wishes.patience {
                        return Err(Failure::unreachable(words));
                    }
                    self.progress.say(self.out, &format!("{words}; trying again"));
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
        self.finish_parked().await?;
        if !self.wishes.tidy {
            self.mark_begin().await?;
            self.pass().await?;
        }
        let books = self.source.books().await?;
        self.report.left = Left::of(&books);
        self.progress.of(self.report.done() + books.pending + books.in_flight);
        let is_over = books.pending == self.report.conflicts && books.in_flight == 0;
        if !is_over && !self.wishes.once && !self.wishes.tidy {
            self.say_why_it_waits(books.pending - self.report.conflicts.min(books.pending), books.in_flight);
            return Ok(Round::More);
        }
        // Those of which the source knew nothing when it was asked to cancel them.
        self.finish_parked().await?;
        self.report.complete = is_over;
        self.end().await?;
        Ok(Round::Last)
    }

    fn say_why_it_waits(&mut self, pending: u64, in_flight: u64) {
        if pending == 0 && in_flight > 0 && !std::mem::replace(&mut self.has_said_why_it_waits, true) {
            let words = format!(
                "{in_flight} are under way at the source: waiting until they are delivered or their leases end"
            );
            self.progress.say(self.out, &words);
        }
    }
}
