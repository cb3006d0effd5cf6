//! `duly migrate-store`: everything that waits, from one store to another, while both are at work.

mod batch;
mod dead;
mod decide;
mod dry;
mod end;
mod finish;
mod instants;
mod location;
mod migration;
mod parked;
mod pass;
mod prepare;
mod presence;
mod report;
#[cfg(test)]
mod tests;

use std::{sync::Arc, sync::atomic::Ordering, time::Duration};

use clap::Args;

use self::{
    end::End,
    location::{Location, Role},
    migration::{Migration, Options},
};
use super::{Failure, Output, clock, input, progress::Progress, signals::Signals};
use duly_server::config::{Flags, Sources};

/// An unanswered call takes effect within this time, or not at all: servers end transactions whose clients are gone.
const LATE_CALLS: Duration = Duration::from_secs(60);

/// Move all messages from one store to another, with their ids, while both are at work
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly migrate-store --from ./duly-data --to redis://127.0.0.1 --dry-run
  duly migrate-store --from ./duly-data --to redis://127.0.0.1
  duly migrate-store --from old.toml --to new.toml
  DULY_TO__STORE__REDIS_FILE=/run/secrets/redis duly migrate-store --from old.toml --to new.toml

Point producers at the target first. A data folder has one process at a time: stop the server that has it. Other stores are moved
while the nodes of both go on; each message is delivered by one of the two. A run that was cut short is run again, and goes on.
Attempts, history and dead letters come along; --replay-dead makes dead letters pending at the target. Delivered and cancelled messages are
not moved, so the target does not know their ids again. The environment of the two is DULY_FROM__… and DULY_TO__…, as DULY__… is a server's.

Exit code 3: there is no store at the source. 4: some ids mean other messages at the target, and stay; or what an earlier run left
cannot be told. 5: a store does not answer.")]
pub(crate) struct Arguments {
    /// Where the messages are: a configuration file, a data folder, or redis://…
    #[arg(long, value_name = "PLACE", env = "DULY_MIGRATE_FROM", hide_env_values = true)]
    from: String,

    /// Where they go: the same; a store that is not there is made
    #[arg(long, value_name = "PLACE", env = "DULY_MIGRATE_TO", hide_env_values = true)]
    to: String,

    /// Look at the source, tell, and change nothing
    #[arg(long, conflicts_with_all = ["once", "tidy", "replay_dead", "deliver_forgotten"])]
    dry_run: bool,

    /// Go over the source once, instead of until nothing waits or is under way there
    #[arg(long)]
    once: bool,

    /// Only clear up what a run that was cut short left between the two; move nothing more
    #[arg(long, conflicts_with_all = ["once", "replay_dead"])]
    tidy: bool,

    /// Make dead letters pending again once they are moved
    #[arg(long)]
    replay_dead: bool,

    /// Deliver what a run that was cut short left at the target and the source has forgotten, some perhaps twice
    #[arg(long)]
    deliver_forgotten: bool,

    /// Messages per call
    #[arg(long, default_value_t = 500, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    /// How long to wait for a store that is unreachable
    #[arg(long, default_value = "30s", value_name = "DELAY", value_parser = input::span)]
    patience: Duration,
}

impl Arguments {
    pub(crate) async fn run(self, out: &Output) -> Result<(), Failure> {
        let environment = Sources::from_process(Flags::default()).environment;
        if location::has_usual_settings(&environment) {
            out.note("DULY__… in the environment is not looked at here: DULY_FROM__… and DULY_TO__… are");
        }
        let mut from = Location::read(Role::From, &self.from, environment.clone())?;
        let mut to = Location::read(Role::To, &self.to, environment)?;
        if from.is_one_with(&to) {
            return Err(presence::one_store());
        }
        let patience = Patience::new(self.patience, out);
        patience.with(async || from.check_is_there().await).await?;
        let own = location::own_name()?;
        if self.dry_run {
            let source = patience.with(async || from.open(&own).await).await?;
            let result = dry::print(&source, to.shown(), out).await;
            close(&source).await?;
            return result;
        }
        let source = Arc::new(patience.with(async || from.open(&own).await).await?);
        let target = match patience.with(async || to.open(&own).await).await {
            Ok(target) => Arc::new(target),
            Err(failure) => {
                // The reason is that of the target, however the source is closed.
                let _ = close(&source).await;
                return Err(failure);
            }
        };
        out.note(&format!(
            "moving from {} to {} ({})",
            source.shown,
            target.shown,
            target.store.durability()
        ));
        let progress = Progress::of_messages(out, 0);
        let ends = (source.clone(), target.clone(), own);
        let mut migration = Migration::new(ends, self.options(), (out, &progress))?;
        let done = with_signals(&mut migration, out).await;
        progress.end();
        let report = migration.report;
        drop(migration.presence);
        let closed = (close(&source).await, close(&target).await);
        if let Err(failure) = done {
            report.stopped(out);
            return Err(failure);
        }
        report.print(out)?;
        closed.0.and(closed.1)
    }

    fn options(&self) -> Options {
        Options {
            once: self.once,
            tidy: self.tidy,
            replay_dead: self.replay_dead,
            deliver_forgotten: self.deliver_forgotten,
            batch: self.batch as usize,
            patience: self.patience,
            late: LATE_CALLS,
            awaits_late_calls: true,
            look_every: pass::LOOK_EVERY,
        }
    }
}

/// Waits for a store that is unreachable before the move begins, as the move itself does later.
struct Patience<'o> {
    span: Duration,
    out: &'o Output,
}

impl<'o> Patience<'o> {
    fn new(span: Duration, out: &'o Output) -> Self {
        Self { span, out }
    }

    async fn with<T>(&self, mut call: impl AsyncFnMut() -> Result<T, Failure>) -> Result<T, Failure> {
        let (began, mut wait) = (clock::instant(), migration::WAIT);
        loop {
            match call().await {
                Err(failure) if failure.passes() && began.elapsed() < self.span => {
                    self.out.note(&format!("{}; trying again", failure.words));
                }
                done => return done,
            }
            clock::sleep(wait).await;
            wait = (wait * 2).min(migration::WAIT_MAX);
        }
    }
}

/// The first wish to stop ends the move after the batch under way, the second at once, as a crash would.
async fn with_signals(migration: &mut Migration<'_>, out: &Output) -> Result<(), Failure> {
    let mut signals = Signals::new()?;
    let (stop, progress) = (migration.stop.clone(), migration.progress);
    let result = async {
        signals.next().await;
        stop.store(true, Ordering::Relaxed);
        progress.note(out, "stopping after this batch; once more stops it at once");
        signals.next().await;
    };
    tokio::select! {
        done = migration.run() => done,
        () = result => Err(Failure::failed("stopped at once")),
    }
}

async fn close(end: &End) -> Result<(), Failure> {
    let closed = end.store.close().await;
    closed.map_err(|error| Failure::failed(format!("{} was not closed cleanly: {error}", end.shown)))
}
