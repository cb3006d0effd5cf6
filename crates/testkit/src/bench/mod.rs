//! What the benchmarks share: their report, and what the operating system says.

pub mod process;
pub mod report;
