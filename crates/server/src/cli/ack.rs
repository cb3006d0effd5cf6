//! `duly ack`, `nack` and `extend`: what becomes of what was received.

use clap::Args;
use serde::Serialize;

use super::{Failure, Output, input};
use crate::{
    client::{Client, segment},
    wire::{Delay, Extend, Nack, ReceiptResults, Receipts},
};

/// So many receipts in one call.
const CHUNK: usize = 1_000;

#[derive(Debug, Args)]
struct Held {
    /// The queue they came from
    topic: String,

    /// Receipts; - reads them from stdin, one a line
    #[arg(value_name = "RECEIPT", required = true)]
    receipts: Vec<String>,
}

/// Acknowledge received messages: they are done
#[derive(Debug, Args)]
#[command(after_help = "Example:
  duly receive order -o json | jq -r '.messages[].receipt' | duly ack order -

Exit code 4: a receipt was lost, its lease had ended.")]
pub(crate) struct Acked {
    #[command(flatten)]
    held: Held,
}

/// Give received messages back: they come again
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly nack order RECEIPT                       again when its retry policy says so
  duly nack order RECEIPT --in 5s               again in 5 s
  duly nack order RECEIPT --error 'no such order' --dead

It counts as a try. Exit code 4: a receipt was lost, its lease had ended.")]
pub(crate) struct Nacked {
    #[command(flatten)]
    held: Held,

    /// Again after exactly this long
    #[arg(long = "in", value_name = "DELAY", value_parser = input::delay, conflicts_with = "dead")]
    delay: Option<Delay>,

    /// What went wrong, kept with the attempt
    #[arg(long, value_name = "TEXT")]
    error: Option<String>,

    /// Never again: dead letters now
    #[arg(long)]
    dead: bool,
}

/// Keep received messages for longer
#[derive(Debug, Args)]
#[command(after_help = "Example:
  duly extend order RECEIPT --lease 5m

Exit code 4: a receipt was lost, its lease had ended.")]
pub(crate) struct Extended {
    #[command(flatten)]
    held: Held,

    /// Yours for this long from now
    #[arg(long, value_name = "DELAY", value_parser = input::delay)]
    lease: Option<Delay>,
}

impl Acked {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        self.held.call(client, out, "ack", |receipts| Receipts { receipts }).await
    }
}

impl Nacked {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let Self { held, delay, error, dead } = self;
        let nack = |receipts| Nack { receipts, delay: delay.clone(), error: error.clone(), dead };
        held.call(client, out, "nack", nack).await
    }
}

impl Extended {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let lease = self.lease;
        self.held.call(client, out, "extend", |receipts| Extend { receipts, lease: lease.clone() }).await
    }
}

impl Held {
    async fn call<B: Serialize>(
        self,
        client: &Client,
        out: &Output,
        verb: &str,
        body: impl Fn(Vec<String>) -> B,
    ) -> Result<(), Failure> {
        let path = format!("/v1/queues/{}/{verb}", segment(&self.topic));
        let mut all = ReceiptResults::default();
        for chunk in input::lines(&self.receipts)?.chunks(CHUNK) {
            let answer: ReceiptResults = client.post(&path, &body(chunk.to_vec())).await?;
            all.results.extend(answer.results);
        }
        out.answer(&all, |all| {
            let mut rows = out.table(&["OUTCOME", "RECEIPT"]);
            for result in &all.results {
                rows.row([&result.outcome, &result.receipt].map(Clone::clone));
            }
            rows.text()
        })?;
        let told = |word: &str| all.results.iter().filter(|result| result.outcome == word).count();
        let of_all = all.results.len();
        match (of_all - told("done"), told("unknown")) {
            (0, _) => Ok(()),
            (lost, 0) => Err(Failure::too_late(format!("{lost} of {of_all} were lost: they come again"))),
            (_, unknown) => Err(Failure::too_late(format!(
                "of {unknown} of {of_all} nothing is known, as a part of the store does not answer: send them again"
            ))),
        }
    }
}
