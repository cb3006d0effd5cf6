//! `duly reschedule`: another due time.

use clap::Args;

use super::{
    Failure, Output,
    bulk::{self, Verb},
    clock, input,
    selection::{self, ResolvedSelection, Selection},
};
use duly_client::{
    Client,
    wire::{Delay, Moment, MovedRequest, Reschedule, Rescheduled},
};

/// Give messages another due time
#[derive(Debug, Args)]
#[command(
    group = clap::ArgGroup::new("when").required(true),
    after_help = "Examples:
  duly reschedule order-42 --in 1h
  duly reschedule --topic order --at 2030-01-01T09:00:00Z --dry-run

Exit code 3: unknown id. 4: too late, it is being delivered or has ended."
)]
pub(crate) struct Move {
    #[command(flatten)]
    selection: Selection,

    /// Due this long from now: 15m, 1h30m, PT15M
    #[arg(long = "in", value_name = "DELAY", value_parser = input::delay, group = "when")]
    delay: Option<Delay>,

    /// Due at this time: 2030-01-01T09:00:00Z, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = input::moment, group = "when")]
    at: Option<Moment>,
}

impl Move {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let (delay, deliver_at, dry_run) = (self.delay, self.at, self.selection.dry_run);
        match self.selection.resolve()? {
            ResolvedSelection::Ids(ids) if !dry_run => {
                let request = Reschedule { delay, deliver_at };
                let call = async |id: String| client.reschedule(&id, &request).await;
                selection::each(out, ids, call, to_text).await
            }
            resolved => {
                let wish = MovedRequest { delay, deliver_at, ..MovedRequest::default() };
                bulk::change(client, out, Verb::Reschedule, &self.selection, (resolved, wish)).await
            }
        }
    }
}

fn to_text(done: &Rescheduled) -> String {
    let note = if done.maybe_delivered { " (an earlier attempt may have arrived)" } else { "" };
    format!("{} due {} ({}){note}", done.id, done.deliver_at, clock::relative(done.deliver_at_ms))
}
