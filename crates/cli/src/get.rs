//! `duly get`: all that is known of a message.

use clap::Args;

use super::{Failure, Output, clock, input, output, selection};
use duly_client::{Client, wire::Message};

/// Show all that is known of a message
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly get order-42
  duly get order-42 -o json | jq -r .state

Exit code 3: no message has this id, or it ended longer ago than Duly keeps it.")]
pub(crate) struct Get {
    /// Ids of messages; - reads them from stdin, one a line
    #[arg(value_name = "ID", required = true)]
    ids: Vec<String>,
}

impl Get {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let ids = input::listed(&self.ids)?;
        let call = async |id: String| client.get(&id).await;
        selection::each(out, ids, call, |message| to_text(out, message)).await
    }
}

fn to_text(out: &Output, message: &Message) -> String {
    let mut rows = out.table(&["ID", &message.id]);
    let mut row = |name: &str, value: &str| {
        rows.row([name, value]);
    };
    row("state", &message.state);
    if let Some(reason) = &message.end.reason {
        row("reason", reason);
    }
    row("to", &format!("{} / {}", message.sink, message.topic));
    for (name, value) in [("tag", &message.tag), ("key", &message.key)] {
        if let Some(value) = value {
            row(name, value);
        }
    }
    if let Some(at) = &message.times.accepted_at {
        row("accepted", at);
    }
    row("due", &format!("{} ({})", message.times.deliver_at, clock::relative(message.times.deliver_at_ms)));
    if let (Some(at), Some(ms)) = (&message.times.retry_at, message.times.retry_at_ms) {
        row("next try", &format!("{at} ({})", clock::relative(ms)));
    }
    if let Some(ms) = message.end.delivered_at_ms {
        let late = clock::span(ms.saturating_sub(message.times.deliver_at_ms));
        row(
            "delivered",
            &format!("{} ({late} after its time)", message.end.delivered_at.as_deref().unwrap_or("")),
        );
    } else if let Some(at) = &message.end.ended_at {
        row("ended", at);
    }
    row("priority", &message.priority.to_string());
    row("attempts", &message.attempts_counted.to_string());
    if message.maybe_delivered {
        row("note", "an earlier attempt has no known outcome: it may have arrived");
    }
    if let Some(receipt) = &message.end.receipt {
        row("receipt", &output::harmless(receipt));
    }
    for (key, value) in &message.content.properties {
        row("property", &format!("{key}={value}"));
    }
    for attempt in &message.attempts {
        row("try", &format!("{} {} {}", attempt.at, attempt.outcome, output::harmless(&attempt.detail)));
    }
    if let Some(body) = message.content.body.as_deref().or(message.content.body_base64.as_deref()) {
        row("body", &output::harmless(body));
    }
    rows.text()
}
