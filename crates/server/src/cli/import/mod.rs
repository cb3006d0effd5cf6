//! `duly import`: messages from a file, one JSON object a line, or from somewhere else.

mod check;
mod redis;

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::{BufMut, BytesMut};
use clap::{Args, Subcommand};
use serde::Serialize;

use super::{Failure, Output, clock, progress::Progress};
use crate::{
    client::Client,
    wire::{BatchResult, NewMessage},
};

/// So many complaints about single lines are told; the others are counted.
const COMPLAINTS: u64 = 20;
/// The longest wait for a server that is away.
const BACKOFF_MAX: Duration = Duration::from_secs(5);

/// Send many messages from a file, one JSON object a line, or move them out of a Redis
#[derive(Debug, Args)]
#[command(
    args_conflicts_with_subcommands = true,
    subcommand_negates_reqs = true,
    after_help = "Examples:
  duly import orders.ndjson
  duly import orders.ndjson --dry-run
  zcat orders.ndjson.gz | duly import - --ids orders-2030
  duly import redis --from redis://127.0.0.1 --pattern 'delay:*' --dry-run

Each line is what `POST /v1/messages` takes: {\"topic\":\"order\",\"json\":{\"order\":42},\"delay\":\"15m\",\"id\":\"order-42\"}
An import that was cut short is run again: what has an id is a duplicate the second time and happens once.
Lines without one get it from --ids and their number."
)]
pub(crate) struct Import {
    #[command(subcommand)]
    elsewhere: Option<Elsewhere>,

    #[command(flatten)]
    lines: Lines,
}

/// What is no file of ours.
#[derive(Debug, Subcommand)]
enum Elsewhere {
    Redis(redis::Arguments),
}

#[derive(Debug, Args)]
struct Lines {
    /// The file; - reads stdin
    #[arg(required = true)]
    file: Option<PathBuf>,

    /// Check every line, send nothing
    #[arg(long)]
    dry_run: bool,

    /// Lines without an id get PREFIX-<number of the line>: then the import can be run again
    #[arg(long, value_name = "PREFIX")]
    ids: Option<String>,

    /// So many lines in one call
    #[arg(long, default_value_t = 1_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    /// How long to wait for a server that is away
    #[arg(long, default_value = "30s", value_name = "DELAY", value_parser = super::input::span)]
    patience: Duration,
}

/// What an import came to.
#[derive(Debug, Default, Serialize)]
struct Counts {
    lines: u64,
    accepted: u64,
    duplicates: u64,
    refused: u64,
    dry_run: bool,
}

/// Lines on their way to the server.
#[derive(Default)]
struct Batch {
    body: BytesMut,
    lines: Vec<u64>,
}

impl Import {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        match self.elsewhere {
            Some(Elsewhere::Redis(arguments)) => arguments.run(client, out).await,
            None => self.lines.run(client, out).await,
        }
    }
}

