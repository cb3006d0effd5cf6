//! `duly receive`: take messages from the built-in queue.

use std::time::Duration;

use base64::{Engine, engine::general_purpose::STANDARD};
use clap::{Args, builder::NonEmptyStringValueParser};

use super::{Failure, Output, Tint, clock, input, output};
use duly_client::{
    Client,
    wire::{Delay, ReceiveAny, Received, ReceivedMessage},
};

/// One poll while following: short enough to notice a server that went away.
const POLL: Duration = Duration::from_secs(20);

/// Take messages from the built-in queue
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly receive order                       what is there now
  duly receive order --wait 20s --ack      wait for it, and acknowledge it
  duly receive order invoice --ack         of two queues, each with an equal share
  duly receive order --follow --ack        until you press Ctrl-C
  duly receive order --body-only --ack | while read -r line; do ...; done

Without --ack the messages stay yours for the lease; then they come again. Acknowledge them with
`duly ack TOPIC RECEIPT`, or give them back with `duly nack TOPIC RECEIPT`.")]
pub(crate) struct Take {
    /// The queues, 32 at most
    #[arg(value_name = "TOPIC", required = true, value_parser = NonEmptyStringValueParser::new())]
    topics: Vec<String>,

    /// Acknowledge each after it was written
    #[arg(long)]
    ack: bool,

    /// Wait so long for the first
    #[arg(long, value_name = "DELAY", value_parser = input::span)]
    wait: Option<Duration>,

    /// Receive at most this many
    #[arg(short = 'n', long, default_value_t = 10, value_name = "COUNT")]
    max: usize,

    /// How long they are yours
    #[arg(long, value_name = "DELAY", value_parser = input::delay)]
    lease: Option<Delay>,

    /// Go on until interrupted
    #[arg(short, long)]
    follow: bool,

    /// Write only the bodies, one a line
    #[arg(long)]
    body_only: bool,
}

impl Take {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        if !self.follow {
            let received = self.receive(client, self.wait.unwrap_or_default()).await?;
            if received.messages.is_empty() && !out.is_json() {
                out.note("nothing is due");
            }
            if out.is_json() && !self.body_only {
                out.answer(&received, |_| String::new())?;
                return self.acknowledge(client, out, &received.messages).await;
            }
            return self.show(client, out, &received.messages).await;
        }
        let interrupted = tokio::signal::ctrl_c();
        tokio::pin!(interrupted);
        loop {
            // Received messages are written and acknowledged before an interruption is handled.
            let received = tokio::select! {
                received = self.receive(client, self.wait.unwrap_or(POLL)) => received?,
                _ = &mut interrupted => return Ok(()),
            };
            self.show(client, out, &received.messages).await?;
        }
    }

    async fn receive(&self, client: &Client, wait: Duration) -> Result<Received, Failure> {
        let request = ReceiveAny {
            topics: self.topics.clone(),
            max: Some(self.max),
            wait: Some(wait.into()),
            lease: self.lease.clone(),
        };
        Ok(Received { messages: client.receive_any(&request).await? })
    }

    async fn show(&self, client: &Client, out: &Output, messages: &[ReceivedMessage]) -> Result<(), Failure> {
        for message in messages {
            if self.body_only {
                out.bytes(&body(message))?;
                out.bytes(b"\n")?;
            } else if out.is_json() {
                out.json_line(message)?;
            } else {
                out.line(&self.text(out, message))?;
            }
        }
        self.acknowledge(client, out, messages).await
    }

    async fn acknowledge(
        &self,
        client: &Client,
        out: &Output,
        messages: &[ReceivedMessage],
    ) -> Result<(), Failure> {
        if !self.ack || messages.is_empty() {
            return Ok(());
        }
        let answer = client.ack_any(messages.iter().map(|message| &message.receipt)).await?;
        let lost = answer.results.iter().filter(|result| result.outcome != "done").count();
        if lost > 0 {
            out.note(&format!("{lost} came too late to be acknowledged: they will come again"));
        }
        Ok(())
    }

    /// A message for people.
    fn text(&self, out: &Output, message: &ReceivedMessage) -> String {
        // Of one queue, everybody knows which.
        let topic = if self.topics.len() > 1 {
            format!("{}  ", output::harmless(&message.topic))
        } else {
            String::new()
        };
        let late = clock::span(clock::now_ms().saturating_sub(message.deliver_at_ms));
        let mut text = format!(
            "{}  {topic}{}",
            out.tint(Tint::Cyan, &message.id),
            out.tint(
                Tint::Dim,
                &format!("attempt {}, due {}, {late} ago", message.attempt, message.deliver_at)
            ),
        );
        for (key, value) in &message.properties {
            text += &format!("\n  {key}={value}");
        }
        if !self.ack {
            text += &format!("\n  receipt {}", message.receipt);
        }
        let body = body(message);
        if !body.is_empty() {
            text += &format!("\n  {}", output::harmless(&String::from_utf8_lossy(&body)));
        }
        text
    }
}

fn body(message: &ReceivedMessage) -> Vec<u8> {
    if let Some(json) = &message.json {
        return json.get().as_bytes().to_vec();
    }
    if let Some(text) = &message.body {
        return text.clone().into_bytes();
    }
    message.body_base64.as_deref().and_then(|text| STANDARD.decode(text).ok()).unwrap_or_default()
}
