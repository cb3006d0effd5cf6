//! The options that every verb has.

use std::path::PathBuf;

use clap::Args;

use super::{Failure, Format, Output};
use crate::client::{Client, Target};

/// The options that every verb has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Where Duly is
    #[arg(
        long,
        global = true,
        env = "DULY_URL",
        default_value = "http://127.0.0.1:7380",
        value_name = "URL"
    )]
    pub(crate) url: String,

    /// The token to show, if Duly asks for one
    #[arg(long, global = true, env = "DULY_TOKEN", hide_env_values = true, value_name = "TOKEN")]
    token: Option<String>,

    /// A file that holds the token
    #[arg(long, global = true, env = "DULY_TOKEN_FILE", value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// Trust only the roots in this PEM file, instead of this machine's
    #[arg(long, global = true, env = "DULY_CA", value_name = "FILE")]
    ca: Option<PathBuf>,

    /// How data is written
    #[arg(short, long, global = true, value_enum, default_value_t, value_name = "FORMAT")]
    output: Format,

    /// Only data and errors, no other words
    #[arg(short, long, global = true)]
    quiet: bool,
}

impl Global {
    pub(crate) fn output(&self) -> Output {
        Output::new(self.output, self.quiet)
    }

    pub(crate) fn target(&self) -> Result<Target, Failure> {
        let read;
        let token = match (&self.token, &self.token_file) {
            (Some(token), _) => Some(token.trim()),
            (None, Some(file)) => {
                read = std::fs::read_to_string(file).map_err(|e| {
                    Failure::failed(format!("cannot read the token from {}: {e}", file.display()))
                })?;
                Some(read.trim())
            }
            (None, None) => None,
        };
        Target::new(&self.url, token.filter(|token| !token.is_empty()), self.ca.as_deref())
    }

    pub(crate) fn client(&self) -> Result<Client, Failure> {
        Ok(Client::new(self.target()?))
    }
}
