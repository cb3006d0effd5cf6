//! `duly backup`: a copy of the data folder, while the server runs.

use std::path::{Path, PathBuf};

use duly::{Clock, MessageId, StoreErrorKind, SystemClock};
use duly_stores::embedded::{BackupReport, Verified, backup_telling, mark_sound, mark_unsound, verify};
use indicatif::{HumanBytes, ProgressBar, ProgressDrawTarget, ProgressStyle};
use serde::Serialize;

use super::{
    Failure, Output, clock,
    doctor::{faults, unnamed},
    progress::Progress,
};
use duly_server::config::{Config, Flags, Sources};

/// Copy the data folder, also while a server works on it
#[derive(Debug, clap::Args)]
#[command(after_help = "Examples:
  duly backup /backups/duly-monday
  duly backup /backups/duly-monday --data /var/lib/duly
  duly backup /backups/duly-monday --verify

The copy has everything that was accepted before the backup began. Without --data, the folder is the one that the configuration
names. --verify opens the copy without changing it and reads all of it; exit code 1 if anything cannot be read, with the ids of the
first 20 messages that cannot (-o json: damaged). To restore: stop the server, and start it with --data on the copy or on a copy of the copy.")]
pub(crate) struct Arguments {
    /// Where the copy goes: a folder that is missing or empty
    to: PathBuf,

    /// Read every message of the copy once it is made
    #[arg(long)]
    verify: bool,

    /// The data folder
    #[arg(long, value_name = "DIR", conflicts_with = "config")]
    data: Option<PathBuf>,

    /// The configuration file that names it; without it, ./duly.toml is read if it is there
    #[arg(long, value_name = "FILE")]
    config: Option<PathBuf>,
}

/// The report of a backup, for people and programs.
#[derive(Serialize)]
struct BackupSummary {
    from: String,
    to: String,
    files: u64,
    bytes: u64,
    passes: u64,
    /// Messages that were read in the copy, if that was asked for.
    #[serde(skip_serializing_if = "Option::is_none")]
    verified: Option<u64>,
    /// The messages of the copy that cannot be read.
    #[serde(skip_serializing_if = "Option::is_none")]
    damaged: Option<DamagedMessages>,
}

/// Messages that cannot be read in the copy.
#[derive(Serialize)]
struct DamagedMessages {
    count: u64,
    /// Of the first few, and of those whose id can still be read.
    ids: Vec<String>,
    /// The number of ids that are not listed.
    more: u64,
}

/// The faults of a copy.
struct Unsound {
    why: String,
    damaged: Option<DamagedMessages>,
}

impl Unsound {
    fn new(found: &Verified) -> Self {
        let ids = found.damaged_ids.iter().map(MessageId::to_string).collect();
        let damaged = DamagedMessages { count: found.damaged, ids, more: unnamed(found) };
        Self { why: faults(found), damaged: Some(damaged) }
    }
}

impl Arguments {
    pub(crate) async fn run(self, out: &Output) -> Result<(), Failure> {
        let from = match self.data {
            Some(data) => data,
            None => configured(self.config)?,
        };
        let to = self.to;
        let bar = progress(out);
        let (shown, source, target) = (bar.clone(), from.clone(), to.clone());
        let copied = tokio::task::spawn_blocking(move || {
            backup_telling(&source, &target, &mut |done, of| {
                shown.set_length(of);
                shown.set_position(done);
            })
        });
        let copied = copied.await.map_err(|e| Failure::failed(format!("the backup broke off: {e}")))?;
        bar.finish_and_clear();
        let BackupReport { files, bytes, passes, damaged, .. } =
            copied.map_err(|e| Failure::failed(e.to_string()))?;
        // A damaged message of a table may have ended since. Only the whole copy shows that.
        let read = if self.verify || damaged > 0 { Some(verified(out, &to).await?) } else { None };
        let mut summary = BackupSummary {
            from: from.display().to_string(),
            to: to.display().to_string(),
            files,
            bytes,
            passes,
            verified: None,
            damaged: None,
        };
        match read.transpose() {
            Ok(count) => summary.verified = count.filter(|_| self.verify),
            Err(unsound) => {
                let source = if damaged > 0 { "; the data folder has the same damage" } else { "" };
                let failure = mark(&to, &format!("{}{source}", unsound.why));
                summary.damaged = unsound.damaged;
                if out.is_json() {
                    out.answer(&summary, |_| String::new())?;
                }
                return Err(failure);
            }
        }
        mark_sound(&to).map_err(|e| Failure::failed(e.to_string()))?;
        out.answer(&summary, |summary| {
            let copied = HumanBytes(summary.bytes);
            let mut words =
                format!("{} copied to {}: {copied} in {} files", summary.from, summary.to, summary.files);
            if let Some(count) = summary.verified {
                words.push_str(&format!("; {} messages read in the copy, all sound", clock::grouped(count)));
            }
            words
        })
    }
}

