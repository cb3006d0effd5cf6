//! Which messages a verb is about: ids, or all that match.

use clap::Args;
use serde::Serialize;

use super::{Failure, Output, clock, input};
use duly_client::wire::{BulkAnswer, Filter, Moment};

/// The messages that a verb is about, as arguments.
#[derive(Debug, Clone, Default, Args)]
pub(crate) struct Selection {
    /// Ids of messages; - reads them from stdin, one a line, or what `duly ls -o json` writes
    #[arg(value_name = "ID", conflicts_with_all = ["topic", "sink", "due_from", "due_to", "all"])]
    ids: Vec<String>,

    /// All of this topic
    #[arg(long)]
    topic: Option<String>,

    /// All of this sink
    #[arg(long)]
    sink: Option<String>,

    /// All that are due at this time or later
    #[arg(long, value_name = "TIME", value_parser = input::moment)]
    due_from: Option<Moment>,

    /// All that are due before this time
    #[arg(long, value_name = "TIME", value_parser = input::moment)]
    due_to: Option<Moment>,

    /// All there are
    #[arg(long, conflicts_with_all = ["topic", "sink", "due_from", "due_to"])]
    all: bool,

    /// Only count: change nothing
    #[arg(long)]
    pub(crate) dry_run: bool,

    /// Do not ask
    #[arg(short, long)]
    pub(crate) yes: bool,
}

/// Ids that were named.
#[derive(Debug, Default)]
pub(crate) struct Ids {
    pub(crate) all: Vec<String>,
    /// They were read from a list of messages that has more than it shows.
    pub(crate) is_cut: bool,
}

impl Ids {
    /// A user who pipes a list into a verb must see that the list was not complete.
    pub(crate) fn check_whole(&self) -> Result<(), Failure> {
        if !self.is_cut {
            return Ok(());
        }
        Err(Failure::failed(format!(
            "the list on stdin was cut after {}: there are more; `duly ls --all` lists all of them",
            self.all.len()
        )))
    }
}

/// A resolved selection.
pub(crate) enum ResolvedSelection {
    Ids(Ids),
    Matching(Filter),
}

impl Selection {
    /// A selection that asks for no confirmation.
    #[cfg(test)]
    pub(crate) fn confirmed() -> Self {
        Self { yes: true, ..Self::default() }
    }

    pub(crate) fn resolve(&self) -> Result<ResolvedSelection, Failure> {
        if !self.ids.is_empty() {
            return input::listed(&self.ids).map(ResolvedSelection::Ids);
        }
        let filter = Filter {
            sink: self.sink.clone(),
            topic: self.topic.clone(),
            due_from: self.due_from.clone(),
            due_to: self.due_to.clone(),
        };
        let narrows =
            self.topic.is_some() || self.sink.is_some() || self.due_from.is_some() || self.due_to.is_some();
        if !narrows && !self.all {
            return Err(Failure::usage(
                "which messages? Name ids, or --topic, --sink, --due-from, --due-to or --all",
            ));
        }
        Ok(ResolvedSelection::Matching(filter))
    }
}

/// Does the same with each id. One that fails does not keep the others from it; the exit code tells the worst.
pub(crate) async fn each<T, C, F>(
    out: &Output,
    ids: Ids,
    mut call: C,
    show: impl Fn(&T) -> String,
) -> Result<(), Failure>
where
    T: Serialize,
    C: FnMut(String) -> F,
    F: Future<Output = Result<T, duly_client::Error>>,
{
    let (total, mut failed, mut worst) = (ids.all.len(), 0, 0);
    let whole = ids.check_whole();
    for id in ids.all {
        match call(id).await.map_err(Failure::from) {
            Ok(done) if total > 1 && out.is_json() => out.json_line(&done)?,
            Ok(done) => out.answer(&done, &show)?,
            // Alone it speaks for itself; and with nobody there, the others would fare no better.
            Err(failure) if total == 1 || failure.code() == 5 => return Err(failure),
            Err(failure) => {
                out.complain(&failure.words);
                failed += 1;
                worst = worst.max(failure.code());
            }
        }
    }
    let mut words = if failed == total {
        format!("all {total} failed")
    } else {
        format!("{failed} of {total} failed, the others are done")
    };
    if let Err(cut) = &whole {
        words = format!("{words}; {}", cut.words);
    }
    match worst {
        0 => whole,
        3 => Err(Failure::not_found(words)),
        4 => Err(Failure::too_late(words)),
        _ => Err(Failure::failed(words)),
    }
}

/// Tells what a change of many came to.
pub(crate) fn print_bulk(out: &Output, verb: &str, answer: &BulkAnswer) -> Result<(), Failure> {
    out.answer(answer, |answer| {
        let count = clock::grouped;
        if answer.dry_run {
            let would = answer.matched.saturating_sub(answer.too_late).saturating_sub(answer.already);
            return format!("{} would be {verb}", count(would));
        }
        let mut text = format!("{} {verb}", count(answer.done));
        for (number, words) in [
            (answer.already, "so before"),
            (answer.too_late, "too late"),
            (answer.unknown, "unknown"),
            (answer.maybe_delivered, "may have arrived by an earlier attempt"),
        ] {
            if number > 0 {
                text += &format!(", {} {words}", count(number));
            }
        }
        text
    })?;
    if answer.dry_run || (answer.unknown == 0 && answer.too_late == 0) {
        return Ok(());
    }
    let words = format!("not all were {verb}");
    Err(if answer.too_late > 0 { Failure::too_late(words) } else { Failure::not_found(words) })
}

/// Adds the answers to several calls.
pub(crate) fn sum(total: &mut BulkAnswer, part: &BulkAnswer) {
    total.matched += part.matched;
    total.done += part.done;
    total.too_late += part.too_late;
    total.already += part.already;
    total.unknown += part.unknown;
    total.maybe_delivered += part.maybe_delivered;
    total.dry_run |= part.dry_run;
}
