//! Where messages wait: implementations of the [`Store`](duly_core::Store) port.

pub mod memory;

pub use memory::MemoryStore;
