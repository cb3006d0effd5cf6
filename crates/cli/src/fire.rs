//! `duly fire`: deliver now.

use clap::Args;

use super::{
    Failure, Output,
    bulk::{self, Verb},
    selection::{self, ResolvedSelection, Selection},
};
use duly_client::{Client, wire::MovedRequest};

/// Deliver messages now instead of later
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly fire order-42
  duly fire --topic order --yes

Exit code 3: unknown id. 4: too late, it is being delivered or has ended.")]
pub(crate) struct Fire {
    #[command(flatten)]
    selection: Selection,
}

impl Fire {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        match self.selection.resolve()? {
            ResolvedSelection::Ids(ids) if !self.selection.dry_run => {
                let call = async |id: String| client.fire(&id).await;
                selection::each(out, ids, call, |done| format!("{} due now", done.id)).await
            }
            resolved => {
                bulk::change(client, out, Verb::Fire, &self.selection, (resolved, MovedRequest::default()))
                    .await
            }
        }
    }
}
