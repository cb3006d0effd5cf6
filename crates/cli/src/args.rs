//! The verbs, as typed.

use clap::{Parser, Subcommand};

use super::{
    Failure, ack, backup, bench, cancel, completions, config, connect::Global, dead, demo, doctor, fire,
    forecast, get, health, import, levels, ls, man, migrate_store, nodes, pause, queues, receive, reschedule,
    resume, send, serve, sinks, stats, tail, token,
};

/// Delayed messages that are never early and never lost
#[derive(Debug, Parser)]
#[command(
    name = "duly",
    version,
    arg_required_else_help = true,
    after_help = "First steps:
  duly demo                          see it work, in less than half a minute
  duly serve                         start it
  duly send order 'hello' --in 5s    a message for later
  duly receive order --wait 10s --ack

Exit codes: 0 done, 1 failed, 2 usage, 3 not found, 4 too late or conflict, 5 no server answers."
)]
pub(crate) struct Line {
    #[command(flatten)]
    pub(crate) global: Global,

    #[command(subcommand)]
    pub(crate) verb: Verb,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Verb {
    Serve(serve::Serve),
    Demo(demo::Demo),
    Send(send::Send),
    Get(get::Get),
    Ls(ls::Ls),
    Cancel(cancel::Cancel),
    Reschedule(reschedule::Move),
    Fire(fire::Fire),
    Receive(receive::Take),
    Ack(ack::Acked),
    Nack(ack::Nacked),
    Extend(ack::Extended),
    Dead(dead::Dead),
    Queues(queues::Queues),
    Sinks(sinks::Sinks),
    Pause(pause::Pause),
    Resume(resume::Resume),
    Nodes(nodes::Nodes),
    Levels(levels::Levels),
    Stats(stats::Totals),
    Health(health::Probe),
    Forecast(forecast::Ahead),
    Tail(tail::Tail),
    Import(import::Import),
    MigrateStore(migrate_store::Arguments),
    Backup(backup::Arguments),
    Bench(bench::Bench),
    Config(config::Arguments),
    Token(token::Arguments),
    Doctor(doctor::Arguments),
    Completions(completions::Completions),
    Man(man::Man),
}

impl Verb {
    /// Whether it has work for more than one core.
    pub(crate) fn is_busy(&self) -> bool {
        matches!(self, Self::Serve(_) | Self::Demo(_) | Self::Bench(_) | Self::MigrateStore(_))
    }
}

impl Line {
    pub(crate) async fn run(self) -> Result<(), Failure> {
        let out = &self.global.output();
        let client = || self.global.client();
        match self.verb {
            Verb::Serve(verb) => verb.run(out).await,
            Verb::Demo(verb) => verb.run(out).await,
            Verb::Send(verb) => verb.run(&client()?, out).await,
            Verb::Get(verb) => verb.run(&client()?, out).await,
            Verb::Ls(verb) => verb.run(&client()?, out).await,
            Verb::Cancel(verb) => verb.run(&client()?, out).await,
            Verb::Reschedule(verb) => verb.run(&client()?, out).await,
            Verb::Fire(verb) => verb.run(&client()?, out).await,
            Verb::Receive(verb) => verb.run(&client()?, out).await,
            Verb::Ack(verb) => verb.run(&client()?, out).await,
            Verb::Nack(verb) => verb.run(&client()?, out).await,
            Verb::Extend(verb) => verb.run(&client()?, out).await,
            Verb::Dead(verb) => verb.run(&client()?, out).await,
            Verb::Queues(verb) => verb.run(&client()?, out).await,
            Verb::Sinks(verb) => verb.run(&client()?, out).await,
            Verb::Pause(verb) => verb.run(&client()?, out).await,
            Verb::Resume(verb) => verb.run(&client()?, out).await,
            Verb::Nodes(verb) => verb.run(&client()?, out).await,
            Verb::Levels(verb) => verb.run(&client()?, out).await,
            Verb::Stats(verb) => verb.run(&client()?, out).await,
            Verb::Health(verb) => verb.run(client()?, out).await,
            Verb::Forecast(verb) => verb.run(&client()?, out).await,
            Verb::Tail(verb) => verb.run(&client()?, out).await,
            Verb::Import(verb) => verb.run(&client()?, out).await,
            Verb::MigrateStore(verb) => verb.run(out).await,
            Verb::Backup(verb) => verb.run(out).await,
            Verb::Bench(verb) => verb.run(self.global.client()?, out).await,
            Verb::Config(verb) => verb.run(out),
            Verb::Token(verb) => verb.run(out),
            Verb::Doctor(verb) => verb.run(out).await,
            Verb::Completions(verb) => verb.run(out),
            Verb::Man(verb) => verb.run(out),
        }
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_arguments_do_not_contradict_each_other() {
        Line::command().debug_assert();
    }
}
