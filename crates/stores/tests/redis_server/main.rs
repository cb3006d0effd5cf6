//! What only a store in Redis has to answer for: the server behind it.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod bed;
mod cluster;
mod damaged;
mod faults;
mod health;
mod in_store_delivery;
mod leases;
mod lists;
mod memory;
mod nodes;
mod open;
mod proxy;
mod replicas;
mod topics;
mod wrong_type;
