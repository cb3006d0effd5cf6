//! The command line: one file per verb.

mod ack;
mod args;
mod backup;
mod bench;
mod bulk;
mod cancel;
mod clock;
mod completions;
mod config;
mod connect;
mod dead;
mod demo;
mod doctor;
mod failure;
mod files;
mod fire;
mod forecast;
mod get;
mod health;
mod import;
mod input;
mod levels;
mod ls;
mod man;
mod migrate_store;
mod nodes;
mod output;
mod pause;
mod progress;
mod queues;
mod receive;
mod reschedule;
mod resume;
mod selection;
mod send;
mod serve;
mod signals;
mod sinks;
mod stats;
mod tail;
mod token;

use std::process::ExitCode;

use clap::Parser;

pub use failure::Failure;
pub use output::{Format, Output, Rows, Tint};

/// Reads the arguments, does what they say, and gives the exit code.
pub fn main() -> ExitCode {
    let line = match args::Line::try_parse() {
        Ok(line) => line,
        Err(asked) => {
            // Help and version are errors to clap, too; a closed pipe is no reason to complain about either.
            let _ = asked.print();
            return ExitCode::from(u8::try_from(asked.exit_code()).unwrap_or(2));
        }
    };
    let out = line.global.output();
    match run(line) {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            if !failure.words.is_empty() {
                out.complain(&failure.words);
            }
            failure.exit_code()
        }
    }
}

fn run(line: args::Line) -> Result<(), Failure> {
    let mut runtime = if line.verb.is_busy() {
        tokio::runtime::Builder::new_multi_thread()
    } else {
        tokio::runtime::Builder::new_current_thread()
    };
    let runtime =
        runtime.enable_all().build().map_err(|e| Failure::failed(format!("cannot start a runtime: {e}")))?;
    let done = runtime.block_on(async {
        signals::outlive_file_limit()?;
        line.run().await
    });
    // A connection that is still open must not hold up the end.
    runtime.shutdown_background();
    done
}
