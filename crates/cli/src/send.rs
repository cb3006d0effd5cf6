//! `duly send`: one message, now or later.

use base64::{Engine, engine::general_purpose::STANDARD};
use clap::Args;
use serde_json::value::RawValue;

use super::{Failure, Output, Tint, clock, input};
use duly_client::{
    Client,
    wire::{Delay, Moment, NewMessage, Retry},
};

/// Send a message, to be delivered now or later
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly send order 'pay or lose it' --in 15m
  duly send order '{\"order\":42}' --json --at 2030-01-01T09:00:00Z --id order-42
  date | duly send log - -p host=$(hostname)
  duly send hooks/paid 'done' --sink crm --level P0

Prints the id. Sent again with the same --id and content it is a duplicate, and nothing happens twice.")]
pub(crate) struct Send {
    /// The queue; at a sink its topic, stream, subject or path
    topic: String,

    /// The body; - reads it from stdin
    body: Option<String>,

    /// A configured sink, instead of the built-in queue
    #[arg(long)]
    sink: Option<String>,

    /// Deliver after this long: 15m, 1h30m, PT15M
    #[arg(long = "in", value_name = "DELAY", value_parser = input::delay, group = "when")]
    delay: Option<Delay>,

    /// Deliver at this time: 2030-01-01T09:00:00Z, or milliseconds since 1970
    #[arg(long, value_name = "TIME", value_parser = input::moment, group = "when")]
    at: Option<Moment>,

    /// Deliver after the delay of this level
    #[arg(long, group = "when")]
    level: Option<String>,

    /// Its id; made by Duly if left out
    #[arg(long)]
    id: Option<String>,

    /// A property: becomes a header of the target
    #[arg(short, long = "property", value_name = "KEY=VALUE", value_parser = input::property)]
    properties: Vec<(String, String)>,

    /// The body is JSON: check it, and say so
    #[arg(long)]
    json: bool,

    /// A tag
    #[arg(long)]
    tag: Option<String>,

    /// A partition or ordering key
    #[arg(long)]
    key: Option<String>,

    /// 0-9: who goes first among those due in the same millisecond
    #[arg(long, value_parser = clap::value_parser!(u8).range(0..=9))]
    priority: Option<u8>,

    /// Give up if not delivered this long after its time
    #[arg(long, value_name = "DELAY", value_parser = input::delay)]
    max_lateness: Option<Delay>,

    /// Try so often in all
    #[arg(long, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..))]
    attempts: Option<u32>,
}

impl Send {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let message = self.message()?;
        let accepted = client.send(&message).await?;
        out.answer(&accepted, |accepted| accepted.id.clone())?;
        let due = out.tint_words(Tint::Dim, &clock::relative(accepted.deliver_at_ms));
        let known = match (accepted.duplicate, &accepted.kept) {
            (false, _) => "",
            (true, None) => ", known before: nothing changed",
            (true, Some(_)) => ", known before: nothing changed, and its first time stands",
        };
        if !out.is_json() {
            out.note(&format!("{}, due {} ({due}){known}", accepted.state, accepted.deliver_at));
        }
        Ok(())
    }

    fn message(self) -> Result<NewMessage, Failure> {
        let properties = input::each_once(self.properties)?;
        let bytes = match self.body {
            Some(body) if body == "-" => Some(input::whole_stdin()?),
            Some(body) => Some(body.into_bytes()),
            None => None,
        };
        let mut message = NewMessage {
            topic: self.topic,
            sink: self.sink,
            id: self.id,
            tag: self.tag,
            key: self.key,
            properties,
            delay: self.delay,
            deliver_at: self.at,
            level: self.level,
            priority: self.priority,
            max_lateness: self.max_lateness,
            retry: self.attempts.map(|attempts| Retry { attempts: Some(attempts), ..Retry::default() }),
            ..NewMessage::default()
        };
        match bytes.map(String::from_utf8) {
            None if self.json => return Err(Failure::usage("--json needs a body")),
            None => {}
            Some(Ok(text)) if self.json => {
                let json = RawValue::from_string(text)
                    .map_err(|e| Failure::usage(format!("the body is not JSON: {e}")))?;
                if json.get() == "null" {
                    return Err(Failure::usage(
                        "null is no body: leave it out, or send the word without --json",
                    ));
                }
                message.json = Some(json);
            }
            Some(Ok(text)) => message.body = Some(text),
            Some(Err(_)) if self.json => return Err(Failure::usage("the body is not JSON: it is not UTF-8")),
            Some(Err(bytes)) => message.body_base64 = Some(STANDARD.encode(bytes.as_bytes())),
        }
        Ok(message)
    }
}
