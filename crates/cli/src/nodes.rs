//! `duly nodes`: who works on this store.

use clap::Args;

use super::{Failure, Output};
use duly_client::Client;

/// Show the nodes and the lanes they serve
#[derive(Debug, Args)]
#[command(after_help = "Example:
  duly nodes -o json | jq '.nodes[].clock_skew_ms'")]
pub(crate) struct Nodes {}

impl Nodes {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let answer = client.nodes().await?;
        out.answer(&answer, |answer| {
            let mut rows = out.table(&["NODE", "DELIVERS", ">SHARDS", ">CLOCK SKEW", "VERSION", "LANES"]);
            for node in &answer.nodes {
                rows.row([
                    format!("{}{}", node.name, if node.this { " (this)" } else { "" }),
                    if node.delivers { "yes" } else { "no" }.to_owned(),
                    node.shards.to_string(),
                    format!("{:.1}ms", node.clock_skew_ms),
                    node.version.clone(),
                    node.lanes.join(" "),
                ]);
            }
            rows.text()
        })
    }
}
