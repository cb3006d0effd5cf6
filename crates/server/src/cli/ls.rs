//! `duly ls`: messages, by due time.

use clap::Args;
use url::form_urlencoded::Serializer;

use super::{Failure, Output, clock, input};
use crate::{
    client::Client,
    wire::{Message, Moment, Page},
};

/// A page at most; the server may give less.
const PAGE: usize = 1_000;

/// List messages by due time
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly ls
  duly ls --state delivered --topic order --limit 500
  duly ls --due-to 2030-01-01T00:00:00Z --all -o json | duly cancel -")]
pub(crate) struct Ls {
    /// Only those in this state; pending unless told otherwise
    #[arg(long, value_parser = ["pending", "in_flight", "delivered", "dead", "cancelled"])]
    state: Option<String>,

    #[command(flatten)]
    pages: Pages,
}

/// Which part of a long list.
#[derive(Debug, Args)]
pub(crate) struct Pages {
    /// Only those of this sink
    #[arg(long)]
    sink: Option<String>,

    /// Only those of this topic
    #[arg(long)]
    topic: Option<String>,

    /// Only those due at this time or later
    #[arg(long, value_name = "TIME", value_parser = input::moment)]
    due_from: Option<Moment>,

    /// Only those due before this time
    #[arg(long, value_name = "TIME", value_parser = input::moment)]
    due_to: Option<Moment>,

    /// So many at most
    #[arg(short = 'n', long, default_value_t = 50, value_name = "COUNT", conflicts_with = "all")]
    limit: usize,

    /// All of them, however many
    #[arg(long)]
    all: bool,

    /// Go on where an earlier list ended
    #[arg(long)]
    cursor: Option<String>,
}

impl Ls {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let page = self.pages.read(client, "/v1/messages", self.state.as_deref()).await?;
        out.answer(&page, |page| table(out, &page.messages))?;
        more(out, &page);
        Ok(())
    }
}

impl Pages {
    /// Reads pages until there is enough.
    pub(crate) async fn read(
        self,
        client: &Client,
        path: &str,
        state: Option<&str>,
    ) -> Result<Page, Failure> {
        let limit = if self.all { usize::MAX } else { self.limit };
        let mut whole = Page { cursor: self.cursor.clone(), ..Page::default() };
        loop {
            let wanted = limit.saturating_sub(whole.messages.len()).min(PAGE);
            let query = self.query(state, whole.cursor.as_deref(), wanted);
            let page: Page = client.get(&format!("{path}?{query}")).await?;
            whole.messages.extend(page.messages);
            whole.cursor = page.cursor;
            if whole.cursor.is_none() || whole.messages.len() >= limit {
                return Ok(whole);
            }
        }
    }

    fn query(&self, state: Option<&str>, cursor: Option<&str>, limit: usize) -> String {
        let mut query = Serializer::new(String::new());
        let text = |moment: &Option<Moment>| match moment {
            Some(Moment::Millis(millis)) => Some(millis.to_string()),
            Some(Moment::Text(text)) => Some(text.clone()),
            None => None,
        };
        for (name, value) in [
            ("state", state.map(str::to_owned)),
            ("sink", self.sink.clone()),
            ("topic", self.topic.clone()),
            ("due_from", text(&self.due_from)),
            ("due_to", text(&self.due_to)),
            ("cursor", cursor.map(str::to_owned)),
            ("limit", Some(limit.to_string())),
        ] {
            if let Some(value) = value {
                query.append_pair(name, &value);
            }
        }
        query.finish()
    }
}

fn table(out: &Output, messages: &[Message]) -> String {
    let mut rows = out.table(&["ID", "SINK", "TOPIC", "STATE", "DUE", "", ">ATTEMPTS"]);
    for message in messages {
        rows.row([
            message.id.clone(),
            message.sink.clone(),
            message.topic.clone(),
            message.state.clone(),
            message.deliver_at.clone(),
            clock::away(message.deliver_at_ms),
            message.attempts_counted.to_string(),
        ]);
    }
    rows.text()
}

/// Says that the list goes on.
pub(crate) fn more(out: &Output, page: &Page) {
    // Said on stderr: what stdout is piped into does not see it.
    if let Some(cursor) = &page.cursor {
        out.say(&format!("there are more: use --limit or --all, or go on with --cursor {cursor}"));
    }
}