/// Marks the copy, so that nobody takes it for a good one.
fn mark(copy: &Path, why: &str) -> Failure {
    let mut words = format!("the copy in {} is not sound, and not to be relied on: {why}", copy.display());
    if let Err(error) = mark_unsound(copy, why) {
        words.push_str(&format!("; it could not be marked: {error}"));
    }
    Failure::failed(words)
}

/// Reads all of the copy. Gives how many messages that were, or what is wrong with it. Fails if it could not be read for a reason
/// that is not in the copy.
async fn verified(out: &Output, copy: &Path) -> Result<Result<u64, Unsound>, Failure> {
    let clock = SystemClock::new().map_err(|e| Failure::failed(format!("cannot start the clock: {e}")))?;
    let progress = Progress::of_messages(out, 0);
    let mut on_read = |read| {
        progress.at(read);
        true
    };
    let found = verify(copy, clock.now(), &mut on_read).await;
    progress.end();
    match found {
        Ok(found) if found.is_sound() => Ok(Ok(found.messages)),
        Ok(found) => Ok(Err(Unsound::new(&found))),
        Err(error) if error.kind == StoreErrorKind::Damaged => {
            Ok(Err(Unsound { why: error.to_string(), damaged: None }))
        }
        Err(error) => {
            Err(Failure::failed(format!("the copy in {} was not checked: {error}", copy.display())))
        }
    }
}

/// The data folder that the configuration names.
fn configured(config: Option<PathBuf>) -> Result<PathBuf, Failure> {
    let flags = Flags { config, ..Flags::default() };
    let config = Config::load(&Sources::from_process(flags));
    let wrong = |problems| Failure::failed(format!("{problems}\nor name the data folder with --data"));
    let config = config.map_err(wrong)?;
    match (config.data(), config.store.config.own_backup()) {
        (Some(folder), _) => Ok(folder.to_owned()),
        (None, advice) => Err(Failure::failed(advice.unwrap_or("the messages are in no folder"))),
    }
}

fn progress(out: &Output) -> ProgressBar {
    // Hides itself where stderr is no terminal.
    let target =
        if out.quiet { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr_with_hz(10) };
    let bar = ProgressBar::with_draw_target(None, target);
    let style =
        ProgressStyle::with_template("{bar:30} {bytes} of {total_bytes}, {bytes_per_sec}, {eta} left");
    bar.set_style(style.unwrap_or_else(|_| ProgressStyle::default_bar()));
    bar
}

#[cfg(test)]
mod tests {
    use duly::{Duly, Message, hours};

    use super::*;

    #[tokio::test]
    async fn the_folder_of_a_running_server_is_copied_and_opens_elsewhere() {
        let (folder, backups) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let running = Duly::open(folder.path()).await.unwrap();
        running.send(Message::to("order").id("a").after(hours(1))).await.unwrap();
        let arguments = || Arguments {
            to: backups.path().join("monday"),
            data: Some(folder.path().to_owned()),
            config: None,
            verify: true,
        };
        let out = Output { quiet: true, ..Output::default() };
        arguments().run(&out).await.unwrap();
        let again = arguments().run(&out).await.unwrap_err();
        assert!(again.words.contains("is not empty"), "{}", again.words);
        running.cancel("a").await.unwrap();
        let restored = Duly::open(backups.path().join("monday")).await.unwrap();
        assert_eq!(restored.get("a").await.unwrap().unwrap().state, duly::State::Pending);
        assert!(restored.totals().await.unwrap().balance());
    }
}
