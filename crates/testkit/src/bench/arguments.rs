//! Arguments that the benchmarks share.

use clap::Args;

use super::{process, report::Report};

/// How the figures are printed.
#[derive(Args)]
pub struct Output {
    /// `json`: one object per line
    #[arg(short, long)]
    output: Option<String>,
    /// Given by `cargo bench`.
    #[arg(long, hide = true)]
    bench: bool,
}

impl Output {
    /// Begins the report.
    pub fn report(&self) -> Report {
        Report::new(self.output.as_deref() == Some("json"))
    }
}

/// Which cases run.
#[derive(Args)]
pub struct Cases {
    /// Only these, with commas between
    #[arg(long, value_delimiter = ',')]
    only: Vec<String>,
}

impl Cases {
    /// Whether a case runs.
    pub fn wants(&self, case: &str) -> bool {
        self.only.is_empty() || self.only.iter().any(|only| only == case)
    }
}

/// Runs `cases` between two figures of the machine's load, and ends the report.
pub fn run(output: &Output, cases: impl FnOnce(&mut Report, &tokio::runtime::Runtime)) {
    let mut report = output.report();
    let runtime = tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_all().build().unwrap();
    report.alone("load of the machine before", process::load(), "");
    cases(&mut report, &runtime);
    report.alone("load of the machine after", process::load(), "");
    report.finish();
}
