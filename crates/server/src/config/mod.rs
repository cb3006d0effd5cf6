//! Configuration: as written, then as used.

mod tls;
mod used;

pub use tls::TlsFault;
pub use used::{AlertRules, Config, HttpLimits, SinkSetup, StoreSetup, Thresholds, TlsFiles};
