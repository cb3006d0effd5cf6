//! The protocol of `duly migrate-store`, checked by a model checker. Nothing but tests.
//!
//! Outside the workspace: what the checker depends on must not change the features that the rest is built with.
#![cfg(test)]
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod check;
#[path = "../../cli/src/migrate_store/decide.rs"]
mod decide;
#[path = "../../cli/src/migrate_store/instants.rs"]
#[expect(dead_code, reason = "the model keeps its own account of what is known")]
mod instants;
mod model;
mod world;
