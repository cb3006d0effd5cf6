//! How a command fails: words for people, an exit code for scripts.

use std::process::ExitCode;

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct Failure {
    /// What happened, to what, and what to do now.
    pub words: String,
    code: u8,
}

impl Failure {
    /// It was tried, and failed.
    pub fn failed(words: impl Into<String>) -> Self {
        Self { words: words.into(), code: 1 }
    }
    /// It was asked for in a way that cannot be meant.
    pub fn usage(words: impl Into<String>) -> Self {
        Self { words: words.into(), code: 2 }
    }
    /// What it is about is not there.
    pub fn not_found(words: impl Into<String>) -> Self {
        Self { words: words.into(), code: 3 }
    }
    /// It is too late, or in conflict with what is there.
    pub fn too_late(words: impl Into<String>) -> Self {
        Self { words: words.into(), code: 4 }
    }
    /// No server answers.
    pub fn unreachable(words: impl Into<String>) -> Self {
        Self { words: words.into(), code: 5 }
    }
    /// For the shell.
    pub fn exit_code(&self) -> ExitCode {
        ExitCode::from(self.code)
    }
}
