//! The suite of the [`Store`](duly_core::Store) port, and the homes of the stores that it runs on.

pub mod homes;

pub use duly_conformance::store::*;
