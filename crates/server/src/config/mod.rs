//! Configuration: as written, then as used.

mod used;

pub use used::{AlertRules, Config, HttpLimits, SinkSetup, StoreSetup, Thresholds, TlsFiles};
