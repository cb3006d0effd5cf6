//! The command line: one file per verb.

mod failure;
mod output;

pub use failure::Failure;
pub use output::{Format, Output};

/// Reads the arguments, does what they say, and gives the exit code.
pub fn main() -> std::process::ExitCode {
    std::process::ExitCode::SUCCESS
}
