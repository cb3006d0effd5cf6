//! `duly dead`: messages that were given up.

use clap::{Args, Subcommand};

use super::{
    Failure, Output,
    bulk::{self, Verb},
    ls, output,
    selection::Selection,
};
use duly_client::{
    Client,
    wire::{Message, MovedRequest},
};

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
        selection: Selection,
    },
    /// Throw them away for good
    Purge {
        #[command(flatten)]
        selection: Selection,
    },
}

impl Dead {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        match self.verb {
            DeadVerb::Ls { pages } => {
                let page = pages.read(None, async |query| client.dead(query).await).await?;
                out.answer(&page, |page| table(out, &page.messages))?;
                ls::more(out, &page);
                Ok(())
            }
            // It can be stopped again (cancel): no question is asked.
            DeadVerb::Replay { mut selection } => {
                selection.yes = true;
                change(client, out, Verb::Replay, selection).await
            }
            DeadVerb::Purge { selection } => change(client, out, Verb::Purge, selection).await,
        }
    }
}

async fn change(client: &Client, out: &Output, verb: Verb, selection: Selection) -> Result<(), Failure> {
    bulk::change(client, out, verb, &selection, (selection.resolve()?, MovedRequest::default())).await
}

fn table(out: &Output, messages: &[Message]) -> String {
    let mut rows = out.table(&["ID", "SINK", "TOPIC", "REASON", "DIED", ">ATTEMPTS", "LAST ERROR"]);
    for message in messages {
        let last = message.attempts.last().map_or("", |attempt| attempt.detail.as_str());
        rows.row([
            message.id.as_str(),
            &message.sink,
            &message.topic,
            message.end.reason.as_deref().unwrap_or(""),
            message.end.ended_at.as_deref().unwrap_or(""),
            &message.attempts_counted.to_string(),
            &output::short(last),
        ]);
    }
    rows.text()
}
