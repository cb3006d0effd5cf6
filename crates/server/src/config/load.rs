//! Reading all sources into one configuration.

use std::{fs, path::Path};

use super::{
    Config, Flags, Origin, Problem, Problems, Setting, Sources, environment, otel_environment, resolve,
    secret::without,
    section::{Reading, Section},
    written::{self, Node, Table, Value},
};

/// A configuration, and where each of its settings came from.
#[derive(Debug, Clone)]
pub struct Loaded {
    /// The configuration in use.
    pub config: Config,
    /// Each setting, in the order of the reference; secrets are masked.
    pub settings: Vec<Setting>,
}

impl Config {
    /// Reads the file, the environment and the flags. If anything is wrong, everything that is wrong is told.
    pub fn load(sources: &Sources) -> Result<Self, Problems> {
        Loaded::read(sources).map(|loaded| loaded.config)
    }
}

impl Loaded {
    /// As [`Config::load`], and says where each setting came from.
    pub fn read(sources: &Sources) -> Result<Self, Problems> {
        let (config, reading) = read(sources);
        match config {
            Some(config) if reading.problems.is_empty() => Ok(Self { config, settings: reading.settings }),
            _ => Err(Problems::new(sources.file.clone(), reading.problems)),
        }
    }
}

pub(super) fn read(sources: &Sources) -> (Option<Config>, Reading) {
    let mut reading = Reading::default();
    let file = sources.file.as_deref().map_or(Ok(Table::new()), file);
    let mut table = match file {
        Ok(table) => table,
        Err(problems) => {
            reading.problems = problems;
            return (None, reading);
        }
    };
    let mut secrets = environment::overlay(&mut table, &sources.environment, &mut reading.problems);
    secrets.extend(otel_environment::fill(&mut table, &sources.environment, &mut reading.problems));
    flags(&mut table, &sources.flags);
    let insecure = sources.flags.insecure_no_auth;
    let config = Section::read_all(&mut reading, table, |top| resolve::config(top, insecure));
    // Readers mask secrets themselves. This catches what one of them missed.
    for problem in &mut reading.problems {
        problem.detail = without(&secrets, &problem.detail);
    }
    (Some(config), reading)
}

fn file(path: &Path) -> Result<Table, Vec<Problem>> {
    match fs::read_to_string(path) {
        Ok(text) => written::parse(&text),
        Err(error) => {
            let detail = format!("the file cannot be read: {error}");
            Err(vec![Problem::new("", Origin::Default, detail)])
        }
    }
}

fn flags(table: &mut Table, flags: &Flags) {
    let mut put = |key: &str, flag, text: String| {
        table.insert(key.into(), Node::new(Value::Text(text), Origin::Flag(flag)));
    };
    if let Some(listen) = &flags.listen {
        put("listen", "--listen", listen.clone());
    }
    if let Some(data) = &flags.data {
        put("data", "--data", data.display().to_string());
    }
}
