//! `duly resume`: let a held queue or sink go on.

use clap::Args;

use super::{
    Failure, Output,
    pause::{self, Lane},
};
use duly_client::Client;

/// Let a paused queue or sink go on
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly resume order
  duly resume --sink crm")]
pub(crate) struct Resume {
    #[command(flatten)]
    lane: Lane,
}

impl Resume {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let (lane, name) = self.lane.named()?;
        match lane {
            "sink" => client.resume_sink(&name).await?,
            _ => client.resume_queue(&name).await?,
        }
        pause::print_paused(out, lane, &name, false)
    }
}
