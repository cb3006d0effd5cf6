//! `duly reschedule`: another due time.

use clap::Args;

use super::{
    Failure, Output, clock, input,
    selection::{self, Selection, Which},
};
use crate::{
    client::{Client, segment},
    wire::{BulkAnswer, Delay, Moment, MovedRequest, Reschedule, Rescheduled},
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
    which: Selection,

    /// Due this long from now: 15m, 1h30m, PT15M
    #[arg(long = "in", value_name = "DELAY", value_parser = input::delay, group = "when")]
    delay: Option<Delay>,

    /// Due at this time: 2030-01-01T09:00:00Z, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = input::moment, group = "when")]
    at: Option<Moment>,
}

impl Move {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let (delay, deliver_at, dry_run) = (self.delay, self.at, self.which.dry_run);
        let mut request = match self.which.which()? {
            Which::Ids(ids) if !dry_run => {
                let request = Reschedule { delay, deliver_at };
                let call = async |id: String| {
                    client.patch::<Rescheduled>(&format!("/v1/messages/{}", segment(&id)), &request).await
                };
                return selection::each(out, ids, call, told).await;
            }
            Which::Ids(ids) => MovedRequest { ids: Some(ids), filter: None, dry_run, delay, deliver_at },
            Which::Matching(filter) => {
                MovedRequest { ids: None, filter: Some(filter), dry_run, delay, deliver_at }
            }
        };
        const PATH: &str = "/v1/messages/reschedule";
        if !dry_run && !self.which.yes {
            request.dry_run = true;
            let count: BulkAnswer = client.post(PATH, &request).await?;
            let question = format!("{} messages would be rescheduled.", clock::grouped(count.matched));
            input::confirm(out, false, &question)?;
            request.dry_run = false;
        }
        let answer: BulkAnswer = client.post(PATH, &request).await?;
        selection::tell(out, "rescheduled", &answer)
    }
}

fn told(done: &Rescheduled) -> String {
    let note = if done.maybe_delivered { " (an earlier try may have arrived)" } else { "" };
    format!("{} due {} ({}){note}", done.id, done.deliver_at, clock::away(done.deliver_at_ms))
}
