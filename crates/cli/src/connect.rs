//! The options that every verb has.

use std::{
    ffi::OsString,
    path::{Path, PathBuf},
};

use clap::{Args, builder::NonEmptyStringValueParser};

use super::{Failure, Format, Output};
use duly_client::Client;

/// Where `duly serve` listens by default.
const URL: &str = "http://127.0.0.1:7380";

/// The options that every verb has.
#[derive(Debug, Clone, Args)]
#[command(next_help_heading = "Options of every command")]
pub(crate) struct Global {
    /// Where Duly is, http://127.0.0.1:7380 unless told otherwise [env: DULY_URL]
    #[arg(long, global = true, value_name = "URL", value_parser = NonEmptyStringValueParser::new())]
    url: Option<String>,

    /// The token to show, if Duly asks for one [env: DULY_TOKEN]
    #[arg(long, global = true, value_name = "TOKEN")]
    token: Option<String>,

    /// A file that holds the token [env: DULY_TOKEN_FILE]
    #[arg(long, global = true, value_name = "FILE", conflicts_with = "token")]
    token_file: Option<PathBuf>,

    /// Trust only the roots in this PEM file, instead of this machine's [env: DULY_CA]
    #[arg(long, global = true, value_name = "FILE")]
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
        let url =
            self.url.clone().or_else(|| variable("DULY_URL").map(|url| url.to_string_lossy().into_owned()));
        let mut client = Client::new(url.as_deref().unwrap_or(URL))?;
        let ca = self.ca.clone().or_else(|| variable("DULY_CA").map(PathBuf::from));
        if let Some(file) = ca.as_deref().filter(|_| client.url().starts_with("https://")) {
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
        if let Some(token) = variable("DULY_TOKEN") {
            return Ok(Some(token.to_string_lossy().into_owned()));
        }
        match variable("DULY_TOKEN_FILE") {
            Some(file) => read(Path::new(&file)),
            None => Ok(None),
        }
    }
}

/// A variable of the environment; an empty one counts as not set.
fn variable(name: &str) -> Option<OsString> {
    std::env::var_os(name).filter(|value| !value.is_empty())
}
