//! Where settings are taken from.

use std::{
    fmt,
    path::{Path, PathBuf},
};

/// The file that is read if none is named and it is there.
const FILE: &str = "duly.toml";

/// The flags that go before everything else.
#[derive(Debug, Clone, Default, PartialEq, Eq, clap::Args)]
pub struct Flags {
    /// The configuration file; without it, ./duly.toml is read if it is there
    #[arg(long, value_name = "FILE")]
    pub config: Option<PathBuf>,
    /// Where HTTP listens [default: 127.0.0.1:7380]
    #[arg(long, value_name = "ADDR")]
    pub listen: Option<String>,
    /// The data folder [default: ./duly-data]
    #[arg(long, value_name = "DIR")]
    pub data: Option<PathBuf>,
    /// Listen beyond this machine although no token is configured: anybody may do everything
    #[arg(long)]
    pub insecure_no_auth: bool,
}

/// The file, the environment and the flags, in the order in which each goes before the one above it.
#[derive(Clone, Default)]
pub struct Sources {
    /// The file, if there is one.
    pub file: Option<PathBuf>,
    /// Names and values; those that begin neither with `DULY__` nor with `OTEL_` are not looked at.
    pub environment: Vec<(String, String)>,
    /// The flags.
    pub flags: Flags,
}

impl Sources {
    /// The sources of this process: the file of `--config`, or `./duly.toml` if it exists, and the environment.
    pub fn from_process(flags: Flags) -> Self {
        let file = flags.config.clone().or_else(|| Path::new(FILE).exists().then(|| PathBuf::from(FILE)));
        // A variable of another program need not be text. One of ours that is not is reported.
        let environment = std::env::vars_os()
            .filter_map(|(name, value)| {
                Some((name.into_string().ok()?, value.to_string_lossy().into_owned()))
            })
            .collect();
        Self { file, environment, flags }
    }
}

impl fmt::Debug for Sources {
    /// Names only: the environment holds the secrets of this program and of others.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.environment.iter().map(|(name, _)| name).collect();
        f.debug_struct("Sources")
            .field("file", &self.file)
            .field("environment", &names)
            .field("flags", &self.flags)
            .finish()
    }
}
