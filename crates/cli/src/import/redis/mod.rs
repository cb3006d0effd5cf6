//! `duly import redis`: sorted sets that hand-made code filled, moved into Duly.

mod member;
mod report;
mod score;
mod source;
mod template;
mod transfer;

use std::time::Duration;

use clap::Args;
use duly::{SinkName, Topic};

use self::{
    report::{KeyReport, Report},
    score::Unit,
    source::Source,
    template::Template,
    transfer::Transfer,
};
use crate::{Failure, Output, input, progress::Progress};
use duly_client::Client;

/// Move sorted sets of delayed messages out of a Redis into Duly
#[derive(Debug, Args)]
#[command(after_help = "Examples:
  duly import redis --from redis://127.0.0.1 --pattern 'delay:*' --strip-prefix delay: --dry-run
  duly import redis --from redis://127.0.0.1 --pattern 'delay:*' --strip-prefix delay: --sink streams
  duly import redis --from redis-cluster://a,b,c --pattern timeouts --topic order --body-key 'order:{member}'
  duly import redis --from redis-sentinel://a,b,c/main --pattern jobs --body-key job:bodies --body-field '{member}'

A member is the body of a message, or names where the body is; its score is the due time. Each goes to Duly first and leaves its set
only once Duly has it, so that a run that was cut short loses nothing; run again, it sends nothing twice. Stop the old
consumers before. Exit code 3: no sorted set matches; 1: some stay, each told with its reason.")]
pub(crate) struct Arguments {
    /// The Redis: redis://, rediss://, redis-cluster://a,b,c or redis-sentinel://a,b,c/name
    #[arg(long, value_name = "URL", env = "DULY_IMPORT_FROM", hide_env_values = true)]
    from: String,

    /// Which sorted sets, as Redis matches names: delay:*
    #[arg(long, value_name = "GLOB")]
    pattern: String,

    /// Taken off the front of a set's name before it becomes {key}
    #[arg(long, value_name = "PREFIX")]
    strip_prefix: Option<String>,

    /// The topic; {key} is the name of the set
    #[arg(long, value_name = "TOPIC", default_value = "{key}", value_parser = Template::parse)]
    topic: Template,

    /// A configured sink, instead of the built-in queue
    #[arg(long)]
    sink: Option<String>,

    /// What scores count since 1970; auto tells by their size
    #[arg(long, value_enum, default_value_t)]
    unit: Unit,

    /// The member is only an id: the body is the value of this key, such as order:{member}
    #[arg(long, value_name = "KEY", value_parser = Template::parse)]
    body_key: Option<Template>,

    /// The body is this field of the hash --body-key
    #[arg(long, value_name = "FIELD", requires = "body_key", value_parser = Template::parse)]
    body_field: Option<Template>,

    /// The bodies are JSON: say so; what is none stays
    #[arg(long)]
    json: bool,

    /// Leave the sets as they are
    #[arg(long)]
    keep: bool,

    /// Look, check every message as the server would, by the default limits, and change nothing
    #[arg(long)]
    dry_run: bool,

    /// Members per call
    #[arg(long, default_value_t = 500, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    /// How long to wait for a server that is unreachable or silent. One call is given 5 seconds at least
    #[arg(long, default_value = "30s", value_name = "DELAY", value_parser = input::span)]
    patience: Duration,
}

impl Arguments {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        self.check()?;
        let mut source = Source::connect(&self.from, self.patience).await?;
        let sets = source.sets(&self.pattern).await?;
        if sets.is_empty() {
            let words = format!("no sorted set of this Redis matches {:?}: nothing was done", self.pattern);
            return Err(Failure::not_found(words));
        }
        let members = sets.iter().map(|(_, count)| count).sum();
        let progress = Progress::of_members(out, members);
        let mut transfer = Transfer::new(&self, source, client, out, &progress);
        let mut done = Ok(());
        for (key, count) in &sets {
            done = transfer.set(key, *count).await;
            if done.is_err() {
                break;
            }
        }
        let report = transfer.report();
        progress.end();
        if let Err(failure) = done {
            report.stopped(out);
            return Err(failure);
        }
        report.print(out)
    }

    fn check(&self) -> Result<(), Failure> {
        if self.topic.has_member() {
            return Err(Failure::usage("--topic takes {key}, and no {member}"));
        }
        let names_it = |template: &Option<Template>| template.as_ref().is_some_and(Template::has_member);
        if self.body_key.is_some() && !names_it(&self.body_key) && !names_it(&self.body_field) {
            return Err(Failure::usage(
                "every message would have the same body: put {member} into --body-key or --body-field",
            ));
        }
        if let Some(sink) = &self.sink {
            SinkName::parse(sink).map_err(|fault| Failure::usage(format!("--sink: {}", fault.detail)))?;
        }
        Ok(())
    }

    /// The value of `{key}`.
    fn stripped<'a>(&self, key: &'a [u8]) -> &'a [u8] {
        let prefix = self.strip_prefix.as_deref().unwrap_or_default();
        key.strip_prefix(prefix.as_bytes()).unwrap_or(key)
    }

    /// The topic of a set's messages, or why there is none.
    fn topic_of(&self, key: &[u8]) -> Result<String, String> {
        let text = String::from_utf8(self.topic.fill(self.stripped(key), b""))
            .map_err(|_| "its name is not UTF-8 and can be no topic: name one with --topic".to_owned())?;
        match Topic::parse_new(&text) {
            Ok(_) => Ok(text),
            Err(fault) => Err(format!("{}: name one with --topic", fault.detail)),
        }
    }
}
