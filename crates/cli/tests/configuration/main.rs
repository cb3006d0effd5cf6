//! The configuration, from files, variables and flags to what is used and what is shown.

mod commands;
mod data_folder;
mod doctor;
mod load;
mod secrets;
mod sinks;
mod stores;
mod tokens;

use std::{fs, path::PathBuf};

use duly_server::config::{Flags, Sources};

/// A folder of one test's own.
pub(crate) struct Folder(pub(crate) tempfile::TempDir);

impl Folder {
    pub(crate) fn new() -> Self {
        Self(tempfile::tempdir().expect("a folder for the test"))
    }

    pub(crate) fn write(&self, name: &str, text: &str) -> PathBuf {
        let path = self.0.path().join(name);
        fs::write(&path, text).expect("a file for the test");
        path
    }

    pub(crate) fn sources(&self, file: &str, environment: &[(&str, &str)]) -> Sources {
        let environment = environment.iter().map(|(name, value)| (name.to_string(), value.to_string()));
        Sources {
            file: Some(self.write("duly.toml", file)),
            environment: environment.collect(),
            flags: Flags::default(),
        }
    }
}
