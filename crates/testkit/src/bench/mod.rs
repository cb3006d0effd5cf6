//! What the benchmarks share: their arguments and report, and what the operating system says.

pub mod arguments;
pub mod process;
pub mod report;
