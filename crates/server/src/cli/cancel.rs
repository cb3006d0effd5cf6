//! `duly cancel`: these will not be delivered.

use clap::Args;

use super::{
    Failure, Output,
    bulk::{self, Verb},
    selection::{self, Selection, Which},
};
use crate::{
    client::{Client, segment},
    wire::{Cancelled, MovedRequest},
};

/// Cancel messages that are not delivered yet
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly cancel order-42
  duly ls --topic order --all -o json | duly cancel -
  duly cancel --topic order --dry-run

Exit code 3: unknown id. 4: too late, it is being delivered or has ended.")]
pub(crate) struct Cancel {
    #[command(flatten)]
    which: Selection,
}

impl Cancel {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        match self.which.which()? {
            Which::Ids(ids) if !self.which.dry_run => {
                let call = async |id: String| {
                    client.delete::<Cancelled>(&format!("/v1/messages/{}", segment(&id))).await
                };
                selection::each(out, ids, call, told).await
            }
            which => {
                let verb = Verb { path: "/v1/messages/cancel", done: "cancelled" };
                bulk::change(client, out, verb, &self.which, (which, MovedRequest::default())).await
            }
        }
    }
}

fn told(done: &Cancelled) -> String {
    let before = if done.already { " before" } else { "" };
    let note = if done.maybe_delivered { " (an earlier try may have arrived)" } else { "" };
    format!("{} {}{before}{note}", done.id, done.state)
}
