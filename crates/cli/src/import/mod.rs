//! `duly import`: messages from a file, one JSON object a line, or from somewhere else.

mod check;
mod ids;
mod patience;
mod redis;

use std::{
    fs::File,
    io::{self, BufRead, BufReader},
    path::{Path, PathBuf},
    time::Duration,
};

use bytes::{BufMut, Bytes, BytesMut};
use clap::{Args, Subcommand};
use serde::Serialize;

use self::{
    check::Checked,
    ids::{COMPARED_MAX, GeneratedIds, IdCheck, SeenIds},
    patience::{Next, Patience},
};
use super::{Failure, Output, clock, progress::Progress};
use duly::{ErrorCode, Limits, MessageId, Timestamp};
use duly_client::{
    Client,
    wire::{BatchResult, ItemError, NewMessage},
};

/// Faults of lines that are printed; further ones are only counted.
const COMPLAINTS: u64 = 20;
/// The byte order mark that some programs write before UTF-8. It is not part of the text.
const BYTE_ORDER_MARK: &[u8] = b"\xef\xbb\xbf";

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
Lines without one get it from --ids and their number; without --ids a prefix is generated and printed, to be given as --ids
when the import is run again. A server or a store that is unreachable is waited for, as long as --patience says.
A dry run compares the first 3,670,016 ids: one that comes again with other content would be refused."
)]
pub(crate) struct Import {
    #[command(subcommand)]
    source: Option<ImportSource>,

    #[command(flatten)]
    lines: Lines,
}

/// Where messages come from, if not from a file.
#[derive(Debug, Subcommand)]
enum ImportSource {
    Redis(redis::Arguments),
}

#[derive(Debug, Args)]
struct Lines {
    /// The file; - reads stdin
    #[arg(required = true)]
    file: Option<PathBuf>,

    /// Check every line as the server would, by the default limits, and send nothing. Only a server knows its sinks, levels and rights
    #[arg(long)]
    dry_run: bool,

    /// Lines without an id get PREFIX-<number of the line>: then the import can be run again
    #[arg(long, value_name = "PREFIX")]
    ids: Option<String>,

    /// Lines per call
    #[arg(long, default_value_t = 1_000, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(1..=10_000))]
    batch: u32,

    /// How long to wait for a server or a store that is unreachable, silent or full. One call is given 5 seconds at least
    #[arg(long, default_value = "30s", value_name = "DELAY", value_parser = super::input::span)]
    patience: Duration,
}

/// The report of an import.
#[derive(Debug, Default, Serialize)]
struct Counts {
    lines: u64,
    accepted: u64,
    duplicates: u64,
    refused: u64,
    dry_run: bool,
    /// There were more ids than a dry run compares.
    #[serde(skip)]
    has_uncompared: bool,
}

/// A line on its way to the server, as JSON.
struct Line {
    number: u64,
    json: Bytes,
}

/// Lines on their way to the server.
struct Batch {
    lines: Vec<Line>,
    /// Lines per call: as asked for, or the limit of the server.
    max: usize,
}

impl Import {
    pub(crate) async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        match self.source {
            Some(ImportSource::Redis(arguments)) => arguments.run(client, out).await,
            None => self.lines.run(client, out).await,
        }
    }
}

