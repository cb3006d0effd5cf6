//! `duly pause`: hold a queue or a sink.

use clap::Args;

use super::{Failure, Output};
use crate::client::{Client, segment};

/// Which lane.
#[derive(Debug, Args)]
pub(crate) struct Lane {
    /// A topic of the built-in queue
    #[arg(required_unless_present = "sink")]
    topic: Option<String>,

    /// A sink, instead of a topic
    #[arg(long, conflicts_with = "topic")]
    sink: Option<String>,
}

/// Hold a queue or a sink: messages are accepted, none is delivered
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly pause order
  duly pause --sink crm

It stays paused, also over restarts, until `duly resume`.")]
pub(crate) struct Pause {
    #[command(flatten)]
    lane: Lane,
}

impl Pause {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        self.lane.switch(client, out, "pause", "paused").await
    }
}

impl Lane {
    pub(crate) async fn switch(
        self,
        client: &Client,
        out: &Output,
        verb: &str,
        done: &str,
    ) -> Result<(), Failure> {
        let (what, kind, name) = match (self.sink, self.topic) {
            (Some(sink), _) => ("sinks", "sink", sink),
            (None, Some(topic)) => ("queues", "topic", topic),
            (None, None) => return Err(Failure::usage("name a topic, or a sink with --sink")),
        };
        let path = format!("/v1/{what}/{}/{verb}", segment(&name));
        let () = client.post(&path, &serde_json::json!({})).await?;
        let answer = serde_json::json!({ kind: name, "paused": verb == "pause" });
        out.answer(&answer, |_| format!("{name} {done}"))
    }
}
