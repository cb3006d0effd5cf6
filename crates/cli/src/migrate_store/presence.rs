//! Only one move works on a store at a time.
//!
//! A folder has a lock. A store that nodes share knows them by name: a move is there like a node, serves nothing, and looks
//! for another one before it begins. From then on others wait for it: only if it slept, so that they may have taken it for gone, it
//! looks for them again, and at everything afresh.

use std::{
    sync::{
        Arc, Mutex, MutexGuard, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::task::JoinHandle;

use super::end::{End, Halt};
use crate::{Failure, clock};

/// A move without a heartbeat counts as running for this long.
pub(super) const LEASE: Duration = Duration::from_secs(4);
/// The time between two heartbeats.
const OFTEN: Duration = Duration::from_millis(500);
/// A move whose heartbeats failed for this long checks for other moves before it changes anything.
const STALE: Duration = Duration::from_secs(2);
/// A move that was killed is taken for gone within this.
const OTHERS_WITHIN: Duration = Duration::from_secs(8);
/// The prefix of the names of all such nodes.
pub(super) const NAME: &str = "migrate-store-";

/// Sends heartbeats of the move until it is dropped.
pub(super) struct Presence {
    beats: Vec<Beat>,
    /// The prefix of the names of this move's two nodes.
    own: String,
    /// No other was there when it began.
    has_begun: AtomicBool,
}

struct Beat {
    end: Arc<End>,
    last_beat: Arc<Mutex<LastBeat>>,
    task: JoinHandle<()>,
}

/// Whether other moves can see this one.
struct LastBeat {
    /// The last heartbeat that they may have seen: taken before the call, which may be slow.
    last: Instant,
    /// Heartbeats have failed for some time.
    was_silent: bool,
}

impl Presence {
    pub(super) fn start(ends: [&Arc<End>; 2], own: String) -> Self {
        Self { beats: ends.map(Beat::start).into(), own, has_begun: AtomicBool::new(false) }
    }

    /// Whether this move may change anything: nobody can have taken it for gone.
    pub(super) fn check(&self) -> Result<(), Halt> {
        match self.beats.iter().find(|beat| beat.is_silent()) {
            Some(beat) => Err(Halt::Again(format!("{} answered no heartbeat for a while", beat.end.shown))),
            None => Ok(()),
        }
    }

    /// Waits until no other move is running. A killed one counts as running for a while. A move sends heartbeats once it has begun, so
    /// that a later one waits for it.
    pub(super) async fn alone(&self) -> Result<(), Halt> {
        if self.has_begun.load(Ordering::Relaxed) && self.check().is_ok() {
            return Ok(());
        }
        let began = clock::instant();
        for beat in &self.beats {
            *lock(&beat.last_beat) = LastBeat { last: began, was_silent: false };
        }
        loop {
            let Some((name, shown)) = self.other().await? else {
                self.has_begun.store(true, Ordering::Relaxed);
                return Ok(());
            };
            if began.elapsed() > OTHERS_WITHIN {
                return Err(Halt::Failed(Failure::too_late(format!(
                    "another migrate-store ({name}) works on {shown}: let it finish, or stop it"
                ))));
            }
            clock::sleep(OFTEN / 2).await;
        }
    }

    async fn other(&self) -> Result<Option<(String, &str)>, Halt> {
        for each in &self.beats {
            beat(&each.end, &each.last_beat).await?;
            let others = each.end.nodes().await?;
            if others.iter().any(|name| name.starts_with(&self.own)) {
                return Err(Halt::Failed(one_store()));
            }
            if let Some(name) = others.into_iter().find(|name| name.starts_with(NAME)) {
                return Ok(Some((name, &each.end.shown)));
            }
        }
        Ok(None)
    }
}

/// A move of a store into itself would cancel its messages.
pub(super) fn one_store() -> Failure {
    Failure::usage("--from and --to are one and the same store: nothing was moved")
}

impl Beat {
    fn start(end: &Arc<End>) -> Self {
        let last_beat = Arc::new(Mutex::new(LastBeat { last: clock::instant(), was_silent: false }));
        let (its_end, its_last_beat) = (end.clone(), last_beat.clone());
        let task = tokio::spawn(async move {
            loop {
                clock::sleep(OFTEN).await;
                // A store that does not answer is noticed by whoever works with it.
                let _ = beat(&its_end, &its_last_beat).await;
            }
        });
        Self { end: end.clone(), last_beat, task }
    }

    fn is_silent(&self) -> bool {
        let last_beat = lock(&self.last_beat);
        last_beat.was_silent || last_beat.last.elapsed() > STALE
    }
}

fn lock(last_beat: &Mutex<LastBeat>) -> MutexGuard<'_, LastBeat> {
    last_beat.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn beat(end: &End, last_beat: &Mutex<LastBeat>) -> Result<(), Halt> {
    let at = clock::instant();
    end.sweep().await?;
    let mut last_beat = lock(last_beat);
    last_beat.was_silent |= last_beat.last.elapsed() > STALE;
    last_beat.last = last_beat.last.max(at);
    Ok(())
}

impl Drop for Beat {
    fn drop(&mut self) {
        self.task.abort();
    }
}
