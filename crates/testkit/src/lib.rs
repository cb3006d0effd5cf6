//! What Duly is tested with: a suite per port, run on every implementation; planted bugs that test the
//! suites; and the simulation of the whole engine under virtual time.
//!
//! ```ignore
//! // crates/stores/tests/conformance.rs, the whole file
//! testkit::store_suite!(memory, testkit::memory());
//! ```
#![expect(clippy::unwrap_used, reason = "in a test kit a panic is the answer: it fails the test")]

pub mod store;

pub use store::homes::memory;
