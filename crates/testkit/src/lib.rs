//! What Duly is tested with beside the suites of its ports (`duly-conformance`): every store and real servers to run them on, planted bugs
//! that test the suites, and the simulation of the whole engine under virtual time.
//!
//! ```
//! // crates/stores/tests/conformance.rs, the whole file
//! testkit::store_suite!(memory, testkit::memory());
//! ```
#![expect(clippy::unwrap_used, reason = "in a test kit a panic is the answer: it fails the test")]

pub mod bench;
pub mod disk;
pub mod engine;
pub mod fault;
pub mod http;
pub mod kill;
pub mod logs;
pub mod planted;
pub mod servers;
pub mod simulation;
pub mod store;
pub mod tls;

pub use duly_conformance::{block_on, clock, clock_suite, cluster_suite, sink, sink_suite, store_suite};
pub use store::fixtures::{embedded, memory, mysql, postgres, redis, redis_and_mysql, redis_at};
