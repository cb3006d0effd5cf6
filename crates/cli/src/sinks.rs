//! `duly sinks`: where messages go.

use clap::{Args, Subcommand};

use super::{Failure, Output, clock, output};
use duly_client::Client;

/// Show the configured sinks, or try one
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly sinks
  duly sinks probe orders")]
pub(crate) struct Sinks {
    #[command(subcommand)]
    verb: Option<SinksVerb>,
}

#[derive(Debug, Subcommand)]
enum SinksVerb {
    /// List them (also without a word)
    Ls,
    /// See whether a sink can be reached; delivers nothing
    Probe {
        /// Its name
        name: String,
    },
}

impl Sinks {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        match self.verb {
            None | Some(SinksVerb::Ls) => list(client, out).await,
            Some(SinksVerb::Probe { name }) => {
                client.probe_sink(&name).await?;
                let answer = serde_json::json!({ "sink": name, "reachable": true });
                out.answer(&answer, |_| format!("{name} can be reached"))
            }
        }
    }
}

async fn list(client: &Client, out: &Output) -> Result<(), Failure> {
    let answer = client.sinks().await?;
    out.answer(&answer, |answer| {
        let mut rows = out.table(&[
            "NAME",
            "KIND",
            "STATE",
            ">PENDING",
            ">READY",
            ">IN FLIGHT",
            ">DEAD",
            ">PER SECOND",
            "LAST ERROR",
        ]);
        for sink in &answer.sinks {
            rows.row([
                sink.name.clone(),
                sink.kind.clone(),
                sink.state.clone(),
                clock::grouped(sink.pending),
                clock::grouped(sink.ready),
                clock::grouped(sink.in_flight),
                clock::grouped(sink.dead),
                format!("{:.1}", sink.delivered_per_second),
                output::short(sink.last_error.as_deref().unwrap_or("")),
            ]);
        }
        rows.text()
    })
}
