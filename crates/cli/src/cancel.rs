//! `duly cancel`: these will not be delivered.

use clap::Args;

use super::{
    Failure, Output,
    bulk::{self, Verb},
    selection::{self, ResolvedSelection, Selection},
};
use duly_client::{
    Client,
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
    selection: Selection,
}

impl Cancel {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        match self.selection.resolve()? {
            ResolvedSelection::Ids(ids) if !self.selection.dry_run => {
                let call = async |id: String| client.cancel(&id).await;
                selection::each(out, ids, call, to_text).await
            }
            resolved => {
                bulk::change(client, out, Verb::Cancel, &self.selection, (resolved, MovedRequest::default()))
                    .await
            }
        }
    }
}

fn to_text(done: &Cancelled) -> String {
    let before = if done.already { " before" } else { "" };
    let note = if done.maybe_delivered { " (an earlier attempt may have arrived)" } else { "" };
    format!("{} {}{before}{note}", done.id, done.state)
}
