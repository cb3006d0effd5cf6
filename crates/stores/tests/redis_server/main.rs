//! What only a store in Redis has to answer for: the server behind it.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod bed;
mod cluster;
mod faults;
mod health;
mod lists;
mod memory;
mod moving;
mod nodes;
mod opening;
mod proxy;
mod replicas;
mod topics;
mod wrong_type;
