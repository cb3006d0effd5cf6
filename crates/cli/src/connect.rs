//! The options that every verb has.

use std::path::{Path, PathBuf};

use clap::Args;

use super::{Failure, Format, Output};
use duly_client::Client;

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

    /// The token to show, if Duly asks for one [env: DULY_TOKEN]
    #[arg(long, global = true, value_name = "TOKEN")]
    token: Option<String>,

    /// A file that holds the token [env: DULY_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "token")]
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

    pub(crate) fn client(&self) -> Result<Client, Failure> {
        let mut client = Client::new(&self.url)?;
        if let Some(file) = self.ca.as_deref().filter(|_| client.url().starts_with("https://")) {
            client = client.ca(file)?;
        }
        match self.token()?.as_deref().map(str::trim) {
            None | Some("") => Ok(client),
            Some(token) => Ok(client.token(token)?),
        }
    }

    /// Options take precedence over environment variables, each by itself.
    fn token(&self) -> Result<Option<String>, Failure> {
        let read = |file: &Path| {
            std::fs::read_to_string(file)
                .map(Some)
                .map_err(|e| Failure::failed(format!("cannot read the token from {}: {e}", file.display())))
        };
        match (&self.token, &self.token_file) {
            (Some(token), _) => return Ok(Some(token.clone())),
            (None, Some(file)) => return read(file),
            (None, None) => {}
        }
        if let Some(token) = std::env::var_os("DULY_TOKEN").filter(|token| !token.is_empty()) {
            return Ok(Some(token.to_string_lossy().into_owned()));
        }
        match std::env::var_os("DULY_TOKEN_FILE").filter(|file| !file.is_empty()) {
            Some(file) => read(Path::new(&file)),
            None => Ok(None),
        }
    }
}
