//! `duly health`: the two questions of whoever watches over a server.

use std::time::Duration;

use clap::Args;
use serde_json::json;

use super::{Failure, Output, Tint};
use duly_client::{Client, wire::Ready};

/// A server that works answers within five seconds, also when its store does not.
const ANSWER_WITHIN: Duration = Duration::from_secs(8);

/// Ask whether a server could accept and deliver a message now
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly health
  duly health --live
  HEALTHCHECK CMD [\"duly\", \"health\", \"--quiet\"]

Without --live it asks /readyz: for what sends messages here, or starts after it. With --live it asks /livez: for what restarts the
process, which mends no disk that is full and no database that is away. Neither needs a token; one that sees all topics gets the reasons.
Exit codes: 0 yes, 1 no, 5 no answer.")]
pub(crate) struct Probe {
    /// Ask only whether the process answers
    #[arg(long)]
    live: bool,
}

impl Probe {
    pub(crate) async fn run(self, client: Client, out: &Output) -> Result<(), Failure> {
        let client = client.timeout(ANSWER_WITHIN);
        if self.live {
            client.live().await?;
            return out.answer(&json!({ "live": true }), |_| out.tint(Tint::Green, "live"));
        }
        let ready = client.ready().await?;
        out.answer(&ready, |ready| to_text(out, ready))?;
        if ready.ready { Ok(()) } else { Err(Failure::failed(why(&ready))) }
    }
}

fn to_text(out: &Output, ready: &Ready) -> String {
    let mut rows = out.table(&["PART", "STATE"]);
    for (part, state) in &ready.parts {
        rows.row([part, state]);
    }
    let (tint, word) = if ready.ready { (Tint::Green, "ready") } else { (Tint::Red, "not ready") };
    let mut text = format!("{}\n{}, durability: {}\n", rows.text(), out.tint(tint, word), ready.durability);
    for warning in &ready.warnings {
        text += &format!("{}: {warning}\n", out.tint(Tint::Yellow, "warning"));
    }
    text
}

/// The parts that fail; `store` says again what one of its own parts says.
fn why(ready: &Ready) -> String {
    let failing = ready
        .parts
        .iter()
        .filter(|(part, state)| *state != "ok" && !["store", "degraded"].contains(&part.as_str()));
    let failing: Vec<_> = failing.map(|(part, state)| format!("{part}: {state}")).collect();
    format!("the server is not ready: {}", failing.join("; "))
}