impl Lines {
    async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let (input, size) = self.open()?;
        let progress = Progress::start(out, size);
        let mut counts = Counts { dry_run: self.dry_run, ..Counts::default() };
        // Made anew each time: within this run a call can be repeated, another run starts afresh.
        let made = format!("import-{:x}", clock::now_us());
        let prefix = self.ids.as_deref().unwrap_or(&made);
        let mut unnamed = 0;
        let mut batch = Batch::default();
        for (number, line) in (1..).zip(input.split(b'\n')) {
            let line =
                line.map_err(|e| Failure::failed(format!("cannot read {}: {e}", self.file().display())))?;
            progress.read(line.len() as u64 + 1);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            counts.lines += 1;
            match check::line(&line) {
                Ok(mut message) => {
                    if message.id.is_none() {
                        unnamed += 1;
                        message.id = Some(format!("{prefix}-{number}"));
                    }
                    batch.push(number, &message)?;
                }
                Err(fault) => complain(out, &progress, &mut counts, number, &fault),
            }
            if batch.lines.len() >= self.batch as usize {
                self.send(client, out, &progress, &mut counts, &mut batch).await?;
            }
        }
        self.send(client, out, &progress, &mut counts, &mut batch).await?;
        progress.end();
        if unnamed > 0 && self.ids.is_none() && !self.dry_run {
            out.say(&format!(
                "{unnamed} lines had no id: run again, they would be sent again. Name them with --ids"
            ));
        }
        tell(out, &counts)
    }

    /// Always there: whoever names neither a file nor anything else has been told so.
    fn file(&self) -> &Path {
        self.file.as_deref().unwrap_or(Path::new("-"))
    }

    fn open(&self) -> Result<(Box<dyn BufRead>, Option<u64>), Failure> {
        if self.file().as_os_str() == "-" {
            return Ok((Box::new(BufReader::new(io::stdin())), None));
        }
        let fault = |e: io::Error| Failure::failed(format!("cannot open {}: {e}", self.file().display()));
        let file = File::open(self.file()).map_err(fault)?;
        let size = file.metadata().map_err(fault)?.len();
        Ok((Box::new(BufReader::with_capacity(1 << 20, file)), Some(size)))
    }

    /// Sends what is gathered. It has ids all through, so it may be sent again while the server is away.
    async fn send(
        &self,
        client: &Client,
        out: &Output,
        progress: &Progress,
        counts: &mut Counts,
        batch: &mut Batch,
    ) -> Result<(), Failure> {
        let lines = std::mem::take(&mut batch.lines);
        let body = batch.body.split().freeze();
        if lines.is_empty() || self.dry_run {
            counts.accepted += lines.len() as u64;
            return Ok(());
        }
        let (began, mut wait) = (clock::instant(), Duration::from_millis(100));
        let results = loop {
            match answers(client, body.clone(), lines.len()).await {
                Ok(results) => break results,
                Err(failure) if failure.passes() && began.elapsed() < self.patience => {
                    progress.say(out, &format!("{}; trying again", failure.words));
                    clock::sleep(wait).await;
                    wait = (wait * 2).min(BACKOFF_MAX);
                }
                Err(failure) => {
                    progress.end();
                    out.say(&format!("stopped at line {}: run it again to go on", lines[0]));
                    return Err(failure);
                }
            }
        };
        for (number, result) in lines.into_iter().zip(results) {
            match result {
                BatchResult::Accepted(accepted) if accepted.duplicate => counts.duplicates += 1,
                BatchResult::Accepted(_) => counts.accepted += 1,
                BatchResult::Refused { error } => {
                    complain(out, progress, counts, number, &format!("{} [{}]", error.detail, error.code));
                }
            }
        }
        Ok(())
    }
}

impl Batch {
    fn push(&mut self, number: u64, message: &NewMessage) -> Result<(), Failure> {
        serde_json::to_writer((&mut self.body).writer(), message)
            .map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))?;
        self.body.put_u8(b'\n');
        self.lines.push(number);
        Ok(())
    }
}

async fn answers(client: &Client, body: bytes::Bytes, expected: usize) -> Result<Vec<BatchResult>, Failure> {
    let mut lines = client.post_lines("/v1/messages/batch", body).await?;
    let mut results = Vec::with_capacity(expected);
    while let Some(line) = lines.next().await? {
        let result = serde_json::from_slice(&line)
            .map_err(|e| Failure::failed(format!("the server's answer to a line is not Duly's: {e}")))?;
        results.push(result);
    }
    if results.len() == expected {
        return Ok(results);
    }
    Err(Failure::unreachable(format!("the answer ended after {} of {expected} lines", results.len())))
}

fn complain(out: &Output, progress: &Progress, counts: &mut Counts, number: u64, fault: &str) {
    counts.refused += 1;
    if counts.refused <= COMPLAINTS {
        progress.complain(out, &format!("line {number}: {fault}"));
    } else if counts.refused == COMPLAINTS + 1 {
        progress.say(out, "there are more bad lines: they are only counted from here on");
    }
}

fn tell(out: &Output, counts: &Counts) -> Result<(), Failure> {
    out.answer(counts, |counts| {
        let mut rows = out.table(&[
            "LINES",
            if counts.dry_run { ">GOOD" } else { ">ACCEPTED" },
            ">DUPLICATES",
            ">REFUSED",
        ]);
        let numbers = [counts.lines, counts.accepted, counts.duplicates, counts.refused];
        rows.row(numbers.map(clock::grouped));
        rows.text()
    })?;
    if counts.refused > 0 {
        let verb = if counts.dry_run { "would be refused" } else { "were refused" };
        return Err(Failure::failed(format!("{} of {} lines {verb}", counts.refused, counts.lines)));
    }
    Ok(())
}
