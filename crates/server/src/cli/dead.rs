//! `duly dead`: messages that were given up.

use clap::{Args, Subcommand};

use super::{
    Failure, Output, cancel, ls, output,
    selection::{self, Selection, Which},
};
use crate::{
    client::Client,
    wire::{BulkAnswer, BulkRequest, Message},
};

/// So many ids in one call.
const CHUNK: usize = 1_000;

/// Look at dead letters, send them again, or throw them away
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly dead ls
  duly dead replay order-42
  duly dead replay --topic order
  duly dead purge --all --yes")]
pub(crate) struct Dead {
    #[command(subcommand)]
    verb: DeadVerb,
}

#[derive(Debug, Subcommand)]
enum DeadVerb {
    /// List them
    Ls {
        #[command(flatten)]
        pages: ls::Pages,
    },
    /// Send them again: same id, attempts afresh, due now
    Replay {
        #[command(flatten)]
        which: Selection,
    },
    /// Throw them away for good
    Purge {
        #[command(flatten)]
        which: Selection,
    },
}

impl Dead {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        match self.verb {
            DeadVerb::Ls { pages } => {
                let page = pages.read(client, "/v1/dead", None).await?;
                out.answer(&page, |page| table(out, &page.messages))?;
                ls::more(out, &page);
                Ok(())
            }
            DeadVerb::Replay { mut which } => match which.which()? {
                Which::Ids(ids) => by_ids(client, out, "replay", "replayed", ids, which.dry_run).await,
                // It can be stopped again (cancel): no question is asked.
                matching => {
                    which.yes = true;
                    cancel::bulk(client, out, "/v1/dead/replay", matching, &which, "replayed").await
                }
            },
            DeadVerb::Purge { which } => match which.which()? {
                Which::Ids(ids) => by_ids(client, out, "purge", "purged", ids, which.dry_run).await,
                matching => cancel::bulk(client, out, "/v1/dead/purge", matching, &which, "purged").await,
            },
        }
    }
}

async fn by_ids(
    client: &Client,
    out: &Output,
    call: &str,
    verb: &str,
    ids: Vec<String>,
    dry_run: bool,
) -> Result<(), Failure> {
    let mut total = BulkAnswer { dry_run, ..BulkAnswer::default() };
    for chunk in ids.chunks(CHUNK) {
        let request = BulkRequest { ids: Some(chunk.to_vec()), filter: None, dry_run };
        selection::sum(&mut total, &client.post(&format!("/v1/dead/{call}"), &request).await?);
    }
    selection::tell(out, verb, &total)
}

fn table(out: &Output, messages: &[Message]) -> String {
    let mut rows = out.table(&["ID", "SINK", "TOPIC", "REASON", "DIED", ">ATTEMPTS", "LAST ERROR"]);
    for message in messages {
        let last = message.attempts.last().map_or("", |attempt| attempt.detail.as_str());
        rows.row([
            message.id.as_str(),
            &message.sink,
            &message.topic,
            message.reason.as_deref().unwrap_or(""),
            message.ended_at.as_deref().unwrap_or(""),
            &message.attempts_counted.to_string(),
            &output::short(last),
        ]);
    }
    rows.text()
}
