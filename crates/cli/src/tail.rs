//! `duly tail`: what happens, while it happens.

use clap::{Args, builder::PossibleValuesParser};

use super::{Failure, Output, Tint, clock};
use duly_client::{
    Client, EventFilter,
    wire::{AlertState, Event},
};

/// Follow what happens, while it happens
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly tail
  duly tail --topic order --types dead,failed
  duly tail -o json | jq -r 'select(.type == \"delivered\") | .lateness_ms'

Ends with Ctrl-C, or with the server. A reader that is too slow loses events, and is told how many.")]
pub(crate) struct Tail {
    /// Only these types, with commas between
    #[arg(long, value_name = "TYPES", value_delimiter = ',', value_parser = PossibleValuesParser::new(Event::KINDS))]
    types: Vec<String>,

    /// Only this topic of the built-in queue
    #[arg(long)]
    topic: Option<String>,

    /// Only this sink
    #[arg(long)]
    sink: Option<String>,

    /// End after this many
    #[arg(short = 'n', long, value_name = "COUNT")]
    count: Option<u64>,
}

impl Tail {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let types = (!self.types.is_empty()).then(|| self.types.join(","));
        let filter = EventFilter { types, sink: self.sink, topic: self.topic };
        let mut events = client.events(&filter).await?;
        out.note(&out.tint_words(Tint::Dim, "following; Ctrl-C ends it"));
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        let mut left = self.count.unwrap_or(u64::MAX);
        while left > 0 {
            let event = tokio::select! {
                event = events.next() => event?,
                _ = &mut interrupted => return Ok(()),
            };
            let Some(event) = event else {
                out.note("the server ended the stream");
                return Ok(());
            };
            left -= 1;
            // A type of a newer server is shown as it came.
            match event.parse() {
                Some(event) if !out.is_json() => out.line(&to_text(out, &event))?,
                _ => out.line(&event.data)?,
            }
        }
        Ok(())
    }
}

fn to_text(out: &Output, event: &Event) -> String {
    let tint = match event {
        Event::Delivered { .. } | Event::SinkRecovered { .. } => Tint::Green,
        Event::Accepted { .. } => Tint::Cyan,
        Event::Failed { .. } | Event::Cancelled { .. } | Event::Missed { .. } => Tint::Yellow,
        Event::Alert { alert } if alert.state == AlertState::Cleared => Tint::Green,
        Event::Rescheduled { .. } | Event::Replayed { .. } | Event::Resumed { .. } => Tint::Cyan,
        Event::Purged { .. } | Event::Paused { .. } => Tint::Yellow,
        Event::Other { .. } => Tint::Dim,
        _ => Tint::Red,
    };
    let kind = out.tint(tint, &format!("{:<13}", event.kind()));
    let rest = match event {
        Event::Accepted { id, lane, deliver_at, deliver_at_ms, .. }
        | Event::Rescheduled { id, lane, deliver_at, deliver_at_ms, .. } => {
            format!("{id}  {lane}  due {deliver_at} ({})", clock::relative(*deliver_at_ms))
        }
        Event::Delivered { id, lane, attempt, lateness_ms, .. } => {
            format!("{id}  {lane}  attempt {attempt}, {lateness_ms:.1} ms late")
        }
        Event::Failed { id, lane, attempt, outcome, detail, retry_at_ms, .. } => {
            format!(
                "{id}  {lane}  attempt {attempt}: {outcome}, {detail}; again {}",
                clock::relative(*retry_at_ms)
            )
        }
        Event::Dead { id, lane, reason, .. } => format!("{id}  {lane}  {reason}"),
        Event::Cancelled { id, lane, .. }
        | Event::Purged { id, lane, .. }
        | Event::Replayed { id, lane, .. } => format!("{id}  {lane}"),
        Event::SinkUnreachable { lane, detail, .. } => format!("{lane}  {detail}"),
        Event::DestinationUnreachable { lane, destination, detail, .. } => {
            format!("{lane}  {destination}  {detail}")
        }
        Event::DestinationRecovered { lane, destination, .. } => format!("{lane}  {destination}"),
        Event::SinkRecovered { lane, .. } | Event::Paused { lane, .. } | Event::Resumed { lane, .. } => {
            lane.clone()
        }
        Event::LeasesLost { count, .. } => format!("{count} leases ended: these messages come again"),
        Event::StoreFailing { times, .. } => format!("{times} times in a row"),
        Event::ClockJumped { by_us, .. } => format!("by {:.1} ms", *by_us as f64 / 1_000.0),
        Event::Alert { alert, .. } => {
            let state = if alert.state == AlertState::Raised { "raised" } else { "cleared" };
            format!("{} ({}) {state}: {}", alert.name, alert.scope.as_deref().unwrap_or("all"), alert.detail)
        }
        Event::Missed { count, .. } => format!("{count} events: this reader was too slow"),
        Event::Other { what, .. } => what.clone(),
    };
    format!("{kind}{rest}")
}
