//! `duly levels`: the named delays.

use clap::Args;

use super::{Failure, Output, clock};
use duly_client::Client;

/// Show the named delays
#[derive(Debug, Args)]
#[command(after_help = "Example:
  duly levels
  duly send order 'pay or lose it' --level P0")]
pub(crate) struct Levels {}

impl Levels {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let answer = client.levels().await?;
        out.answer(&answer, |answer| {
            let mut rows = out.table(&["LEVEL", "DELAY", ""]);
            for level in &answer.levels {
                let default = answer.default.as_ref() == Some(&level.name);
                let note = if default { "any unknown level means this one" } else { "" };
                rows.row([level.name.as_str(), &clock::span(level.delay_ms), note]);
            }
            rows.text()
        })
    }
}
