//! `duly config check` and `duly config default`.

use std::{collections::BTreeMap, path::PathBuf};

use serde::Serialize;
use serde_json::Value;

use super::{Failure, Output};
use duly_server::{
    config::{DEFAULT_FILE, Flags, Loaded, Problems, Setting, Sources},
    serve,
};

/// Check the settings, or print a file with all of them
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    command: ConfigCommand,
}

#[derive(Debug, clap::Subcommand)]
enum ConfigCommand {
    /// Say what is used and where each value came from, or everything that is wrong
    Check {
        #[command(flatten)]
        flags: Flags,

        /// Show each value as it is used where another setting bounds it, beside what was written
        #[arg(long)]
        effective: bool,
    },
    /// Print a commented file with every setting and its default
    Default,
}

#[derive(Serialize)]
struct Checked<'a> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    settings: Vec<Shown<'a>>,
}

/// A setting, and what is used in place of what was written.
#[derive(Serialize)]
struct Shown<'a> {
    #[serde(flatten)]
    setting: &'a Setting,
    #[serde(skip_serializing_if = "Option::is_none")]
    effective: Option<Value>,
}

#[derive(Serialize)]
struct Faulty<'a> {
    ok: bool,
    #[serde(flatten)]
    problems: &'a Problems,
}

impl Arguments {
    pub(crate) fn run(self, output: &Output) -> Result<(), Failure> {
        match self.command {
            ConfigCommand::Check { flags, effective } => {
                check(&Sources::from_process(flags), effective, output)
            }
            ConfigCommand::Default => output.bytes(DEFAULT_FILE.as_bytes()),
        }
    }
}

fn check(sources: &Sources, effective: bool, output: &Output) -> Result<(), Failure> {
    let loaded = match Loaded::read(sources) {
        Ok(loaded) => loaded,
        Err(problems) if output.is_json() => {
            output.answer(&Faulty { ok: false, problems: &problems }, |_| String::new())?;
            // Programs have read everything already.
            return Err(Failure::failed(""));
        }
        Err(problems) => return Err(Failure::failed(problems.to_string())),
    };
    let used: BTreeMap<_, _> =
        if effective { serve::effective(&loaded.config).into_iter().collect() } else { BTreeMap::new() };
    let settings = loaded.settings.iter().map(|setting| {
        let effective = used.get(&setting.path).filter(|used| **used != setting.value);
        Shown { setting, effective: effective.cloned() }
    });
    let settings = settings.collect();
    let checked = Checked { ok: true, file: sources.file.clone(), settings };
    output.answer(&checked, |checked| table(output, &checked.settings))?;
    match &sources.file {
        Some(file) => output.note(&format!("{} is in order.", file.display())),
        None => output.note("There is no file; the defaults, the environment and the flags are in order."),
    }
    Ok(())
}

fn table(output: &Output, settings: &[Shown<'_>]) -> String {
    let mut rows = output.table(&["SETTING", "VALUE", "FROM"]);
    for Shown { setting, effective } in settings {
        let mut value = words(&setting.value);
        if let Some(used) = effective {
            value = format!("{} (written: {value})", words(used));
        }
        rows.row([setting.path.clone(), value, setting.from.to_string()]);
    }
    rows.text()
}

fn words(value: &Value) -> String {
    match value {
        Value::Null => "(not set)".into(),
        Value::String(text) => text.clone(),
        other => other.to_string(),
    }
}
