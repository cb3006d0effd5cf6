//! Data on stdout, words on stderr.

/// How data is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, clap::ValueEnum)]
pub enum Format {
    /// A table for people.
    #[default]
    Table,
    /// JSON for programs.
    Json,
}

/// Where a command writes.
#[derive(Debug, Clone, Copy, Default)]
pub struct Output {
    /// How.
    pub format: Format,
}
