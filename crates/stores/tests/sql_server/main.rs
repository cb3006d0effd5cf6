//! What only a store in a database has to answer for: the server behind it.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod bed;
mod commits;
mod contention;
mod damaged;
mod lanes;
mod leases;
mod nodes;
mod outages;
mod outbox;
mod plans;
mod pool;
mod receipts;
mod server;
mod start;
mod statements;
mod writes;
