//! The suite of the [`Store`](duly_core::Store) port, and the stores of Duly to run it on.

pub mod fixtures;

pub use duly_conformance::store::*;
