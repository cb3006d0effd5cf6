//! `duly pause`: hold a queue or a sink.

use clap::Args;

use super::{Failure, Output};
use duly_client::Client;

/// The lane to pause or resume.
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
        let (lane, name) = self.lane.named()?;
        match lane {
            "sink" => client.pause_sink(&name).await?,
            _ => client.pause_queue(&name).await?,
        }
        print_paused(out, lane, &name, true)
    }
}

impl Lane {
    /// `sink` or `topic`, and its name.
    pub(crate) fn named(self) -> Result<(&'static str, String), Failure> {
        match (self.sink, self.topic) {
            (Some(sink), _) => Ok(("sink", sink)),
            (None, Some(topic)) => Ok(("topic", topic)),
            (None, None) => Err(Failure::usage("name a topic, or a sink with --sink")),
        }
    }
}

pub(crate) fn print_paused(out: &Output, lane: &str, name: &str, is_paused: bool) -> Result<(), Failure> {
    let answer = serde_json::json!({ lane: name, "paused": is_paused });
    out.answer(&answer, |_| format!("{name} {}", if is_paused { "paused" } else { "resumed" }))
}
