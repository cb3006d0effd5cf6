//! `duly ls`: messages, by due time.

use clap::Args;

use super::{Failure, Output, clock, input};
use duly_client::{
    Client, Error, Query,
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

    /// List at most this many
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
        let page = self.pages.read(self.state, async |query| client.list(query).await).await?;
        out.answer(&page, |page| table(out, &page.messages))?;
        more(out, &page);
        Ok(())
    }
}

impl Pages {
    /// Reads pages with `page` until there is enough.
    pub(crate) async fn read(
        self,
        state: Option<String>,
        page: impl AsyncFn(&Query) -> Result<Page, Error>,
    ) -> Result<Page, Failure> {
        let Self { sink, topic, due_from, due_to, limit, all, cursor } = self;
        let limit = if all { usize::MAX } else { limit };
        let mut query = Query { state, sink, topic, due_from, due_to, cursor, limit: None };
        let mut whole = Page::default();
        loop {
            query.limit = Some(limit.saturating_sub(whole.messages.len()).min(PAGE));
            let next = page(&query).await?;
            whole.messages.extend(next.messages);
            if next.cursor.is_none() || whole.messages.len() >= limit {
                return Ok(Page { cursor: next.cursor, ..whole });
            }
            query.cursor = next.cursor;
        }
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
            message.times.deliver_at.clone(),
            clock::relative(message.times.deliver_at_ms),
            message.attempts_counted.to_string(),
        ]);
    }
    rows.text()
}

/// Prints that there are more messages.
pub(crate) fn more(out: &Output, page: &Page) {
    // On stderr, so that a program behind a pipe does not read it.
    if let Some(cursor) = &page.cursor {
        out.note(&format!("there are more: use --limit or --all, or go on with --cursor {cursor}"));
    }
}
