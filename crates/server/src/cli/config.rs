//! `duly config check` and `duly config default`.

use std::path::PathBuf;

use serde::Serialize;

use super::{Failure, Output};
use crate::config::{DEFAULT_FILE, Flags, Loaded, Problems, Setting, Sources};

/// Check the settings, or print a file with all of them
#[derive(Debug, clap::Args)]
pub(crate) struct Arguments {
    #[command(subcommand)]
    what: What,
}

#[derive(Debug, clap::Subcommand)]
enum What {
    /// Say what is used and where each value came from, or everything that is wrong
    Check(Flags),
    /// Print a commented file with every setting and its default
    Default,
}

#[derive(Serialize)]
struct Checked<'a> {
    ok: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    file: Option<PathBuf>,
    settings: &'a [Setting],
}

#[derive(Serialize)]
struct Faulty<'a> {
    ok: bool,
    #[serde(flatten)]
    problems: &'a Problems,
}

impl Arguments {
    pub(crate) fn run(self, output: &Output) -> Result<(), Failure> {
        match self.what {
            What::Check(flags) => check(&Sources::from_process(flags), output),
            What::Default => output.bytes(DEFAULT_FILE.as_bytes()),
        }
    }
}

fn check(sources: &Sources, output: &Output) -> Result<(), Failure> {
    let loaded = match Loaded::read(sources) {
        Ok(loaded) => loaded,
        Err(problems) if output.is_json() => {
            output.answer(&Faulty { ok: false, problems: &problems }, |_| String::new())?;
            // Programs have read everything already.
            return Err(Failure::failed(""));
        }
        Err(problems) => return Err(Failure::failed(problems.to_string())),
    };
    let checked = Checked { ok: true, file: sources.file.clone(), settings: &loaded.settings };
    output.answer(&checked, |checked| table(output, checked.settings))?;
    match &sources.file {
        Some(file) => output.say(&format!("{} is in order.", file.display())),
        None => output.say("There is no file; the defaults, the environment and the flags are in order."),
    }
    Ok(())
}

fn table(output: &Output, settings: &[Setting]) -> String {
    let mut rows = output.table(&["SETTING", "VALUE", "FROM"]);
    for setting in settings {
        let value = match &setting.value {
            serde_json::Value::Null => "(not set)".into(),
            serde_json::Value::String(text) => text.clone(),
            other => other.to_string(),
        };
        rows.row([setting.path.clone(), value, setting.from.to_string()]);
    }
    rows.text()
}
