//! `duly ack`, `nack` and `extend`: settle received messages.

use clap::{Args, builder::NonEmptyStringValueParser};

use super::{Failure, Output, input};
use duly_client::{
    Client, Error,
    wire::{Delay, Extend, Nack, ReceiptResults},
};

/// Receipts per call.
const CHUNK: usize = 1_000;

#[derive(Debug, Args)]
struct ReceiptArgs {
    /// The queue they came from
    #[arg(value_parser = NonEmptyStringValueParser::new())]
    topic: String,

    /// Receipts; - reads them from stdin, one a line
    #[arg(value_name = "RECEIPT", required = true)]
    receipts: Vec<String>,
}

/// Acknowledge received messages: they are done
#[derive(Debug, Args)]
#[command(after_help = "Example:
  duly receive order -o json | jq -r '.messages[].receipt' | duly ack order -

Exit code 4: a receipt was lost: its lease had ended, or the message was settled before.")]
pub(crate) struct Acked {
    #[command(flatten)]
    args: ReceiptArgs,
}

/// Give received messages back: they come again
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly nack order RECEIPT                       again when its retry policy says so
  duly nack order RECEIPT --in 5s               again in 5 s
  duly nack order RECEIPT --error 'no such order' --dead

It counts as an attempt. Exit code 4: a receipt was lost: its lease had ended, or the message was settled before.")]
pub(crate) struct Nacked {
    #[command(flatten)]
    args: ReceiptArgs,

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

Exit code 4: a receipt was lost: its lease had ended, or the message was settled before.")]
pub(crate) struct Extended {
    #[command(flatten)]
    args: ReceiptArgs,

    /// Yours for this long from now
    #[arg(long, value_name = "DELAY", value_parser = input::delay)]
    lease: Option<Delay>,
}

impl Acked {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        self.args.call(out, async |topic, receipts| client.ack(topic, receipts).await).await
    }
}

impl Nacked {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let Self { args, delay, error, dead } = self;
        let nack = |receipts| Nack { receipts, delay: delay.clone(), error: error.clone(), dead };
        args.call(out, async |topic, receipts| client.nack(topic, &nack(receipts)).await).await
    }
}

impl Extended {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let lease = self.lease;
        let extend = |receipts| Extend { receipts, lease: lease.clone() };
        self.args.call(out, async |topic, receipts| client.extend(topic, &extend(receipts)).await).await
    }
}

impl ReceiptArgs {
    async fn call(
        self,
        out: &Output,
        settle: impl AsyncFn(&str, Vec<String>) -> Result<ReceiptResults, Error>,
    ) -> Result<(), Failure> {
        let mut all = ReceiptResults::default();
        for chunk in input::lines(&self.receipts)?.chunks(CHUNK) {
            let answer = settle(&self.topic, chunk.to_vec()).await?;
            all.results.extend(answer.results);
        }
        out.answer(&all, |all| {
            let mut rows = out.table(&["OUTCOME", "RECEIPT"]);
            for result in &all.results {
                rows.row([&result.outcome, &result.receipt].map(Clone::clone));
            }
            rows.text()
        })?;
        let count = |word: &str| all.results.iter().filter(|result| result.outcome == word).count();
        let of_all = all.results.len();
        match (of_all - count("done"), count("unknown")) {
            (0, _) => Ok(()),
            (lost, 0) => Err(Failure::too_late(format!(
                "{lost} of {of_all} were lost: settled before, or the lease had ended and they come again"
            ))),
            (_, unknown) => Err(Failure::too_late(format!(
                "of {unknown} of {of_all} nothing is known, as a part of the store does not answer: send them again"
            ))),
        }
    }
}
