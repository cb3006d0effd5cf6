//! Configuration: as written, then as used.
//!
//! The file, the environment and the flags become one tree (`written`), each value with where it came from. A typed reader
//! (`section`) takes the settings out of it (`resolve`) and collects everything that is wrong, so that one look at
//! the answer is enough to mend the file.

mod alerts;
#[cfg(test)]
mod coverage;
mod credentials;
mod environment;
mod load;
mod message_sources;
mod origin;
mod otel_environment;
mod otlp;
mod problems;
mod resolve;
mod secret;
mod section;
mod sinks;
mod sources;
mod store;
mod suggest;
mod target;
mod tls;
mod units;
mod used;
mod values;
mod written;

pub use load::Loaded;
pub use origin::Origin;
pub use problems::{Problem, Problems};
pub use resolve::widest as widest_limits;
pub use secret::Secret;
pub use section::Setting;
pub use sources::{Flags, Sources};
pub use tls::TlsFault;
pub(crate) use units::show_span;
pub use used::{
    AlertRules, Config, HttpLimits, OtlpSetup, SinkSetup, SourceSetup, StoreSetup, Thresholds, TlsFiles,
};

/// A commented file with every setting and its default.
pub const DEFAULT_FILE: &str = include_str!("default.toml");
