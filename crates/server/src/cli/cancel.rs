//! `duly cancel`: these will not be delivered.

use clap::Args;

use super::{
    Failure, Output, clock, input,
    selection::{self, Selection, Which},
};
use crate::{
    client::{Client, segment},
    wire::{BulkAnswer, BulkRequest, Cancelled},
};

/// Cancel messages that are not delivered yet
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly cancel order-42
  duly ls --topic order -o json | jq -r '.messages[].id' | duly cancel -
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
            which => bulk(client, out, "/v1/messages/cancel", which, &self.which, "cancelled").await,
        }
    }
}

fn told(done: &Cancelled) -> String {
    let note = if done.maybe_delivered { " (an earlier try may have arrived)" } else { "" };
    format!("{} {}{note}", done.id, done.state)
}

/// A change of many that cannot be taken back: asks first, telling how many.
pub(crate) async fn bulk(
    client: &Client,
    out: &Output,
    path: &str,
    which: Which,
    how: &Selection,
    verb: &str,
) -> Result<(), Failure> {
    let mut request = match which {
        Which::Ids(ids) => BulkRequest { ids: Some(ids), filter: None, dry_run: how.dry_run },
        Which::Matching(filter) => BulkRequest { ids: None, filter: Some(filter), dry_run: how.dry_run },
    };
    if request.filter.is_some() && !how.dry_run && !how.yes {
        request.dry_run = true;
        let count: BulkAnswer = client.post(path, &request).await?;
        let question = format!("{} messages would be {verb}.", clock::grouped(count.matched));
        input::confirm(out, false, &question)?;
        request.dry_run = false;
    }
    let answer: BulkAnswer = client.post(path, &request).await?;
    selection::tell(out, verb, &answer)
}
