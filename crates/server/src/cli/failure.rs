//! How a command fails: words for people, an exit code for scripts.

use std::{io, process::ExitCode};

/// Why a command did not do what it was asked.
#[derive(Debug, thiserror::Error)]
#[error("{words}")]
pub struct Failure {
    /// What happened, to what, and what to do now.
    pub words: String,
    code: u8,
    status: Option<u16>,
    problem: Option<String>,
}

impl Failure {
    fn new(words: impl Into<String>, code: u8) -> Self {
        Self { words: words.into(), code, status: None, problem: None }
    }
    /// It was tried, and failed.
    pub fn failed(words: impl Into<String>) -> Self {
        Self::new(words, 1)
    }
    /// It was asked for in a way that cannot be meant.
    pub fn usage(words: impl Into<String>) -> Self {
        Self::new(words, 2)
    }
    /// What it is about is not there.
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
    /// What the server answered with, for commands that decide by it.
    pub(crate) fn with_problem(mut self, status: u16, problem: Option<String>) -> Self {
        self.status = Some(status);
        self.problem = problem;
        self
    }
    /// The stable code of the server's problem.
    pub fn problem_code(&self) -> Option<&str> {
        self.problem.as_deref()
    }
    /// Whether the same call may well succeed a little later: nobody there, "not now", no answer of the store,
    /// or no room in it.
    pub fn passes(&self) -> bool {
        self.code == 5 || matches!(self.status, Some(429 | 503 | 504 | 507))
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
