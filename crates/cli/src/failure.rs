//! How a command fails: words for people, an exit code for scripts.

use std::{io, process::ExitCode};

use duly_client::Error;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct Failure {
    /// What happened, to what, and what to do now.
    pub words: String,
    code: u8,
    is_transient: bool,
}

impl Failure {
    fn new(words: impl Into<String>, code: u8) -> Self {
        Self { words: words.into(), code, is_transient: code == 5 }
    }
    /// It was tried, and failed.
    pub fn failed(words: impl Into<String>) -> Self {
        Self::new(words, 1)
    }
    /// Usage error.
    pub fn usage(words: impl Into<String>) -> Self {
        Self::new(words, 2)
    }
    /// The message, sink or other object does not exist.
    pub fn not_found(words: impl Into<String>) -> Self {
        Self::new(words, 3)
    }
    /// It is too late, or in conflict with what is there.
    pub fn too_late(words: impl Into<String>) -> Self {
        Self::new(words, 4)
    }
    /// No server answers.
    pub fn unreachable(words: impl Into<String>) -> Self {
        Self::new(words, 5)
    }
    /// Writing failed. If it is only that nobody reads any more (`duly tail | head`), all is said and done.
    pub(crate) fn writing(e: &io::Error) -> Self {
        if e.kind() == io::ErrorKind::BrokenPipe {
            return Self::new("", 0);
        }
        Self::failed(format!("cannot write the output: {e}"))
    }
    /// A server refused it with this HTTP status.
    pub(crate) fn refused(status: u16, words: String) -> Self {
        match status {
            404 => Self::not_found(words),
            409 => Self::too_late(words),
            401 => Self::failed(format!("{words}. Name a token with --token, DULY_TOKEN or DULY_TOKEN_FILE")),
            _ => Self::failed(words),
        }
    }
    /// The same, where a later try may succeed.
    pub(crate) fn transient(self) -> Self {
        Self { is_transient: true, ..self }
    }
    /// Whether the same call may well succeed a little later: nobody there, "not now", no answer of the store,
    /// or no room in it.
    pub fn passes(&self) -> bool {
        self.is_transient
    }
    /// The exit code: 1 failed, 2 usage, 3 not found, 4 too late, 5 unreachable.
    pub fn code(&self) -> u8 {
        self.code
    }
    /// For the shell.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}

/// The exit code of a failed call, and advice by the names of options.
impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        let words = error.to_string();
        let failure = match &error {
            Error::Invalid(_) => Self::usage(words),
            Error::Certificates(_) => Self::failed(format!("{words}; --ca names the file")),
            Error::Unreachable { .. } => {
                Self::unreachable(format!("{words}. Start one with `duly serve`, or name another with --url"))
            }
            Error::Untrusted { .. } => Self::unreachable(format!("{words}; --ca names the roots to trust")),
            Error::WrongScheme { .. } | Error::NoAnswer { .. } => Self::unreachable(words),
            Error::Refused(refusal) => Self::refused(refusal.status, words),
            _ => Self::failed(words),
        };
        if error.is_transient() { failure.transient() } else { failure }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_kind_of_answer_has_its_exit_code() {
        for (status, code) in [(404, 3), (409, 4), (422, 1), (401, 1), (503, 1)] {
            assert_eq!(Failure::refused(status, String::new()).code(), code, "{status}");
        }
    }
}