impl Lines {
    async fn run(self, client: &Client, out: &Output) -> Result<(), Failure> {
        let (input, size) = self.open()?;
        let progress = Progress::start(out, size);
        let mut counts = Counts { dry_run: self.dry_run, ..Counts::default() };
        let mut generated = GeneratedIds::new(self.ids.as_deref())?;
        // A dry run goes by the limits that a server has unless it is told otherwise; otherwise the server knows its own.
        let limits = if self.dry_run { Limits::default() } else { no_limits() };
        let mut seen = SeenIds::default();
        let mut batch = Batch { lines: Vec::new(), max: self.batch as usize };
        for (number, line) in (1..).zip(input.split(b'\n')) {
            let line =
                line.map_err(|e| Failure::failed(format!("cannot read {}: {e}", self.file().display())))?;
            progress.read(line.len() as u64 + 1);
            let line = line.strip_prefix(BYTE_ORDER_MARK).filter(|_| number == 1).unwrap_or(&line);
            if line.iter().all(u8::is_ascii_whitespace) {
                continue;
            }
            counts.lines += 1;
            match check::line(line, Timestamp::from_millis(clock::now_ms()), &limits) {
                Ok(mut checked) => {
                    if checked.message.id.is_none() {
                        checked.message.id = Some(generated.id(number));
                        generated.announce(|words| progress.note(out, words), self.dry_run);
                    }
                    if self.dry_run {
                        compare(out, &progress, &mut counts, &mut seen, number, &checked);
                    } else {
                        batch.push(number, &checked.message)?;
                    }
                }
                Err(fault) => complain(out, &progress, &mut counts, number, &fault),
            }
            if batch.lines.len() >= batch.max {
                self.send(client, out, &progress, &mut counts, &mut batch).await?;
            }
        }
        self.send(client, out, &progress, &mut counts, &mut batch).await?;
        progress.end();
        generated.conclude(out, self.dry_run);
        print_counts(out, &counts)
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

    /// Sends what is gathered. It has ids all through, so what was not taken for a reason that passes is sent again.
    async fn send(
        &self,
        client: &Client,
        out: &Output,
        progress: &Progress,
        counts: &mut Counts,
        batch: &mut Batch,
    ) -> Result<(), Failure> {
        let mut lines = std::mem::take(&mut batch.lines);
        let mut patience = Patience::new(self.patience);
        while !lines.is_empty() {
            let now = lines.len().min(batch.max);
            let answered = answers(&patience.bound(client), &lines[..now]).await;
            let (taken, why) = match answered {
                Ok(results) => judge(out, progress, counts, (&mut lines, now, &mut batch.max), results),
                Err(failure) if failure.passes() => (0, Some(failure)),
                Err(failure) => return Err(stopped(out, progress, &lines, failure)),
            };
            if taken > 0 {
                patience.renew();
            }
            let Some(why) = why else { continue };
            if patience.next() == Next::GiveUp {
                return Err(stopped(out, progress, &lines, why));
            }
            progress.note(out, &format!("{}; trying again", why.words));
            patience.back_off().await;
        }
        Ok(())
    }
}

/// Counts a good line of a dry run by what the server would say of its id.
fn compare(
    out: &Output,
    progress: &Progress,
    counts: &mut Counts,
    seen: &mut SeenIds,
    number: u64,
    checked: &Checked,
) {
    let id = match MessageId::parse(checked.message.id.as_deref().unwrap_or_default()) {
        Ok(id) => id,
        Err(fault) => return complain(out, progress, counts, number, &fault.to_string()),
    };
    match seen.check(&id, checked.content_hash) {
        IdCheck::First => counts.accepted += 1,
        IdCheck::Duplicate => counts.duplicates += 1,
        IdCheck::Conflict => {
            let code = ErrorCode::IdConflict.as_str();
            let words = format!("id: {:?} is on a line before it, with other content [{code}]", id.as_str());
            complain(out, progress, counts, number, &words);
        }
        IdCheck::Unknown => {
            if !counts.has_uncompared {
                let max = clock::grouped(COMPARED_MAX as u64);
                progress.note(out, &format!("more than {max} ids: those after them are not compared"));
            }
            counts.has_uncompared = true;
            counts.accepted += 1;
        }
    }
}

/// Counts what the server said of the first `now` lines, and leaves those that are to be sent again. Gives how many are done,
/// and why some are not yet.
fn judge(
    out: &Output,
    progress: &Progress,
    counts: &mut Counts,
    (lines, now, max): (&mut Vec<Line>, usize, &mut usize),
    results: Vec<BatchResult>,
) -> (usize, Option<Failure>) {
    let mut again: Vec<Line> = Vec::new();
    let (mut done, mut why) = (0, None);
    let mut sent = lines.drain(..now);
    for (result, line) in results.into_iter().zip(sent.by_ref()) {
        match result {
            BatchResult::Accepted(accepted) if accepted.duplicate => counts.duplicates += 1,
            BatchResult::Accepted(_) => counts.accepted += 1,
            // The server takes fewer at once than were sent; this line and those after it were not looked at.
            BatchResult::Refused { error }
                if is(&error, ErrorCode::BatchTooLarge) && done + again.len() > 0 =>
            {
                *max = done + again.len();
                again.push(line);
                break;
            }
            BatchResult::Refused { error } if passes(&error.code) => {
                why = Some(Failure::unreachable(format!("{} [{}]", error.detail, error.code)));
                again.push(line);
                continue;
            }
            BatchResult::Refused { error } => {
                let words = format!("{} [{}]", error.detail, error.code);
                complain(out, progress, counts, line.number, &words);
            }
        }
        done += 1;
    }
    // Lines without an answer of their own are sent again, too.
    again.extend(sent);
    again.append(lines);
    *lines = again;
    if done == 0 && why.is_none() {
        why = Some(Failure::unreachable("the server answered none of the lines"));
    }
    (done, why)
}

fn is(error: &ItemError, code: ErrorCode) -> bool {
    ErrorCode::parse(&error.code) == Some(code)
}

/// Whether a line that was refused with this code may be taken a little later: nothing is wrong with the line itself.
fn passes(code: &str) -> bool {
    ErrorCode::parse(code).is_some_and(ErrorCode::is_transient)
}

fn no_limits() -> Limits {
    let limits = Limits::default();
    Limits { body_bytes_max: usize::MAX, properties_max: usize::MAX, delay_max: Duration::MAX, ..limits }
}

fn stopped(out: &Output, progress: &Progress, lines: &[Line], failure: Failure) -> Failure {
    progress.end();
    if let Some(first) = lines.iter().map(|line| line.number).min() {
        out.note(&format!("stopped at line {first}: run it again to go on"));
    }
    failure
}

impl Batch {
    fn push(&mut self, number: u64, message: &NewMessage) -> Result<(), Failure> {
        let json =
            serde_json::to_vec(message).map_err(|e| Failure::failed(format!("cannot write JSON: {e}")))?;
        self.lines.push(Line { number, json: json.into() });
        Ok(())
    }
}

/// The answers to these lines; fewer, if the server ended the batch before its end.
async fn answers(client: &Client, lines: &[Line]) -> Result<Vec<BatchResult>, Failure> {
    let mut body = BytesMut::with_capacity(lines.iter().map(|line| line.json.len() + 1).sum());
    for line in lines {
        body.put_slice(&line.json);
        body.put_u8(b'\n');
    }
    let mut answer = client.send_lines(body.freeze()).await?;
    let mut results = Vec::with_capacity(lines.len());
    while let Some(result) = answer.next().await? {
        if results.len() == lines.len() {
            return Err(Failure::unreachable(format!("more answers than lines: {}", lines.len())));
        }
        results.push(result);
    }
    let has_ended_it = results.last().is_some_and(|last| match last {
        BatchResult::Refused { error } => {
            // The server reads none of the lines after one that is too long, or past its limit of a batch.
            is(error, ErrorCode::BatchTooLarge) || is(error, ErrorCode::BodyTooLarge) || passes(&error.code)
        }
        BatchResult::Accepted(_) => false,
    });
    if results.len() == lines.len() || (results.len() < lines.len() && has_ended_it) {
        return Ok(results);
    }
    Err(Failure::unreachable(format!("the answer ended after {} of {} lines", results.len(), lines.len())))
}

fn complain(out: &Output, progress: &Progress, counts: &mut Counts, number: u64, fault: &str) {
    counts.refused += 1;
    if counts.refused <= COMPLAINTS {
        progress.complain(out, &format!("line {number}: {fault}"));
    } else if counts.refused == COMPLAINTS + 1 {
        progress.note(out, "there are more bad lines: they are only counted from here on");
    }
}

fn print_counts(out: &Output, counts: &Counts) -> Result<(), Failure> {
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
