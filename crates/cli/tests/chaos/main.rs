//! Three nodes on a real store, under load, while things break: a ledger outside of them says what must hold.
//!
//! Every case runs the real binary three times on one store. Senders and cancellers ask any of the nodes, and ask another one
//! with the same id if they get no answer. Messages go to streams in the store's own Redis, if that is where it is, to streams in another
//! Redis, and to a webhook. When the faults are over, all must become quiet, and the ledger is compared with what arrived.
#![expect(clippy::unwrap_used, reason = "in a test a panic is the answer")]

mod bed;
mod check;
mod cluster;
mod database;
mod ledger;
mod load;
mod node;
mod nodes;
mod others;
mod redis;
mod redis_and_mysql;
mod sentinel;
mod sql;
mod targets;
