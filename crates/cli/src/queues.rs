//! `duly queues`: the topics of the built-in queue.

use clap::Args;

use super::{Failure, Output, clock};
use duly_client::Client;

/// Show the topics of the built-in queue
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly queues
  duly queues -o json | jq '.queues[] | select(.ready > 1000)'")]
pub(crate) struct Queues {}

impl Queues {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let mut answer = client.queues(None).await?;
        while let Some(cursor) = answer.cursor.take() {
            let next = client.queues(Some(&cursor)).await?;
            answer.queues.extend(next.queues);
            answer.cursor = next.cursor;
        }
        out.answer(&answer, |answer| {
            let mut rows =
                out.table(&["TOPIC", "STATE", ">PENDING", ">READY", ">LEASED", ">DEAD", ">OLDEST OVERDUE"]);
            for queue in &answer.queues {
                rows.row([
                    queue.topic.clone(),
                    if queue.paused { "paused" } else { "open" }.to_owned(),
                    clock::grouped(queue.pending),
                    clock::grouped(queue.ready),
                    clock::grouped(queue.leased),
                    clock::grouped(queue.dead),
                    queue.oldest_overdue_ms.map_or_else(|| "-".to_owned(), clock::span),
                ]);
            }
            rows.text()
        })
    }
}
